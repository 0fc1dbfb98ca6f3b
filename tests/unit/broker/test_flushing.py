"""flush.messages: records wait for the disk and share a wait; other requests do not wait."""

from __future__ import annotations

import asyncio
import itertools
import threading
from pathlib import Path
from typing import Any

import pytest
from kio.index import load_response_schema
from kio.serial import entity_reader

from faust_assigner.broker.connection import Connection
from faust_assigner.broker.storage import disk as storage_disk
from faust_assigner.broker.storage.rocks_store import RocksStore
from faust_assigner.broker.storage.store import StoreFailed
from tests.support.clients.raw_client import batch
from tests.support.hall import Hall, frames, in_hall
from tests.support.waiting import PATIENCE_S

PRODUCE, API_VERSIONS = 0, 18


class Disk:
    """The disk of a broker in memory; it counts waits, blocks until it is free, or fails."""

    def __init__(self, hall: Hall) -> None:
        self.waits, self.fails = 0, False
        self.free, self.reached = threading.Event(), threading.Event()
        self.free.set()
        hall.node.store.flush = self.flush  # type: ignore[method-assign]

    def flush(self) -> int:
        """Wait once."""
        self.waits += 1
        self.reached.set()
        self.free.wait(PATIENCE_S)
        if self.fails:
            raise StoreFailed("the disk failed")
        return 0


def produce(peer: Connection, partition: int = 0, *, sequence: int = -1) -> None:
    """Produce a record to "t"."""
    data = batch() if sequence < 0 else batch(producer_id=7, epoch=0, sequence=sequence)
    topics = [{"name": "t", "partition_data": [{"index": partition, "records": data}]}]
    peer.data_received(next(frames(PRODUCE, 1, 9, acks=-1, timeout_ms=1_000, topic_data=topics)))


def said(answer: tuple[str, bytes]) -> tuple[int, int]:
    """Return error code and offset of a Produce answer."""
    found: Any = entity_reader(load_response_schema(PRODUCE, 9))(answer[1], 9)[0]
    part = found.responses[0].partition_responses[0]
    return int(part.error_code), part.base_offset


async def until(condition: threading.Event) -> None:
    """Let the loop run until a thread sets the event."""
    while not condition.is_set():
        await asyncio.sleep(0.001)


@pytest.mark.parametrize(("slow_s", "lines"), [(0.001, 1), (60.0, 0)])
def test_a_disk_that_does_not_answer_is_logged(
    slow_s: float, lines: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Earlier, the producers waited without a word in the broker's log."""
    monkeypatch.setattr(storage_disk, "SLOW_S", slow_s)

    async def story(hall: Hall) -> None:
        hall.node.catalogue.create("t", 1, {"flush.messages": "1"})
        disk = Disk(hall)
        disk.free.clear()
        producer, _ = hall.connect("producer")
        produce(producer)
        await until(disk.reached)
        async with asyncio.timeout(PATIENCE_S):
            while len(caplog.records) < lines:
                await asyncio.sleep(0.001)
        disk.free.set()
        await hall.answers(1)

    in_hall(story)
    assert caplog.text.count("the disk has not confirmed the last writes for") == lines


def test_a_record_that_the_disk_does_not_confirm_is_refused_and_its_retry_waits_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Earlier, the producer waited without an end."""
    monkeypatch.setattr(storage_disk, "LONGEST_S", 0.05)

    async def story(hall: Hall) -> list[tuple[int, int]]:
        hall.node.catalogue.create("t", 1, {"flush.messages": "1"})
        disk = Disk(hall)
        disk.free.clear()
        producer, _ = hall.connect("producer")
        produce(producer, sequence=0)
        await hall.answers(1)
        monkeypatch.setattr(storage_disk, "LONGEST_S", 20.0)
        disk.free.set()
        produce(producer, sequence=0)
        await hall.answers(2)
        return [said(answer) for answer in hall.written]

    assert in_hall(story) == [(56, -1), (0, 0)]


def test_a_record_is_acknowledged_when_it_is_on_the_disk_and_others_do_not_wait() -> None:
    """While the disk is busy the producer has no answer, but a second client's request has."""

    async def story(hall: Hall) -> tuple[list[str], list[str]]:
        hall.node.catalogue.create("t", 1, {"flush.messages": "1"})
        disk = Disk(hall)
        disk.free.clear()
        producer, _ = hall.connect("producer")
        other, _ = hall.connect("other")
        produce(producer)
        await until(disk.reached)
        other.data_received(next(frames(API_VERSIONS, 1)))
        before = list(await hall.answers(1))
        disk.free.set()
        return before, await hall.answers(2)

    assert in_hall(story) == (["other"], ["other", "producer"])


def test_every_so_many_records_wait_for_the_disk() -> None:
    """With flush.messages=3 the third and the sixth record wait."""

    async def story(hall: Hall) -> list[int]:
        hall.node.catalogue.create("t", 1, {"flush.messages": "3"})
        disk, waits = Disk(hall), []
        producer, _ = hall.connect("producer")
        for number in range(1, 8):
            produce(producer)
            await hall.answers(number)
            waits.append(disk.waits)
        return waits

    assert in_hall(story) == [0, 0, 1, 1, 1, 2, 2]


def test_those_who_come_while_the_disk_is_busy_share_the_next_wait() -> None:
    """Ten producers behind the first one share a second wait; the first does not cover them."""

    async def story(hall: Hall) -> int:
        hall.node.catalogue.create("t", 11, {"flush.messages": "1"})
        disk = Disk(hall)
        disk.free.clear()
        peers = [hall.connect(str(number))[0] for number in range(11)]
        produce(peers[0], 0)
        await until(disk.reached)
        for number in range(1, 11):
            produce(peers[number], number)
        while not all(log.end_offset for log in hall.node.catalogue.get("t").partitions):  # type: ignore[union-attr]
            await asyncio.sleep(0)
        disk.free.set()
        await hall.answers(11)
        return disk.waits

    assert in_hall(story) == 2


def test_a_peer_that_goes_away_ends_nobody_elses_wait() -> None:
    """A producer disconnects while two share a wait for the disk; the second is acknowledged."""

    async def story(hall: Hall) -> list[tuple[str, int]]:
        topic = hall.node.catalogue.create("t", 3, {"flush.messages": "1"})
        disk = Disk(hall)
        disk.free.clear()
        first, leaving, staying = (
            hall.connect(name)[0] for name in ("first", "leaving", "staying")
        )
        produce(first, 0)
        await until(disk.reached)
        produce(leaving, 1)
        produce(staying, 2)
        while not all(log.end_offset for log in topic.partitions):
            await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)  # until both wait
        leaving.connection_lost(None)
        await asyncio.sleep(0)
        disk.free.set()
        await hall.answers(2)
        return sorted((answer[0], said(answer)[0]) for answer in hall.written)

    assert in_hall(story) == [("first", 0), ("staying", 0)]


