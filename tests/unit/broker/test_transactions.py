"""Transactions inside the broker: a single write for an end, restarts, trims, and timers."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from kio.schema.errors import ErrorCode

from faust_assigner.broker.api import fetch
from faust_assigner.broker.api.fetch import Want
from faust_assigner.broker.api.transactions import init_producer_id
from faust_assigner.broker.housekeeping import expire
from faust_assigner.broker.node import Node
from faust_assigner.broker.settings import Settings
from faust_assigner.broker.storage.log import PartitionLog
from faust_assigner.broker.storage.producers import Verdict
from faust_assigner.broker.storage.reads import available, plan_read
from faust_assigner.broker.storage.records import TRANSACTIONAL, parse_batch
from faust_assigner.broker.storage.store import FORMAT, StoreFailed
from faust_assigner.broker.storage.transactions import marker_batch
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.offsets import Committed
from faust_assigner.coordinator.transactions import State
from faust_assigner.coordinator.transactions.events import (
    AddGroup,
    AddPartitions,
    EndTransaction,
    InitProducer,
    TransactionTimedOut,
)
from faust_assigner.coordinator.transactions.state import LAST_EPOCH
from tests.support.clients.raw_client import batch, one_record

TIMEOUT = 60_000


class Bench:
    """A node without sockets, and a producer called ``tx``."""

    def __init__(self, folder: Path | None = None) -> None:
        self.now = 1_000_000
        self.node = Node(Settings(), folder, clock=lambda: self.now)
        topic = self.node.catalogue.get("t") or self.node.catalogue.create("t", 2, {})
        self.topic = topic
        self.log: PartitionLog = topic.partitions[0]

    def begin(self, name: str = "tx", partitions: Iterable[int] = (0,), group: str = "g") -> None:
        """Send InitProducerId and open a transaction with these partitions and a group."""
        producer = self.node.new_producer_id()
        assert self.node.transactions.ask(name, InitProducer(TIMEOUT, producer)) is Code.NONE
        self.reopen(name, partitions, group)

    def reopen(self, name: str, partitions: Iterable[int] = (0,), group: str = "g") -> None:
        """Open one more transaction of an initialised producer."""
        known, topic_id = self.of(name), self.topic.topic_id.bytes
        places = frozenset((topic_id, number) for number in partitions)
        ask = self.node.transactions.ask
        assert ask(name, AddPartitions(known.producer_id, known.epoch, places)) is Code.NONE
        assert ask(name, AddGroup(known.producer_id, known.epoch, group)) is Code.NONE

    def of(self, name: str) -> Any:
        """Return the node's state of a transactional id."""
        return self.node.transactions.get(name)

    def record(self, name: str = "tx", sequence: int = 0) -> bytes:
        """Return a batch of a single record."""
        known = self.of(name)
        return batch(
            one_record(),
            attributes=TRANSACTIONAL,
            producer_id=known.producer_id,
            epoch=known.epoch,
            sequence=sequence,
            timestamp=self.now,
        )

    def write(self, name: str = "tx", sequence: int = 0, partition: int = 0) -> int:
        """Append a record; return its offset."""
        data = self.record(name, sequence)
        return self.topic.partitions[partition].append(parse_batch(data), data, self.now)

    def judged(self, sequence: int) -> Verdict:
        """Return partition 0's verdict about this batch as the next batch."""
        return self.log.producers.judge(parse_batch(self.record(sequence=sequence)))

    def commit(self, offset: int, name: str = "tx", group: str = "g") -> None:
        """Commit an offset that waits for the end."""
        changes = {("t", 0): Committed(offset)}
        later = self.node.groups.books.store_pending
        assert later(group, self.of(name).producer_id, changes) is Code.NONE

    def end(self, name: str = "tx", *, commits: bool) -> Code:
        """Send EndTxn."""
        known = self.of(name)
        event = EndTransaction(known.producer_id, known.epoch, commits)
        return self.node.transactions.ask(name, event)

    def aborted(self, offset: int, beyond: int) -> list[tuple[int, int]]:
        """Return the (first, last) offsets of aborted transactions."""
        return [(one.first, one.last) for one in self.log.aborted(offset, beyond)]

    def offset(self, group: str = "g") -> int:
        """Return the committed offset of partition 0."""
        return next(iter(self.node.groups.books.offsets(group).read([("t", 0)])))[1].offset


