"""Fleets with warm-ups: members, the positions of their copies, and events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import ceil
from random import Random

import numpy as np

from faust_assigner import Member, Plan, plan
from faust_assigner.checks.invariants import check
from faust_assigner.warmup import WarmupPolicy

LOGS = ("orders-log", "users-log")
TOPICS = ("clicks", "orders", "orders-log", "users", "users-log")
LONG = 1_000_000


@dataclass
class Fleet:
    """Members and their positions; each changelog partition has ``LONG`` records."""

    partitions: dict[str, int]
    policy: WarmupPolicy
    replicas: int = 1
    members: dict[str, Member] = field(default_factory=dict)
    has: dict[str, dict[str, dict[int, int]]] = field(default_factory=dict)
    stuck: set[str] = field(default_factory=set)
    generation: int = 0
    weights: dict[tuple[str, int], float] | None = None

    def join(self, *names: str, **more: object) -> None:
        """Add members without any state."""
        for name in names:
            self.members[name] = Member(name, TOPICS, **more)  # type: ignore[arg-type]
            self.has[name] = {log: {} for log in LOGS}

    def leave(self, *names: str) -> None:
        """Remove members."""
        for name in names:
            del self.members[name], self.has[name]

    def change(self, name: str, **more: object) -> None:
        """Change fields of a member."""
        self.members[name] = replace(self.members[name], **more)  # type: ignore[arg-type]

    def round(self, catches_up: Callable[[str], float] = lambda _: 1.0) -> Plan:
        """Run a round; then each member's new replicas catch up by the given share."""
        said = [replace(m, positions=self.has[name]) for name, m in self.members.items()]
        made = plan(
            said,
            self.partitions,
            replicas=self.replicas,
            changelogs=LOGS,
            warmups=self.policy,
            weights=self.weights,
        )
        if len(said) <= 8:
            broken = check(
                said,
                self.partitions,
                made,
                replicas=self.replicas,
                changelogs=LOGS,
                warmups=self.policy,
            )
            counted = {"A4", "A5"} if self.weights else set()
            assert {v.promise for v in broken} <= counted
        self.generation += 1
        for name, m in self.members.items():
            actives, spares = made.actives(name), made.standbys(name)
            now: dict[str, dict[int, int]] = {}
            for log in LOGS:
                had, share = self.has[name][log], 0.0 if name in self.stuck else catches_up(name)
                now[log] = {
                    p: had.get(p, 0) + int((LONG - had.get(p, 0)) * share)
                    for p in spares.get(log, ())
                }
                now[log] |= dict.fromkeys(actives.get(log, ()), LONG)
            self.has[name] = now
            self.members[name] = replace(
                m,
                actives=actives,
                standbys=spares,
                awaited=made.awaited(name),
                generation=self.generation,
            )
        return made


def fleet(
    members: int, *, replicas: int = 1, per_member: int = 2, per_group: int = 3, groups: int = 3
) -> Fleet:
    """Return a settled fleet of ``members``."""
    partitions = {"orders": 3 * members + 1, "orders-log": 3 * members + 1}
    if groups > 1:
        partitions |= {"clicks": members, "users": 2 * members, "users-log": 2 * members}
    found = Fleet(
        partitions,
        WarmupPolicy(
            acceptable_recovery_lag=1000, max_per_member=per_member, max_per_group=per_group
        ),
        replicas,
    )
    found.join(*(f"m{m:03d}" for m in range(members)))
    for _ in range(2 + ceil(5 * members / per_group)):
        made = found.round()
        if found.generation > 2 and not off_target(made):
            return found
    raise AssertionError("not settled")


def off_target(made: Plan) -> int:
    """Return the number of tasks to move later."""
    assert made.warmup_plan is not None
    return int(np.count_nonzero(made.flat_owner != made.warmup_plan.target))


def join(found: Fleet, rng: Random) -> None:
    """Add one or several members."""
    some = rng.randint(1, max(1, len(found.members) // 3))
    found.join(*(f"n{rng.randrange(10**6):06d}" for _ in range(some)))


def die(found: Fleet, rng: Random) -> None:
    """Remove one or several members."""
    found.leave(*rng.sample(sorted(found.members), rng.randint(1, max(1, len(found.members) // 4))))


def drain(found: Fleet, rng: Random) -> None:
    """Drain a member with a capacity of nearly zero."""
    found.change(rng.choice(sorted(found.members)), capacity=1e-6)


def churn(found: Fleet, rng: Random) -> None:
    """Apply several events in the same round."""
    for event in rng.sample((join, die, drain), 2):
        event(found, rng)
