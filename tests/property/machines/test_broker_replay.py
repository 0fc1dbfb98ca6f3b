"""The broker crashes at every write; a restart keeps the acknowledged data (B4, B8, B9)."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from typing import Any

import pytest

from faust_assigner.broker.settings import Settings
from faust_assigner.broker.storage.records import parse_batch
from faust_assigner.broker.storage.store import MemoryStore, StoreFailed
from faust_assigner.broker.topics import Catalogue, Refused
from faust_assigner.coordinator.classic import GroupLimits, State
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import (
    CommitOffsets,
    JoinGroup,
    LeaveGroup,
    Leaver,
    Protocol,
    SyncGroup,
)
from faust_assigner.coordinator.offsets import Committed
from tests.support.broker_groups import group_service
from tests.support.clients.raw_client import batch, one_record
from tests.support.logs import read_log
from tests.support.stores import MortalStore

LIMITS = GroupLimits(initial_rebalance_delay_ms=0)


class Life:
    """A broker's storage doing random work, and a model of the acknowledged data."""

    def __init__(self, store: MemoryStore, seed: int) -> None:
        self.store = store
        self.random = random.Random(seed)
        self.records: dict[tuple[uuid.UUID, int], dict[int, bytes]] = {}
        self.starts: Counter[tuple[uuid.UUID, int]] = Counter()
        self.topics: dict[str, uuid.UUID] = {}
        self.unsure: set[str] = set()
        self.commits: dict[tuple[str, str, int], int] = {}
        self.open()

    def open(self) -> None:
        """Start or restart the broker."""
        self.catalogue = Catalogue(
            self.store, Settings(), lambda: uuid.UUID(int=self.random.getrandbits(128))
        )
        self.groups = group_service(self.store)

    def work(self) -> None:
        """Do a random operation."""
        name = self.random.choice("ab")
        topic = self.catalogue.get(name)
        action = self.random.choice(
            ["append"] * 5 + ["commit"] * 3 + ["grow", "trim", "delete", "member"]
        )
        self.unsure.add(name)
        if action == "commit":
            offset = self.random.randrange(1_000)
            key = ("g", name, self.random.randrange(2))
            self.groups.ask("g", CommitOffsets, lambda reply: None)
            if self.groups.books.commit("g", {key[1:]: Committed(offset)}) is not Code.NONE:
                raise StoreFailed("dead")
            self.commits[key] = offset
        elif action == "member":
            self.member()
        elif topic is None:
            self.topics[name] = self.catalogue.create(name, 2, {}).topic_id
        elif action == "delete":
            self.catalogue.delete(topic)
            del self.topics[name]
            list(self.groups.books.topic_deleted(name))
            self.commits = {k: v for k, v in self.commits.items() if k[1] != name}
        elif action == "grow":
            self.catalogue.grow(topic, len(topic.partitions) + 1)
        else:
            self.write(topic, trim=action == "trim")
        self.unsure.discard(name)

    def write(self, topic: Any, *, trim: bool) -> None:
        """Append to a partition, or trim the partition."""
        number = self.random.randrange(len(topic.partitions))
        log, place = topic.partitions[number], (topic.topic_id, number)
        if trim:
            target = self.random.randint(log.start_offset, log.end_offset)
            log.trim(target)
            self.starts[place] = target
            return
        count = self.random.randint(1, 3)
        data = batch(one_record(self.random.randbytes(5)) * count, count=count)
        base = log.append(parse_batch(data), data, 0)
        self.records.setdefault(place, {})[base] = data[61:]

    def member(self) -> None:
        """Let a member join, sync and sometimes leave."""
        answers: list[Any] = []
        self.groups.ask(
            "m",
            lambda t: JoinGroup(t, "", "x", (Protocol("p", b""),), needs_known_id=False),
            answers.append,
        )
        self.groups.tick("m")
        if answers and answers[0].error is Code.NONE:
            given = {answers[0].member_id: b"A"}
            self.groups.ask(
                "m",
                lambda t: SyncGroup(
                    t, answers[0].member_id, answers[0].generation, assignments=given
                ),
                answers.append,
            )
        if len(answers) == 2 and answers[1].error is not Code.NONE:
            raise StoreFailed("dead")
        if self.random.random() < 0.5:
            self.groups.ask("m", lambda t: LeaveGroup(t, (Leaver("x"),)), answers.append)

    def adopt(self) -> None:
        """Take the stored state as the model after a crash."""
        self.topics = {t.name: t.topic_id for t in self.catalogue}
        self.commits = {
            ("g", *key): e.offset for key, e in self.groups.books.offsets("g").entries.items()
        }
        for topic in self.catalogue:
            for number, log in enumerate(topic.partitions):
                self.starts[(topic.topic_id, number)] = log.start_offset
        self.unsure.clear()

    def check(self) -> None:
        """Check acknowledged data, holes in logs, and left-overs of deleted topics."""
        for name, topic_id in self.topics.items():
            topic = self.catalogue.get(name)
            if topic is None:
                assert name in self.unsure, f"acknowledged topic {name} is gone"
                continue
            for number, log in enumerate(topic.partitions):
                self.check_log(log, (topic_id, number), name)
        for (group, name, partition), offset in self.commits.items():
            found = self.groups.books.offsets(group).entries.get((name, partition))
            if name not in self.unsure:
                assert found is not None
                assert found.offset == offset
        living = {t.topic_id.bytes for t in self.catalogue}
        stray = [k for k, _ in self.store.scan(b"") if k[:1] in b"bxs" and k[1:17] not in living]
        assert stray == []

    def check_log(self, log: Any, place: tuple[uuid.UUID, int], name: str) -> None:
        """Check a partition against the model."""
        data, bodies, offset = read_log(log, log.start_offset, 10**9, at_least_one=True), {}, None
        while data:
            parsed = parse_batch(data[: int.from_bytes(data[8:12], "big") + 12])
            assert offset in (None, parsed.base_offset), "a hole in the log"
            bodies[parsed.base_offset] = data[61 : parsed.size]
            offset, data = parsed.base_offset + parsed.count, data[parsed.size :]
        if log.size:
            assert offset == log.end_offset, "the log claims records that cannot be read"
        for base, body in self.records.get(place, {}).items():
            if base >= log.start_offset:
                assert bodies[base] == body, f"acknowledged records at {base} of {name} are gone"
        if name not in self.unsure:
            assert log.start_offset == self.starts[place]


