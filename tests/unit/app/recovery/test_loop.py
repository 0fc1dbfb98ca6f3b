"""Faust's recovery with our steps, one at a time: who is ahead, which tables failed, what may flow."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from faust.exceptions import ConsistencyError
from faust.tables.recovery import ServiceStopped
from faust.types import TP
from mode.utils.queues import FlowControlEvent

from faust_assigner.app.recovery import loop as recovery_loop
from faust_assigner.app.recovery.loop import RecoveryLoop
from faust_assigner.app.recovery.table_manager import RecoveringTables
from faust_assigner.app.tables.files import TableStore

A, B = TP("log", 0), TP("log", 1)


class FileError(Exception):
    """RocksDB's, by its text."""


class Store(TableStore):
    """A store whose databases open unless ``broken``."""

    def __init__(self) -> None:
        self.broken: set[int] = set()
        self.acts: list[Any] = []
        self._dbs: dict[int, str] = {}

    def close_partition(self, partition: int) -> None:
        """Close."""
        self.acts.append(("close", partition))

    def _db_for_partition(self, partition: int) -> str:
        if partition in self.broken:
            raise OSError("no space left on device")
        self.acts.append(("open", partition))
        return self._dbs.setdefault(partition, "db")


class Consumer:
    """Of the app."""

    def __init__(self, acts: list[Any]) -> None:
        self.acts, self.between_generations = acts, False
        self.first: dict[TP, int] = defaultdict(int)
        self.ends: dict[TP, int] = {}

    async def earliest_offsets(self, *tps: TP) -> dict[TP, int]:
        """Where logs begin."""
        return {tp: self.first[tp] for tp in tps}

    async def highwaters(self, *tps: TP) -> dict[TP, int]:
        """Where logs end."""
        return {tp: self.ends[tp] for tp in tps}

    def assignment(self) -> set[TP]:
        """What is assigned."""
        return {A, B}

    def pause_partitions(self, tps: set[TP]) -> None:
        """Pause."""
        self.acts.append(("pause", tps))

    def stop_flow(self) -> None:
        """Stop."""
        self.acts.append("stop flow")

    async def wait_empty(self) -> None:
        """Wait for the streams."""
        self.acts.append("wait empty")


class Host:
    """Of Faust's recovery."""

    def __init__(self, app: Any, tables: Any) -> None:
        self.app, self.tables, self.acts = app, tables, app.acts
        self.should_stop, self.started, self.in_recovery = False, True, False
        self.signal_recovery_start = asyncio.Event()
        self.signal_recovery_end = asyncio.Event()
        self.active_tps, self.standby_tps = {A}, {B}
        self.active_offsets: Any = defaultdict(lambda: None)
        self.standby_offsets: Any = defaultdict(lambda: None)
        self.active_highwaters: Any = defaultdict(int)
        self.tp_to_table: dict[TP, Any] = {}
        self.buffers: dict[Any, list[Any]] = {}
        self.named: list[Any] = []

    def revoke(self, tp: TP) -> None:
        """As Faust's."""

    def _add(self, table: Any, tp: TP, offsets: Any) -> None:
        if (persisted := table.persisted_offset(tp)) is not None:
            offsets[tp] = persisted
        offsets.setdefault(tp, None)

    async def _wait(self, coro: Any, timeout: Any = None) -> None:
        self.acts.append(("wait", timeout))
        await coro

    async def sleep(self, seconds: float) -> None:
        """As mode's."""
        self.acts.append(("sleep", seconds))
        await asyncio.sleep(0)

    async def wait(self, what: Any, timeout: float | None = None) -> None:
        """As mode's."""
        await asyncio.wait_for(what.wait() if hasattr(what, "wait") else what, timeout)

    async def wait_for_stopped(self, *events: Any, timeout: Any = None) -> bool:
        """As mode's."""
        await events[0].wait()
        return self.should_stop

    def add_future(self, coro: Any) -> Any:
        """As mode's."""
        return asyncio.ensure_future(coro)


