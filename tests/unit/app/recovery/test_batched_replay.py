"""Batched replay: a write batch for many changelog records, refused records, stops and turns."""

from __future__ import annotations

import asyncio
import contextlib
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
from faust_assigner.snapshots.changelog import STALL_S, Extent
from faust_assigner.snapshots.kafka_requests import UnreachableError
from faust_assigner.snapshots.sst import OFFSET_KEY
from tests.support.waiting import PATIENCE_S


def records(*rows: tuple[bytes | None, bytes | None]) -> list[Any]:
    """Return records as aiokafka does, with offsets from 0."""
    return [
        SimpleNamespace(key=key, value=value, offset=at, headers=())
        for at, (key, value) in enumerate(rows)
    ]


@pytest.fixture
def database(tmp_path: Path) -> Any:
    """An empty database, opened as Faust does."""
    return RocksDBOptions(use_rocksdict=True).open(tmp_path / "totals-0.db")


@pytest.fixture
async def totals() -> Any:
    """A table of numbers by name."""
    app = faust.App("shop", broker="kafka://127.0.0.1:1", store="memory://", web_enabled=False)
    return app.Table("totals", key_type=str, value_type=int)


async def test_rows_that_do_not_decode_are_left_out(database: Any, totals: Any) -> None:
    """The last readable row of its key stays: an unreadable row would end its agent."""
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
    """An empty value is a value: an empty set of flags or an empty text."""
    batch, refused = to_batch(
        records((b"empty", b""), (b"gone", b"1"), (b"gone", None)), 3, ANYTHING
    )
    database.write(batch)
    assert (database.get(b"empty"), database.get(b"gone"), list(refused)) == (b"", None, [])


def test_unreadable_records_are_counted_and_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has a single line per minute."""
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
    """The line includes its error: its offset shows the extent of the problem."""
    app = SimpleNamespace(conf=SimpleNamespace(tabledir=tmp_path))
    found = [(offset, b"key", None, DecodeError(f"bad {offset}")) for offset in (7, 8, 9)]
    UnreadableRecords(app)(TP("shop-totals-changelog", 3), found)
    assert "3 records did not decode" in caplog.text
    assert "the last record has offset 9: DecodeError('bad 9')" in caplog.text


def test_a_broker_that_does_not_answer_does_not_hold_up_a_stop() -> None:
    """The worker's process waits for this thread at exit."""

    async def silent() -> None:
        await asyncio.sleep(10 * PATIENCE_S)

    began = time.monotonic()
    assert run_until_stopped(silent(), lambda: time.monotonic() - began > 0.1) is None
    assert time.monotonic() - began < PATIENCE_S


def test_work_that_stops_by_itself_in_time_still_reports_its_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The work checks for a stop between fetches; an immediate cancel would lose its count."""
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
    """aiokafka's consumer with records at these offsets; ``positions`` are the turns' ends."""

    def __init__(self) -> None:
        self.positions = {LOG: 0, OTHER: 0}
        self.next: dict[TopicPartition, tuple[list[int], int]] = {}
        self.paused: list[TopicPartition] = []
        self.asked: Any = None

    async def position(self, tp: TopicPartition) -> int:
        """Return the next record's offset."""
        return self.positions[tp]

    async def getmany(self, *tps: TopicPartition, timeout_ms: int, max_records: int) -> Any:
        """Return the records of the next turn."""
        self.asked = (tps, timeout_ms, max_records)
        found = {}
        for tp in tps:
            offsets, self.positions[tp] = self.next.get(tp, ([], self.positions[tp]))
            if offsets:
                found[tp] = [SimpleNamespace(offset=offset) for offset in offsets]
        return found

    def pause(self, *tps: TopicPartition) -> None:
        """Record the pause."""
        self.paused += tps


