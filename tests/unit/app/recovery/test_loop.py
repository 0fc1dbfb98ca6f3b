"""Faust's recovery loop with our steps: tables ahead of changelogs, failed tables, flow."""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from faust.exceptions import ConsistencyError
from faust.tables.manager import TableManager
from faust.tables.recovery import Recovery as FaustRecovery
from faust.tables.recovery import ServiceStopped
from faust.types import TP
from mode.utils.queues import FlowControlEvent

from faust_assigner.app.recovery import consistency, databases, table_failures
from faust_assigner.app.recovery import loop as recovery_loop
from faust_assigner.app.recovery.books import RoundBooks
from faust_assigner.app.recovery.loop import RecoveryLoop
from faust_assigner.app.recovery.table_manager import RecoveringTables
from faust_assigner.app.tables.files import TableStore
from tests.support.waiting import PATIENCE_S

A, B, C = TP("log", 0), TP("log", 1), TP("sums", 2)


class FileError(Exception):
    """A stand-in for RocksDB's error, which is recognised by its text."""


class Store(TableStore):
    """A store whose databases open unless ``broken``."""

    def __init__(self) -> None:
        self.broken: set[int] = set()
        self.acts: list[Any] = []
        self._dbs: dict[int, str] = {}

    def close_partition(self, partition: int) -> None:
        """Record a close."""
        self.acts.append(("close", partition))

    def _db_for_partition(self, partition: int) -> str:
        if partition in self.broken:
            raise OSError("no space left on device")
        self.acts.append(("open", partition))
        return self._dbs.setdefault(partition, "db")


class Consumer:
    """A stub of the app's consumer."""

    def __init__(self, acts: list[Any]) -> None:
        self.acts, self.between_generations = acts, False
        self.first: dict[TP, int] = defaultdict(int)
        self.ends: dict[TP, int] = {}

    async def earliest_offsets(self, *tps: TP) -> dict[TP, int]:
        """Return the changelogs' first offsets."""
        return {tp: self.first[tp] for tp in tps}

    async def highwaters(self, *tps: TP) -> dict[TP, int]:
        """Return the changelogs' ends."""
        return {tp: self.ends[tp] for tp in tps}

    def assignment(self) -> set[TP]:
        """Return the assigned partitions."""
        return {A, B}

    def pause_partitions(self, tps: set[TP]) -> None:
        """Record a pause."""
        self.acts.append(("pause", tps))

    def stop_flow(self) -> None:
        """Record a stop of the flow."""
        self.acts.append("stop flow")

    async def wait_empty(self) -> None:
        """Record a wait for the streams."""
        self.acts.append("wait empty")


class Host(FaustRecovery):  # type: ignore[misc]
    """A stub of Faust's recovery."""

    should_stop, started = False, True
    signal_recovery_start: Any = None
    signal_recovery_end: Any = None

    def __init__(self, app: Any, tables: Any) -> None:
        self.app, self.tables, self.acts = app, tables, app.acts
        self.in_recovery = False
        self.signal_recovery_start = asyncio.Event()
        self.signal_recovery_end = asyncio.Event()
        self.active_tps, self.standby_tps = {A}, {B}
        self.active_offsets: Any = defaultdict(lambda: None)
        self.standby_offsets: Any = defaultdict(lambda: None)
        self.active_highwaters: Any = defaultdict(int)
        self.tp_to_table: dict[TP, Any] = {}
        self.buffers: dict[Any, list[Any]] = {}
        self.actives_for_table: Any = defaultdict(set)
        self.standbys_for_table: Any = defaultdict(set)
        self.named: list[Any] = []

    def revoke(self, tp: TP) -> None:
        """Do nothing, unlike Faust."""

    def _add(self, table: Any, tp: TP, offsets: Any) -> None:
        if (persisted := table.persisted_offset(tp)) is not None:
            offsets[tp] = persisted
        offsets.setdefault(tp, None)

    async def _wait(self, coro: Any, timeout: Any = None) -> None:
        self.acts.append(("wait", timeout))
        await coro

    async def sleep(self, seconds: float) -> None:
        """Record the seconds."""
        self.acts.append(("sleep", seconds))
        await asyncio.sleep(0)

    async def wait(self, what: Any, timeout: float | None = None) -> None:
        """Wait for an event or a coroutine."""
        await asyncio.wait_for(what.wait() if hasattr(what, "wait") else what, timeout)

    async def wait_for_stopped(self, *events: Any, timeout: Any = None) -> bool:
        """Wait for the first event; return whether the service stops."""
        await events[0].wait()
        return self.should_stop

    def add_future(self, coro: Any) -> Any:
        """Start a task."""
        return asyncio.ensure_future(coro)


class Recovery(RecoveryLoop, Host):  # type: ignore[misc]
    """Our recovery over the stub."""

    def ahead_are(self, *tps: TP, error: BaseException | None = None) -> None:
        """Set the comparison's result or its error."""

        async def ahead(*_: Any) -> frozenset[TP]:
            if error is not None:
                raise error
            return frozenset(tps)

        self.consistency.ahead = ahead  # type: ignore[method-assign]


