"""Simulates the next rounds of a running group with the leader's own code.

No I/O. The input is a query, one reading of the group (:class:`~faust_assigner.status.evidence.Evidence`).
From a query this module makes the metadata that each member would send in a join now: its assigned
partitions, and the current progress of its copies.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata

from faust_assigner.app.rebalance.leader import decide
from faust_assigner.app.rebalance.leader_round import LeaderView, Round
from faust_assigner.app.rebalance.table_facts import TableFacts
from faust_assigner.errors import FaustAssignerError
from faust_assigner.status.evidence import Place
from faust_assigner.warmup import WarmupPolicy
from faust_assigner.wire.answer import actives_to_claim, decode_answer
from faust_assigner.wire.join import JoinData, encode_join

#: If rounds still follow each other at once after this many rounds of one event, the result is unknown.
MOST_ROUNDS = 50


class NotKnown(FaustAssignerError):
    """The next round cannot be planned; the message names the missing data."""


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A member: ``data`` is the metadata of a join without positions, which are in ``positions``."""

    name: str
    member_id: str
    topics: tuple[str, ...]
    data: JoinData
    #: Changelog partition -> the offset up to which the copy is complete.
    positions: Mapping[Place, int]


@dataclass(frozen=True, kw_only=True)
class Moved:
    """A task that a round moved from the member ``was`` to the member ``to``, both by name.
    ``is_cold``: the new owner has no copy of its state. ``records``: the number of records that
    the new owner lacks, or None. ``is_behind``: its copy lacks more than the acceptable lag.
    """

    topics: tuple[str, ...]
    changelogs: tuple[str, ...]
    partition: int
    was: str
    to: str
    is_cold: bool
    records: int | None
    is_behind: bool


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """All members, and the other inputs of the leader's plan.

    ``ends`` are the end offsets of changelogs. ``policy`` maps "all members are cooperative" to
    the warm-up policy.
    """

    group_id: str
    workers: Mapping[str, Worker]
    partitions: Mapping[str, int]
    facts: TableFacts
    replicas: int
    policy: Mapping[bool, WarmupPolicy | None]
    generation: int
    ends: Mapping[Place, int]
    #: Partition -> the name of its owner, or of its last owner if that member is gone.
    owner: Mapping[Place, str] = field(default_factory=dict)

    @property
    def is_cooperative(self) -> bool:
        """Whether all members offer cooperative rebalances."""
        return all(worker.data.cooperative for worker in self.workers.values())

    def owners(self) -> dict[Place, str]:
        """Return partition -> the name of its owner, or of the member that gets it next."""
        return {
            (topic, number): worker.name
            for worker in self.workers.values()
            for claims in (worker.data.actives, worker.data.promised)
            for topic, numbers in claims.items()
            for number in numbers
        }

    def copies(self) -> dict[str, set[Place]]:
        """Return member's name -> the changelog partitions of which it has the state."""
        return {
            name: set(_held_partitions(worker, self.facts)) for name, worker in self.workers.items()
        }

    def without(self, names: Collection[str]) -> Fleet:
        """Return the fleet without these members."""
        left = {name: worker for name, worker in self.workers.items() if name not in names}
        return replace(self, workers=left)

    def with_workers(self, workers: Sequence[Worker]) -> Fleet:
        """Return the fleet with additional members."""
        return replace(self, workers={**self.workers, **{w.name: w for w in workers}})

    def round(self) -> tuple[Fleet, tuple[Moved, ...], bool]:
        """Return (the fleet after one more round, its moves, whether the next round follows at once).

        Raises NotKnown if the planner fails.
        """
        said = {w.member_id: self._metadata(w) for w in self.workers.values()}
        view = LeaderView(
            self.group_id,
            self.facts,
            self.replicas,
            self.generation + 1,
            warmups=self.policy.__getitem__,
        )
        found = decide(view, lambda topic: range(self.partitions.get(topic, 0)), said)
        if found.plan is None:
            raise NotKnown(f"the planner fails on this group: {found.failure!r}")
        return self._fleet_after(found), tuple(self._moves_of(found)), found.follows

    def at_rest(self) -> tuple[Fleet, tuple[Moved, ...]]:
        """Return (the fleet after all rounds that follow each other at once, their moves).

        Raises NotKnown if the planner fails, or after :data:`MOST_ROUNDS` rounds.
        """
        fleet, moved, follows = self.round()
        all_moved = list(moved)
        for _ in range(MOST_ROUNDS):
            if not follows:
                return fleet, tuple(all_moved)
            fleet, moved, follows = fleet.round()
            all_moved += moved
        raise NotKnown(
            "the planner still moves tasks of this group after the allowed number of rounds"
        )

    def settled(self) -> tuple[Fleet, tuple[Moved, ...]]:
        """Return (the fleet after all copies have caught up and all tasks have moved, the moves)."""
        fleet, all_moved = self.caught_up(), list[Moved]()
        for _ in range(MOST_ROUNDS):
            if not any(worker.data.awaited for worker in fleet.workers.values()):
                break
            fleet, moved = fleet.at_rest()
            fleet = fleet.caught_up()
            all_moved += moved
            if not moved:
                break
        return fleet, tuple(all_moved)

    def caught_up(self) -> Fleet:
        """Return the fleet with each copy at the end of its changelog."""
        return replace(
            self,
            workers={
                name: replace(
                    w, positions={p: self.ends.get(p, 0) for p in _held_partitions(w, self.facts)}
                )
                for name, w in self.workers.items()
            },
        )

    # -- one round

    def _metadata(self, worker: Worker) -> ConsumerProtocolMemberMetadata:
        data = worker.data
        if data.positions is not None:
            positions: defaultdict[str, dict[int, int]] = defaultdict(dict)
            for (topic, number), offset in worker.positions.items():
                positions[topic][number] = offset
            data = replace(data, positions=positions)
        return ConsumerProtocolMemberMetadata(
            0, list(worker.topics), encode_join(data, worker.topics, for_stock=False)
        )

    def _moves_of(self, found: Round) -> Iterator[Moved]:
        plan = found.plan
        assert plan is not None
        names = {worker.member_id: worker.name for worker in self.workers.values()}
        held = {
            name: set(_held_partitions(worker, self.facts)) for name, worker in self.workers.items()
        }
        for g, group in enumerate(plan.groups):
            if group.weightless:
                continue
            for number, owner in enumerate(plan.owner[g].tolist()):
                to = names[plan.member_ids[owner]] if owner >= 0 else ""
                was = self.owner.get((group.topics[0], number), "")
                if not to or was == to:
                    continue
                records = self._records(self.workers[to], held[to], group.changelogs, number)
                has_any = any((topic, number) in held[to] for topic in group.changelogs)
                yield Moved(
                    topics=group.topics,
                    changelogs=group.changelogs,
                    partition=number,
                    was=was,
                    to=to,
                    is_cold=not has_any and records != 0,  # a task without state has 0 records
                    records=records,
                    is_behind=has_any and records is not None and records > self._acceptable(),
                )

    def _acceptable(self) -> int:
        policy = self.policy[self.is_cooperative]
        return (policy or WarmupPolicy()).acceptable_recovery_lag

    def _records(
        self, worker: Worker, held: Collection[Place], changelogs: Sequence[str], number: int
    ) -> int | None:
        """Return how many records of a task's state the worker lacks; None if that is unknown."""
        total = 0
        for topic in changelogs:
            end = self.ends.get((topic, number))
            if end is None:
                return None
            at = worker.positions.get((topic, number))
            if at is None and (topic, number) in held:
                return None
            total += max(0, end - (at or 0))
        return total

    def _fleet_after(self, found: Round) -> Fleet:
        workers = {}
        for name, worker in self.workers.items():
            answer = decode_answer(found.answers[worker.member_id].user_data)
            stateful = self.facts.stateful
            actives = actives_to_claim(worker.data.globals_, answer)
            before = set(_held_partitions(worker, self.facts))
            data = replace(
                worker.data,
                actives=actives,
                standbys={t: runs for t, runs in answer.standbys.items() if t in stateful},
                # If the member was the standby of a promised partition, it still has the state.
                on_disk=by_topic(
                    (t, n)
                    for t, runs in answer.promised.items()
                    for n in runs
                    if t in stateful and (t, n) in before
                ),
                awaited=answer.awaited,
                promised=answer.promised,
                among=answer.among,
                group_ids=answer.group_ids,
                generation=answer.generation,
                holds=worker.data.cooperative,
            )
            given = replace(worker, data=data)
            mine = {(t, n) for t, runs in actives.items() for n in runs}
            workers[name] = replace(
                given,
                positions={
                    place: self.ends.get(place, 0)
                    if place in mine
                    else worker.positions.get(place, 0)
                    for place in _held_partitions(given, self.facts)
                },
            )
        after = replace(self, workers=workers, generation=found.inputs.generation)
        return replace(after, owner={**self.owner, **after.owners()})


def _held_partitions(worker: Worker, facts: TableFacts) -> Iterator[Place]:
    """Yield the changelog partitions of which the member has state."""
    data = worker.data
    for claims in (data.actives, data.standbys, data.on_disk):
        for topic, numbers in claims.items():
            if topic in facts.stateful:
                yield from ((topic, number) for number in numbers)


def by_topic(places: Iterable[Place]) -> dict[str, list[int]]:
    """Return topic -> ascending partition numbers."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for topic, number in sorted(places):
        found[topic].append(number)
    return dict(found)
