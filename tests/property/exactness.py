"""The planner's target against the oracle on random instances: ``python -m tests.property.exactness``."""

from __future__ import annotations

import sys
import time
from collections import Counter
from random import Random

import numpy as np

from faust_assigner import Plan, plan
from tests.property.instances import Instance, instance
from tests.property.oracle import brute_force, min_cost, score

TERMS = ("total balance", "group balance", "stickiness")


def terms(case: Instance, answer: Plan) -> tuple[tuple[object, ...], tuple[object, ...], bool]:
    """Return (the planner's score, the oracle's score, whether the oracle was brute force)."""
    rows = [g for g, group in enumerate(answer.groups) if group.follows is None]
    members = len(answer.member_ids)
    capacity = [{m.member_id: int(m.capacity) for m in case.members}[i] for i in answer.member_ids]
    n = [answer.groups[g].partitions for g in rows]
    who = [answer.groups[g].members.tolist() for g in rows]
    had = [_counts(answer.previous_owner[g], members) for g in rows]
    counts = [_counts(answer.target[g], members) for g in rows]
    stayed = sum(
        int(((answer.previous_owner[g] == answer.target[g]) & (answer.target[g] >= 0)).sum())
        for g in rows
    )
    ours = score(counts, had, capacity)
    assert stayed == ours[2], "fewer tasks stayed than the counts allow"
    for g, row, group in zip(rows, who, (answer.groups[g] for g in rows), strict=True):
        assert set(answer.target[g].tolist()) <= set(row), (
            f"{group.topics}: an owner that is no subscriber"
        )
    small = members <= 4 and sum(n) <= 9
    best = (brute_force if small else min_cost)(n, who, had, capacity)
    return ours, best, small


def _counts(owner: np.ndarray, members: int) -> list[int]:  # type: ignore[type-arg]
    return np.bincount(owner[owner >= 0], minlength=members).tolist()


def run(instances: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Return the number of instances per regime, and a line for each sub-optimal instance."""
    seen: Counter[str] = Counter()
    worse: list[str] = []
    for i in range(instances):
        rng = Random(f"{seed}:{i}")
        tiny = i % 10 == 0
        case = (
            instance(rng, most_members=4, most_groups=3, most_partitions=4)
            if tiny
            else instance(rng)
        )
        ours, best, small = terms(
            case, plan(case.members, case.partitions, changelogs=case.changelogs)
        )
        seen[case.regime + (" (brute force)" if small else "")] += 1
        for term, mine, right in zip(TERMS, ours, best, strict=True):
            if mine != right:
                worse.append(
                    f"seed {seed} instance {i} ({case.regime}): {term} {mine}, oracle {right}"
                )
                break
    return seen, worse


def main() -> int:
    """Print the regimes and every sub-optimal instance; exit with 1 if there is any."""
    instances = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    started = time.perf_counter()
    seen, worse = run(instances, seed)
    for regime, count in sorted(seen.items()):
        print(f"{regime:<34}{count:>7}")
    print(*worse, sep="\n")
    print(
        f"seed {seed}: {len(worse)} sub-optimal of {instances}, {time.perf_counter() - started:.0f} s"
    )
    return 1 if worse else 0


if __name__ == "__main__":
    raise SystemExit(main())