@pytest.mark.parametrize("commits", [True, False])
def test_an_end_is_one_write_of_the_store(commits: bool) -> None:
    """The write has markers of all partitions, offsets of all groups and the new state."""
    bench = Bench()
    bench.begin(partitions=(0, 1))
    bench.write()
    bench.write(partition=1)
    bench.commit(5)
    writes, write = [], bench.node.store.write
    bench.node.store.write = lambda *a, **k: (writes.append(a), write(*a, **k))[1]  # type: ignore
    assert bench.end(commits=commits) is Code.NONE
    assert len(writes) == 1
    assert [log.end_offset for log in bench.topic.partitions] == [2, 2]
    assert bench.offset() == (5 if commits else -1)


def test_an_end_that_cannot_be_stored_has_not_happened() -> None:
    """The producer's retry succeeds."""
    bench = Bench()
    bench.begin()
    bench.write()
    bench.commit(5)
    before, write = bench.of("tx"), bench.node.store.write

    def full(*arguments: Any, **named: Any) -> None:
        raise StoreFailed("no space")

    bench.node.store.write = full  # type: ignore[method-assign]
    assert bench.end(commits=True) is Code.COORDINATOR_NOT_AVAILABLE
    assert bench.of("tx") == before
    assert (bench.log.end_offset, bench.log.stable_offset, bench.offset()) == (1, 0, -1)
    assert bench.node.groups.books.pending.is_pending("g", ("t", 0))
    bench.node.store.write = write  # type: ignore[method-assign]
    assert bench.end(commits=True) is Code.NONE
    assert (bench.log.end_offset, bench.log.stable_offset, bench.offset()) == (2, 2, 5)


def test_the_stable_offset_is_where_the_oldest_open_transaction_begins() -> None:
    """The order of the ends does not matter."""
    bench = Bench()
    for name in ("a", "b", "c"):
        bench.begin(name)
        bench.write(name)
    stable = [bench.log.stable_offset]
    for name in ("b", "a", "c"):
        assert bench.end(name, commits=False) is Code.NONE
        stable.append(bench.log.stable_offset)
    assert stable == [0, 0, 2, 6]
    assert bench.aborted(0, 6) == [(1, 3), (0, 4), (2, 5)]
    assert bench.aborted(4, 6) == [(0, 4), (2, 5)]
    assert bench.aborted(5, 6) == [(2, 5)]
    assert bench.aborted(0, 1) == [(0, 4)]
    assert bench.aborted(0, 2) == [(1, 3), (0, 4)]
    assert bench.aborted(6, 6) == []


def test_a_committed_reader_plans_no_batch_behind_the_stable_offset() -> None:
    """The available bytes do not include such a batch."""
    bench = Bench()
    plain = batch(one_record(), timestamp=bench.now)
    bench.log.append(parse_batch(plain), plain, bench.now)
    bench.begin()
    bench.write()
    stable = bench.log.stable_offset
    assert stable == 1
    assert available(bench.log, 0, stable) == len(plain)
    reading = plan_read(bench.log, 0, 10**6, at_least_one=True, beyond=stable)
    assert reading is not None
    assert (reading.size, reading.beyond) == (len(plain), 1)
    assert plan_read(bench.log, 1, 10**6, at_least_one=True, beyond=stable) is None


def test_everything_of_transactions_is_there_after_a_restart(tmp_path: Path) -> None:
    """Open transactions, pending offsets, aborted ranges, sequences and marker epochs survive."""
    bench = Bench(tmp_path)
    bench.begin("done")
    bench.write("done")
    assert bench.end("done", commits=False) is Code.NONE
    bench.begin("open")
    bench.write("open")
    bench.commit(7, "open")
    before = {name: bench.of(name) for name in ("done", "open")}
    bench.node.close()
    bench = Bench(tmp_path)
    assert {name: bench.of(name) for name in before} == before
    assert (bench.log.stable_offset, bench.log.end_offset) == (2, 3)
    assert bench.aborted(0, 3) == [(0, 1)]
    assert bench.node.groups.books.pending.is_pending("g", ("t", 0))
    assert bench.node.groups.get("g") is not None
    bench.write("open", sequence=1)
    assert bench.end("open", commits=True) is Code.NONE
    assert (bench.log.stable_offset, bench.offset()) == (5, 7)
    bench.reopen("done")
    bench.write("done", sequence=1)
    bench.node.close()
    bench = Bench(tmp_path)
    assert (bench.log.stable_offset, bench.offset()) == (5, 7)
    assert not bench.node.groups.books.pending.is_pending("g", ("t", 0))
    bench.node.close()


