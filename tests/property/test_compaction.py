"""Compaction against a model: after kills at any write, each key's latest record is readable."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from faust_assigner.broker.node import Node
from faust_assigner.broker.settings import Settings
from faust_assigner.broker.storage import clean_writes
from faust_assigner.broker.storage.bodies import read_layout
from faust_assigner.broker.storage.cleaning import CleaningRules, cleanable
from faust_assigner.broker.storage.log import PartitionLog
from faust_assigner.broker.storage.losses import unexplained_holes, unreadable
from faust_assigner.broker.storage.reads import plan_read, present_batches
from faust_assigner.broker.storage.records import (
    CONTROL,
    TRANSACTIONAL,
    parse_batch,
    read_header,
    unpacked_body,
)
from faust_assigner.broker.storage.store import StoreFailed
from faust_assigner.broker.storage.unpacking import pack
from faust_assigner.coordinator.transactions.events import (
    AddPartitions,
    EndTransaction,
    InitProducer,
)
from tests.support.clients.raw_client import batch, keyed_record
from tests.support.logs import load, open_log

KEYS = [b"a", b"b", b"c", b"d", b"", b"kkkk", b"k" * 40, b"k" * 41]
DELETE_RETENTION_MS, STEPS = 500, 120
CODECS = (0, 0, 1, 2, 3, 4)


@dataclass(frozen=True)
class Written:
    """A record as seen by a reader of committed records."""

    offset: int
    key: bytes
    value: bytes | None
    producer: str | None
    transaction: int | None


def records_of(data: bytes) -> list[tuple[int, bytes, bytes | None]]:
    """Return each record's offset, key and value, without the filter of the code under test."""
    head = read_header(data)
    body = unpacked_body(data, head)
    layout = read_layout(body, head.count)
    found = []
    for n in range(head.count):
        at, size = int(layout.keys_at[n]), int(layout.key_sizes[n])
        value_size = int(layout.value_sizes[n])
        value_at = at + size + 1  # lengths of values here fit into a byte
        value = None if value_size < 0 else body[value_at : value_at + value_size]
        found.append((head.base_offset + int(layout.offsets[n]), body[at : at + size], value))
    return found