class Table(SimpleNamespace):
    """A table compared by identity."""

    __hash__ = object.__hash__


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Recovery:
    """A recovery with active ``A`` and standby ``B``, of one table with files."""
    acts: list[Any] = []
    for module, names in (
        (table_failures.flushing, ("resume", "hold")),
        (recovery_loop.windows, ("restored", "revoked", "committed")),
    ):
        for name in names:
            monkeypatch.setattr(
                module, name, lambda *args, what=name: acts.append((what, *args[1:]))
            )
    flow = SimpleNamespace(
        suspend=lambda: acts.append("suspend"), clear=lambda: acts.append("clear")
    )
    app = SimpleNamespace(
        acts=acts,
        consumer=Consumer(acts),
        consumer_generation_id=3,
        in_transaction=False,
        should_stop=False,
        flow_control=flow,
        conf=SimpleNamespace(recovery_consistency_check=True),
        assignor=SimpleNamespace(counters=defaultdict(int)),
    )
    store = Store()
    table = Table(name="counts", data=store, persisted={A: 7, B: 7}, applied=[], error=None)
    table.persisted_offset = lambda tp: table.persisted[tp]

    def apply(events: Any) -> None:
        if table.error is not None and any(event.key is None for event in events):
            raise table.error
        table.applied += [event.key for event in events]

    table.apply_changelog_batch = apply
    store.set_persisted_offset = lambda tp, offset: table.persisted.update({tp: offset})  # type: ignore[method-assign]
    for part in (recovery_loop, databases):
        monkeypatch.setattr(part, "is_storage_error", lambda error: isinstance(error, OSError))
    recovery = Recovery(app, SimpleNamespace(closings=["closing"], _recovery=None))
    recovery.unreadable = SimpleNamespace(  # type: ignore[assignment]
        add=lambda error, message: recovery.named.append(
            (message.tp, [(message.offset, message.key, message.value, error)])
        )
    )
    recovery.tp_to_table.update({A: table, B: table})
    recovery.completed_generation = 3
    return recovery


async def open_tables(made: Any) -> None:
    """Open the databases of all partitions under recovery."""
    await RoundBooks(made)._open(made.active_tps | made.standby_tps)


def table_of(made: Recovery) -> Any:
    """Return the only table."""
    return made.tp_to_table[A]


# -- flow of partitions


def test_a_partition_that_goes_loses_its_windows(made: Recovery) -> None:
    """The next owner closes these windows."""
    made.revoke(A)
    assert made.acts == [("revoked", A)]


def test_a_database_that_is_opened_anew_is_doubtful(made: Recovery) -> None:
    """It may lack records that count as read."""
    made.databases.doubtful = frozenset({A})
    assert made.is_doubtful(A)
    assert not made.is_doubtful(B)


async def test_no_step_of_the_recovery_has_a_time_limit_of_fausts(made: Recovery) -> None:
    """``waiting_for`` names the innermost step."""
    seen: list[str] = []

    async def _seek_offsets() -> None:
        assert made.waiting_for is not None
        seen.append(made.waiting_for[0])

    async def _restart_recovery() -> None:
        await made._wait(_seek_offsets(), timeout=1.0)
        assert made.waiting_for is not None
        seen.append(made.waiting_for[0])

    await made._wait(_restart_recovery(), timeout=1.0)
    assert made.acts == [("wait", None)] * 2
    assert seen == ["seek offsets", "restart recovery"]
    assert made.waiting_for is None


async def test_the_loop_is_idle_while_it_waits_for_a_recovery(made: Recovery) -> None:
    """It is not idle during any other wait."""
    waiting = asyncio.ensure_future(made.wait_for_stopped(made.signal_recovery_start))
    await asyncio.sleep(0)
    assert made.idle
    made.signal_recovery_start.set()
    await waiting
    assert not made.idle
    other = asyncio.ensure_future(made.wait_for_stopped(made.signal_recovery_end))
    await asyncio.sleep(0)
    assert not made.idle
    made.signal_recovery_end.set()
    await other


@pytest.mark.parametrize("reason", [None, "recovery", "between generations", "nothing"])
async def test_what_standbys_have_read_is_written_every_second(
    made: Recovery, reason: str | None
) -> None:
    """A recovery writes the records itself; between generations they are not written."""
    made.buffers = {table_of(made): [] if reason == "nothing" else [event(b"k", 8)]}
    made.in_recovery = reason == "recovery"
    made.app.consumer.between_generations = reason == "between generations"

    async def once(seconds: float) -> None:
        if made.should_stop:
            await asyncio.sleep(60)
        made.should_stop = True

    made.sleep = once  # type: ignore[method-assign]
    await made._keep_standbys_on_disk(made)
    assert table_of(made).applied == ([b"k"] if reason is None else [])


# -- tables ahead of their changelogs


async def compared_once(made: Recovery) -> None:
    """Run one comparison, then stop the loop."""
    compare = made._compare_files

    async def once() -> None:
        try:
            await compare()
        finally:
            made.should_stop = True

    made._compare_files = once  # type: ignore[method-assign]
    made.consistency.doubt_is_new.set()
    await asyncio.wait_for(made._compare_beside_streams(made), PATIENCE_S)