class Recovery(RecoveryLoop, Host):  # type: ignore[misc]
    """Ours over it."""

    def ahead_are(self, *tps: TP, error: BaseException | None = None) -> None:
        """What the comparison finds."""

        async def ahead(*_: Any) -> frozenset[TP]:
            if error is not None:
                raise error
            return frozenset(tps)

        self.consistency.ahead = ahead  # type: ignore[method-assign]


class Table(SimpleNamespace):
    """By identity."""

    __hash__ = object.__hash__


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Recovery:
    """A recovery that owns ``A`` and stands by for ``B``, of one table with files."""
    acts: list[Any] = []
    for module, names in (
        (recovery_loop.overlay, ("resume", "hold")),
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
    monkeypatch.setattr(recovery_loop, "is_storage_error", lambda error: isinstance(error, OSError))
    recovery = Recovery(app, SimpleNamespace(closings=["closing"], _recovery=None))
    recovery.unreadable = lambda tp, rows: recovery.named.append((tp, rows))  # type: ignore[assignment]
    recovery.tp_to_table = {A: table, B: table}
    recovery.completed_generation = 3
    return recovery


def table_of(made: Recovery) -> Any:
    """The one table."""
    return made.tp_to_table[A]


# -- what may flow, and when


def test_a_partition_that_goes_loses_its_windows(made: Recovery) -> None:
    """Its next owner closes them."""
    made.revoke(A)
    assert made.acts == [("revoked", A)]


def test_a_database_that_is_opened_anew_is_doubtful(made: Recovery) -> None:
    """It may lack records that count as read."""
    made._reopen = frozenset({A})
    assert made.is_doubtful(A)
    assert not made.is_doubtful(B)


async def test_no_step_of_the_recovery_has_a_time_limit_of_fausts(made: Recovery) -> None:
    """It is named while it is waited for, with the innermost step first."""
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
    """Not while it waits for anything else."""
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
    """Not in a recovery, which writes by itself, nor between generations."""
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
    """One look beside streams; the loop is stopped after it."""
    compare = made._compare_files

    async def once() -> None:
        try:
            await compare()
        finally:
            made.should_stop = True

    made._compare_files = once  # type: ignore[method-assign]
    made.consistency.doubt_is_new.set()
    await asyncio.wait_for(made._compare_beside_streams(made), 5.0)


async def test_a_running_worker_restores_anew_what_is_ahead(made: Recovery) -> None:
    """Rows are held, the file begins anew, it is opened anew, and the doubt is over."""
    table_of(made).data._dbs = {0: "db", 1: "db"}
    made.app.consumer.ends, made.app.consumer.first[A] = {A: 5, B: 100}, 3
    made.ahead_are(A)
    made.consistency.doubted[A] = 4
    await compared_once(made)
    assert made.acts == [("hold",)]
    assert table_of(made).persisted == {A: 2, B: 7}
    assert made._reopen == {A}
    assert made.consistency.doubted == {}
    assert not made.consistency.doubt_is_new.is_set()
    made.should_stop = False
    made.begin_again()
    assert made.signal_recovery_start.is_set()


async def test_a_running_worker_that_has_to_refuse_its_table_ends(made: Recovery) -> None:
    """Any other error is logged, and the next look comes."""
    table_of(made).data._dbs = {0: "db", 1: "db"}
    made.app.consumer.ends = {A: 5, B: 5}
    made.ahead_are(error=ConsistencyError("ahead"))
    with pytest.raises(ConsistencyError):
        await compared_once(made)
    made.should_stop = False
    made.ahead_are(error=OSError("no broker"))
    await compared_once(made)


async def test_only_open_files_of_partitions_here_are_compared(made: Recovery) -> None:
    """Opening one for that would lock it."""
    asked: list[Any] = []

    async def ahead(tables: Any, offsets: Mapping[TP, Any], ends: Any) -> frozenset[TP]:
        asked.append(dict(offsets))
        return frozenset()

    made.consistency.ahead = ahead  # type: ignore[method-assign]
    table_of(made).data._dbs = {0: "db"}
    made.app.consumer.ends = {A: 5, B: 5}
    await compared_once(made)
    assert asked == [{A: 7}]


# -- tables that cannot be read or written


def event(key: Any, offset: int, tp: TP = A) -> Any:
    """A changelog record."""
    message = SimpleNamespace(tp=tp, offset=offset, key=key, value=b"1")
    return SimpleNamespace(key=key, message=message)


def test_a_record_that_a_table_refuses_costs_no_other(made: Recovery) -> None:
    """It is named, and the others are applied one by one."""
    table = table_of(made)
    table.error = ValueError("no key")
    buffer = [event(b"a", 1), event(None, 2), event(b"c", 3)]
    made.buffers = {table: buffer}
    made.flush_buffers()
    assert table.applied == [b"a", b"c"]
    assert [(tp, rows[0][0]) for tp, rows in made.named] == [(A, 2)]
    assert buffer == []


def test_nothing_more_is_written_once_a_write_has_failed(made: Recovery) -> None:
    """Of another table neither: all of it is replayed from what is on disk."""
    table = table_of(made)
    table.error = OSError("no space left")
    other = Table(name="sums", apply_changelog_batch=lambda events: made.acts.append("other"))
    made.buffers = {table: [event(None, 1)], other: [event(b"x", 1)]}
    made.flush_buffers()
    assert "other" not in made.acts
    assert made.buffers == {}
    assert made._reopen == {A, B}
    assert made._tables_failed.is_set()
    assert [act for act in made.acts if act != ("hold",)] == [
        "stop flow",
        "suspend",
        ("pause", {A, B}),
        "clear",
    ]
    assert ("hold",) in made.acts


async def test_a_table_that_fails_under_exactly_once_ends_the_worker(made: Recovery) -> None:
    """Its transactions are half done; a worker that stops anyway is left alone."""
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


async def troubled(made: Recovery, *at: float, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that the recovery waits after each trouble, which come at those times."""
    times, pauses, now = list(at), list[float](), 0.0
    monkeypatch.setattr(recovery_loop, "monotonic", lambda: now)

    async def next_trouble(_: Any) -> bool:
        nonlocal now
        if not times:
            return True
        now = times.pop(0)
        made._tables_failed.set()
        return False

    async def sleep(seconds: float) -> None:
        assert not made._tables_failed.is_set(), "a trouble meanwhile is another one"
        pauses.append(seconds)

    made.wait_for_stopped, made.sleep = next_trouble, sleep  # type: ignore[method-assign]
    await made._begin_again(made)
    return pauses


async def test_the_pause_grows_with_each_trouble_until_a_calm_minute(
    made: Recovery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then tables are trusted again."""
    pauses = await troubled(made, 1000.0, 1010.0, 1020.0, 1090.0, monkeypatch=monkeypatch)
    assert pauses == [0.5, 1.0, 2.0, 0.5]
    assert made.signal_recovery_start.is_set()


@pytest.mark.parametrize("in_recovery", [True, False])
async def test_streams_may_finish_before_their_tables_begin_again(
    made: Recovery, in_recovery: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a recovery there are none."""
    made.in_recovery = in_recovery
    await troubled(made, 1.0, monkeypatch=monkeypatch)
    assert ("wait empty" in made.acts) is not in_recovery


@pytest.mark.parametrize("reason", ["stops", "between generations"])
def test_nothing_begins_again_where_the_next_generation_does(made: Recovery, reason: str) -> None:
    """Nor in a worker that stops."""
    made.should_stop = reason == "stops"
    made.app.consumer.between_generations = reason != "stops"
    made.begin_again()
    assert not made.signal_recovery_start.is_set()


async def test_what_failed_is_closed_opened_anew_and_read_from_where_its_file_is(
    made: Recovery,
) -> None:
    """Offsets of what never failed stay; afterwards nothing is doubted any more."""
    made._reopen = frozenset({A})
    made.active_offsets[A] = made.standby_offsets[B] = 30
    await made._open_tables()
    assert table_of(made).data.acts == [("close", 0), ("open", 0), ("open", 1)]
    assert (made.active_offsets[A], made.standby_offsets[B]) == (7, 30)
    assert made._reopen == frozenset()


async def test_a_file_that_was_lost_is_read_from_the_first_record(made: Recovery) -> None:
    """What was read into it before does not count."""
    made._reopen, made.active_offsets[A] = frozenset({A}), 30
    table_of(made).persisted[A] = None
    await made._open_tables()
    assert made.active_offsets[A] is None


async def test_a_database_that_does_not_open_is_waited_for_longer_each_time(
    made: Recovery,
) -> None:
    """It is opened anew then, and its offset read."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            table_of(made).data.broken.clear()

    made.sleep = sleep  # type: ignore[method-assign]
    table_of(made).data.broken = {1}
    made.standby_offsets[B] = 30
    await made._open_tables()
    assert pauses == [0.5, 1.0, 2.0]
    assert made.standby_offsets[B] == 7
    assert ("close", 1) in table_of(made).data.acts


async def test_a_worker_that_stops_waits_for_no_database(made: Recovery) -> None:
    """The recovery ends as Faust's does."""
    table_of(made).data.broken, made.should_stop = {0}, True
    with pytest.raises(ServiceStopped):
        await made._open_tables()


@pytest.mark.parametrize("error", [OSError("locked"), ValueError("a bug")])
def test_a_partition_whose_file_does_not_tell_its_offset_is_opened_anew(
    made: Recovery, error: Exception
) -> None:
    """Only a trouble of the disk is waited for."""

    def persisted_offset(tp: TP) -> int:
        raise error

    table_of(made).persisted_offset = persisted_offset
    if isinstance(error, ValueError):
        with pytest.raises(ValueError, match="bug"):
            made._add(table_of(made), A, made.active_offsets)
        return
    made._add(table_of(made), A, made.active_offsets)
    assert A in made.active_offsets
    assert made.active_offsets[A] is None
    assert made._reopen == {A}


# -- the table manager


@pytest.mark.parametrize(("stops", "started"), [(True, True), (True, False), (False, True)])
async def test_the_group_is_left_before_tables_are_closed(
    monkeypatch: pytest.MonkeyPatch, stops: bool, started: bool
) -> None:
    """By a worker that stops after its recovery began."""
    acts: list[str] = []

    class Stock:
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
    """At a revocation it is told to, and an assignment waits for its threads."""
    acts: list[str] = []

    class Stock:
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
            """Made without an app."""

    tables = Tables()
    tables.on_partitions_revoked({A})
    assert acts == ["assigning", "restoring", "closed"]
    await tables.on_rebalance({A}, set(), {A}, 7)
    assert acts[3:] == ["settled", "opened"]


def test_files_and_windows_hear_of_what_is_committed(made: Recovery) -> None:
    """A window is closed by the time of committed records."""

    class Stock:
        def on_commit(self, offsets: Any) -> None:
            made.acts.append(("files", offsets))

    class Tables(RecoveringTables, Stock):  # type: ignore[misc]
        def __init__(self) -> None:
            self.closings = []

    Tables().on_commit({A: 5})
    assert made.acts == [("files", {A: 5}), ("committed", {A: 5})]


async def test_changelog_records_of_before_a_standstill_are_dropped() -> None:
    """The recovery that goes on begins at the tables' offsets, and reads them again."""
    flow = FlowControlEvent()
    app = SimpleNamespace(conf=SimpleNamespace(stream_buffer_maxsize=10), flow_control=flow)
    tables: Any = SimpleNamespace(app=app, _changelog_queue=None)
    make: Any = RecoveringTables.changelog_queue
    queue = make.fget(tables)
    flow.resume()
    await queue.put("a record")
    flow.suspend()
    assert queue.qsize() == 1
    flow.clear()
    assert queue.empty()
