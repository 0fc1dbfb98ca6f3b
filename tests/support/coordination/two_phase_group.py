"""A group of members that keep processing through a round, without a broker and without Faust.

Only bytes pass between members: the output of ``encode_join`` and the leader's answers. A member
processes its partitions until an answer revokes them, a session ends or the member gives all up. A
leader has no memory.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)

from faust_assigner.app.rebalance.doubts import Record
from faust_assigner.app.rebalance.leader import decide
from faust_assigner.app.rebalance.leader_round import LeaderView, Round
from faust_assigner.app.rebalance.table_facts import TableFacts
from faust_assigner.warmup import WarmupPolicy
from faust_assigner.wire.answer import decode_answer
from faust_assigner.wire.join import JoinData, encode_join

TOPICS = {"orders": 6, "shop-totals-changelog": 6, "clicks": 3}
TABLES = TableFacts(frozenset({"shop-totals-changelog"}))
Task = tuple[str, int]


@dataclass
class Worker:
    """A member's metadata, and the tasks it processes."""

    said: JoinData
    processed: frozenset[Task] = frozenset()
    is_stock: bool = False
    #: The leader cannot read the member's metadata; the member is cooperative.
    is_unreadable: bool = False
    #: The last round was eager: the member gives all up before the next round.
    is_eager: bool = True


@dataclass
class Group:
    """Members by id; ``play`` is a round of JoinGroup and SyncGroup."""

    workers: dict[str, Worker] = field(default_factory=dict)
    generation: int = 0
    replicas: int = 1
    warmups: WarmupPolicy | None = None
    #: Records in each changelog partition; 0: members claim no positions.
    records: int = 0
    last: Round | None = None
    #: Whether the leader of each round also led the previous round.
    same_leader: bool = False
    #: The tasks that each member processed at the start of the last round.
    before: dict[str, frozenset[Task]] = field(default_factory=dict)

    def join(self, name: str, *, is_stock: bool = False) -> None:
        """Add a member at the next round."""
        said = JoinData(f"http://{name}", changelogs=TABLES.changelogs, positions=self._read())
        self.workers[name] = Worker(said, is_stock=is_stock)

    def give_up(self, name: str) -> None:
        """Give all tasks up, after a lost membership or in an eager round; then join again."""
        worker = self.workers[name]
        worker.processed, worker.said = frozenset(), replace(worker.said, holds=False)

    def leave(self, name: str) -> None:
        """Hand all tasks over in a separate round, then leave."""
        worker = self.workers[name]
        worker.said = replace(worker.said, leaves=True)
        self.play()
        del self.workers[name]

    def settle(self, most: int = 8) -> int:
        """Play at most ``most`` rounds until none follows; return their number."""
        for number in range(1, most + 1):
            found = self.play()
            if not found.follows and not found.awaited:
                return number
            self.catch_up()
        raise AssertionError(f"no rest within {most} rounds")

    def wait(self, most: int = 12) -> None:
        """Play rounds as long as a member requests another round."""
        for _ in range(most):
            if self.last is None or not (self.last.follows or self.last.awaited):
                return
            self.catch_up()
            self.play()
        raise AssertionError(f"no rest within {most} rounds")

    def catch_up(self) -> None:
        """Let all members read their copies to the end, unless a second round follows."""
        for worker in self.workers.values():
            if not self.follows:
                read = self._read(worker.said.actives, worker.said.standbys)
                worker.said = replace(worker.said, positions=read)

    def _read(self, *claims: Mapping[str, Iterable[int]]) -> dict[str, dict[int, int]] | None:
        tasks = {task for claim in claims for task in _tasks(claim.items())}
        return (
            {
                topic: {p: self.records for t, p in tasks if t == topic}
                for topic in TABLES.changelogs
            }
            if self.records
            else None
        )

    def play(self, misses: Collection[str] = ()) -> Round:
        """Play a round; members in ``misses`` keep their tasks and claim them again."""
        self.generation += 1
        for name, worker in self.workers.items():
            if worker.is_eager:
                self.give_up(name)
        self.before = {name: worker.processed for name, worker in self.workers.items()}
        metadata = {
            name: ConsumerProtocolMemberMetadata(4, sorted(TOPICS), words(worker))
            for name, worker in self.workers.items()
        }
        view = LeaderView(
            "shop",
            TABLES,
            self.replicas,
            self.generation,
            warmups=lambda _: self.warmups,
            held_up={} if self.last is None else self.last.held_up,
            record=self.last.record if self.last is not None and self.same_leader else Record(),
            is_cooperative=not any(worker.is_stock for worker in self.workers.values()),
        )
        found = self.last = decide(view, lambda topic: range(TOPICS[topic]), metadata)
        for name in sorted(self.workers.keys() - set(misses)):
            self._take(name, found.answers[name])
        return found

    def _take(self, name: str, answered: ConsumerProtocolMemberAssignment) -> None:
        answer = decode_answer(answered.user_data)
        worker = self.workers[name]
        had = worker.said.positions or {}
        worker.is_eager = any(other.is_stock for other in self.workers.values())
        worker.processed = frozenset(_tasks(answer.actives.items()))
        worker.said = replace(
            worker.said,
            actives=answer.actives,
            standbys=answer.standbys,
            promised=answer.promised,
            among=answer.among,
            generation=answer.generation,
            holds=bool(worker.processed),
            group_ids=answer.group_ids,
            awaited=answer.awaited,
        )
        if self.records:
            held = {(t, p) for t, p in self.copies[name] if p in had.get(t, {})}
            worker.said = replace(
                worker.said, positions=self._read(answer.actives, _by_topic(held))
            )

    @property
    def owners(self) -> dict[Task, set[str]]:
        """Return task -> the members that process it."""
        owners: dict[Task, set[str]] = {}
        for name, worker in self.workers.items():
            for task in worker.processed:
                owners.setdefault(task, set()).add(name)
        return owners

    @property
    def copies(self) -> dict[str, frozenset[Task]]:
        """Return the standbys of each member."""
        return {
            name: frozenset(_tasks(one.said.standbys.items())) for name, one in self.workers.items()
        }

    def given(self, name: str) -> frozenset[Task]:
        """Return the tasks that the last answer gives ``name``, received or not."""
        assert self.last is not None
        return frozenset(_tasks(decode_answer(self.last.answers[name].user_data).actives.items()))

    @property
    def follows(self) -> bool:
        """Whether the last answers request a second round."""
        return self.last is not None and self.last.follows


def words(worker: Worker) -> bytes:
    """Return a member's metadata; a stock member's is in stock's format."""
    if worker.is_unreadable:
        return b"{"
    if not worker.is_stock:
        return encode_join(worker.said, TOPICS)
    return json.dumps(
        {
            "assignment": {
                "actives": {t: list(p) for t, p in worker.said.actives.items()},
                "standbys": {t: list(p) for t, p in worker.said.standbys.items()},
            },
            "url": worker.said.url,
            "changelog_distribution": {},
            "external_topic_distribution": {},
            "topic_groups": {},
        }
    ).encode()


def _tasks(claims: Iterable[tuple[str, Iterable[int]]]) -> list[Task]:
    return [(topic, p) for topic, numbers in claims for p in numbers]


def _by_topic(tasks: Iterable[Task]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, p in sorted(tasks):
        found.setdefault(topic, []).append(p)
    return found


#: All tasks of the group.
ALL = frozenset(_tasks((topic, range(count)) for topic, count in TOPICS.items()))