async def test_a_running_worker_restores_anew_what_is_ahead(made: Recovery) -> None:
    """Changes are held, the file's offset is reset, the database reopened, the doubt cleared."""
    table_of(made).data._dbs = {0: "db", 1: "db"}
    made.app.consumer.ends, made.app.consumer.first[A] = {A: 5, B: 100}, 3
    made.ahead_are(A)
    made.consistency.doubted[A] = 4
    await compared_once(made)
    assert made.acts == [("hold",)]
    assert table_of(made).persisted == {A: 2, B: 7}
    assert made.databases.doubtful == {A}
    assert made.consistency.doubted == {}
    assert not made.consistency.doubt_is_new.is_set()
    made.should_stop = False
    made.restart_recovery()
    assert made.signal_recovery_start.is_set()


async def test_a_running_worker_that_has_to_refuse_its_table_ends(made: Recovery) -> None:
    """Any other error is logged, and the next comparison runs."""
    table_of(made).data._dbs = {0: "db", 1: "db"}
    made.app.consumer.ends = {A: 5, B: 5}
    made.ahead_are(error=ConsistencyError("ahead"))
    with pytest.raises(ConsistencyError):
        await compared_once(made)
    made.should_stop = False
    made.ahead_are(error=OSError("no broker"))
    await compared_once(made)


async def test_only_open_files_of_partitions_here_are_compared(made: Recovery) -> None:
    """Opening a closed file would lock it."""
    asked: list[Any] = []

    async def ahead(tables: Any, offsets: Mapping[TP, Any], ends: Any) -> frozenset[TP]:
        asked.append(dict(offsets))
        return frozenset()

    made.consistency.ahead = ahead  # type: ignore[method-assign]
    table_of(made).data._dbs = {0: "db"}
    made.app.consumer.ends = {A: 5, B: 5}
    await compared_once(made)
    assert asked == [{A: 7}]
    table_of(made).data._dbs, made.standby_tps = {0: "db", 1: "db"}, set()
    await made._compare_files()
    assert asked == [{A: 7}] * 2, "B has left, and its file is not closed yet"


# -- tables with failed reads or writes


def event(key: Any, offset: int, tp: TP = A) -> Any:
    """Return a changelog record."""
    message = SimpleNamespace(tp=tp, offset=offset, key=key, value=b"1")
    return SimpleNamespace(key=key, message=message)


def test_a_record_that_a_table_refuses_costs_no_other(made: Recovery) -> None:
    """The refused record is reported; the other records are applied one by one."""
    table = table_of(made)
    table.error = ValueError("no key")
    buffer = [event(b"a", 1), event(None, 2), event(b"c", 3)]
    made.buffers = {table: buffer}
    made.flush_buffers()
    assert table.applied == [b"a", b"c"]
    assert [(tp, rows[0][0]) for tp, rows in made.named] == [(A, 2)]
    assert buffer == []


def test_nothing_more_is_written_once_a_write_has_failed(made: Recovery) -> None:
    """Other tables are not written either: all tables are replayed from their files."""
    table = table_of(made)
    table.error = OSError("no space left")
    other = Table(name="sums", apply_changelog_batch=lambda events: made.acts.append("other"))
    made.buffers = {table: [event(None, 1)], other: [event(b"x", 1)]}
    made.flush_buffers()
    assert "other" not in made.acts
    assert made.buffers == {}
    assert made.databases.doubtful == {A, B}
    assert made.failures.failed.is_set()
    assert [act for act in made.acts if act != ("hold",)] == [
        "stop flow",
        "suspend",
        ("pause", {A, B}),
        "clear",
    ]
    assert ("hold",) in made.acts


async def test_a_table_that_fails_under_exactly_once_ends_the_worker(
    made: Recovery, caplog: pytest.LogCaptureFixture
) -> None:
    """Its transactions are incomplete; a stopping worker needs no further error."""
    made.app.in_transaction = True
    made.app.should_stop = True
    made.tables_failed("counts", OSError("gone"))
    assert "stop flow" not in made.acts
    made.app.should_stop = False
    tasks: list[Any] = []
    made.add_future = tasks.append  # type: ignore[method-assign]
    made.tables_failed("counts", OSError("gone"))
    with pytest.raises(OSError, match="gone"):
        await tasks[0]
    assert "stop flow" not in made.acts
    assert "cannot be read or written; the worker ends, because" in caplog.text


