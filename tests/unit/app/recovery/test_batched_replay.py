"""One write batch for many changelog records: what it keeps, what it leaves out, when it lets go."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import faust
import pytest
from aiokafka import TopicPartition
from faust.exceptions import DecodeError
from faust.stores.rocksdb import RocksDBOptions
from faust.types import TP

from faust_assigner.app.recovery import batched_replay
from faust_assigner.app.recovery.batched_replay import run_until_stopped, to_batch
from faust_assigner.app.recovery.decoding import ANYTHING, decoding_of
from faust_assigner.app.recovery.unreadable import UnreadableRecords
from faust_assigner.snapshots.asking import UnreachableError
from faust_assigner.snapshots.changelog import STALL_S, Extent
from faust_assigner.snapshots.sst import OFFSET_KEY


def records(*rows: tuple[bytes | None, bytes | None]) -> list[Any]:
    """As aiokafka hands them out, offsets from 0."""
    return [
        SimpleNamespace(key=key, value=value, offset=at, headers=())
        for at, (key, value) in enumerate(rows)
    ]


@pytest.fixture
def database(tmp_path: Path) -> Any:
    """An empty one, as Faust opens it."""
    return RocksDBOptions(use_rocksdict=True).open(tmp_path / "totals-0.db")


@pytest.fixture
async def totals() -> Any:
    """A table of numbers by name."""
    app = faust.App("shop", broker="kafka://127.0.0.1:1", store="memory://", web_enabled=False)
    return app.Table("totals", key_type=str, value_type=int)


async def test_rows_that_do_not_decode_are_left_out(database: Any, totals: Any) -> None:
    """A row of that kind would end the agent that reads it; the last readable one of its key stays."""
    batch, refused = to_batch(
        records(
            (b'"anna"', b"1"),
            (b'"anna"', b"{no json"),
            (b'"ben"', b"2"),
            (b"{no json", b"3"),
            (None, b"4"),
            (b'"ben"', b'"no number"'),
        ),
        6,
        decoding_of(totals),
    )
    database.write(batch)
    assert dict(database.items()) == {b'"anna"': b"1", b'"ben"': b"2", OFFSET_KEY: b"5"}
    assert [offset for offset, *_ in refused] == [1, 3, 4, 5]
    assert all(isinstance(error, DecodeError) for *_, error in refused)


def test_only_none_deletes_a_row(database: Any) -> None:
    """An empty value is a value: a set of flags, an empty text."""
    batch, refused = to_batch(
        records((b"empty", b""), (b"gone", b"1"), (b"gone", None)), 3, ANYTHING
    )
    database.write(batch)
    assert (database.get(b"empty"), database.get(b"gone"), list(refused)) == (b"", None, [])


def test_unreadable_records_are_counted_and_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Named once a minute, however many there are."""
    app = SimpleNamespace(conf=SimpleNamespace(tabledir=tmp_path))
    unreadable, tp = UnreadableRecords(app), TP("shop-totals-changelog", 3)
    for offset in range(5):
        unreadable(tp, [(offset, b"key", None, DecodeError("bad"))])
    assert unreadable.counts == {tp: 5}
    assert len([record for record in caplog.records if "did not decode" in record.message]) == 1
    lines = (tmp_path / "unreadable" / "shop-totals-changelog-3.jsonl").read_text().splitlines()
    assert [json.loads(line)["offset"] for line in lines] == list(range(5))
    assert json.loads(lines[0])["key"] == "a2V5"


def test_the_last_unreadable_record_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With its own error: it says how far the trouble goes."""
    app = SimpleNamespace(conf=SimpleNamespace(tabledir=tmp_path))
    found = [(offset, b"key", None, DecodeError(f"bad {offset}")) for offset in (7, 8, 9)]
    UnreadableRecords(app)(TP("shop-totals-changelog", 3), found)
    assert "3 records did not decode" in caplog.text
    assert "the last record has offset 9: DecodeError('bad 9')" in caplog.text


def test_a_broker_that_does_not_answer_does_not_hold_up_a_stop() -> None:
    """The worker's process waits for this thread."""

    async def silent() -> None:
        await asyncio.sleep(30)

    began = time.monotonic()
    assert run_until_stopped(silent(), lambda: time.monotonic() - began > 0.1) is None
    assert time.monotonic() - began < 10


def test_work_that_stops_by_itself_in_time_still_reports_its_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It looks for a stop between two fetches; a cancellation at once would lose its count."""
    monkeypatch.setattr(batched_replay, "LOOK_S", 0.01)
    monkeypatch.setattr(batched_replay, "GRACE_S", 30.0)
    asked = threading.Event()

    def stopped() -> bool:
        asked.set()
        return True

    async def stopping() -> int:
        while not asked.is_set():
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        return 42

    assert run_until_stopped(stopping(), stopped) == 42


# -- one turn


LOG, OTHER = TopicPartition("log", 0), TopicPartition("log", 1)


class Consumer:
    """aiokafka's, with records at these offsets; positions are where each turn comes to."""

    def __init__(self) -> None:
        self.positions = {LOG: 0, OTHER: 0}
        self.next: dict[TopicPartition, tuple[list[int], int]] = {}
        self.paused: list[TopicPartition] = []

    async def position(self, tp: TopicPartition) -> int:
        """Of the next record."""
        return self.positions[tp]

    async def getmany(self, *tps: TopicPartition, timeout_ms: int, max_records: int) -> Any:
        """The next turn."""
        found = {}
        for tp in tps:
            offsets, self.positions[tp] = self.next.get(tp, ([], self.positions[tp]))
            if offsets:
                found[tp] = [SimpleNamespace(offset=offset) for offset in offsets]
        return found

    def pause(self, *tps: TopicPartition) -> None:
        """Pause."""
        self.paused += tps


