"""Transactions against a model: committed readers see committed data despite faults."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from faust_assigner.broker.node import Node
from faust_assigner.broker.settings import Settings
from faust_assigner.broker.storage.log import PartitionLog
from faust_assigner.broker.storage.reads import plan_read, present_batches
from faust_assigner.broker.storage.records import CONTROL, HEADER, TRANSACTIONAL, parse_batch
from faust_assigner.broker.storage.store import StoreFailed
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.offsets import Committed
from faust_assigner.coordinator.transactions import State, Transaction
from faust_assigner.coordinator.transactions.events import (
    AddAndWriteOffsets,
    AddAndWriteRecords,
    AddGroup,
    AddPartitions,
    EndAndBump,
    EndTransaction,
    InitProducer,
    WriteRecords,
)
from tests.support.clients.raw_client import batch, one_record
from tests.support.logs import load

PARTITIONS, TIMEOUT_MS, STEPS = 2, 500, 200
PRODUCERS = ("a", "b", "c", "d")
SECOND_VERSION = ("c", "d")  # these producers use the second version of transactions (KIP-890)


@dataclass
class Open:
    """A producer's open transaction: its records and its offset."""

    records: list[tuple[int, int]] = field(default_factory=list)  # partition, offset
    offset: int | None = None


class Game:
    """A broker with restarts and failing writes, and a model."""

    def __init__(self, folder: Path | None, seed: int) -> None:
        self.folder, self.draw = folder, random.Random(seed)
        self.now = 1_000_000
        self.committed: list[set[int]] = [set() for _ in range(PARTITIONS)]
        self.offsets: dict[str, int] = {}
        self.open: dict[str, Open] = {}
        self.sequences: dict[tuple[str, int], int] = {}
        self.start()

    def start(self) -> None:
        """Open the store."""
        self.node = Node(Settings(), self.folder, clock=lambda: self.now)
        self.topic = self.node.catalogue.get("t") or self.node.catalogue.create("t", PARTITIONS, {})
        self.write = self.node.store.write
        self.node.store.write = self.store_write  # type: ignore[method-assign]
        self.refuses = False

    def store_write(self, *arguments: Any, **named: Any) -> None:
        """Write to the store, which sometimes refuses."""
        if self.refuses:
            raise StoreFailed("no space")
        self.write(*arguments, **named)

    def step(self) -> None:
        """Do a random operation; the store refuses one write in ten."""
        self.refuses = self.draw.random() < 0.1
        name = self.draw.choice(PRODUCERS)
        moves = (self.begin, self.add, self.add, self.produce, self.produce, self.commit, self.end)
        self.draw.choice((*moves, self.end, self.pass_time))(name)
        self.refuses = False
        if self.folder is not None and self.draw.random() < 0.05:
            self.node.close()
            self.start()

    def ask(self, name: str, event: Any) -> Code:
        """Send a request."""
        return self.node.transactions.ask(name, event)

    def begin(self, name: str) -> None:
        """Initialise a producer under the name: its open transaction is aborted."""
        if self.draw.random() < 0.7 and self.node.transactions.get(name) is not None:
            return
        self.refuses, refuses = False, self.refuses
        fresh = self.node.new_producer_id()
        self.refuses = refuses
        if self.ask(name, InitProducer(TIMEOUT_MS, fresh)) is Code.NONE:
            self.open.pop(name, None)
            for partition in range(PARTITIONS):
                self.sequences[name, partition] = 0

    def add(self, name: str) -> None:
        """Add all partitions and the producer's group in a request of the first version."""
        known = self.node.transactions.get(name)
        if known is None or name in SECOND_VERSION:
            return
        topic_id = self.topic.topic_id.bytes
        places = frozenset((topic_id, number) for number in range(PARTITIONS))
        done = self.ask(name, AddPartitions(known.producer_id, known.epoch, places))
        if done is Code.NONE:
            self.ask(name, AddGroup(known.producer_id, known.epoch, name))
            self.open.setdefault(name, Open())

    def produce(self, name: str) -> None:
        """Write a record if the coordinator permits it."""
        known, partition = self.node.transactions.get(name), self.draw.randrange(PARTITIONS)
        if known is None:
            return
        place = (self.topic.topic_id.bytes, partition)
        if name in SECOND_VERSION:
            added = self.ask(name, AddAndWriteRecords(known.producer_id, known.epoch, place))
            if added is not Code.NONE:
                return
            self.open.setdefault(name, Open())
        elif self.ask(name, WriteRecords(known.producer_id, known.epoch, place)) is not Code.NONE:
            assert name not in self.open
            return
        sequence = self.sequences.get((name, partition), 0)
        data = batch(
            one_record(),
            attributes=TRANSACTIONAL,
            producer_id=known.producer_id,
            epoch=known.epoch,
            sequence=sequence,
            timestamp=self.now,
        )
        log, parsed = self.topic.partitions[partition], parse_batch(data)
        verdict = log.producers.judge(parsed)
        assert (int(verdict.error), verdict.duplicate_of) == (0, None)
        try:
            offset = log.append(parsed, data, self.now)
        except StoreFailed:
            return
        self.sequences[name, partition] = sequence + 1
        self.open[name].records.append((partition, offset))

    def commit(self, name: str) -> None:
        """Commit an offset in the open transaction."""
        known = self.node.transactions.get(name)
        if known is not None and name in SECOND_VERSION:
            added = AddAndWriteOffsets(known.producer_id, known.epoch, name)
            if self.ask(name, added) is Code.NONE:
                self.open.setdefault(name, Open())
            known = self.node.transactions.get(name)
        if known is None or name not in known.groups:
            return
        offset = self.draw.randrange(1_000)
        changes = {("t", 0): Committed(offset)}
        if self.node.groups.books.store_pending(name, known.producer_id, changes) is Code.NONE:
            self.open[name].offset = offset

    def end(self, name: str) -> None:
        """Commit or abort the transaction."""
        known, commits = self.node.transactions.get(name), self.draw.random() < 0.6
        if known is None or known.state is not State.ONGOING:
            return
        if name in SECOND_VERSION:
            self.end_and_bump(name, known, commits=commits)
            return
        if self.ask(name, EndTransaction(known.producer_id, known.epoch, commits)) is Code.NONE:
            self.over(name, commits=commits)

    def end_and_bump(self, name: str, known: Transaction, *, commits: bool) -> None:
        """End with the next epoch; half of the producers get no answer and repeat the request."""
        event = EndAndBump(known.producer_id, known.epoch, commits, -1)
        if self.ask(name, event) is not Code.NONE:
            return
        after = self.node.transactions.get(name)
        assert after is not None
        assert after.epoch == known.epoch + 1
        if self.draw.random() < 0.5:
            assert self.ask(name, event) is Code.NONE
            assert self.node.transactions.get(name) == after
        late = AddAndWriteRecords(known.producer_id, known.epoch, (self.topic.topic_id.bytes, 0))
        assert self.ask(name, late) is Code.INVALID_PRODUCER_EPOCH
        for partition in range(PARTITIONS):
            self.sequences[name, partition] = 0
        self.over(name, commits=commits)

    def over(self, name: str, *, commits: bool) -> None:
        """End the transaction in the model."""
        done = self.open.pop(name)
        if commits:
            for partition, offset in done.records:
                self.committed[partition].add(offset)
            if done.offset is not None:
                self.offsets[name] = done.offset

    def pass_time(self, name: str) -> None:
        """Let time pass and fire all due timers."""
        self.now += self.draw.randrange(200)
        for one in PRODUCERS:
            before = self.node.transactions.get(one)
            self.node.transactions.tick(one)
            after = self.node.transactions.get(one)
            if before is not None and after is not None and before.epoch != after.epoch:
                self.over(one, commits=False)
                for partition in range(PARTITIONS):
                    self.sequences[one, partition] = 0

    # -- readers' views --------------------------------------------------------------------------

    def check(self) -> None:
        """Check the committed readers, the offsets, and both ends of each log."""
        open_records = [place for one in self.open.values() for place in one.records]
        for number, log in enumerate(self.topic.partitions):
            firsts = [offset for partition, offset in open_records if partition == number]
            assert log.stable_offset == min(firsts, default=log.end_offset)
            beyond = {o for o in self.committed[number] if o >= log.stable_offset}
            seen = committed_view(log, self.draw.choice((100, 10**6)))
            assert seen == sorted(self.committed[number] - beyond)
        for name in PRODUCERS:
            ((_, entry),) = self.node.groups.books.offsets(name).read([("t", 0)])
            assert entry.offset == self.offsets.get(name, -1)
            waits = name in self.open and self.open[name].offset is not None
            assert self.node.groups.books.pending.is_pending(name, ("t", 0)) == waits