def test_the_time_of_a_transaction_goes_on_over_a_restart(tmp_path: Path) -> None:
    """The restarted broker aborts the transaction and fences its producer."""
    bench = Bench(tmp_path)
    bench.begin()
    bench.write()
    bench.begin("ended", partitions=(1,))
    assert bench.end("ended", commits=True) is Code.NONE
    bench.node.close()
    again = Bench(tmp_path)
    assert again.node.group_timers._waiting == {("transaction", "tx"): again.now + TIMEOUT}
    again.now += TIMEOUT - 1
    again.node.transactions.tick("tx")
    assert again.of("tx").state is State.ONGOING
    again.now += 1
    again.node.transactions.tick("tx")
    assert (again.of("tx").state, again.of("tx").epoch) == (State.COMPLETE_ABORT, 1)
    assert again.aborted(0, 2) == [(0, 1)]
    assert again.node.counters["transactions_timed_out"] == 1
    again.node.close()


def test_an_abort_that_cannot_be_stored_is_tried_again() -> None:
    """An alarm is set for the retry."""
    bench = Bench()
    bench.begin()
    bench.now += TIMEOUT
    rung: list[tuple[str, int]] = []
    bench.node.transactions._set_timer = lambda name, when_ms: rung.append((name, when_ms))
    write = bench.node.store.write

    def full(*arguments: Any, **named: Any) -> None:
        raise StoreFailed("no space")

    bench.node.store.write = full  # type: ignore[method-assign]
    bench.node.transactions.tick("tx")
    assert bench.of("tx").state is State.ONGOING
    assert rung == [("tx", bench.now + 1_000)]
    bench.node.store.write = write  # type: ignore[method-assign]
    bench.node.transactions.tick("tx")
    assert bench.of("tx").state is State.COMPLETE_ABORT


def test_a_trim_forgets_aborted_transactions_before_it(tmp_path: Path) -> None:
    """They are removed in memory and in the store; an open transaction starts at the log start."""
    bench = Bench(tmp_path)
    for number in range(3):
        bench.begin(f"tx{number}")
        bench.write(f"tx{number}")
        assert bench.end(f"tx{number}", commits=False) is Code.NONE
    bench.begin()
    bench.write()
    bench.log.trim(4)
    assert bench.aborted(0, 10) == [(4, 5)]
    bench.log.trim(7)
    assert bench.aborted(0, 10) == []
    assert bench.log.stable_offset == 7
    assert list(bench.node.store.scan(b"a")) == []
    bench.node.close()
    again = Bench(tmp_path)
    assert (again.aborted(0, 10), again.log.stable_offset) == ([], 7)
    again.node.close()


def test_a_topic_that_is_deleted_leaves_nothing_and_its_transaction_ends(tmp_path: Path) -> None:
    """The transaction may have partitions of a second topic."""
    bench = Bench(tmp_path)
    bench.begin("done")
    bench.write("done")
    assert bench.end("done", commits=False) is Code.NONE
    bench.begin()
    bench.write()
    bench.commit(3)
    bench.node.catalogue.delete(bench.topic)
    list(bench.node.groups.books.topic_deleted("t"))
    assert [list(bench.node.store.scan(kind)) for kind in (b"u", b"a", b"w")] == [[], [], []]
    assert bench.end(commits=True) is Code.NONE
    assert bench.offset() == -1
    bench.node.close()


def test_a_later_commit_outside_of_the_transaction_stays(tmp_path: Path) -> None:
    """As in Kafka, the offset is still unstable until the end."""
    bench = Bench(tmp_path)
    bench.begin()
    bench.commit(5)
    assert bench.node.groups.books.commit("g", {("t", 0): Committed(99)}) is Code.NONE
    bench.node.close()
    bench = Bench(tmp_path)
    assert bench.node.groups.books.pending.is_pending("g", ("t", 0))
    assert bench.end(commits=True) is Code.NONE
    assert bench.offset() == 99
    assert not bench.node.groups.books.pending.is_pending("g", ("t", 0))
    bench.node.close()


def test_a_store_says_that_it_has_transactions(tmp_path: Path) -> None:
    """The first transactional id raises the format, so a broker without transactions refuses it."""
    bench = Bench(tmp_path)
    before = bench.node.store.get(FORMAT)
    bench.begin()
    after = bench.node.store.get(FORMAT)
    assert (before, after) == (b"1", b"2")
    bench.node.store.write([(FORMAT, b"9")])
    bench.node.close()
    with pytest.raises(StoreFailed, match="another version of the broker wrote"):
        Bench(tmp_path)