class Turn:
    """What a turn writes and finishes."""

    def __init__(self) -> None:
        self.consumer, self.acts = Consumer(), list[Any]()
        self.ends = {LOG: 10, OTHER: 10}

    def write(self, tp: TopicPartition, records: Any, position: int) -> None:
        """Write."""
        self.acts.append(("write", tp, [record.offset for record in records], position))

    def finish(self, tp: TopicPartition) -> None:
        """Finish."""
        self.acts.append(("finish", tp))

    async def take(self, **turns: tuple[list[int], int]) -> bool:
        """One turn in which ``log`` and ``other`` come to there."""
        names = {"log": LOG, "other": OTHER}
        self.consumer.next = {names[name]: turn for name, turn in turns.items()}
        pace: Any = SimpleNamespace(begin=lambda: 100, end=lambda records: 0.0)
        return await batched_replay._take_turn(self.consumer, self, self.ends, pace)  # type: ignore[arg-type]


async def test_a_turn_that_brings_nothing_moves_nothing() -> None:
    """A broker that answers nothing for a minute is given up."""
    turn = Turn()
    assert not await turn.take()
    assert turn.acts == []


async def test_offsets_without_records_move_the_position() -> None:
    """Markers of transactions, and what was compacted away."""
    turn = Turn()
    assert await turn.take(log=([], 7))
    assert turn.acts == [("write", LOG, [], 7)]


async def test_nothing_beyond_the_end_is_written() -> None:
    """It is the loop's that reads on; the partition is paused and done with, others go on."""
    turn = Turn()
    assert await turn.take(log=([8, 9, 10, 11], 12), other=([3], 4))
    assert turn.acts == [
        ("write", LOG, [8, 9], 10),
        ("finish", LOG),
        ("write", OTHER, [3], 4),
    ]
    assert turn.consumer.paused == [LOG]
    assert turn.ends == {OTHER: 10}


async def test_the_record_at_the_end_is_beyond_it() -> None:
    """The end is the next offset."""
    turn = Turn()
    assert await turn.take(log=([9, 10], 11))
    assert turn.acts[0] == ("write", LOG, [9], 10)


class Assigned:
    """aiokafka's consumer before anything is read; ``acts`` are in turn."""

    def __init__(self, acts: list[Any]) -> None:
        self.acts = acts

    async def __aenter__(self) -> Assigned:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.acts.append("closed")

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self.acts.append((name, *args))


async def replayed(
    monkeypatch: pytest.MonkeyPatch, turns: list[tuple[float, bool]], *tps: TopicPartition
) -> list[Any]:
    """A replay of ``tps``, whose turns take so many seconds and move something or nothing."""
    acts: list[Any] = []
    now, waiting = 0.0, list(tps)
    monkeypatch.setattr(batched_replay.time, "monotonic", lambda: now)

    def consumer_of(connection: Any, *, isolation_level: str) -> Assigned:
        assert isolation_level == "read_committed"
        assert connection == {"max_partition_fetch_bytes": 2 * 2**20, "client_id": "shop"}
        return Assigned(acts)

    monkeypatch.setattr(batched_replay, "consumer_of", consumer_of)

    async def turn(consumer: Any, work: Any, ends: dict[TopicPartition, int], pace: Any) -> bool:
        nonlocal now
        acts.append(("turn", *sorted(ends)))
        seconds, moved = turns.pop(0)
        now += seconds
        if not turns:
            ends.clear()
        elif len(ends) > 1:
            del ends[min(ends)]
        return moved

    def begin() -> Any:
        return (waiting.pop(0), Extent(3, 9)) if waiting else None

    async def replace_fetcher(consumer: Any, kind: Any) -> None:
        acts.append(kind)

    monkeypatch.setattr(batched_replay, "replace_fetcher", replace_fetcher)
    monkeypatch.setattr(batched_replay, "_take_turn", turn)
    work: Any = SimpleNamespace(tps=tps, is_over=lambda: not waiting, begin=begin)
    await batched_replay.replay(
        {"client_id": "shop"},
        work,
        stopped=lambda: False,
        isolation_level="read_committed",
        pace=None,  # type: ignore[arg-type]
    )
    return acts


async def test_two_partitions_are_read_at_a_time_from_where_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All others are paused."""
    third = TopicPartition("log", 2)
    acts = await replayed(monkeypatch, [(0.0, True)] * 2, LOG, OTHER, third)
    assert acts[:3] == [
        batched_replay.BareFetcher,
        ("assign", [LOG, OTHER, third]),
        ("pause", LOG, OTHER, third),
    ]
    begun = acts[6:]
    assert begun[:5] == [
        ("seek", LOG, 3),
        ("resume", LOG),
        ("seek", OTHER, 3),
        ("resume", OTHER),
        ("turn", LOG, OTHER),
    ]
    assert begun[5:] == [("seek", third, 3), ("resume", third), ("turn", OTHER, third), "closed"]


async def test_a_broker_from_which_nothing_arrives_for_a_minute_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The minute begins again with whatever moves."""
    share = STALL_S * 0.6
    await replayed(monkeypatch, [(share, False), (share, True), (share, False), (0.0, True)], LOG)
    with pytest.raises(UnreachableError, match="no records arrived"):
        await replayed(monkeypatch, [(share, True), (share, False), (share, False)], LOG)