def committed_view(log: PartitionLog, max_bytes: int) -> list[int]:
    """Return the offsets kept by a committed reader, by the rule of Kafka's clients (KIP-98)."""
    kept: list[int] = []
    position = log.start_offset
    while (
        reading := plan_read(log, position, max_bytes, at_least_one=True, beyond=log.stable_offset)
    ) is not None:
        aborted = sorted(log.aborted(position, reading.beyond), key=lambda one: one.first)
        skipped: set[int] = set()
        for data in present_batches(log, load(log, reading), reading):
            base, producer_id = HEADER.unpack_from(data)[0], HEADER.unpack_from(data)[9]
            attributes = HEADER.unpack_from(data)[5]
            while aborted and aborted[0].first <= base:
                skipped.add(aborted.pop(0).producer_id)
            if attributes & CONTROL:
                skipped.discard(producer_id)
            elif producer_id not in skipped:
                kept.append(base)
        position = reading.beyond
    return kept


@pytest.mark.parametrize("seed", range(10))
def test_in_memory_committed_readers_see_what_the_model_says(seed: int) -> None:
    """The four producers use both versions, with refused writes and timeouts."""
    game = Game(None, seed)
    for _ in range(STEPS):
        game.step()
        game.check()
    assert any(game.committed), "nothing was ever committed"


@pytest.mark.parametrize("seed", range(3))
def test_on_disk_the_same_holds_over_restarts(tmp_path: Path, seed: int) -> None:
    """The store is reopened every twentieth step."""
    game = Game(tmp_path, seed)
    for _ in range(STEPS):
        game.step()
        game.check()
    game.node.close()
