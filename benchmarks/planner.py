"""Measure the planner: ``python benchmarks/planner.py [--repeat N] [--limit SECONDS] [--json FILE]``.

Each case is planned without history, unchanged, after a join and after a leave. ``plan`` is the whole of
``plan()``, from members with claims (numpy arrays or ranges, like a decoder's) to the Plan. ``core`` is the
assignment of the actives alone, from checked claims. ``x core`` is their ratio. For comparison aiokafka's
sticky assignor runs on the same input, in its own process, for at most ``--limit`` seconds; the parsing of
user_data is excluded for both. A second table has a million tasks with state, with and without warm-ups.
Milliseconds are medians of CPU time: the planner is a single thread, and CPU time excludes other load.
aiokafka's seconds are CPU time too.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np

from faust_assigner import Member, Plan, plan
from faust_assigner.model import NOBODY
from faust_assigner.sticky import StickyAssignor
from faust_assigner.warmup import WarmupPolicy

EVENTS = ("fresh", "no-op", "join", "leave")


@dataclass(frozen=True)
class Case:
    """The members' subscriptions and the topics' partition counts."""

    name: str
    subscriptions: list[list[str]]
    partitions: dict[str, int]
    with_aiokafka: bool = True
    as_ranges: bool = False


def equal(
    name: str, members: int, topics: int, partitions: int, *, with_aiokafka: bool = False
) -> Case:
    """All members subscribe to every topic; partition counts differ by 1, so each topic is a group."""
    first = partitions // topics - topics // 2
    counts = [first + t for t in range(topics - 1)]
    counts.append(partitions - sum(counts))
    named = {f"t{t:03d}": n for t, n in enumerate(counts)}
    return Case(name, [list(named)] * members, named, with_aiokafka)


def mixed(
    name: str, members: int, topics: int, each: int, share: float, *, with_aiokafka: bool = False
) -> Case:
    """Each member subscribes to a random share of the topics, so subscriptions differ."""
    rng = Random(1)
    named = {f"t{t:03d}": each for t in range(topics)}
    wanted = [[t for t in named if rng.random() < share] or ["t000"] for _ in range(members)]
    return Case(name, wanted, named, with_aiokafka)


def together(name: str, members: int, topics: int, partitions: int) -> Case:
    """Co-partitioned topics with ``partitions`` in all; members claim them as ranges."""
    named = {f"t{t:03d}": partitions // topics for t in range(topics)}
    return Case(name, [list(named)] * members, named, with_aiokafka=False, as_ranges=True)


def cases() -> Iterator[Case]:
    """Yield the measured cases; aiokafka runs only where it ends within minutes."""
    yield together("equal 10,000 x 10M, one topic, ranges", 10_000, 1, 10_000_000)
    yield together("equal 2,000 x 1M, ten topics, ranges", 2000, 10, 1_000_000)
    yield equal("equal 2,000 x 1M, one topic", 2000, 1, 1_000_000)
    yield equal("equal 2,000 x 1M, ten groups", 2000, 10, 1_000_000)
    yield equal("equal 500 x 5k, five groups", 500, 5, 5_000, with_aiokafka=True)
    yield mixed("mixed 1,000 x 10k, half of 100 topics", 1000, 100, 100, 0.5, with_aiokafka=True)
    yield mixed("mixed 2,000 x 100k, half of 100 topics", 2000, 100, 1000, 0.5)
    yield mixed("mixed 2,000 x 100k, 5% of 400 topics", 2000, 400, 250, 0.05)


def member_list(case: Case, last: Plan | None) -> list[Member]:
    """Return the members, with their shares of ``last`` as claims."""
    names = [f"m{m:05d}" for m in range(len(case.subscriptions))]
    if last is None:
        return [Member(n, s) for n, s in zip(names, case.subscriptions, strict=True)]
    index = {name: m for m, name in enumerate(last.member_ids)}
    claims: list[dict[str, Any]] = [{} for _ in names]
    for group, (numbers, offsets) in zip(last.groups, last.actives_by_member, strict=True):
        for claim, name in zip(claims, names, strict=True):
            mine = numbers[offsets[index[name]] : offsets[index[name] + 1]]
            if mine.size:
                whole = case.as_ranges and mine[-1] - mine[0] + 1 == mine.size
                claim.update(
                    (topic, range(int(mine[0]), int(mine[-1]) + 1) if whole else mine)
                    for topic in group.topics
                )
    return [
        Member(n, s, actives=c, generation=1)
        for n, s, c in zip(names, case.subscriptions, claims, strict=True)
    ]


def situations(case: Case) -> Iterator[tuple[str, list[Member]]]:
    """Yield each event with its members."""
    fresh = member_list(case, None)
    yield "fresh", fresh
    owned = member_list(case, plan(fresh, case.partitions))
    yield "no-op", owned
    yield "join", [*owned, Member("newcomer", case.subscriptions[0])]
    yield "leave", owned[1:]


def median_of(repeat: int, run: Callable[[], Any]) -> tuple[float, Any]:
    """Return (median CPU seconds, last result)."""
    times = []
    result = None
    for _ in range(repeat):
        started = time.process_time()
        result = run()
        times.append(time.process_time() - started)
    return statistics.median(times), result


def theirs(members: list[Member], partitions: dict[str, int], answer: Any) -> None:
    """Run aiokafka's sticky assignor, in its own process."""
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import (
        StickyAssignmentExecutor,
        StickyAssignorMemberMetadataV1,
    )
    from aiokafka.structs import TopicPartition

    class Cluster:
        def topics(self) -> set[str]:
            return set(partitions)

        def partitions_for_topic(self, topic: str) -> set[int]:
            return set(range(partitions[topic]))

    owned = {
        m.member_id: [TopicPartition(t, int(p)) for t, ps in m.actives.items() for p in ps]
        for m in members
    }
    metadata = {
        m.member_id: StickyAssignorMemberMetadataV1(
            subscription=list(m.topics), partitions=owned[m.member_id], generation=m.generation
        )
        for m in members
    }
    started = time.process_time()
    executor = StickyAssignmentExecutor(Cluster(), metadata)
    executor.perform_initial_assignment()
    executor.balance()
    seconds = time.process_time() - started
    kept = moved = 0
    for m in members:
        now = {(t, p) for t, ps in executor.get_final_assignment(m.member_id) for p in ps}
        kept += len(now.intersection(owned[m.member_id]))
        moved += len(owned[m.member_id])
    answer.put((seconds, moved - kept))