class Turn:
    """Records the writes and finishes of a turn."""

    def __init__(self) -> None:
        self.consumer, self.acts = Consumer(), list[Any]()
        self.ends = {LOG: 10, OTHER: 10}

    def write(self, tp: TopicPartition, records: Any, position: int) -> None:
        """Record a write."""
        self.acts.append(("write", tp, [record.offset for record in records], position))

    def finish(self, tp: TopicPartition) -> None:
        """Record a finish."""
        self.acts.append(("finish", tp))

    async def take(self, **turns: tuple[list[int], int]) -> bool:
        """Run a turn in which ``log`` and ``other`` reach the given offsets."""
        names = {"log": LOG, "other": OTHER}
        self.consumer.next = {names[name]: turn for name, turn in turns.items()}
        pace: Any = SimpleNamespace(begin=lambda: 100, end=lambda records: 0.0)
        return await batched_replay._take_turn(self.consumer, self, self.ends, pace)  # type: ignore[arg-type]


async def test_a_turn_that_brings_nothing_moves_nothing() -> None:
    """After a minute without records the replay gives the broker up."""
    turn = Turn()
    assert not await turn.take()
    assert turn.acts == []


async def test_offsets_without_records_move_the_position() -> None:
    """Transaction markers and compacted records leave such offsets."""
    turn = Turn()
    assert await turn.take(log=([], 7))
    assert turn.acts == [("write", LOG, [], 7)]


async def test_nothing_beyond_the_end_is_written() -> None:
    """Faust's loop reads further; the partition is paused and finished, the other continues."""
    turn = Turn()
    assert await turn.take(log=([8, 9, 10, 11], 12), other=([3], 4))
    assert turn.acts == [("write", LOG, [8, 9], 10), ("finish", LOG), ("write", OTHER, [3], 4)]
    assert turn.consumer.paused == [LOG]
    assert turn.ends == {OTHER: 10}


