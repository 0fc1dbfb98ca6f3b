"""A group's life as data: members with claims, topics, settings, and the events on them.

Both the random walk and the Hypothesis state machine play these events; after each rebalance every
promise is checked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from faust_assigner import Member, Plan, plan
from faust_assigner.checks.case import Violation
from faust_assigner.checks.invariants import check
from faust_assigner.warmup import WarmupPolicy

TOPICS = ("clicks", "leader", "orders", "orders-log", "users", "users-log", "zips")
CHANGELOGS = frozenset({"orders-log", "users-log"})
WEIGHTLESS = frozenset({"leader"})
COUNTS = {
    "clicks": 7,
    "leader": 1,
    "orders": 8,
    "orders-log": 8,
    "users": 5,
    "users-log": 5,
    "zips": 8,
}
RACKS = (None, "r1", "r2", "r3")


@dataclass
class World:
    """The group between two rebalances."""

    members: dict[str, Member] = field(default_factory=dict)
    partitions: dict[str, int] = field(default_factory=lambda: dict(COUNTS))
    replicas: int = 1
    generation: int = 0
    born: int = 0
    gone: list[Member] = field(default_factory=list)
    last: Plan | None = None
    policy: WarmupPolicy | None = None
    #: The end offset of each changelog partition, and each member's position in it, by id.
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    has: dict[str, dict[tuple[str, int], int]] = field(default_factory=dict)

    # Events: each takes the random source, so a seed determines the walk
    # ----------------------------

    def join(self, rng: Random) -> None:
        """Add a member with most topics, sometimes with fewer."""
        if len(self.members) < 9:
            name = f"m{self.born:04d}"
            self.born += 1
            topics = TOPICS if rng.random() < 0.7 else self._some_topics(rng)
            self.members[name] = Member(name, topics, rack_id=self._usual_rack(rng))

    def leave(self, rng: Random) -> None:
        """Remove a member with its claims."""
        if len(self.members) > 1:
            gone = self.members.pop(rng.choice(sorted(self.members)))
            self.gone = [*self.gone[-3:], gone]

    def crash_many(self, rng: Random) -> None:
        """Remove up to half of the members at once."""
        for _ in range(rng.randint(1, max(1, len(self.members) // 2))):
            self.leave(rng)

    def return_with_files(self, rng: Random) -> None:
        """Bring back a stopped member with files and perhaps its former partitions."""
        if self.gone and (old := self.gone.pop()).member_id not in self.members:
            self.members[old.member_id] = _restarted(old, remembers=rng.random() < 0.7)

    def stop_all(self, rng: Random) -> None:
        """Restart all members with files; sometimes some forget their former partitions."""
        forgetful = rng.choice([0.0, 0.0, 0.3])
        self.members = {
            name: _restarted(m, remembers=rng.random() >= forgetful)
            for name, m in self.members.items()
        }

    def return_as_zombie(self, rng: Random) -> None:
        """Bring back a stopped member with claims of an old generation."""
        if self.gone and (old := self.gone.pop()).member_id not in self.members:
            self.members[old.member_id] = old

    def same_generation_liar(self, rng: Random) -> None:
        """Let a member claim other members' partitions in their generation."""
        name = rng.choice(sorted(self.members))
        self.members[name] = replace(
            self.members[name],
            actives={
                t: rng.sample(range(n), rng.randint(0, n))
                for t, n in sorted(self.partitions.items())
            },
        )

    def corrupt(self, rng: Random) -> None:
        """Give a member malformed claims."""
        junk: list[Any] = [
            {"orders": [0, -1, 99999999, 10**30]},
            {"orders": "012"},
            {"orders": None, "users": 7},
            "claims",
            None,
            {3: [1]},
            {"orders": [[0], [1, 2]]},
            {"orders": [0.5, "x", None, True]},
            {"orders": {"a": 1}},
            {"orders": b"\x00\x01"},
            {"orders": range(0, 10**12)},
            {"nosuch": [0]},
            [("orders", [0])],
        ]
        name = rng.choice(sorted(self.members))
        self.members[name] = replace(
            self.members[name],
            actives=rng.choice(junk),
            standbys=rng.choice(junk),
            former_actives=rng.choice(junk),
            former_generation=rng.choice([None, 3, "x", 10**40]),
            generation=rng.choice([-1, self.generation, None, "9", 10**40]),
        )

    def resubscribe(self, rng: Random) -> None:
        """Let a member add or drop topics, as in a rolling deploy."""
        name = rng.choice(sorted(self.members))
        topics = TOPICS if rng.random() < 0.5 else self._some_topics(rng)
        self.members[name] = replace(self.members[name], topics=topics)

    def all_resubscribe(self, rng: Random) -> None:
        """Finish the deploy: subscribe all members to all topics."""
        self.members = {name: replace(m, topics=TOPICS) for name, m in self.members.items()}

    def resize_topic(self, rng: Random) -> None:
        """Grow, shrink, remove or recreate a topic."""
        topic = rng.choice(TOPICS)
        count = rng.choice([0, 1, COUNTS[topic], COUNTS[topic], rng.randint(1, 12)])
        # A table's changelog has as many partitions as its source.
        for name in (topic, f"{topic}-log", topic.removesuffix("-log")):
            if name in self.partitions:
                self.partitions[name] = count

    def set_replicas(self, rng: Random) -> None:
        """Change the number of standbys."""
        self.replicas = rng.choice([0, 1, 1, 1, 2, 3])

    def set_rack(self, rng: Random) -> None:
        """Change or remove a member's rack."""
        name = rng.choice(sorted(self.members))
        self.members[name] = replace(self.members[name], rack_id=rng.choice(RACKS))

    def all_racks(self, rng: Random) -> None:
        """Set or remove all racks."""
        racks = rng.choice([[None], ["r1", "r2", "r3"], ["r1", "r1", "r2"]])
        self.members = {
            name: replace(m, rack_id=racks[i % len(racks)])
            for i, (name, m) in enumerate(sorted(self.members.items()))
        }

    def set_capacity(self, rng: Random) -> None:
        """Give a member more threads, or make all members equal."""
        if rng.random() < 0.5:
            self.members = {name: replace(m, capacity=1.0) for name, m in self.members.items()}
        else:
            name = rng.choice(sorted(self.members))
            capacity = rng.choice([1.0, 2.0, 0.5, 3.0, 42.28, 0.155, 7.41, 1e-6, 1e6])
            self.members[name] = replace(self.members[name], capacity=capacity)

    def write(self, rng: Random) -> None:
        """Let changelogs grow, some beyond the acceptable lag."""
        for log in sorted(CHANGELOGS):
            for p in range(self.partitions[log]):
                self.ends[log, p] = self.ends.get((log, p), 0) + rng.choice([0, 5, 50, 400])

    def restore(self, rng: Random) -> None:
        """Let replicas catch up fully, partly or not at all."""
        for name, has in sorted(self.has.items()):
            share = rng.choice([0.0, 0.5, 1.0, 1.0])
            for at in sorted(has):
                has[at] += (
                    int((self.ends.get(at, 0) - has[at]) * share) if name in self.members else 0
                )

    def drain(self, rng: Random) -> None:
        """Drain a member: no other capacity is as small."""
        name = rng.choice(sorted(self.members))
        self.members[name] = replace(self.members[name], capacity=1e-6)

    def lose_patience(self, rng: Random) -> None:
        """Report a member's warm-ups as overdue."""
        name = rng.choice(sorted(self.members))
        member = self.members[name]
        self.members[name] = replace(member, overdue=member.awaited)

    def set_warmups(self, rng: Random) -> None:
        """Set the limits of warm-ups, or disable warm-ups."""
        self.policy = rng.choice(
            [
                None,
                WarmupPolicy(
                    acceptable_recovery_lag=rng.choice([0, 60]),
                    max_per_member=rng.randint(1, 4),
                    max_per_group=rng.randint(1, 6),
                ),
            ]
        )

    def permute(self, rng: Random) -> None:
        """Reorder the members."""
        names = list(self.members)
        rng.shuffle(names)
        self.members = {name: self.members[name] for name in names}

    def forget(self, rng: Random) -> None:
        """Let a member lose its former partitions and its files."""
        name = rng.choice(sorted(self.members))
        self.members[name] = replace(
            self.members[name],
            actives={},
            standbys={},
            former_actives={},
            awaited={},
            generation=-1,
        )
        self.has.pop(name, None)

    # Rebalances ------------------------------------------------------------------------------------

    def answer(self, members: list[Member] | None = None) -> Plan:
        """Return the planner's answer now."""
        return plan(
            list(self.members.values()) if members is None else members,
            self.partitions,
            replicas=self.replicas,
            changelogs=CHANGELOGS,
            weightless=WEIGHTLESS,
            warmups=self.policy,
        )

    def said(self) -> list[Member]:
        """Return the joining members: every third member reports no positions."""
        return [replace(m, positions=self._positions(name)) for name, m in self.members.items()]

    def _positions(self, name: str) -> Any:
        if int(name[1:]) % 5 == 4:
            return None
        found: dict[str, dict[int, int]] = {log: {} for log in CHANGELOGS}
        for (log, p), offset in self.has.get(name, {}).items():
            found[log][p] = offset
        return found

    def rebalance(self, *, thorough: bool) -> list[Violation]:
        """Plan, check every promise, and keep the answer; check A6 and A8 if ``thorough``."""
        members = self.said()
        answer = self.answer(members)
        found = check(
            members,
            self.partitions,
            answer,
            replicas=self.replicas,
            changelogs=CHANGELOGS,
            weightless=WEIGHTLESS,
            warmups=self.policy,
            planner=(lambda again: self.answer(list(again))) if thorough else None,
        )
        self.generation += 1
        self.members = {
            name: replace(
                m,
                actives=answer.actives(name),
                standbys=answer.standbys(name),
                awaited=answer.awaited(name),
                former_generation=_dated(m),
                generation=self.generation,
            )
            for name, m in self.members.items()
        }
        for name in self.members:
            self.has[name] = self._kept(answer, name)
        self.last = answer
        return found

    def _kept(self, answer: Plan, name: str) -> dict[tuple[str, int], int]:
        """Return a member's positions after a round: owners are at the end, new replicas at 0."""
        actives, spares, had = answer.actives(name), answer.standbys(name), self.has.get(name, {})
        owned = {
            (log, p): self.ends.get((log, p), 0) for log in CHANGELOGS for p in actives.get(log, ())
        }
        return {(log, p): had.get((log, p), 0) for log, ps in spares.items() for p in ps} | owned

    def _some_topics(self, rng: Random) -> list[str]:
        return [t for t in TOPICS if rng.random() < 0.7]

    def _usual_rack(self, rng: Random) -> str | None:
        racks = {m.rack_id for m in self.members.values()}
        return None if racks <= {None} else rng.choice(sorted(r for r in racks if r is not None))