async def troubled(made: Recovery, *at: float, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the recovery's pauses after failures at the given times."""
    times, pauses, now = list(at), list[float](), 0.0
    monkeypatch.setattr(table_failures, "monotonic", lambda: now)

    async def next_trouble(_: Any) -> bool:
        nonlocal now
        if not times:
            return True
        now = times.pop(0)
        made.failures.failed.set()
        return False

    async def sleep(seconds: float) -> None:
        assert not made.failures.failed.is_set(), "a trouble meanwhile is another one"
        pauses.append(seconds)

    made.wait_for_stopped, made.sleep = next_trouble, sleep  # type: ignore[method-assign]
    await made._begin_again(made)
    return pauses


async def test_the_pause_grows_with_each_trouble_until_a_calm_minute(
    made: Recovery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a minute without failures the pause is short again."""
    pauses = await troubled(made, 1000.0, 1050.0, 1100.0, 1170.0, monkeypatch=monkeypatch)
    assert pauses == [0.5, 1.0, 2.0, 0.5]
    assert made.signal_recovery_start.is_set()


@pytest.mark.parametrize("in_recovery", [True, False])
async def test_streams_may_finish_before_their_tables_begin_again(
    made: Recovery, in_recovery: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """During a recovery no streams run, so it does not wait."""
    made.in_recovery = in_recovery
    await troubled(made, 1.0, monkeypatch=monkeypatch)
    assert ("wait empty" in made.acts) is not in_recovery


@pytest.mark.parametrize("reason", ["stops", "between generations"])
def test_nothing_begins_again_where_the_next_generation_does(made: Recovery, reason: str) -> None:
    """A stopping worker does not restart its recovery either."""
    made.should_stop = reason == "stops"
    made.app.consumer.between_generations = reason != "stops"
    made.restart_recovery()
    assert not made.signal_recovery_start.is_set()


async def test_what_failed_is_closed_opened_anew_and_read_from_where_its_file_is(
    made: Recovery,
) -> None:
    """Offsets of unfailed partitions stay; afterwards no partition is in doubt."""
    made.databases.doubtful = frozenset({A})
    made.active_offsets[A] = made.standby_offsets[B] = 30
    await open_tables(made)
    assert table_of(made).data.acts == [("close", 0), ("open", 0), ("open", 1)]
    assert (made.active_offsets[A], made.standby_offsets[B]) == (7, 30)
    assert made.databases.doubtful == frozenset()


async def test_a_file_that_was_lost_is_read_from_the_first_record(made: Recovery) -> None:
    """Earlier reads into the lost file do not count."""
    made.databases.doubtful, made.active_offsets[A] = frozenset({A}), 30
    table_of(made).persisted[A] = None
    await open_tables(made)
    assert made.active_offsets[A] is None


async def test_a_database_that_does_not_open_is_waited_for_longer_each_time(made: Recovery) -> None:
    """The database is reopened, and its offset is read from its file."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            table_of(made).data.broken.clear()

    made.sleep = sleep  # type: ignore[method-assign]
    table_of(made).data.broken = {1}
    made.standby_offsets[B] = 30
    await open_tables(made)
    assert pauses == [0.5, 1.0, 2.0]
    assert made.standby_offsets[B] == 7
    assert ("close", 1) in table_of(made).data.acts


async def test_a_worker_that_stops_waits_for_no_database(made: Recovery) -> None:
    """It raises Faust's ServiceStopped."""
    table_of(made).data.broken, made.should_stop = {0}, True
    with pytest.raises(ServiceStopped):
        await open_tables(made)


@pytest.mark.parametrize("error", [OSError("locked"), ValueError("a bug")])
def test_a_partition_whose_file_does_not_tell_its_offset_is_opened_anew(
    made: Recovery, error: Exception
) -> None:
    """An error other than a storage error is raised."""

    def persisted_offset(tp: TP) -> int:
        raise error

    table_of(made).persisted_offset = persisted_offset
    if isinstance(error, ValueError):
        with pytest.raises(ValueError, match="bug"):
            made.add_active(table_of(made), A)
        return
    made.add_active(table_of(made), A)
    assert A in made.active_offsets
    assert made.active_offsets[A] is None
    assert made.databases.doubtful == {A}
    made.active_offsets[A] = 4
    made.add_active(table_of(made), A)
    assert made.active_offsets == {A: 4}, "an offset that is known stays"


# -- two tables, repeated comparisons


def second_table(made: Recovery) -> Any:
    """Add a table ``sums`` with the active partition ``C``, its file at offset 17."""
    store = Store()
    table = Table(name="sums", data=store, applied=[], offsets=[])
    table.persisted_offset = lambda tp: 17
    store.set_persisted_offset = lambda *given: table.offsets.append(given)  # type: ignore[method-assign]
    table.apply_changelog_batch = lambda events: table.applied.append(
        [event.key for event in events]
    )
    made.tp_to_table[C] = table
    made.active_tps.add(C)
    return table


async def looks(made: Recovery, *states: str) -> list[Any]:
    """Run a comparison in each of these states; return the acts."""
    left, acts = list(states), list[Any]()

    async def wait(event: Any, timeout: float | None = None) -> None:
        assert event is made.consistency.doubt_is_new
        made.consistency.doubt_is_new.set()
        state = left.pop(0)
        acts.append((state, timeout))
        made.should_stop = state == "stops"
        made.in_recovery = state == "recovers"
        made.app.consumer.between_generations = state == "between"

    async def compare() -> None:
        assert not made.consistency.doubt_is_new.is_set()
        acts.append("compared")
        if acts[-2][0] == "fails":
            raise OSError("no broker")

    made.wait, made._compare_files = wait, compare  # type: ignore[method-assign]
    await made._compare_beside_streams(made)
    return acts


async def test_tables_are_compared_regularly_while_streams_run(made: Recovery, caplog: Any) -> None:
    """Not in a recovery, between generations or at the end; failures are logged once a minute."""
    every = recovery_loop.COMPARE_S
    found = await looks(made, "runs", "recovers", "between", "fails", "fails", "runs", "stops")
    assert found == [
        ("runs", every),
        "compared",
        ("recovers", every),
        ("between", every),
        ("fails", every),
        "compared",
        ("fails", every),
        "compared",
        ("runs", every),
        "compared",
        ("stops", every),
    ]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "no broker" in caplog.text


async def test_a_doubt_that_comes_during_a_comparison_causes_the_next_one(made: Recovery) -> None:
    """The comparison waits for Kafka's end offsets meanwhile; the next one does not wait."""
    doubt, seen = made.consistency.doubt_is_new, list[bool]()

    async def wait(event: Any, timeout: float | None = None) -> None:
        seen.append(event.is_set())
        made.should_stop = len(seen) == 3

    async def compare() -> None:
        if len(seen) == 1:
            doubt.set()

    made.wait, made._compare_files = wait, compare  # type: ignore[method-assign]
    await made._compare_beside_streams(made)
    assert seen == [False, True, False]


async def test_the_open_files_of_every_table_are_compared(made: Recovery) -> None:
    """Tables ahead restart at their first offsets; partitions of earlier failures stay in doubt."""
    second, first = second_table(made), table_of(made)
    first.data._dbs, second.data._dbs = {0: "db", 1: "db"}, {2: "db"}
    made.tp_to_table[TP("sums", 0)] = second
    consumer = made.app.consumer
    consumer.ends, consumer.first[B], consumer.first[C] = {A: 5, B: 6, C: 9}, 3, 8
    asked: list[Any] = []

    async def ahead(*given: Any) -> frozenset[TP]:
        asked.append(given)
        return frozenset({B, C})

    made.consistency.ahead = ahead  # type: ignore[method-assign]
    made.consistency.doubted = {A: 1, B: 2, C: 3}
    made.databases.doubtful = frozenset({A})
    await made._compare_files()
    assert asked == [(made.tp_to_table, {A: 7, B: 7, C: 17}, {A: 5, B: 6, C: 9})]
    assert (first.persisted, second.offsets) == ({A: 7, B: 2}, [(C, 7)])
    assert made.databases.doubtful == {A, B, C}
    assert made.consistency.doubted == {A: 1}
    assert made.acts == [("hold",)]
    assert made.signal_recovery_start.is_set()


@pytest.mark.parametrize("reason", ["no file is open", "none is ahead"])
async def test_a_comparison_that_finds_nothing_does_nothing(made: Recovery, reason: str) -> None:
    """Without open files the broker gets no request."""
    asked: list[Any] = []

    async def highwaters(*tps: TP) -> dict[TP, int]:
        asked.append(tps)
        return {A: 100}

    made.app.consumer.highwaters = highwaters
    made.ahead_are()
    table_of(made).data._dbs = {} if reason == "no file is open" else {0: "db"}
    await made._compare_files()
    assert asked == ([] if reason == "no file is open" else [(A,)])
    assert (made.acts, made.databases.doubtful) == ([], frozenset())
    assert not made.signal_recovery_start.is_set()


def test_all_tables_are_written_and_the_time_is_noted(
    made: Recovery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each table gets its own records, and the buffers are empty afterwards."""
    monkeypatch.setattr(recovery_loop, "monotonic", lambda: 123.0)
    second, first = second_table(made), table_of(made)
    buffers = [event(b"a", 1), event(b"b", 2)], [event(b"c", 3, C)]
    made.buffers = {first: buffers[0], second: buffers[1]}
    made.flush_buffers()
    assert (first.applied, second.applied) == ([b"a", b"b"], [[b"c"]])
    assert (buffers, list(made.buffers)) == (([], []), [first, second])
    assert made._last_flush_at == 123.0


def test_records_are_applied_one_by_one_until_the_disk_fails(made: Recovery) -> None:
    """A refused record is reported in full; after a failed write no record is applied."""
    refused, failed, acts = ValueError("no key"), OSError("full"), list[Any]()
    errors: dict[Any, Exception] = {None: refused, b"full": failed}

    def apply(events: Any) -> None:
        if len(events) > 1:
            raise refused
        acts.append(events[0].key)
        if (error := errors.get(events[0].key)) is not None:
            raise error

    table = table_of(made)
    table.apply_changelog_batch = apply
    made.tables_failed = lambda *given: acts.append(given)  # type: ignore[method-assign]
    rows = [event(b"a", 1), event(None, 2, B), event(b"c", 3), event(b"full", 4), event(b"e", 5)]
    made.buffers = {table: rows}
    made.flush_buffers()
    assert acts == [b"a", None, b"c", b"full", ("counts", failed)]
    assert made.named == [(B, [(2, None, b"1", refused)])]


def test_a_failure_of_tables_is_logged_once_a_minute(made: Recovery, caplog: Any) -> None:
    """Each failure holds changes and stops the flow in order; all partitions are reopened."""
    second_table(made)
    for _ in range(2):
        made.acts.clear()
        made.databases.doubtful = frozenset()
        made.buffers = {table_of(made): [event(b"a", 1)]}
        made.tables_failed("sums", OSError("full"))
        assert made.acts == [("hold",), "stop flow", "suspend", ("pause", {A, B}), "clear"]
        assert (made.databases.doubtful, made.buffers) == ({A, B, C}, {})
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "Table sums cannot be read or written" in caplog.text


async def test_a_worker_that_stops_notes_its_failed_tables_only(made: Recovery) -> None:
    """Its streams stop anyway, and no recovery begins."""
    made.app.should_stop = True
    made.tables_failed("counts", OSError("gone"))
    assert made.acts == [("hold",)]
    assert made.databases.doubtful == {A, B}
    assert not made.failures.failed.is_set()


async def test_a_minute_without_a_failure_has_to_be_over(
    made: Recovery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pause resets only after more than a minute since the last failure."""
    trust = table_failures.TRUSTED_AFTER_S
    pauses = await troubled(
        made, 500.0, 500.0 + trust, 500.0 + 2 * trust + 0.1, 1000.0, monkeypatch=monkeypatch
    )
    assert pauses == [0.5, 1.0, 0.5, 0.5]


async def test_the_events_under_way_get_ten_seconds(
    made: Recovery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the ten seconds the recovery begins in any case."""
    waits: list[Any] = []

    async def wait(what: Any, timeout: float | None = None) -> None:
        await what
        waits.append(timeout)

    made.wait = wait  # type: ignore[method-assign]
    await troubled(made, 1.0, monkeypatch=monkeypatch)
    assert waits == [table_failures.PATIENCE_S]
    assert made.signal_recovery_start.is_set()


async def test_a_step_that_fails_is_no_longer_waited_for(
    made: Recovery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``waiting_for`` has the coroutine's name, else the event's type, and the start time."""
    now = 50.0
    monkeypatch.setattr(recovery_loop, "monotonic", lambda: now)
    seen: list[Any] = []

    class Step:
        def __await__(self) -> Any:
            seen.append(made.waiting_for)
            yield from ()

    async def _seek() -> None:
        nonlocal now
        seen.append(made.waiting_for)
        now = 60.0
        await made._wait(Step())
        seen.append(made.waiting_for)
        raise OSError("lost")

    with pytest.raises(OSError, match="lost"):
        await made._wait(_seek(), timeout=3.0)
    assert seen == [("seek", 50.0), ("Step", 60.0), ("seek", 50.0)]
    assert made.waiting_for is None
    assert made.acts == [("wait", None)] * 2


async def test_a_wait_for_a_recovery_that_is_cancelled_is_over(made: Recovery) -> None:
    """The result and the time limit are the host's."""
    waiting = asyncio.ensure_future(made.wait_for_stopped(made.signal_recovery_start))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    assert not made.idle
    asked: list[Any] = []

    async def host(self: Any, *events: Any, timeout: Any = None) -> int:
        asked.append((events, timeout, made.idle))
        return 1

    patched = pytest.MonkeyPatch()
    patched.setattr(Host, "wait_for_stopped", host)
    try:
        start, end = made.signal_recovery_start, made.signal_recovery_end
        assert await made.wait_for_stopped(start, timeout=3.0) is True
        assert await made.wait_for_stopped(end, start, timeout=4.0) is True
    finally:
        patched.undo()
    assert asked == [((start,), 3.0, True), ((end, start), 4.0, False)]


def test_a_new_recovery_waits_for_nothing_and_has_completed_none(made: Recovery) -> None:
    """The watchdog reads these fields."""
    fresh = Recovery(made.app, made.tables)
    assert (fresh.waiting_for, fresh.completed_generation, fresh.idle) == (None, None, False)
    assert fresh.databases.doubtful == frozenset()
    assert not fresh.failures.failed.is_set()


async def test_what_failed_is_opened_anew_in_both_roles(made: Recovery) -> None:
    """A partition of no role stays in doubt; the other partitions keep their offsets."""
    second, other = second_table(made), TP("log", 9)
    made.databases.doubtful = frozenset({B, C, other})
    made.active_offsets.update({A: 1, C: 2})
    made.standby_offsets.update({B: 3})
    await open_tables(made)
    assert second.data.acts == [("close", 2), ("open", 2)]
    assert table_of(made).data.acts == [("close", 1), ("open", 0), ("open", 1)]
    assert dict(made.active_offsets) == {A: 1, C: 17}
    assert dict(made.standby_offsets) == {B: 7}
    assert made.databases.doubtful == {other}


def test_the_first_database_that_does_not_open_is_named(made: Recovery) -> None:
    """Later databases are not tried, and the failed one is reopened next time."""
    second = second_table(made)
    second.data.broken, table_of(made).data.broken = {2}, {1}
    made.tp_to_table[A] = Table(name="memory", data=SimpleNamespace())
    assert (
        made.databases._open_each(made.active_tps | made.standby_tps)
        == "log-1: no space left on device"
    )
    assert made.databases.doubtful == {B}
    assert second.data.acts == []
    table_of_b = made.tp_to_table[B]
    table_of_b.data.broken = set()
    assert (
        made.databases._open_each(made.active_tps | made.standby_tps)
        == "sums-2: no space left on device"
    )
    assert made.databases.doubtful == {B, C}
    assert table_of_b.data.acts == [("close", 1), ("open", 1)]
    second.data.broken = set()
    assert made.databases._open_each(made.active_tps | made.standby_tps) is None


# -- the table manager


@pytest.mark.parametrize(("stops", "started"), [(True, True), (True, False), (False, True)])
async def test_the_group_is_left_before_tables_are_closed(
    monkeypatch: pytest.MonkeyPatch, stops: bool, started: bool
) -> None:
    """This holds for a stopping worker whose recovery has started."""
    acts: list[str] = []

    class Stock(TableManager):  # type: ignore[misc]
        async def on_stop(self) -> None:
            acts.append("tables closed")

    async def leave() -> None:
        acts.append("left")

    class Tables(RecoveringTables, Stock):  # type: ignore[misc]
        recovery = SimpleNamespace(started=started)  # type: ignore[assignment]

        def __init__(self) -> None:
            consumer = SimpleNamespace(leave_group=leave)
            self.app = SimpleNamespace(should_stop=stops, consumer=consumer)

    await Tables().on_stop()
    assert acts == (["left", "tables closed"] if stops and started else ["tables closed"])


async def test_every_restore_stops_before_databases_are_closed_or_opened() -> None:
    """A revocation stops the restores; an assignment waits for their threads."""
    acts: list[str] = []

    class Stock(TableManager):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            acts.append("closed")

        async def on_rebalance(self, *args: Any) -> None:
            acts.append("opened")

    class Restore:
        def stop_assigning(self) -> None:
            acts.append("assigning")

        def stop_restoring(self) -> None:
            acts.append("restoring")

        async def stop_and_wait(self) -> None:
            acts.append("settled")

    class Tables(RecoveringTables, Stock):  # type: ignore[misc]
        recovery = Restore()  # type: ignore[assignment]

        def __init__(self) -> None:
            """Omit the app."""

    tables = Tables()
    tables.on_partitions_revoked({A})
    assert acts == ["assigning", "restoring", "closed"]
    await tables.on_rebalance({A}, set(), {A}, 7)
    assert acts[3:] == ["settled", "opened"]


def test_files_and_windows_hear_of_what_is_committed(made: Recovery) -> None:
    """Committed records advance a window's clock."""

    class Stock(TableManager):  # type: ignore[misc]
        def on_commit(self, offsets: Any) -> None:
            made.acts.append(("files", offsets))

    class Tables(RecoveringTables, Stock):  # type: ignore[misc]
        def __init__(self) -> None:
            self.closings = ["one", "two"]

    module, closings = sys.modules[RecoveringTables.__module__], list[Any]()
    patched = pytest.MonkeyPatch()
    patched.setattr(
        module.windows,
        "committed",
        lambda given, offsets: (
            closings.append(list(given)) or made.acts.append(("closed", offsets))
        ),
    )
    try:
        Tables().on_commit({A: 5})
    finally:
        patched.undo()
    assert made.acts == [("files", {A: 5}), ("closed", {A: 5})]
    assert closings == [["one", "two"]]


async def test_changelog_records_of_before_a_standstill_are_dropped() -> None:
    """The next recovery starts at the tables' offsets and reads these records again."""
    flow = FlowControlEvent()
    app = SimpleNamespace(conf=SimpleNamespace(stream_buffer_maxsize=10), flow_control=flow)
    tables: Any = SimpleNamespace(app=app)
    make: Any = RecoveringTables.changelog_queue
    queue = make.func(tables)
    flow.resume()
    await queue.put("a record")
    flow.suspend()
    assert queue.qsize() == 1
    flow.clear()
    assert queue.empty()


async def test_the_queue_and_the_recovery_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue has the app's limit and flow control; the recovery has the composed class."""
    made: list[Any] = []

    class Kind:
        def __init__(self, *given: Any, **how: Any) -> None:
            made.append((given, how))

    module = sys.modules[RecoveringTables.__module__]
    monkeypatch.setattr(module, "over", lambda kind, host: made.append((kind, host)) or Kind)
    flow = FlowControlEvent()
    app = SimpleNamespace(conf=SimpleNamespace(stream_buffer_maxsize=13), flow_control=flow)

    class Tables(RecoveringTables):
        def __init__(self) -> None:
            self.app, self._recovery = app, None
            self.beacon, self.loop = "beacon", "loop"

    tables = Tables()
    queue, recovery = tables.changelog_queue, tables.recovery
    assert (queue.maxsize, queue.app) == (13, app)
    assert tables.changelog_queue is queue
    assert tables.recovery is recovery
    faust_recovery = module.Recovery
    assert made == [
        (module.PartitionRecovery, faust_recovery),
        ((app, tables), {"beacon": "beacon", "loop": "loop"}),
    ]


def test_windows_of_each_table_with_windows_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store is wrapped before Faust adds the table; a table without windows has no closing."""
    acts: list[Any] = []
    module = sys.modules[RecoveringTables.__module__]
    monkeypatch.setattr(module, "install_write_behind", lambda table: acts.append(("wrap", table)))
    monkeypatch.setattr(
        module.windows, "install", lambda app, table: f"{app} {table}" if table != "flat" else None
    )

    class Stock(TableManager):  # type: ignore[misc]
        def __init__(self, *given: Any, **how: Any) -> None:
            acts.append((given, how))

        def add(self, table: Any) -> str:
            acts.append(("add", table))
            return f"added {table}"

    class Tables(RecoveringTables, Stock):  # type: ignore[misc]
        app = "app"

    tables: Any = Tables(1, two=2)
    assert [tables.add(name) for name in ("a", "flat", "b")] == ["added a", "added flat", "added b"]
    assert acts == [
        ((1,), {"two": 2}),
        *((act, name) for name in ("a", "flat", "b") for act in ("wrap", "add")),
    ]
    assert tables.closings == ["app a", "app b"]


async def test_every_channel_reports_records_that_do_not_decode() -> None:
    """Faust's step creates the channels."""

    class Stock(TableManager):  # type: ignore[misc]
        async def _update_channels(self) -> None:
            self._channels = {name: SimpleNamespace(on_decode_error=None) for name in "ab"}

    class Tables(RecoveringTables, Stock):  # type: ignore[misc]
        recovery = SimpleNamespace(unreadable=SimpleNamespace(add_undecoded="report"))  # type: ignore[assignment]

        def __init__(self) -> None:
            """Omit the app."""

    tables: Any = Tables()
    await tables._update_channels()
    assert [one.on_decode_error for one in tables._channels.values()] == ["report"] * 2


async def test_a_rebalance_is_passed_on_whole() -> None:
    """A missing generation becomes 0; a consumer without leave_group is not called."""
    rounds: list[Any] = []

    class Stock(TableManager):  # type: ignore[misc]
        async def on_rebalance(self, *given: Any) -> None:
            rounds.append(given)

        async def on_stop(self) -> None:
            rounds.append("stopped")

    async def settle() -> None:
        rounds.append("settled")

    class Tables(RecoveringTables, Stock):  # type: ignore[misc]
        recovery = SimpleNamespace(stop_and_wait=settle, started=True)  # type: ignore[assignment]

        def __init__(self) -> None:
            self.app = SimpleNamespace(should_stop=True, consumer=SimpleNamespace())

    tables = Tables()
    await tables.on_rebalance({A}, {B}, {C}, 7)
    await tables.on_rebalance({C}, {A}, {B})
    await tables.on_stop()
    assert rounds == ["settled", ({A}, {B}, {C}, 7), "settled", ({C}, {A}, {B}, 0), "stopped"]


async def test_the_comparison_of_a_recovery_is_repeated_until_it_is_made(
    made: Recovery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request has the tables of all partitions, the recovery's offsets and the known ends."""
    asked: list[Any] = []

    async def retry(service: Any, what: str, step: Any) -> Any:
        asked.append((service, what))
        return await step()

    async def ahead(*given: Any) -> frozenset[TP]:
        asked.append(given)
        return frozenset({B})

    monkeypatch.setattr(consistency, "retry", retry)
    made.consistency.ahead = ahead  # type: ignore[method-assign]
    offsets: dict[TP, int | None] = {A: 1, B: 9}
    await made.consistency.refuse_ahead(made, offsets, {A: 2}, {A: 0, B: 3})
    assert (offsets, table_of(made).persisted) == ({A: 1, B: 2}, {A: 7, B: 2})
    what = "The end offsets of changelogs that tables are ahead of"
    assert asked == [(made, what), (made.tp_to_table, offsets, {A: 2})]


async def test_standbys_are_written_at_their_interval(made: Recovery) -> None:
    """If any table has buffered records, all tables are written."""
    slept: list[float] = []
    second, first = second_table(made), table_of(made)
    made.buffers = {first: [], second: []}

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            made.buffers[second].append(event(b"k", 8, C))
        made.should_stop = len(slept) == 2

    made.sleep = sleep  # type: ignore[method-assign]
    await made._keep_standbys_on_disk(made)
    assert slept == [recovery_loop.STANDBY_FLUSH_INTERVAL_S] * 2
    assert second.applied == [[b"k"]]


async def test_rows_are_held_once_it_is_known_where_the_changelog_begins(made: Recovery) -> None:
    """If the first offset is unknown, no state changes and the next comparison repeats."""
    table_of(made).data._dbs = {0: "db"}
    made.app.consumer.ends = {A: 5}
    made.ahead_are(A)

    async def silent(*tps: TP) -> dict[TP, int]:
        raise OSError("no broker")

    made.app.consumer.earliest_offsets = silent  # type: ignore[method-assign]
    with pytest.raises(OSError, match="no broker"):
        await made._compare_files()
    assert (made.acts, made.databases.doubtful, table_of(made).persisted[A]) == ([], frozenset(), 7)