def test_a_record_that_came_while_the_disk_was_busy_is_not_covered_by_that_wait() -> None:
    """The next wait fails: the record and its retry are refused, as the record is on no disk."""

    async def story(hall: Hall) -> list[tuple[int, int]]:
        topic = hall.node.catalogue.create("t", 1, {"flush.messages": "1"})
        disk, waits = Disk(hall), itertools.count()

        def flush() -> int:
            disk.fails = next(waits) > 0
            return disk.flush()

        hall.node.store.flush = flush  # type: ignore[method-assign]
        first, _ = hall.connect("first")
        other, _ = hall.connect("other")
        disk.free.clear()
        produce(first)
        await until(disk.reached)
        produce(other, sequence=0)
        while topic.partitions[0].end_offset < 2:
            await asyncio.sleep(0)
        disk.free.set()
        await hall.answers(2)
        produce(other, sequence=0)
        await hall.answers(3)
        return [said(answer) for answer in hall.written]

    assert in_hall(story) == [(0, 0), (56, -1), (56, -1)]


def test_a_record_whose_wait_failed_is_refused_and_its_retry_waits_again() -> None:
    """A retry of an idempotent producer gets the same offset once the record is on the disk."""

    async def story(hall: Hall) -> tuple[tuple[int, int], tuple[int, int], int]:
        hall.node.catalogue.create("t", 1, {"flush.messages": "1"})
        disk = Disk(hall)
        disk.fails = True
        producer, _ = hall.connect("producer")
        produce(producer, sequence=0)
        await hall.answers(1)
        disk.fails = False
        produce(producer, sequence=0)
        await hall.answers(2)
        return said(hall.written[0]), said(hall.written[1]), disk.waits

    assert in_hall(story) == ((56, -1), (0, 0), 2)


def test_a_repeated_record_that_is_on_the_disk_does_not_wait_again() -> None:
    """The disk has all records already."""

    async def story(hall: Hall) -> int:
        hall.node.catalogue.create("t", 1, {"flush.messages": "1"})
        disk = Disk(hall)
        producer, _ = hall.connect("producer")
        for number in (1, 2):
            produce(producer, sequence=0)
            await hall.answers(number)
        return disk.waits

    assert in_hall(story) == 1


def test_what_the_disk_has_is_told_to_the_witness() -> None:
    """The audit gets the number of writes that the disk had at the end of the wait."""

    async def story(hall: Hall) -> list[int]:
        hall.node.catalogue.create("t", 1, {"flush.messages": "1"})
        told: list[int] = []
        hall.node.store.flush = lambda: 17  # type: ignore[method-assign]
        hall.node.store.note_flushed = told.append  # type: ignore[method-assign]
        producer, _ = hall.connect("producer")
        produce(producer)
        await hall.answers(1)
        return told

    assert in_hall(story) == [17]


def test_after_a_power_loss_no_less_than_what_was_flushed_may_be_there(tmp_path: Path) -> None:
    """The audit accepts a lost tail after a machine restart, but no loss of flushed records."""
    store = RocksStore(tmp_path)
    store.write([(b"k1", b"v")])
    flushed = store.flush()
    store.note_flushed(flushed)
    store.write([(b"k2", b"v")])
    assert (store.write_audit.writes, store.write_audit.synced) == (flushed + 1, flushed)
    store.write_audit.same_boot = False
    assert (
        store.write_audit.count_lost_writes(flushed),
        store.write_audit.count_lost_writes(flushed - 1),
    ) == (0, 1)
    store.write_audit.same_boot = True
    assert store.write_audit.count_lost_writes(flushed) == 1
    store.close()


def test_a_disk_that_fails_to_flush_breaks_the_store_until_it_is_opened_again(
    tmp_path: Path,
) -> None:
    """Earlier writes survive, and the next write reopens the store."""
    store = RocksStore(tmp_path)
    store.write([(b"k1", b"v1")])
    sound = store._db

    class Failing:
        def __getattr__(self, name: str) -> Any:
            return getattr(sound, name)

        def flush_wal(self, sync: bool) -> None:
            raise OSError("Input/output error")

    failing = store._db = Failing()
    with pytest.raises(StoreFailed):
        store.flush()
    store.write([(b"k2", b"v2")])
    assert store._db not in (failing, sound)
    assert store.get_many([b"k1", b"k2"]) == [b"v1", b"v2"]
    store.close()