def beside(
    members: list[Member], partitions: dict[str, int], limit: float
) -> tuple[float, int] | None:
    """Return (seconds, moves) of aiokafka's sticky assignor, or ``None`` past the limit."""
    context = multiprocessing.get_context("fork")
    answer = context.Queue()
    process = context.Process(target=theirs, args=(members, partitions, answer))
    process.start()
    try:
        found: tuple[float, int] = answer.get(timeout=limit)
        return found
    except Exception:  # queue.Empty: the time limit has passed
        return None
    finally:
        process.kill()
        process.join()


def measure(case: Case, repeat: int, limit: float) -> Iterator[dict[str, Any]]:
    """Yield a row for each event."""
    for event, members in situations(case):
        whole, answer = median_of(repeat, lambda members=members: plan(members, case.partitions))
        core, _ = median_of(
            repeat, lambda answer=answer: StickyAssignor().assign(answer.layout, answer.previous)
        )
        other = beside(members, case.partitions, limit) if case.with_aiokafka else None
        load = np.bincount(answer.flat_owner, minlength=len(answer.member_ids))
        yield {
            "case": case.name,
            "event": event,
            "plan_ms": whole * 1e3,
            "core_ms": core * 1e3,
            "ratio": whole / core,
            "moves": answer.moves,
            "load_min": int(load.min()),
            "load_max": int(load.max()),
            "aiokafka_s": other and other[0],
            "aiokafka_moves": other and other[1],
        }