def _dated(m: Member) -> int | None:
    """Return the generation of a member's former partitions; a new assignment keeps it."""
    return m.generation if m.former_generation is None and m.former_actives else m.former_generation


def _restarted(old: Member, *, remembers: bool) -> Member:
    """Return ``old`` after a restart: all its partitions are files, its actives are former."""
    files = {t: sorted({*_listed(old.actives, t), *_listed(old.standbys, t)}) for t in CHANGELOGS}
    former = old.actives if remembers else {}
    return replace(
        old,
        actives={},
        standbys=files,
        awaited={},
        overdue={},
        former_actives=former,
        former_generation=None,
        generation=old.generation if remembers else -1,
    )


def _listed(claims: Any, topic: str) -> list[int]:
    found = claims.get(topic, []) if isinstance(claims, dict) else []
    return [p for p in found if type(p) is int] if isinstance(found, list) else []


Event = Callable[[World, Random], None]

#: (event, weight): the chances in a walk.
EVENTS: tuple[tuple[Event, int], ...] = (
    (World.join, 8),
    (World.leave, 6),
    (World.crash_many, 1),
    (World.return_with_files, 3),
    (World.return_as_zombie, 2),
    (World.stop_all, 2),
    (World.same_generation_liar, 1),
    (World.corrupt, 1),
    (World.resubscribe, 2),
    (World.all_resubscribe, 2),
    (World.resize_topic, 1),
    (World.set_replicas, 1),
    (World.set_rack, 1),
    (World.all_racks, 1),
    (World.set_capacity, 1),
    (World.permute, 1),
    (World.forget, 1),
    (World.write, 6),
    (World.restore, 6),
    (World.drain, 1),
    (World.lose_patience, 1),
    (World.set_warmups, 1),
)