def test_a_transactional_id_from_the_future_ends_the_start(tmp_path: Path) -> None:
    """The error names the id."""
    bench = Bench(tmp_path)
    bench.node.store.write([(b"ktx", b'{"v": 2}')])
    bench.node.close()
    with pytest.raises(StoreFailed, match="'tx' has version 2"):
        Bench(tmp_path)


def test_idle_transactional_ids_expire_and_open_ones_do_not() -> None:
    """The time is transactional.id.expiration.ms."""
    bench = Bench()
    bench.begin("open")
    bench.begin("idle")
    assert bench.end("idle", commits=True) is Code.NONE
    bench.now += 7 * 86_400_000 - 1
    sum(expire(bench.node))
    assert bench.of("idle") is not None
    bench.now += 1
    sum(expire(bench.node))
    assert (bench.of("idle"), bench.of("open").state) == (None, State.ONGOING)


def test_the_longest_idle_id_goes_for_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """An id with an open transaction is never removed: a new id is then refused."""
    monkeypatch.setattr("faust_assigner.broker.transactions.service.MAX_TRANSACTIONAL_IDS", 2)
    bench = Bench()
    ask = bench.node.transactions.ask
    bench.begin("open")
    for name in ("first", "second"):
        assert ask(name, InitProducer(TIMEOUT, bench.node.new_producer_id())) is Code.NONE
    assert [t.transactional_id for t in bench.node.transactions] == ["open", "second"]
    bench.reopen("second")
    assert ask("third", InitProducer(TIMEOUT, 1)) is Code.COORDINATOR_NOT_AVAILABLE
    assert ask("third", TransactionTimedOut()) is Code.NONE


def test_a_producer_goes_on_although_all_it_wrote_was_trimmed(tmp_path: Path) -> None:
    """After a restart only its marker is left, so the producer's next sequence is unknown."""
    bench = Bench(tmp_path)
    bench.begin()
    for sequence in range(3):
        bench.write(sequence=sequence)
    assert bench.end(commits=True) is Code.NONE
    bench.log.trim(3)
    bench.node.close()
    bench = Bench(tmp_path)
    bench.reopen("tx")
    assert bench.judged(7).error is ErrorCode.none
    bench.write(sequence=3)
    assert bench.judged(5).error is ErrorCode.out_of_order_sequence_number
    assert bench.judged(4).error is ErrorCode.none
    bench.node.close()


def test_a_marker_of_a_producer_that_wrote_nothing_here_keeps_the_order(tmp_path: Path) -> None:
    """Without a trim its first sequence is known, even after a restart."""
    bench = Bench(tmp_path)
    bench.begin()
    assert bench.end(commits=True) is Code.NONE
    bench.node.close()
    bench = Bench(tmp_path)
    assert bench.judged(3).error is ErrorCode.out_of_order_sequence_number
    assert bench.judged(0).error is ErrorCode.none
    bench.node.close()


def test_an_id_that_begins_again_during_the_look_does_not_expire() -> None:
    """Requests run between two ids: an id may begin, or be removed."""
    bench = Bench()
    for name in ("first", "back", "gone"):
        bench.begin(name)
        assert bench.end(name, commits=True) is Code.NONE
    bench.now += 7 * 86_400_000
    look = bench.node.transactions.expire(7 * 86_400_000)
    assert next(look) == 1
    bench.reopen("back")
    bench.node.transactions._forget("gone")
    assert list(look) == [0, 0]
    assert bench.of("back").state is State.ONGOING


def test_a_log_that_begins_amid_an_open_transaction_shows_nothing_of_it() -> None:
    """DeleteRecords may cut a batch of an open transaction; a read_committed reader waits there."""
    bench = Bench()
    bench.begin()
    known, two = bench.of("tx"), [one_record(), one_record(offset_delta=1)]
    data = batch(
        b"".join(two), attributes=TRANSACTIONAL, producer_id=known.producer_id, epoch=known.epoch,
        sequence=0, timestamp=bench.now, count=2,
    )  # fmt: skip
    bench.log.append(parse_batch(data), data, bench.now)
    bench.log.trim(1)
    assert bench.log.stable_offset == 1
    assert plan_read(bench.log, 1, 1_000, at_least_one=True, beyond=1) is None
    assert available(bench.log, 1, 1) == 0
    assert available(bench.log, 1) > 0