def with_state(case: Case, last: Plan | None) -> list[Member]:
    """Return the members of a case with a source and its changelog, with complete state."""
    members = member_list(case, last)
    log = max(case.partitions)
    if last is None:
        return [replace(m, positions={}) for m in members]
    owned = [np.sort(np.asarray(m.actives[log])) for m in members]
    return [
        replace(m, positions={log: (mine, np.full(mine.size, 1_000_000))})
        for m, mine in zip(members, owned, strict=True)
    ]


def measure_warmups(case: Case, repeat: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each event: the plan with and without warm-ups."""
    log = max(case.partitions)
    settled = plan(with_state(case, None), case.partitions, changelogs={log})
    owned = with_state(case, settled)
    newcomer = Member("newcomer", case.subscriptions[0], positions={})
    for event, members in (("no-op", owned), ("join", [*owned, newcomer]), ("leave", owned[1:])):
        took = []
        for policy in (None, WarmupPolicy()):
            seconds, answer = median_of(
                repeat,
                lambda members=members, policy=policy: plan(
                    members, case.partitions, changelogs={log}, warmups=policy
                ),
            )
            took.append(seconds * 1e3)
        yield {
            "case": case.name,
            "event": event,
            "plain_ms": took[0],
            "warmups_ms": took[1],
            "ratio": took[1] / took[0],
            "moves": answer.moves,
            "warmups": int((answer.flat_warmup != NOBODY).sum()),
        }


def print_warmups(case: Case, repeat: int) -> list[dict[str, Any]]:
    """Print the second table."""
    print(
        f"\n{'a source and its changelog':<42}{'event':<7}{'plan ms':>9}{'warm-ups':>10}{'x':>6}"
        f"{'moves':>8}{'begun':>7}"
    )
    rows = []
    for row in measure_warmups(case, repeat):
        rows.append(row)
        print(
            f"{row['case']:<42}{row['event']:<7}{row['plain_ms']:>9.1f}{row['warmups_ms']:>10.1f}"
            f"{row['ratio']:>6.2f}{row['moves']:>8}{row['warmups']:>7}",
            flush=True,
        )
    return rows


def main() -> int:
    """Print the tables; write the rows as JSON with ``--json``."""
    parser = argparse.ArgumentParser(
        description="How long plan() takes, beside its core and aiokafka."
    )
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument(
        "--limit", type=float, default=60.0, help="seconds aiokafka may take per row"
    )
    parser.add_argument("--no-aiokafka", action="store_true")
    parser.add_argument("--json")
    options = parser.parse_args()
    print(
        f"{'members x partitions':<42}{'event':<7}{'plan ms':>9}{'core ms':>9}{'x core':>8}"
        f"{'moves':>8}{'loads':>11}{'aiokafka s':>12}{'moves':>8}"
    )
    rows = []
    for case in cases():
        used = Case(
            case.name,
            case.subscriptions,
            case.partitions,
            case.with_aiokafka and not options.no_aiokafka,
        )
        for row in measure(used, options.repeat, options.limit):
            rows.append(row)
            late = f"> {options.limit:.0f}" if used.with_aiokafka else "-"
            other = (
                f"{row['aiokafka_s']:>12.2f}{row['aiokafka_moves']:>8}"
                if row["aiokafka_s"]
                else f"{late:>12}{'':>8}"
            )
            loads = f"{row['load_min']}..{row['load_max']}"
            print(
                f"{row['case']:<42}{row['event']:<7}{row['plan_ms']:>9.1f}{row['core_ms']:>9.1f}"
                f"{row['ratio']:>8.1f}{row['moves']:>8}{loads:>11}{other}",
                flush=True,
            )
    rows += print_warmups(together("equal 2,000 x 1M", 2000, 2, 2_000_000), options.repeat)
    if options.json:
        with open(options.json, "w") as out:
            json.dump(rows, out, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