class Game:
    """A compacted partition, producers with and without transactions, and a model."""

    def __init__(self, folder: Path | None, seed: int) -> None:
        self.folder, self.draw, self.now = folder, random.Random(seed), 1_000_000
        self.written: list[Written] = []
        self.ended: dict[int, bool] = {}  # transaction number -> committed
        self.open: dict[str, int] = {}
        self.sequence: dict[str, int] = {}
        self.forgotten: set[str] = set()
        self.numbers = 0
        self.plain_id = 7_000  # of the idempotent producer without transactions
        self.start()

    def start(self) -> None:
        """Open or reopen the store."""
        self.node = Node(Settings(), self.folder, clock=lambda: self.now)
        configs = {"cleanup.policy": "compact", "delete.retention.ms": str(DELETE_RETENTION_MS)}
        self.topic = self.node.catalogue.get("t") or self.node.catalogue.create("t", 1, configs)
        self.lifetime = 10**9
        write = self.node.store.write

        def mortal(*arguments: Any, **named: Any) -> None:
            if named.get("is_rewrite") or self.lifetime < 10**6:
                self.lifetime -= 1
            if self.lifetime < 0:
                raise StoreFailed("dead")
            write(*arguments, **named)

        self.node.store.write = mortal  # type: ignore[method-assign]

    @property
    def log(self) -> PartitionLog:
        """Return the partition's log."""
        return self.topic.partitions[0]

    def step(self) -> None:
        """Do a random operation."""
        self.now += self.draw.randrange(120)
        moves = [self.plain] * 4 + [self.transactional] * 4 + [self.end] * 2 + [self.clean] * 2
        self.draw.choice([*moves, self.restart, self.expire])()

    def body(self) -> tuple[bytes, list[tuple[bytes, bytes | None]]]:
        """Return some records."""
        pairs = []
        for _ in range(self.draw.randrange(1, 5)):
            value = None if self.draw.random() < 0.25 else b"v%d" % self.numbers
            pairs.append((self.draw.choice(KEYS), value))
            self.numbers += 1
        return b"".join(keyed_record(k, v, offset_delta=n) for n, (k, v) in enumerate(pairs)), pairs

    def append(self, name: str | None, *, attributes: int = 0, **header: Any) -> None:
        """Write a batch and record it in the model."""
        body, pairs = self.body()
        transaction = self.open.get(name) if name is not None else None
        codec = self.draw.choice(CODECS)
        data = batch(
            pack(codec, body) if codec else body,
            count=len(pairs),
            timestamp=self.now,
            attributes=attributes | codec,
            **header,
        )
        base = self.log.append(parse_batch(data), data, self.now)
        for n, (key, value) in enumerate(pairs):
            self.written.append(Written(base + n, key, value, name, transaction))

    def plain(self) -> None:
        """Write as a producer without an id or as an idempotent producer."""
        if self.draw.random() < 0.5:
            self.append(None)
            return
        sequence = self.sequence.get("plain", 0)
        before = len(self.written)
        self.append(None, producer_id=self.plain_id, epoch=0, sequence=sequence)
        self.sequence["plain"] = sequence + len(self.written) - before

    def transactional(self) -> None:
        """Write a batch in a transaction; begin the transaction if none is open."""
        name = self.draw.choice("xy")
        known = self.node.transactions.get(name)
        if known is None:
            self.node.transactions.ask(name, InitProducer(800_000, self.node.new_producer_id()))
            known = self.node.transactions.get(name)
            self.sequence[name] = 0
        assert known is not None
        place = (self.topic.topic_id.bytes, 0)
        self.node.transactions.ask(
            name, AddPartitions(known.producer_id, known.epoch, frozenset([place]))
        )
        if name not in self.open:
            self.open[name] = self.numbers + 1_000_000
        sequence, before = self.sequence[name], len(self.written)
        self.append(
            name,
            attributes=TRANSACTIONAL,
            producer_id=known.producer_id,
            epoch=known.epoch,
            sequence=sequence,
        )
        self.sequence[name] = sequence + len(self.written) - before
        self.forgotten.discard(name)

    def end(self) -> None:
        """Commit or abort the open transactions."""
        for name in sorted(self.open):
            if self.draw.random() < 0.7:
                known, commits = self.node.transactions.get(name), self.draw.random() < 0.6
                assert known is not None
                self.node.transactions.ask(
                    name, EndTransaction(known.producer_id, known.epoch, commits)
                )
                self.ended[self.open.pop(name)] = commits

    def clean(self) -> None:
        """Run a pass with a small map and small chunks; a kill may end it at any write."""
        if self.draw.random() < 0.4:
            self.lifetime = self.draw.randrange(4)
        try:
            self.one_pass()
        except StoreFailed:
            self.restart()
        self.lifetime = 10**9

    def one_pass(self) -> None:
        """Run a compaction pass like the broker, without threads."""
        rules = CleaningRules(0.0, DELETE_RETENTION_MS)
        found = cleanable(self.log, rules, self.now)
        if found is None:
            return
        work = clean_writes.begin(self.log, found, rules, self.now, self.draw.choice((2, 1_000)))
        while work.map_some():
            pass
        while (chunk := work.clean_some()) is not None:
            clean_writes.apply(self.log, chunk)
            if self.draw.random() < 0.3:
                self.append(None)
        clean_writes.end(self.log, work)

    def expire(self) -> None:
        """Expire idle producers; the next idempotent producer gets a new id."""
        self.log.expire_producers(self.now - 2_000)
        known = {producer_id for producer_id, _ in self.log.producers.items()}
        if self.plain_id not in known:
            self.plain_id, self.sequence["plain"] = self.plain_id + 1, 0
        for name in "xy":
            found = self.node.transactions.get(name)
            if found is not None and found.producer_id not in known:
                self.forgotten.add(name)

    def restart(self) -> None:
        """Kill and restart the broker: on disk, or with the same memory."""
        if self.folder is not None:
            self.node.close()
            self.start()
            return
        again = open_log(self.node.store, self.topic.topic_id.bytes, 0)
        self.topic.partitions[0] = again

    # -- the model -------------------------------------------------------------------------------

    def check(self) -> None:
        """Check for lost or changed records, and the order, ends and sequences."""
        log = self.log
        assert log.start_offset == 0
        assert log.end_offset >= max((w.offset + 1 for w in self.written), default=0)
        assert unexplained_holes(log) == []
        assert list(unreadable(log, 1_000, lambda: None)) == []
        seen = self.read()
        by_offset = {w.offset: w for w in self.written}
        assert [w.offset for w in seen] == sorted({w.offset for w in seen})
        for w in seen:
            assert by_offset[w.offset] == w, "a record changed"
        here = {w.offset for w in seen}
        latest: dict[bytes, Written] = {}
        for w in self.written:
            is_committed = w.transaction is None or self.ended.get(w.transaction)
            if is_committed and w.offset < log.stable_offset:
                latest[w.key] = w
        for w in latest.values():
            assert w.offset in here or w.value is None, f"the latest record of {w.key!r} is gone"
        for key, w in latest.items():
            if w.offset not in here:  # a removed tombstone: older records must not reappear
                assert not any(s.key == key for s in seen), f"{key!r} is back from the dead"
        self.check_sequences()

    def check_sequences(self) -> None:
        """Check that each known producer can continue with its next sequence."""
        states = dict(self.log.producers.items())
        ids = {"plain": self.plain_id}
        for name in "xy":
            known = self.node.transactions.get(name)
            if known is not None and name not in self.forgotten:
                ids[name] = known.producer_id
        for name, producer_id in ids.items():
            if self.sequence.get(name):
                assert states[producer_id].last_sequence == self.sequence[name] - 1

    def read(self) -> list[Written]:
        """Return the records seen by a committed reader, by the rule of Kafka's clients."""
        log, position, kept = self.log, 0, []
        names = {}
        for name in "xy":
            known = self.node.transactions.get(name)
            if known is not None:
                names[known.producer_id] = name
        by_offset = {w.offset: w for w in self.written}
        max_bytes = self.draw.choice((1, 300, 10**6))
        while (
            reading := plan_read(
                log, position, max_bytes, at_least_one=True, beyond=log.stable_offset
            )
        ) is not None:
            aborted = sorted(log.aborted(position, reading.beyond), key=lambda one: one.first)
            skipped: set[int] = set()
            for data in present_batches(log, load(log, reading), reading):
                head = read_header(data)
                while aborted and aborted[0].first <= head.base_offset + head.last_delta:
                    skipped.add(aborted.pop(0).producer_id)
                if head.attributes & CONTROL:
                    skipped.discard(head.producer_id)
                elif head.producer_id not in skipped:
                    for offset, key, value in records_of(data):
                        model = by_offset.get(offset)
                        transaction = model.transaction if model is not None else None
                        if transaction is not None:
                            assert self.ended[transaction], "an aborted record is seen"
                        name = names.get(head.producer_id)
                        kept.append(Written(offset, key, value, name, transaction))
            position = reading.beyond
        return kept

    def settle(self) -> None:
        """End all transactions, wait, and clean until the log is stable."""
        while self.open:
            self.end()
        self.append(None)
        for _ in range(4):
            self.now += DELETE_RETENTION_MS + 1
            self.append(None)
            self.one_pass()
            self.check()


def play(game: Game) -> None:
    """Play a life with checks after every step, then settle."""
    for _ in range(STEPS):
        game.step()
        game.check()
    game.settle()
    live = {w.offset: w for w in game.read()}
    cleaned = [w for w in live.values() if w.offset < game.log.cleaned_to]
    keys = [w.key for w in cleaned]
    assert len(keys) == len(set(keys)), "an older record of a key stayed"
    assert game.log.cleaned_to > 0
    game.node.close()


@pytest.mark.parametrize("seed", range(6))
def test_in_memory_the_latest_record_of_each_key_stays(seed: int) -> None:
    """The life has tombstones, transactions, five codecs, and appends and kills during passes."""
    play(Game(None, seed))


@pytest.mark.parametrize("seed", range(2))
def test_on_disk_the_same_holds_over_restarts(tmp_path: Path, seed: int) -> None:
    """Each restart reads the store again, as after a kill."""
    play(Game(tmp_path, seed))