async def test_a_turn_asks_for_its_records_and_pauses_for_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The pace sets the number to fetch and gets the number of all fetched records."""
    turn, paces, slept = Turn(), list[Any](), list[float]()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(batched_replay.asyncio, "sleep", sleep)
    turn.consumer.next = {LOG: ([0, 1, 12], 13), OTHER: ([4, 5], 6)}
    turn.ends = {LOG: 10, OTHER: 11}
    pace: Any = SimpleNamespace(begin=lambda: 70, end=lambda records: paces.append(records) or 0.25)
    assert await batched_replay._take_turn(turn.consumer, turn, turn.ends, pace)  # type: ignore[arg-type]
    assert turn.consumer.asked == ((LOG, OTHER), batched_replay.TURN_MS, 70)
    assert (paces, slept) == ([5], [0.25])
    assert turn.acts == [("write", LOG, [0, 1], 10), ("finish", LOG), ("write", OTHER, [4, 5], 6)]


async def test_two_partitions_may_end_in_one_turn() -> None:
    """Each is written before its finish, and neither is read further."""
    turn = Turn()
    turn.ends = {LOG: 3, OTHER: 5}
    assert await turn.take(log=([2], 3), other=([], 6))
    assert turn.acts == [
        ("write", LOG, [2], 3),
        ("finish", LOG),
        ("write", OTHER, [], 5),
        ("finish", OTHER),
    ]
    assert (turn.consumer.paused, turn.ends) == ([LOG, OTHER], {})


async def test_a_turn_moves_if_the_first_of_its_partitions_does() -> None:
    """The second partition may stand still."""
    turn = Turn()
    assert await turn.take(log=([0], 1))
    turn = Turn()
    assert await turn.take(other=([0], 1))


async def test_the_record_at_the_end_is_beyond_it() -> None:
    """The end is the next offset after the last record."""
    turn = Turn()
    assert await turn.take(log=([9, 10], 11))
    assert turn.acts[0] == ("write", LOG, [9], 10)


class Assigned:
    """A stub of aiokafka's consumer; ``acts`` records its calls in order."""

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
    """Replay ``tps`` in turns of (seconds, whether records arrive); return the acts."""
    acts: list[Any] = []
    now, waiting = 0.0, list(tps)
    monkeypatch.setattr(batched_replay.time, "monotonic", lambda: now)

    def consumer_of(connection: Any, *, isolation_level: str) -> Assigned:
        assert isolation_level == "read_committed"
        assert connection == {
            "max_partition_fetch_bytes": 2 * 2**20,
            "fetch_max_wait_ms": 20,
            "client_id": "shop",
        }
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
    """All other partitions are paused."""
    third = TopicPartition("log", 2)
    acts = await replayed(monkeypatch, [(0.0, True)] * 2, LOG, OTHER, third)
    assert acts[:6] == [
        batched_replay.BareFetcher,
        ("assign", [LOG, OTHER, third]),
        ("pause", LOG, OTHER, third),
        ("seek", LOG, 0),
        ("seek", OTHER, 0),
        ("seek", third, 0),
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
    """Each turn with records restarts the minute."""
    share = STALL_S * 0.6
    await replayed(monkeypatch, [(share, False), (share, True), (share, False), (0.0, True)], LOG)
    with pytest.raises(UnreachableError, match="no records arrived"):
        await replayed(monkeypatch, [(share, True), (share, False), (share, False)], LOG)


class Waiting:
    """Work whose only partition is ready at the third call; ``acts`` records acts and pauses."""

    tps = (LOG,)

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.acts, self.looks, self.stops = list[Any](), 0, False
        self.pace: Any = object()
        monkeypatch.setattr(
            batched_replay, "consumer_of", lambda connection, isolation_level: Assigned(self.acts)
        )
        monkeypatch.setattr(batched_replay, "replace_fetcher", self._replace)
        monkeypatch.setattr(batched_replay, "_take_turn", self._turn)
        monkeypatch.setattr(batched_replay.asyncio, "sleep", self._sleep)

    async def _replace(self, consumer: Any, kind: Any) -> None:
        """Ignore the fetcher."""

    async def _sleep(self, seconds: float) -> None:
        self.acts.append(("sleep", seconds))

    async def _turn(self, consumer: Any, work: Any, ends: Any, pace: Any) -> bool:
        assert (work, pace) == (self, self.pace)
        self.acts.append(("turn", dict(ends)))
        ends.clear()
        return True

    def is_over(self) -> bool:
        """Whether the partition was read."""
        return self.looks >= 3

    def begin(self) -> Any:
        """Return the partition at the third call, as another tuple type."""
        self.looks += 1
        return (TP(*LOG), Extent(3, 9)) if self.looks == 3 else None

    async def run(self) -> list[Any]:
        """Replay; return the acts after the set-up."""
        await batched_replay.replay(
            {},
            self,  # type: ignore[arg-type]
            stopped=lambda: self.stops,
            isolation_level="read_uncommitted",
            pace=self.pace,
        )
        return self.acts[3:]


async def test_a_replay_looks_again_until_a_partition_is_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It fetches no records meanwhile, and ends without remaining partitions."""
    pause = ("sleep", batched_replay.WAIT_S)
    work = Waiting(monkeypatch)
    found = await work.run()
    assert found == [pause, pause, ("seek", LOG, 3), ("resume", LOG), ("turn", {LOG: 9}), "closed"]
    assert {type(act[1]) for act in found if act[0] in ("seek", "resume")} == {TopicPartition}


async def test_a_stopped_replay_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The consumer is closed."""
    work = Waiting(monkeypatch)
    work.stops = True
    assert await work.run() == ["closed"]
    assert work.looks == 0


async def test_the_minute_of_silence_begins_when_a_partition_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A minute to the second is still in time."""
    await replayed(monkeypatch, [(STALL_S, False), (0.0, True)], LOG)
    with pytest.raises(UnreachableError, match=f"for {STALL_S:.0f} s from .*partition=0"):
        await replayed(monkeypatch, [(STALL_S + 0.1, False), (0.0, True)], LOG)
    third = TopicPartition("log", 2)
    long = STALL_S * 0.9
    await replayed(monkeypatch, [(long, False), (long, False), (0.0, True)], LOG, OTHER, third)


def test_a_bare_record_is_asked_about_as_the_schema_expects_it() -> None:
    """Only the last readable record of a key counts; earlier records are not checked."""
    asked: list[Any] = []

    def reason(record: Any) -> DecodeError | None:
        asked.append(record)
        return DecodeError("bad") if record[1] in (2, 4) else None

    decoding = batched_replay.Decoding(reason)
    rows = records(
        (b"a", b"0"), (b"a", b"1"), (b"a", b"2"), (OFFSET_KEY, b"9"), (b"b", b"4"), (b"c", None)
    )
    batch, refused = to_batch(rows, 6, decoding, lambda record: ("whole", record.offset))
    assert asked == [("whole", 5), ("whole", 4), ("whole", 2), ("whole", 1)]
    assert [(offset, key, value, str(error)) for offset, key, value, error in refused] == [
        (2, b"a", b"2", "bad"),
        (4, b"b", b"4", "bad"),
    ]
    assert len(batch) == 3, "a row, a deletion and the offset"


async def test_a_fetcher_hands_out_records_as_they_were_parsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Partitions with records are changed; an error in place of records stays."""
    some, error = SimpleNamespace(_partition_records=SimpleNamespace()), SimpleNamespace()
    fetcher: Any = object.__new__(batched_replay.BareFetcher)
    fetcher._records = {LOG: some, OTHER: error}
    asked: list[Any] = []

    async def fetch(self: Any, *request: Any) -> str:
        asked.append(request)
        return "found"

    monkeypatch.setattr(batched_replay.Fetcher, "_proc_fetch_request", fetch)
    assert await fetcher._proc_fetch_request("assignment", 3, "request") == "found"
    assert asked == [("assignment", 3, "request")]
    assert some._partition_records._consumer_record(LOG, "record") == "record"
    assert vars(error) == {}


def test_work_that_ends_by_itself_gives_its_result_or_its_error() -> None:
    """The caller gets the error."""

    async def works() -> int:
        return 7

    async def fails() -> int:
        raise OSError("no broker")

    assert run_until_stopped(works(), lambda: False) == 7
    with pytest.raises(OSError, match="no broker"):
        run_until_stopped(fails(), lambda: False)


def test_work_that_does_not_stop_is_cancelled_after_a_grace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It gets a second grace to clean up; an error during the stop is raised."""
    monkeypatch.setattr(batched_replay, "LOOK_S", 0.01)
    monkeypatch.setattr(batched_replay, "GRACE_S", 0.02)
    ended: list[str] = []

    async def endless() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("cancelled")

    assert run_until_stopped(endless(), lambda: True) is None
    assert ended == ["cancelled"]

    async def cleans_up() -> int:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
        return 5

    assert run_until_stopped(cleans_up(), lambda: True) == 5

    async def stays() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
        await asyncio.sleep(3600)

    assert run_until_stopped(stays(), lambda: True) is None, "it is given up"


@pytest.mark.parametrize("decode", [True, False])
def test_keys_and_values_are_asked_about_together(decode: bool) -> None:
    """Each key is checked with its last value, without Faust's offset; a keyless record is bad."""
    asked: list[Any] = []

    def all_decode(keys: Any, values: Any) -> bool:
        asked.append((list(keys), list(values)))
        return decode

    decoding = batched_replay.Decoding(lambda record: DecodeError("bad"), all_decode)
    rows = records((b"a", b"0"), (b"b", b""), (b"a", None), (OFFSET_KEY, b"9"), (b"c", b"4"))
    _, refused = to_batch(rows, 5, decoding)
    assert asked == [([b"a", b"b", b"c"], [b"", b"4"])]
    assert [offset for offset, *_ in refused] == ([] if decode else [0, 1, 2, 4])
    _, refused = to_batch(records((None, b"1")), 1, decoding)
    assert ([offset for offset, *_ in refused], len(asked)) == ([0], 1)


async def test_the_app_s_own_size_and_wait_of_a_fetch_go_before_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ours are for apps without a setting."""
    work, asked = Waiting(monkeypatch), list[Any]()

    def consumer_of(connection: Any, isolation_level: str) -> Assigned:
        asked.append(connection)
        return Assigned(work.acts)

    monkeypatch.setattr(batched_replay, "consumer_of", consumer_of)
    work.stops = True
    own = {"max_partition_fetch_bytes": 7, "fetch_max_wait_ms": 8}
    for connection in ({}, own):
        await batched_replay.replay(
            connection,
            work,  # type: ignore[arg-type]
            stopped=lambda: True,
            isolation_level="read_uncommitted",
            pace=work.pace,
        )
    assert asked == [
        {
            "max_partition_fetch_bytes": batched_replay.FETCH_BYTES,
            "fetch_max_wait_ms": batched_replay.TURN_MS,
        },
        own,
    ]