@pytest.mark.parametrize("seed", range(8))
def test_nothing_acknowledged_is_lost_wherever_the_broker_dies(seed: int) -> None:
    """The life ends after its 1st, 2nd, ... write, is reopened and checked, and continues."""
    for lifetime in range(0, 120, 1 + seed % 3):
        store = MortalStore(lifetime)
        life = Life(store, seed)
        for _ in range(80):
            try:
                life.work()
            except (StoreFailed, Refused):
                break
        store.lifetime = 10**9
        life.random.seed(lifetime)
        life.open()
        life.check()
        life.adopt()
        for _ in range(5):
            life.work()
        life.check()


def test_what_is_restored_is_what_was_live() -> None:
    """Without a crash a reopened broker has the same members and offsets."""
    for seed in range(20):
        life = Life(MemoryStore(), seed)
        for _ in range(60):
            life.work()
        before = facts(life)
        life.open()
        life.check()
        assert facts(life) == before


def facts(life: Life) -> list[Any]:
    """Return the whole visible state; a group in the join phase waits for its members again."""
    groups = [
        (g.group_id, g.generation, g.record() if g.state in (State.STABLE, State.EMPTY) else None)
        for g in sorted(life.groups, key=lambda g: g.group_id)
        if g.state is not State.PREPARING
        and (g.generation or life.groups.books.offsets(g.group_id).entries)
    ]
    logs = [
        (t.name, t.topic_id, n, log.start_offset, log.end_offset, log.size)
        for t in sorted(life.catalogue, key=lambda t: t.name)
        for n, log in enumerate(t.partitions)
    ]
    return [groups, logs, sorted(life.groups.books.offsets("g").entries.items())]