def test_deleted_offsets_are_not_brought_back_by_a_transaction(tmp_path: Path) -> None:
    """OffsetDelete also removes pending offsets permanently."""
    bench = Bench(tmp_path)
    bench.begin()
    bench.commit(7)
    bench.node.groups.books.delete_offsets("g", [("t", 0)])
    assert not bench.node.groups.books.pending.is_pending("g", ("t", 0))
    bench.node.close()
    bench = Bench(tmp_path)
    assert bench.end(commits=True) is Code.NONE
    assert bench.offset() == -1
    bench.node.close()


@pytest.mark.parametrize("is_committed", [True, False])
async def test_a_trim_while_an_answer_is_made_hides_no_aborted_transaction(
    is_committed: bool,
) -> None:
    """The records are already read; without the list they would look committed."""
    bench = Bench()
    bench.begin()
    bench.write()
    assert bench.end(commits=False) is Code.NONE
    turns = 0

    async def turn(size: int = 0) -> None:
        nonlocal turns
        turns += 1
        if turns == 2:  # the second partition's part of the answer is made
            bench.log.trim(2)

    call: Any = SimpleNamespace(
        version=11, node=bench.node, throttle=SimpleNamespace(checkpoint=turn)
    )
    other = Want("other", 0, 0, 10_000, None, ErrorCode.unknown_topic_or_partition, is_committed)
    want = Want("t", 0, 0, 10_000, bench.log, ErrorCode.none, is_committed)
    # Partitions are planned in order, each in its own turn: the trim follows both plans.
    answer = await fetch._answer(call, [other, want], 100_000, None)
    (part,) = answer["responses"][1]["partitions"]
    assert bench.log.start_offset == 2
    expected = [{"producer_id": bench.of("tx").producer_id, "first_offset": 0}]
    assert part["aborted_transactions"] == (expected if is_committed else None)


def test_a_producer_that_gets_no_id_asks_again() -> None:
    """COORDINATOR_NOT_AVAILABLE would make Java look up the coordinator of no transactional id."""
    bench = Bench()

    def refuse(*_: object, **__: object) -> None:
        raise StoreFailed("no space")

    bench.node.store.write = refuse  # type: ignore[method-assign]
    nobody = SimpleNamespace(transactional_id=None, producer_id=-1, producer_epoch=-1)
    anybody = {"may_on_some": lambda *_: True, "may": lambda *_: True}
    call: Any = SimpleNamespace(node=bench.node, version=4, **anybody)
    assert init_producer_id(call, nobody)["error_code"] is ErrorCode.coordinator_load_in_progress


def test_the_epoch_that_ends_the_last_transaction_of_an_id_is_nobodys() -> None:
    """A transaction under this epoch could not be ended, as no epoch follows."""
    bench = Bench()
    bench.begin()
    known = bench.of("tx")
    bench.node.transactions._known["tx"] = replace(known, epoch=LAST_EPOCH)
    bench.now += TIMEOUT
    bench.node.transactions.tick("tx")
    assert bench.of("tx").epoch == LAST_EPOCH + 1
    guess = AddPartitions(known.producer_id, LAST_EPOCH + 1, frozenset())
    assert bench.node.transactions.ask("tx", guess) is Code.PRODUCER_FENCED
    assert bench.node.transactions.ask("tx", InitProducer(TIMEOUT, 99)) is Code.NONE
    assert (bench.of("tx").producer_id, bench.of("tx").epoch) == (99, 0)


@pytest.mark.parametrize("commits", [True, False])
def test_a_client_reads_an_end_marker_as_one_whole_control_record(commits: bool) -> None:
    """The client's own parser checks checksum and length, and reads the marker's type."""
    data, batch = marker_batch(77, 5, 1_700_000_000_000, commits=commits)
    read = DefaultRecordBatch(data)
    assert read.validate_crc()
    assert (read.is_control_batch, read.is_transactional) == (True, True)
    assert (read.producer_id, batch.producer_id, batch.producer_epoch) == (77, 77, 5)
    assert (read.base_offset, read.next_offset, read.first_timestamp) == (0, 1, batch.max_timestamp)
    [record] = read
    assert (record.offset, record.timestamp) == (0, 1_700_000_000_000)
    assert record.key == struct.pack(">hh", 0, 1 if commits else 0)
    assert record.value == struct.pack(">hi", 0, 0)
    assert len(data) == batch.size
