"""Recovery partition by partition, on a stub of Faust's recovery that records its calls."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP
from yarl import URL

from faust_assigner.app.recovery import actives, books, databases
from faust_assigner.app.recovery.by_partition import SHARED, PartitionRecovery
from faust_assigner.app.recovery.changelog_extents import Leaderless
from faust_assigner.app.recovery.loop import RecoveryLoop
from faust_assigner.app.recovery.spans import RecoverySpans
from faust_assigner.app.tables import flushing
from tests.support.waiting import PATIENCE_S

A, B, C, D = (TP("log", number) for number in range(4))
SOURCES = [TP("orders", number) for number in range(4)]


class Host(RecoveryLoop):  # type: ignore[misc]
    """A stub of Faust's and our base recovery; ``acts`` records every call."""

    signal_recovery_start: Any = None

    def __init__(self, app: Any, table: Any) -> None:
        self.tp_to_table: dict[TP, Any] = {}
        self.app, self.acts = app, app.acts
        self.tables = app.tables
        self.active_tps, self.standby_tps = set[TP](), set[TP]()
        self.active_offsets: dict[TP, Any] = defaultdict(lambda: None)
        self.standby_offsets: dict[TP, Any] = defaultdict(lambda: None)
        self.active_highwaters, self.standby_highwaters = dict[TP, int](), dict[TP, int]()
        self.actives_for_table: Any = defaultdict(set)
        self.standbys_for_table: Any = defaultdict(set)
        #: Spans of begun restores, and reported positions.
        self.begun: list[dict[TP, tuple[int, int]]] = []
        self.moves: list[tuple[TP, int]] = []
        self.progress = SimpleNamespace(
            begin=self.begun.append,
            give_up=lambda: None,
            move=lambda tp, at: self.moves.append((tp, at)),
            finish=lambda tp: self.acts.append(("finished", tp)),
        )
        self.restored: dict[TP, int] = {}
        self._recovery_span = None
        self.spans, self.databases = RecoverySpans(app), Databases(app, {})
        self.consistency = SimpleNamespace(refuse_ahead=self._refuse_nothing)  # type: ignore[assignment]
        self.completed = asyncio.Event()
        self.signal_recovery_start = asyncio.Event()
        self.lacking = 0

    def add_active(self, table: Any, tp: TP) -> None:
        """Book an active, as Faust does."""
        self.active_tps.add(tp)
        self.actives_for_table[table].add(tp)

    def flush_buffers(self) -> None:
        """Record a flush of Faust's buffers."""
        self.acts.append("flush")

    def revoke(self, tp: TP) -> None:
        """Record a revocation by Faust."""
        self.acts.append(("revoke", tp))

    def restart_recovery(self) -> None:
        """Record a restart of the recovery."""
        self._note_end("restart_recovery")

    def tables_failed(self, table: str, error: BaseException) -> None:
        """Record a failed table."""
        self._note_end("tables_failed")

    async def _refuse_nothing(self, *_: Any) -> None:
        """Return at once: no table is ahead."""

    async def on_stop(self) -> None:
        """Record Faust's stop."""
        self._note_end("on_stop")

    async def on_rebalance(self, *round_: Any) -> None:
        """Record Faust's rebalance."""
        assert round_ == ({A}, {B}, {C}, 7)
        self._note_end("on_rebalance")

    def _note_end(self, what: str) -> None:
        self.acts.append((what, self.is_taking_on, self.is_flowing))  # type: ignore[attr-defined]

    async def _resume_streams(self, generation_id: int = 0) -> None:
        self.acts.append(("resumed", generation_id))

    async def _take(self, event: Any) -> None:
        self.acts.append(("take", event.message.tp))

    def need_recovery(self) -> bool:
        """Return True for ``lacking`` calls, then False."""
        self.lacking -= 1
        return self.lacking >= 0

    def _set_recovery_started(self) -> None:
        self.app.in_recovery = True

    def _set_recovery_ended(self) -> None:
        self.acts.append("ended")


class Databases(databases.TableDatabases):
    """The tables' databases; a recovery's opening is recorded."""

    async def open_all(self, tps: Any, sleep: Any, stopped: Any) -> frozenset[TP]:
        """Record the partitions."""
        self._app.acts.append(("open tables", set(tps)))  # type: ignore[attr-defined]
        return frozenset()


class Recovery(PartitionRecovery, Host):  # type: ignore[misc]
    """Our recovery over the stub."""


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A flowing recovery with one table in memory; ``acts`` records its calls."""
    acts: list[Any] = []

    def note(what: str) -> Any:
        async def noting(*args: Any) -> None:
            acts.append((what, *args) if args else what)

        return noting

    table = SimpleNamespace(
        changelog_topic=SimpleNamespace(topics=["log"], get_topic_name=lambda: "log"),
        data=None,
        is_global=False,
        use_partitioner=False,
        on_rebalance=note("rebalance"),
        call_recover_callbacks=note("callbacks"),
    )
    table.data = SimpleNamespace(on_recovery_completed=note("recovered"), _dbs={})
    table = Table(**vars(table))
    tables = Tables(totals=table)
    tables._changelogs, tables.closings = {"log": table}, []
    tables.on_actives_ready = lambda: acts.append("actives ready")
    tables.on_standbys_ready = lambda: acts.append("standbys ready")
    consumer = SimpleNamespace(
        leaving=frozenset(),
        between_generations=False,
        _paused_partitions={*SOURCES, A, B},
        incremental=SimpleNamespace(pause_and_drop=note("hold back"), seek_some=note("seek")),
        seek_wait=note("seek to"),
        resume_partitions=lambda tps: acts.append(("resume", set(tps))),
        pause_partitions=lambda tps: acts.append(("pause", set(tps))),
        rounds=SimpleNamespace(
            restored=lambda: acts.append("rebalance end"),
            subscribe_new_topics=lambda: acts.append("subscribe"),
        ),
    )
    app = SimpleNamespace(
        acts=acts,
        tables=tables,
        consumer=consumer,
        consumer_generation_id=7,
        should_stop=False,
        tracer=None,
        in_recovery=False,
        conf=SimpleNamespace(broker_max_poll_interval=0, store=URL("memory:")),
        on_rebalance_complete=SimpleNamespace(send=note("complete")),
        crash=note("crash"),
    )
    recovery = Recovery(app, table)
    recovery.is_flowing = True
    recovery.writable = False

    async def insisted(service: Any, what: str, ask: Any) -> None:
        await ask()

    recovery.threads.stop_and_wait = note("stop_and_wait")
    monkeypatch.setattr(actives, "retry", insisted)
    for module in (books, databases):
        monkeypatch.setattr(module, "is_writable", lambda store: recovery.writable)
        monkeypatch.setattr(module, "store_of", lambda table: table.data)
    monkeypatch.setattr(databases, "close_all", lambda dbs: acts.append(("close", *dbs)))
    monkeypatch.setattr(
        flushing, "retain_partitions", lambda app, *tps: acts.append(("keep", *map(set, tps)))
    )
    monkeypatch.setattr(flushing, "resume", lambda app, tps: acts.append(("resume", set(tps))))
    monkeypatch.setattr(actives, "LOOK_S", 0)
    return recovery


class Table(SimpleNamespace):
    """A table that can be a dict key."""

    __hash__ = object.__hash__


class Tables(dict):  # type: ignore[type-arg]
    """A stub of the table manager."""

    _changelogs: Any
    on_actives_ready: Any
    on_standbys_ready: Any


async def test_who_is_what_is_noted_before_anything_is_restored(made: Any) -> None:
    """A is kept, B turns from standby to active, C is a new standby, D is revoked."""
    made.actives.complete, made.standbys.followed, made.actives.replayed = (
        {A, D},
        {B},
        frozenset({B}),
    )
    made.active_tps, made.standby_tps = {A, D}, {B}
    made.active_offsets.update({A: 5, D: 6, B: 2})
    made.standby_offsets.update({B: 40, D: 7, C: 3})
    met: list[Any] = []
    made.meter = SimpleNamespace(begin=lambda *tps: met.append(tps))
    assert await made.books.take(frozenset({A, B}), frozenset({C})) == ({B}, {C})
    assert made.acts == [
        ("keep", {A, B}, {A}),
        ("hold back", {B, C}),
        "flush",
        ("open tables", {B}),
    ]
    assert (made.actives.complete, made.standbys.followed, made.actives.replayed) == (
        {A},
        set(),
        frozenset(),
    )
    assert (made.active_tps, made.standby_tps) == ({A, B}, {C})
    table = made.tables._changelogs[C.topic]
    assert made.standbys_for_table == {table: {C}}
    assert dict(made.active_offsets) == {A: 5, B: 40}, (
        "a table in memory goes on where its copy was"
    )
    assert dict(made.standby_offsets) == {B: 40}
    assert met == [({B}, {A, D}, {B})]


async def test_a_table_of_which_all_write_is_read_to_its_end_once_more(made: Any) -> None:
    """An active that stops being followed may lack the last changes of other workers."""
    made.actives.complete, made.standbys.followed = {A, B}, {A, B}
    assert await made.books.take(frozenset({A, B}), frozenset({B})) == ({A}, set())
    assert made.actives.complete == made.standbys.followed == {B}


@pytest.mark.parametrize("writable", [True, False])
async def test_what_went_is_closed_after_what_waits_was_written(made: Any, writable: bool) -> None:
    """A flush would reopen a closed database, so it runs first; a foreign store is rebalanced."""
    made.actives.complete, made.standbys.followed, made.writable = {A, B}, {A, C}, writable
    (table,) = made.tables.values()
    table.data._dbs = {0: "database"}
    made._roles = frozenset({A, B}), frozenset({C})
    await made._release({B, C, SOURCES[1]}, {A, SOURCES[0]})
    assert (made.actives.complete, made.standbys.followed) == ({B}, {C})
    assert made.acts[0] == "flush"
    assert set(made.acts[1:3]) == {("revoke", A), ("revoke", SOURCES[0])}
    assert made.acts[3:] == [
        ("close", "database") if writable else ("rebalance", {B, C, SOURCES[1]}, {A}, set(), 7)
    ]
    await made._release({B, C}, {SOURCES[0]})
    assert len(made.acts) == 6, "no table's"


@pytest.mark.parametrize("writable", [True, False])
async def test_a_store_that_is_not_ours_is_told_of_what_came(made: Any, writable: bool) -> None:
    """A foreign store opens its partitions at the rebalance; our store opens at the restore."""
    made._roles, made.writable = (frozenset({A}), frozenset()), writable
    await made._release({A, B, C}, set())
    told = [act for act in made.acts if act[0] == "rebalance"]
    assert told == ([] if writable else [("rebalance", {A, B, C}, set(), {B, C}, 7)])


def own_class(made: Any, name: str) -> None:
    """Give the table a class of the app that overrides the method ``name``."""

    async def own(self: Any, *args: Any) -> None:
        made.acts.append(("own", *args))

    (table,) = made.tables.values()
    vars(table).pop(name, None)
    table.__class__ = type("Own", (Table,), {name: own})


async def test_an_app_s_own_table_is_told_of_a_round_s_partitions(made: Any) -> None:
    """The table's on_rebalance is called although the store is ours."""
    own_class(made, "on_rebalance")
    made._roles, made.writable = (frozenset({A}), frozenset()), True
    await made._release({B}, {A})
    assert made.acts[-1] == ("own", {B}, {A}, {B}, 7)


async def test_an_app_s_own_table_is_told_of_the_end_of_its_recovery(made: Any) -> None:
    """The app's own on_recovery_completed replaces our calls of the callbacks."""
    own_class(made, "on_recovery_completed")
    (table,) = made.tables.values()
    made.actives_for_table[table], made.standbys_for_table[table] = {A}, {C}
    made.actives.callbacks.owe([table])
    made.actives.begin_callbacks(set())
    await made.actives.callbacks.over()
    assert made.acts == [("own", {A, C}, {C})]


async def test_an_interrupted_restore_has_ended_before_anything_else_begins(made: Any) -> None:
    """The interrupt waits until the cancelled restore has ended its last step."""

    async def restore() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0)
            made.acts.append("ended")

    made._taking_on = asyncio.ensure_future(restore())
    await asyncio.sleep(0)
    assert made.is_taking_on
    await made.interrupt()
    assert made.acts == ["ended", "stop_and_wait"]
    assert not made.is_taking_on


async def test_whoever_gives_everything_up_restores_no_more(made: Any) -> None:
    """Partitions stop flowing until the next recovery."""
    task = made._taking_on = asyncio.ensure_future(asyncio.sleep(3600))
    made.stop_assigning()
    assert not made.is_flowing
    await asyncio.wait({task})
    assert task.cancelled()


@pytest.mark.parametrize("end", ["restart_recovery", "tables_failed", "on_stop", "on_rebalance"])
async def test_whatever_begins_everything_anew_stops_what_is_restored_first(
    made: Any, end: str
) -> None:
    """Faust's own step follows; the roles are kept for the next recovery."""
    made._taking_on, made.active_tps = asyncio.ensure_future(asyncio.sleep(3600)), {A}
    made._roles = frozenset({A}), frozenset()
    ended = getattr(made, end)(
        *{"tables_failed": ("totals", OSError()), "on_rebalance": ({A}, {B}, {C}, 7)}.get(end, ())
    )
    if ended is not None:
        await ended
    assert made.acts == ["stop_and_wait"] * (end == "on_stop") + [(end, False, False)]
    if end in ("restart_recovery", "on_rebalance"):
        assert made._roles == (frozenset({A}), frozenset())
        assert made.active_tps == set()
    if end == "on_rebalance":
        assert made.books._before == (frozenset({A}), frozenset())


@pytest.mark.parametrize("stops", [False, True])
async def test_streams_do_not_wait_for_copies(made: Any, stops: bool, caplog: Any) -> None:
    """Streams resume before standbys open; a failed restore crashes a worker unless it stops."""
    steps: list[str] = []

    def step(name: str, answer: Any = None) -> Any:
        async def stepping(*_: Any) -> Any:
            steps.append(name)
            if name == "follow":
                raise OSError
            return answer

        return stepping

    made.books.take, made.actives.restore = step("roles", ({A}, {C})), step("restore")
    made._finish, made.books.open_copies, made.standbys.follow = (
        step("finish"),
        step("open copies"),
        step("follow"),
    )
    made.app.should_stop = stops
    await made._take_on(frozenset({A}), frozenset({C}))
    assert "Assigned" not in caplog.text
    assert steps == ["roles", "restore", "finish", "open copies", "follow"]
    assert [act[0] for act in made.acts] == ["crash"] * (not stops)


@pytest.mark.parametrize(("actives", "copies"), [(1, 0), (0, 2), (0, 0)])
async def test_what_was_taken_on_is_logged_if_it_is_anything(
    made: Any, caplog: Any, actives: int, copies: int
) -> None:
    """A round without new partitions logs no line."""
    caplog.set_level("INFO")

    async def roles(*_: Any) -> Any:
        return {A, B, C} - {B, C} if actives else set(), {B, C} if copies else set()

    async def nothing(*_: Any) -> None:
        """Return at once."""

    made.books.take, made.actives.restore, made._finish = roles, nothing, nothing
    made.books.open_copies = made.standbys.follow = nothing
    await made._take_on(frozenset(), frozenset())
    line = f"Assigned {actives} active and {copies} standby changelogs in"
    told = [message.rpartition(" in ")[0] + " in" for message in caplog.messages]
    assert told == ([line] if actives or copies else [])


def test_what_is_about_to_go_is_not_restored(made: Any) -> None:
    """A leaving partition and a recovery without flow count as unrestored."""
    made.actives.complete, made.app.consumer.leaving = {A, B}, frozenset({B})
    assert [tp for tp in (A, B, C) if made.is_restored(tp)] == [A]
    made.is_flowing = False
    assert not made.is_restored(A)


@pytest.mark.parametrize(
    ("generation", "between", "flows"), [(7, False, True), (6, False, False), (7, True, False)]
)
def test_only_the_recovery_of_the_present_generation_lets_flow(
    made: Any, generation: int, between: bool, flows: bool
) -> None:
    """A recovery of the present generation starts with no restored and no followed partitions."""
    made.is_flowing, made.actives.complete, made.standbys.followed = False, {A}, {B}
    made.app.consumer.between_generations = between
    made._flows(generation)
    assert made.is_flowing == flows
    assert (made.actives.complete, made.standbys.followed) == (
        (set(), set()) if flows else ({A}, {B})
    )


@pytest.mark.parametrize("is_flowing", [True, False])
async def test_roles_are_of_changelogs_and_taken_on_where_streams_flow(
    made: Any, is_flowing: bool
) -> None:
    """Without flow, Faust's own recovery runs first and must find no booked partitions."""
    taken: list[Any] = []

    async def assign(*roles: Any) -> None:
        taken.append(roles)

    made._take_on, made.is_flowing, made.active_tps = assign, is_flowing, {D}
    await made.assign({A, SOURCES[0]}, {B, SOURCES[1]}, {C})
    assert made.acts[:4] == [
        "stop_and_wait",
        "flush",
        ("revoke", C),
        ("rebalance", {A, B, *SOURCES[:2]}, {C}, {A, B}, 7),
    ]
    assert made._roles == (frozenset({A}), frozenset({B}))
    if is_flowing:
        await made._taking_on
    assert taken == [made._roles] * is_flowing
    assert made.active_tps == ({D} if is_flowing else set())


async def test_only_what_is_being_read_is_applied(made: Any) -> None:
    """A record fetched for a former role is older than the rows."""
    made.standbys.followed, made.actives.replayed = {A}, frozenset({B})
    for tp in (A, B, C):
        await made._take(SimpleNamespace(message=SimpleNamespace(tp=tp)))
    assert made.acts == [("take", A), ("take", B)]


@pytest.mark.parametrize(("pending", "ready"), [(set(), {0, 1, 2, 3}), ({B}, {0, 2, 3})])
async def test_what_is_ready_is_sought_and_resumed(
    made: Any, pending: set[TP], ready: set[int]
) -> None:
    """Only sources are resumed here; the restore itself resumes changelogs."""
    sources = {SOURCES[number] for number in ready}
    await made.actives._let_flow(pending, frozenset())
    assert made.acts == [("seek", sources), ("resume", sources)]


async def test_a_table_is_told_of_its_part_and_of_its_end(made: Any) -> None:
    """The table gets its standbys too; callbacks run after the last of its partitions."""
    (table,) = made.tables.values()
    made.actives_for_table[table], made.standbys_for_table[table] = {A, B}, {C}
    for chunk, pending in (({A}, {B}), ({B}, {TP("other", 0)}), ({TP("other", 0)}, set())):
        await made.actives._tell_tables(chunk)
        made.actives.begin_callbacks(pending)
        await made.actives.callbacks.over()
    assert made.acts == [*[("recovered", {A, B, C}, {C})] * 2, "callbacks"]


@pytest.mark.parametrize("standbys", [set(), {C}])
async def test_whoever_waits_for_all_actives_is_told(made: Any, standbys: set[TP]) -> None:
    """Standbys are ready at once only if the worker has none."""
    made.standby_tps = standbys
    await made._finish()
    assert made.completed.is_set()
    assert made.acts == [
        "complete",
        "actives ready",
        *["standbys ready"] * (not standbys),
        "rebalance end",
    ]


async def test_a_replay_reads_its_part_alone_and_leaves_it_paused(made: Any) -> None:
    """The changelogs are paused again, so that sources are fetched."""
    made.active_offsets, made.active_highwaters, made.lacking = {A: 4, B: None}, {A: 9, B: 9}, 1
    await made.actives._replay(frozenset({A, B}))
    assert made.acts[:2] == [("seek to", {A: 5, B: 0}), ("resume", {A, B})]
    assert set(made.acts[2:4]) == {("finished", A), ("finished", B)}
    assert made.acts[4:] == ["flush", "ended", ("pause", {A, B})]
    assert not made.app.in_recovery
    assert made.actives.replayed == frozenset()
    assert made.begun == [{A: (5, 10), B: (0, 10)}]
    assert set(made.moves) == {(A, 5), (B, 0)}


async def test_the_owners_of_the_round_before_an_eager_one_are_told_to_the_meter(made: Any) -> None:
    """An eager round clears the books, so kept partitions would count as restored."""
    met: list[Any] = []
    made.meter = SimpleNamespace(begin=lambda *tps: met.append(tps))
    made.books._before = frozenset({A}), frozenset({B})
    await made.books.take(frozenset({A, B}), frozenset())
    assert met == [({A, B}, {A}, {B})]


async def test_a_global_table_in_memory_continues_from_what_it_has_in_either_role(
    made: Any,
) -> None:
    """A is restored from its copy's offset, also if the copy is followed anew; B is kept as it is."""
    made.actives.complete, made.standbys.followed = {B}, {B}
    made.active_offsets |= {B: 3}
    made.standby_offsets |= {A: 7, B: 9}
    assert await made.books.take(frozenset({A, B}), frozenset({A, B})) == ({A}, {A})
    assert (made.active_offsets, made.standby_offsets) == ({A: 7, B: 3}, {B: 9})


async def test_the_meter_measures_each_part_from_its_offsets_to_its_tables(made: Any) -> None:
    """The meter starts a chunk before its replay and ends it after its tables are notified."""
    restores(made, A, B)
    made.restored = {C: 1}
    made.meter = SimpleNamespace(
        note_start=lambda tps, restored: made.acts.append(("start", set(tps), dict(restored))),
        finish=lambda tps: made.acts.append(("finish", set(tps))),
    )
    await made.actives.restore({A, B})
    kinds = ("start", "recovered", "finish")
    assert [act[:2] for act in made.acts if act[0] in kinds and act[0] != "recovered"] == [
        ("start", {A}),
        ("finish", {A}),
        ("start", {B}),
        ("finish", {B}),
    ]
    assert [act[0] for act in made.acts if act[0] in kinds] == [*kinds, *kinds]
    assert [act[2] for act in made.acts if act[0] == "start"] == [{}, {}], "of this restore alone"
    assert made.begun == [{A: (0, 4), B: (0, 4)}]


@pytest.mark.parametrize("by_all", [False, True])
async def test_each_part_flows_as_soon_as_it_is_restored(made: Any, by_all: bool) -> None:
    """A table that all workers write flows only when whole; earlier results are kept."""
    (table,) = made.tables.values()
    table.use_partitioner = by_all

    async def brought_up(*_: Any) -> AsyncGenerator[frozenset[TP], None]:
        for tp in (B, A):
            made.restored[tp] = 3
            yield frozenset({tp})

    async def ends(tps: Any) -> dict[TP, int]:
        return dict.fromkeys(tps, 10)

    async def firsts(tps: Any) -> dict[TP, int]:
        return dict.fromkeys(tps, 4)

    tags = list[Any]()
    (
        made.actives._restored_chunks,
        made.actives._extents.ends,
        made.actives._extents.firsts,
        made.spans.tag_actives,
    ) = (brought_up, ends, firsts, tags.append)
    made.restored, made.actives.complete, made.active_offsets = {C: 1}, {C}, {A: None, B: 7}
    made.app.consumer._paused_partitions = {SOURCES[0], SOURCES[1], SOURCES[2]}
    await made.actives.restore({A, B})
    assert tags == [{A: (9, 3, 6), B: (9, 7, 2)}], "the tag of the restore's span"
    flows = [act for act in made.acts if act[0] == "resume"]
    assert flows == (
        [("resume", {B}), ("resume", {A}), ("resume", set(SOURCES[:3]))]
        if by_all
        else [
            ("resume", {SOURCES[2]}),
            ("resume", {B}),
            ("resume", {SOURCES[1], SOURCES[2]}),
            ("resume", {A}),
            ("resume", set(SOURCES[:3])),
        ]
    )
    assert made.actives.complete == {A, B, C}
    assert made.restored == {A: 3, B: 3, C: 1}
    assert made.active_offsets == {A: 3, B: 7}
    assert made.active_highwaters == {A: 9}


async def test_a_changelog_without_a_leader_holds_up_its_own_number_only(
    made: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """aiokafka answers for all partitions or for none, so all sources of the worker stood still."""
    leaders, asked = {A: 1, B: -1}, list[Any]()

    async def restored(*_: Any) -> AsyncGenerator[TP, None]:
        for tp in ():
            yield tp

    async def call(ask: Any, tps: list[TP]) -> dict[TP, int]:
        asked.append(tps)
        leaders[B] = 1  # a broker has returned meanwhile
        return dict.fromkeys(tps, 4)

    cluster = SimpleNamespace(leader_for_partition=leaders.__getitem__)
    client = SimpleNamespace(
        _client=SimpleNamespace(cluster=cluster), end_offsets="end", beginning_offsets="begin"
    )
    made.app.consumer._thread = SimpleNamespace(call_thread=call, _ensure_consumer=lambda: client)
    made.actives._batches = SimpleNamespace(restore=restored)
    made.actives.complete, made.active_offsets = {C}, {A: 3, B: 3}
    made.app.consumer._paused_partitions = set(SOURCES[:3])
    await made.actives.restore({A, B})
    assert asked == [[A], [A], [B], [B]]
    flows = [act for act in made.acts if act[0] == "resume"]
    assert flows[0] == ("resume", {SOURCES[2]})
    assert ("resume", {SOURCES[0], SOURCES[2]}) in flows
    assert flows[-1] == ("resume", set(SOURCES[:3]))
    assert made.actives.complete == {A, B, C}
    assert [record.getMessage() for record in caplog.records] == [
        f"Changelogs without a leader: {B.topic}-{B.partition}; the partitions with these numbers are "
        "processed when their tables can be restored, the other partitions are processed now"
    ]


async def test_a_request_for_changelogs_that_all_lack_a_leader_waits(made: Any) -> None:
    """No partition could be processed first; standbys wait for all of theirs in any case."""
    found = dict.fromkeys([A, B], 4)

    async def call(ask: Any, tps: list[TP]) -> dict[TP, int]:
        return found

    cluster = SimpleNamespace(leader_for_partition=lambda tp: -1 if tp == A else None)
    client = SimpleNamespace(
        _client=SimpleNamespace(cluster=cluster), end_offsets="end", beginning_offsets="begin"
    )
    made.app.consumer._thread = SimpleNamespace(call_thread=call, _ensure_consumer=lambda: client)
    assert await made.actives._extents.ends([A]) == {A: 4}
    assert await made.standbys._extents.firsts([A, B]) == found
    with pytest.raises(Leaderless, match=f"{A.topic}-{A.partition}"):
        await made.actives._extents.firsts([A, B])


async def test_who_is_interrupted_before_a_table_knows_what_it_has_restores_it_again(
    made: Any,
) -> None:
    """The next restore rebuilds its sets from rows; otherwise new sets would start empty."""
    (table,) = made.tables.values()
    reached = asyncio.Event()

    async def told(*_: Any) -> None:
        reached.set()
        await asyncio.sleep(3600)

    async def brought_up(*_: Any) -> AsyncGenerator[frozenset[TP], None]:
        yield frozenset({A})

    async def at(tps: Any) -> dict[TP, int]:
        return dict.fromkeys(tps, 4)

    table.data.on_recovery_completed = told
    made.actives._restored_chunks, made.actives._extents.ends, made.actives._extents.firsts = (
        brought_up,
        at,
        at,
    )
    restoring = asyncio.ensure_future(made.actives.restore({A}))
    await reached.wait()
    restoring.cancel()
    await asyncio.wait({restoring})
    assert made.actives.complete == set()
    assert ("resume", {A}) not in made.acts


async def test_every_flow_owes_the_callbacks_of_every_table(made: Any) -> None:
    """A table without a partition on this worker gets its callbacks too, as in Faust."""
    made._flows(7)
    made.actives.callbacks.begin(lambda table: True)
    await made.actives.callbacks.over()
    assert made.acts == ["callbacks"]


async def test_no_callback_outlives_the_recovery(made: Any) -> None:
    """Callbacks use tables, which are closed after the recovery."""
    ended: list[str] = []

    async def callback() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("cancelled")

    (table,) = made.tables.values()
    table.call_recover_callbacks = callback
    made.actives.callbacks.owe([table])
    made.actives.callbacks.begin(lambda table: True)
    await asyncio.sleep(0)
    await made.on_stop()
    assert ended == ["cancelled"]


async def test_an_interrupted_restore_reports_no_progress_any_more(made: Any) -> None:
    """No later step of this restore would report its progress."""
    made.progress.give_up = lambda: made.acts.append("gave up")
    await made.interrupt()
    assert made.acts == ["stop_and_wait", "gave up"]


async def test_a_table_in_memory_goes_on_from_the_later_of_its_two_offsets(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partition was active, then standby, and is active again."""
    made.standbys.followed = {B}
    made.standby_offsets.update({B: 40})

    async def opened(*_: Any) -> frozenset[TP]:
        made.active_offsets[B] = 60
        return frozenset()

    monkeypatch.setattr(Databases, "open_all", opened)
    await made.books.take(frozenset({B}), frozenset())
    assert made.active_offsets[B] == 60


async def test_a_copy_in_memory_that_lost_records_to_a_failed_table_is_read_anew(made: Any) -> None:
    """The failure dropped buffered records that already counted as read."""
    made.standby_offsets.update({A: 30, B: 40, C: 50})
    made.databases.doubtful = frozenset({B, C})
    await made.books.take(frozenset({A, B, C}), frozenset())
    assert [made.active_offsets[tp] for tp in (A, B, C)] == [30, None, None]
    made.databases.doubtful = frozenset()
    await made.books.take(frozenset({A, B, C}), frozenset())
    assert [made.active_offsets[tp] for tp in (B, C)] == [None, None], "after an interrupt, too"


async def test_a_reopened_database_is_read_again_in_its_own_role(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The offsets of the other role, and of databases that stayed open, are kept."""

    async def opened(self: Any, tps: Any, sleep: Any, stopped: Any) -> frozenset[TP]:
        return frozenset({A, C})

    added: list[Any] = []
    monkeypatch.setattr(Databases, "open_all", opened)
    table = made.tables["totals"]
    made.tp_to_table.update(dict.fromkeys((A, B, C, D), table))
    made.active_tps, made.standby_tps = {A, B}, {C, D}
    made.active_offsets.update({A: 1, B: 2, C: 3})
    made.standby_offsets.update({A: 4, C: 5, D: 6})
    made.add_active = lambda *given: added.append(("active", *given))
    made.add_standby = lambda *given: added.append(("standby", *given))
    await made.books._open({A, C})
    assert dict(made.active_offsets) == {B: 2, C: 3}
    assert dict(made.standby_offsets) == {A: 4, D: 6}
    assert added == [("active", table, A), ("standby", table, C)]


async def test_rounds_are_taken_one_after_the_other(made: Any) -> None:
    """The completed recovery waits for its turn, too; each interrupts the one before."""
    acts, gates = list[Any](), [asyncio.Event() for _ in range(3)]

    async def interrupt() -> None:
        gate = gates[len([act for act in acts if act == "interrupt"])]
        acts.append("interrupt")
        await gate.wait()

    async def start() -> None:
        pass

    made.interrupt, made._begin_to_take_on = interrupt, lambda: acts.append(made._roles)
    made.app.flow_control = SimpleNamespace(resume=lambda: None)
    made.app.consumer.resume_flow = lambda: None
    made.app._fetcher = SimpleNamespace(maybe_start=start)
    rounds = [
        asyncio.ensure_future(round_)
        for round_ in (
            made.assign({A}, set(), set()),
            made.on_recovery_completed(7),
            made.assign({B}, {C}, set()),
        )
    ]
    first, last = (frozenset({A}), frozenset()), (frozenset({B}), frozenset({C}))
    expected = ["interrupt", first, "interrupt", first, "interrupt", last]
    for number, gate in enumerate(gates):
        for _ in range(5):
            await asyncio.sleep(0)
        assert acts == expected[: 2 * number + 1]
        gate.set()
    await asyncio.gather(*rounds)
    assert acts == expected


def test_a_stop_of_the_restores_is_signalled_at_once(made: Any) -> None:
    """The restore threads check the signal between two steps."""
    assert not made.threads.stop_signal()
    made.stop_restoring()
    assert made.threads.stop_signal()


async def test_copies_are_opened_apart_from_what_is_kept(made: Any) -> None:
    """Agents write the kept actives; opening standbys must not close those databases."""
    made.add_standby = lambda table, tp: made.standby_tps.add(tp)
    await made.books.open_copies({B})
    assert made.acts == [("open tables", {B})]


# -- callbacks, windows and the time limit of a restore


class Callback:
    """The table's callback, which returns after ``may_end``; ``flows`` lists resumed sources."""

    def __init__(self, made: Any) -> None:
        self.made, self.began, self.may_end = made, asyncio.Event(), asyncio.Event()
        (table,) = made.tables.values()
        table.call_recover_callbacks = self
        made.actives.callbacks.owe([table])

    async def __call__(self) -> None:
        """Wait for ``may_end``."""
        self.began.set()
        await self.may_end.wait()

    @property
    def flows(self) -> list[set[TP]]:
        """Return the resumed partitions, in order."""
        return [act[1] for act in self.made.acts if act[0] == "resume"]


def restores(made: Any, *tps: TP) -> None:
    """Restore ``tps`` one after another, from changelogs with four records."""

    async def brought_up(*_: Any) -> AsyncGenerator[frozenset[TP], None]:
        for tp in tps:
            yield frozenset({tp})

    async def ends(tps: Any) -> dict[TP, int]:
        return dict.fromkeys(tps, 4)

    async def firsts(tps: Any) -> dict[TP, int]:
        return dict.fromkeys(tps, 0)

    made.actives._restored_chunks, made.actives._extents.ends, made.actives._extents.firsts = (
        brought_up,
        ends,
        firsts,
    )
    made.app.consumer._paused_partitions = {SOURCES[tp.partition] for tp in {*tps, C}}


async def test_a_partition_flows_once_the_callback_of_its_table_has_returned(made: Any) -> None:
    """The callback may fill a cache that streams read."""
    callback = Callback(made)
    restores(made, A)
    restoring = asyncio.ensure_future(made.actives.restore({A}))
    await callback.began.wait()
    await asyncio.sleep(0)
    assert SOURCES[0] not in {tp for flow in callback.flows for tp in flow}
    callback.may_end.set()
    await asyncio.wait_for(restoring, PATIENCE_S)
    assert SOURCES[0] in callback.flows[-1]


async def test_what_was_restored_before_waits_for_a_callback_that_runs(made: Any) -> None:
    """The restored partition resumes after the callback, even if no restore follows."""
    callback = Callback(made)
    restores(made)
    made.actives.complete = {C}
    restoring = asyncio.ensure_future(made.actives.restore(set()))
    await callback.began.wait()
    await asyncio.sleep(0)
    assert callback.flows == []
    callback.may_end.set()
    await asyncio.wait_for(restoring, PATIENCE_S)
    assert callback.flows == [{SOURCES[2]}]


async def test_each_restored_part_renews_the_time_and_opens_windows_anew(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each chunk renews the time limit of a stop, and its windows are scanned."""
    renewed: list[str] = []

    class Time:
        def __init__(self, seconds: float | None) -> None:
            assert seconds == 300.0 * actives.SILENT_SHARE

        def renew(self) -> None:
            renewed.append("x")

    restored: list[Any] = []
    monkeypatch.setattr(actives, "Stop", Time)
    monkeypatch.setattr(actives.windows, "restored", lambda _, tps: restored.append(set(tps)))
    made.app.conf.broker_max_poll_interval = 300.0
    restores(made, A, B)
    await made.actives.restore({A, B})
    assert renewed == ["x", "x"]
    assert restored == [{A}, {B}]


@pytest.mark.parametrize("begins", [True, False])
async def test_a_generation_begins_with_its_recovery(made: Any, begins: bool) -> None:
    """If a later round has begun, this round's recovery resumes no partition."""
    made.app.consumer.begin_generation = lambda: made.acts.append("begin generation")
    if begins:
        made.signal_recovery_start.set()
    await made.on_rebalance({A}, {B}, {C}, 7)
    assert [act if isinstance(act, str) else act[0] for act in made.acts] == [
        "on_rebalance",
        *["begin generation"] * begins,
    ]


async def test_an_eager_round_without_partitions_leaves_nothing_to_restore(made: Any) -> None:
    """The former round's partitions are unassigned: a seek in them would end the worker."""
    made._roles = frozenset({A}), frozenset({B})
    made.active_tps, made.standby_tps = set(), set()
    await made.on_rebalance({A}, {B}, {C}, 7)
    assert made._roles == (frozenset(), frozenset())


async def test_a_recovery_without_tables_is_complete_as_well(made: Any) -> None:
    """The watchdog restarts an incomplete recovery; sources and new topics flow too."""
    made.is_flowing, made.completed_generation, made.restored = False, None, {A: 1}
    made._roles = frozenset({A}), frozenset()
    await made._resume_streams(7)
    assert made.acts == [("resumed", 7), "subscribe"]
    assert (made.is_flowing, made.completed_generation, made.restored) == (True, 7, {})
    assert made.is_restored(A), "a table in a shared database"


async def test_tables_in_a_shared_database_are_neither_restored_nor_followed(made: Any) -> None:
    """A replay would write old rows into the shared database; sources flow at once."""
    asked = list[Any]()

    async def ask(tps: Any = None) -> None:
        asked.append(tps)

    made.app.conf.store = SHARED
    made.actives.restore = made.books.open_copies = made.standbys.follow = made._finish = ask
    await made._take_on(frozenset({A}), frozenset({B}))
    assert asked == [set(), None, set(), set()]
    assert (made.active_tps, made.standby_tps) == ({A}, set())
    assert made.is_restored(A)


async def test_a_recovery_that_begins_again_keeps_the_roles_of_the_last_round(made: Any) -> None:
    """A table may fail while the round opens databases, with the books of the former round."""
    made.active_tps, made.standby_tps = {B}, {C}
    opening = asyncio.Event()

    async def drop_records(_: Any) -> None:
        opening.set()
        await asyncio.sleep(3600)

    made.app.consumer.incremental.pause_and_drop = drop_records
    await made.assign({A, B}, {C}, set())
    await opening.wait()
    made.restart_recovery()
    assert made._roles == (frozenset({A, B}), frozenset({C}))
    assert (made.active_tps, made.standby_tps) == (set(), set())


async def test_a_recovery_that_waits_for_a_round_takes_the_round_s_roles(made: Any) -> None:
    """Otherwise a partition gained by the round would be processed without its restored table."""
    taken, may_end = list[Any](), asyncio.Event()

    async def take_on(*roles: Any) -> None:
        taken.append(roles)

    async def settle() -> None:
        await may_end.wait()

    async def start() -> None:
        pass

    made._take_on, made.stop_and_wait, made._roles = take_on, settle, (frozenset({B}), frozenset())
    made.app.flow_control = SimpleNamespace(resume=lambda: None)
    made.app.consumer.resume_flow = lambda: None
    made.app._fetcher = SimpleNamespace(maybe_start=start)
    round_ = asyncio.ensure_future(made.assign({A, B}, {C}, set()))
    await asyncio.sleep(0)
    completed = asyncio.ensure_future(made.on_recovery_completed(7))
    await asyncio.sleep(0)
    may_end.set()
    await asyncio.gather(round_, completed)
    await made._taking_on
    assert taken[-1] == (frozenset({A, B}), frozenset({C}))


@pytest.mark.parametrize("reason", [None, "generation", "between"])
async def test_faust_s_own_recovery_opens_the_flow_of_its_generation_alone(
    made: Any, reason: str | None
) -> None:
    """Every partition is still paused; then our recovery starts with the round's roles."""
    acts, app, taken = made.acts, made.app, list[Any]()

    async def start() -> None:
        acts.append("fetcher")

    async def take_on(*roles: Any) -> None:
        taken.append(roles)

    app.flow_control = SimpleNamespace(resume=lambda: acts.append("flow"))
    app.consumer.resume_flow = lambda: acts.append("consumer")
    app._fetcher = SimpleNamespace(maybe_start=start)
    app.consumer.between_generations = reason == "between"
    made._take_on, made._roles = take_on, (frozenset({A}), frozenset({B}))
    made.is_flowing, made.completed_generation = False, None
    await made.on_recovery_completed(6 if reason == "generation" else 7)
    if reason is None:
        await made._taking_on
        assert acts == ["ended", "flow", "consumer", "fetcher", "stop_and_wait", "flush"]
        assert taken == [(frozenset({A}), frozenset({B}))]
        assert (made.is_flowing, made.completed_generation) == (True, 7)
    else:
        assert (acts, taken, made.is_flowing) == (["ended"], [], False)


# -- several tables

E1, E2 = TP("sums", 1), TP("sums", 2)


def second_table(made: Any) -> Any:
    """Add a table ``sums``; its acts carry its name."""

    def note(what: str) -> Any:
        async def noting(*args: Any) -> None:
            made.acts.append((f"sums {what}", *args))

        return noting

    table = Table(
        changelog_topic=SimpleNamespace(topics=["sums"], get_topic_name=lambda: "sums"),
        data=SimpleNamespace(on_recovery_completed=note("recovered"), _dbs={}),
        is_global=False,
        use_partitioner=False,
        on_rebalance=note("rebalance"),
        call_recover_callbacks=note("callbacks"),
    )
    made.tables["sums"] = made.tables._changelogs["sums"] = table
    return table


async def test_each_table_closes_its_own_databases_in_order(made: Any) -> None:
    """The same partition number stays open in the other table; an unopened partition is skipped."""
    (first,) = made.tables.values()
    second, made.writable = second_table(made), True
    first.data._dbs = {0: "log 0", 2: "log 2", 3: "log 3"}
    second.data._dbs = {0: "sums 0", 1: "sums 1", 2: "sums 2"}
    made.actives.complete, made.standbys.followed = {A, E1, E2}, {C, D}
    await made._release({D, E2}, [C, A, B, E1])
    assert [act for act in made.acts if act[0] in ("close", "revoke")] == [
        *(("revoke", tp) for tp in (C, A, B, E1)),
        ("close", "log 0", None, "log 2"),
        ("close", "sums 1"),
    ]
    assert (first.data._dbs, second.data._dbs) == ({3: "log 3"}, {0: "sums 0", 2: "sums 2"})
    assert (made.actives.complete, made.standbys.followed) == ({E2}, {D})


async def test_each_foreign_store_is_told_of_its_own_partitions(made: Any) -> None:
    """A partition with a former role is not reported as new."""
    second_table(made)
    made._roles, made.app.consumer_generation_id = (frozenset({A}), frozenset({E1})), 12
    await made._release({A, B, E1, E2}, {C})
    assigned = {A, B, E1, E2}
    assert made.acts == [
        "flush",
        ("revoke", C),
        ("rebalance", assigned, {C}, {B}, 12),
        ("sums rebalance", assigned, set(), {E2}, 12),
    ]


async def test_roles_of_two_tables_are_booked_apart(made: Any, monkeypatch: Any) -> None:
    """Each new active continues at its standby's offset, unless its file stores the offset."""
    first, second = made.tables["totals"], second_table(made)
    monkeypatch.setattr(books, "is_writable", lambda store: store is second.data)
    opened: list[Any] = []

    async def open_(tps: Any, in_thread: Any) -> None:
        opened.append((set(tps), list(made.acts)))

    made.databases.open_beside_streams = open_
    made.actives.complete, made.standbys.followed = {A}, {D}
    made.active_tps, made.standby_tps = {A}, {B, E1, D}
    made.active_offsets.update({A: 5, E2: 9})
    made.standby_offsets.update({B: 40, E1: 41, D: 42, C: 43, E2: 44})
    made.databases.doubtful = frozenset({C, E2})
    found = await made.books.take(frozenset({A, B, E1}), frozenset({C, D}))
    assert found == ({B, E1}, {C})
    held = ("hold back", {B, C, E1})
    assert opened == [({B, E1}, [("keep", {A, B, E1}, {A}), held, "flush"])]
    assert made.acts[3:] == [("open tables", {B, E1})]
    assert made.actives_for_table == {first: {A, B}, second: {E1}}
    assert made.standbys_for_table == {first: {C, D}}
    assert (made.active_tps, made.standby_tps) == ({A, B, E1}, {C, D})
    assert dict(made.active_offsets) == {A: 5, B: 40}
    assert dict(made.standby_offsets) == {B: 40, E1: 41, D: 42}


async def test_copies_are_opened_with_pauses_and_booked_in_order(made: Any) -> None:
    """Each open is followed by a pause for the streams."""
    first, second = made.tables["totals"], second_table(made)
    opened: list[Any] = []

    async def open_(tps: Any, in_thread: Any, *, pause_factor: float) -> None:
        opened.append((set(tps), pause_factor))

    added: list[Any] = []
    made.databases.open_beside_streams, made.add_standby = open_, lambda *given: added.append(given)
    await made.books.open_copies({E1, C, A})
    assert opened == [({A, C, E1}, 3.0)]
    assert added == [(first, A), (first, C), (second, E1)]
    assert made.acts == [("open tables", {A, C, E1})]


@pytest.mark.parametrize("error", [OSError("no space"), Exception("no space")], ids=repr)
async def test_databases_are_opened_one_after_the_other(
    made: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any, error: Exception
) -> None:
    """Open databases and foreign stores are skipped; after a failure the next database opens."""
    first, second = made.tables["totals"], second_table(made)
    monkeypatch.setattr(databases, "is_writable", lambda store: store is first.data)
    first.data._dbs = {1: "open"}
    now, acts = 100.0, list[Any]()

    async def in_thread(*given: Any) -> None:
        nonlocal now
        now += 0.5
        acts.append(given)
        if given[2] == 2:
            raise error

    async def sleep(seconds: float) -> None:
        acts.append(seconds)

    monkeypatch.setattr(databases, "monotonic", lambda: now)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    await made.databases.open_beside_streams({D, E1, B, C, A}, in_thread, pause_factor=3.0)
    assert acts == [
        step
        for number in (0, 2, 3)
        for step in ((databases.open_for_streams, first.data, number), 1.5)
    ]
    said = "Could not open the table files of log-2 yet; the recovery tries again: no space"
    assert said in caplog.text
    assert second.data._dbs == {}


async def test_a_restore_begins_where_its_changelogs_do(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each partition gets its own offsets; tables ahead are refused first, then sources flow."""
    second_table(made).is_global = True
    calls, ends, firsts = list[Any](), {A: 50, B: 7, E1: 90}, {A: 4, B: 6, E1: 0}

    async def told(name: str, tps: Any, answer: Any) -> Any:
        calls.append((name, set(tps)))
        return {tp: answer[tp] for tp in tps}

    async def refuse(_: Any, *given: Any) -> None:
        calls.append(("refuse", *given))

    async def flow(pending: Any, alone: Any) -> None:
        calls.append(("flow", set(pending), alone))

    async def brought_up(
        chunks: Any, left: Any, highwaters: Any, stop: Any
    ) -> AsyncGenerator[frozenset[TP], None]:
        calls.append(("bring up", chunks, left, highwaters))
        for chunk in chunks:
            yield chunk
            calls.append(("highwaters", dict(made.active_highwaters)))

    async def replay(chunk: Any) -> None:
        calls.append(("replay", chunk))

    made.actives._extents.ends = lambda tps: told("ends", tps, ends)
    made.actives._extents.firsts = lambda tps: told("firsts", tps, firsts)
    made.consistency.refuse_ahead, made.actives._let_flow = refuse, flow
    made.actives._restored_chunks = brought_up
    made.actives._replay, made.lacking = replay, 1
    made.active_offsets = {A: 9, B: None, E1: 12}
    made.active_highwaters = {C: 3}
    await made.actives.restore({A, B, E1})
    highwaters = {A: 49, B: 6, E1: 89}
    alone = frozenset({"sums"})
    left = {A: 40, B: 1, E1: 77}
    assert made.active_offsets == {A: 9, B: 5, E1: 12}
    chunks = [frozenset({E1}), frozenset({A, B})]
    assert calls == [
        ("ends", {A, B, E1}),
        ("firsts", {A, B, E1}),
        ("refuse", made.active_offsets, ends, firsts),
        ("flow", {A, B, E1}, alone),
        ("bring up", chunks, left, highwaters),
        ("replay", chunks[0]),
        ("flow", {A, B}, alone),
        ("highwaters", {E1: 89}),
        ("flow", set(), alone),
        ("highwaters", {A: 49, B: 6}),
    ]
    assert made.begun == [{A: (10, 50), B: (6, 7), E1: (13, 90)}]
    assert made.actives.complete == {A, B, E1}


async def test_only_partitions_that_lack_records_are_in_the_tag(made: Any) -> None:
    """The progress lists every partition, with its next offset and its end."""
    tags = list[Any]()
    made.spans.tag_actives = tags.append
    made.active_offsets = {A: 4, B: 9, C: None}
    made.actives._report_begin({C: 1, A: 5, B: 0}, {A: 9, B: 9, C: 0})
    assert tags == [{A: (9, 4, 5), C: (0, -1, 1)}]
    assert made.begun == [{A: (5, 10), B: (10, 10), C: (0, 1)}]
    assert list(made.begun[0]) == [A, B, C]


@pytest.mark.parametrize("has_pending", [True, False])
async def test_a_restore_of_actives_is_traced_and_others_are_not(
    made: Any, has_pending: bool
) -> None:
    """The span ends before the recovery reports its completion."""

    @contextmanager
    def trace(parent: Any) -> Iterator[None]:
        made.acts.append(("span", parent))
        yield
        made.acts.append("span ends")

    async def roles(*given: Any) -> Any:
        made.acts.append(("roles", *given))
        return {A} if has_pending else set(), {C}

    def step(name: str) -> Any:
        async def stepping(*given: Any) -> None:
            made.acts.append((name, *given))

        return stepping

    made.spans.actives, made.books.take = trace, roles
    made._recovery_span = "the round's"
    made.actives.restore, made._finish = step("restore"), step("finish")
    made.books.open_copies, made.standbys.follow = step("open copies"), step("follow")
    await made._take_on(frozenset({A, B}), frozenset({C, D}))
    pending = {A} if has_pending else set()
    assert made.acts == [
        ("roles", {A, B}, {C, D}),
        *[("span", "the round's")] * has_pending,
        ("restore", pending),
        *["span ends"] * has_pending,
        ("finish",),
        ("open copies", {C}),
        ("follow", {C}),
    ]


async def test_nothing_is_left_in_the_books_of_a_recovery_that_begins_again(made: Any) -> None:
    """Otherwise Faust's recovery would restore the partitions in these six books."""
    table = made.tables["totals"]
    for forget in (made.restart_recovery, made.books.clear):
        made.active_tps, made.standby_tps = {A}, {B}
        made.active_highwaters, made.standby_highwaters = {A: 3}, {B: 4}
        made.actives_for_table[table], made.standbys_for_table[table] = {A}, {B}
        made.active_offsets = {A: 7}
        forget()
        assert [
            made.active_tps,
            made.standby_tps,
            made.active_highwaters,
            made.standby_highwaters,
            made.actives_for_table,
            made.standbys_for_table,
        ] == [set(), set(), {}, {}, {}, {}]
        assert made.active_offsets == {A: 7}, "offsets are kept"


async def test_an_eager_round_remembers_the_owners_before_it(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Faust's step books the round's partitions, which become the roles to restore."""
    made.active_tps, made.standby_tps = {A, B}, {C}

    async def book(recovery: Any, *round_: Any) -> None:
        assert round_ == ({D}, {A}, {D}, 9)
        recovery.active_tps, recovery.standby_tps = {D}, {B}

    monkeypatch.setattr(Host, "on_rebalance", book)
    await made.on_rebalance({D}, {A}, {D}, 9)
    assert made.books._before == (frozenset({A, B}), frozenset({C}))
    assert made._roles == (frozenset({D}), frozenset({B}))
    assert (made.active_tps, made.standby_tps) == (set(), set())


@pytest.mark.parametrize("waits", [True, False])
async def test_both_tasks_of_a_round_end_with_it(made: Any, waits: bool) -> None:
    """The tasks restore actives and catch up standbys; an interrupt waits for both."""
    ended: list[str] = []

    async def work(name: str) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0)
            ended.append(name)

    tasks = [asyncio.ensure_future(work(name)) for name in ("actives", "standbys")]
    made._taking_on, made.standbys.catching_up = tasks
    await asyncio.sleep(0)
    if waits:
        await made.interrupt()
        assert sorted(ended) == ["actives", "standbys"]
    else:
        made.stop_assigning()
        await asyncio.wait(tasks)
    assert [task.cancelled() for task in tasks] == [True, True]
    assert (made._taking_on, made.standbys.catching_up) == (None, None)


async def test_a_restore_that_has_ended_is_not_under_way(made: Any) -> None:
    """Only a running restore delays a round."""
    made._taking_on = asyncio.ensure_future(asyncio.sleep(0))
    assert made.is_taking_on
    await made._taking_on
    assert not made.is_taking_on


async def test_a_single_record_is_brought_up_and_ready_parts_come_in_turn(made: Any) -> None:
    """A chunk without missing records comes first; chunks that end together keep their order."""
    asked: list[Any] = []

    async def in_batches(
        tps: Any, offsets: Any, highwaters: Any, stop: Any
    ) -> AsyncGenerator[TP, None]:
        asked.append((list(tps), offsets is made.active_offsets, highwaters, stop))
        for tp in (D, A):
            yield tp

    made.actives._batches.restore = in_batches
    parts = [frozenset({A}), frozenset({B}), frozenset({C}), frozenset({A, D})]
    stop: Any = object()
    left = {A: 1, B: 0, C: -3, D: 2}
    found = [part async for part in made.actives._restored_chunks(list(parts), left, {A: 5}, stop)]
    assert found == [parts[1], parts[2], parts[0], parts[3]]
    assert asked == [([A, A, D], True, {A: 5}, stop)]


async def test_a_replay_moves_step_by_step(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The replay seeks first, then checks at intervals and reports each position."""
    made.active_offsets, made.active_highwaters = {A: 4, B: None}, {A: 9, B: 6}
    offsets, looks = [(6, 1), (9, 6)], list[float]()
    monkeypatch.setattr(actives, "LOOK_S", 0.125)

    def started() -> None:
        made.acts.append("started")
        made.app.in_recovery = True

    async def sleep(seconds: float) -> None:
        assert made.actives.replayed == {A, B}
        assert not made.app.in_recovery
        looks.append(seconds)
        made.active_offsets[A], made.active_offsets[B] = offsets.pop(0)

    made._set_recovery_started, made.need_recovery = started, lambda: bool(offsets)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    await made.actives._replay(frozenset({A, B}))
    assert made.acts[:3] == [("seek to", {A: 5, B: 0}), "started", ("resume", {A, B})]
    assert looks == [0.125, 0.125]
    assert sorted(made.moves) == [(A, 7), (A, 10), (B, 2), (B, 7)]


async def test_each_table_of_a_part_is_told_of_all_that_it_has_here(made: Any) -> None:
    """A table outside the chunk is not notified; callbacks follow a table's last partition."""
    first, second = made.tables["totals"], second_table(made)
    made.actives_for_table.update({first: {A}, second: {E1, E2}})
    made.standbys_for_table.update({first: {C}})
    await made.actives._tell_tables(frozenset({E1}))
    await made.actives._tell_tables(frozenset({A, E2}))
    assert made.acts == [
        ("sums recovered", {E1, E2}, set()),
        ("recovered", {A, C}, {C}),
        ("sums recovered", {E1, E2}, set()),
    ]
    made.acts.clear()
    made.actives.begin_callbacks({E1})
    await made.actives.callbacks.over()
    assert made.acts == ["callbacks"]
    made.actives.begin_callbacks({A})
    await made.actives.callbacks.over()
    assert made.acts == ["callbacks", ("sums callbacks",)]


async def test_only_the_callbacks_of_restored_tables_are_due(made: Any) -> None:
    """A table without a partition in the chunk may have been restored long ago."""
    second = second_table(made)
    made.actives_for_table.update({second: {E1}})
    await made.actives._tell_tables(frozenset({E1}))
    made.acts.clear()
    made.actives.begin_callbacks(set())
    await made.actives.callbacks.over()
    assert made.acts == [("sums callbacks",)]
    made.actives.begin_callbacks(set())
    await made.actives.callbacks.over()
    assert made.acts == [("sums callbacks",)]


async def test_restored_partitions_of_a_table_with_a_callback_are_held(made: Any) -> None:
    """Partitions of the other table are not held."""
    second, may_end = second_table(made), asyncio.Event()

    async def callback() -> None:
        await may_end.wait()

    second.call_recover_callbacks = callback
    made.actives.complete = {A, E1, E2}
    made.actives.callbacks.owe(made.tables.values())
    made.actives.begin_callbacks(set())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert made.actives._with_running_callbacks() == {E1, E2}
    may_end.set()
    await made.actives.callbacks.over()
    assert made.actives._with_running_callbacks() == set()


async def test_sources_are_sought_through_the_broker_s_silence(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The retried request has a name; without ready sources there is no request."""
    asked: list[Any] = []

    async def retry(service: Any, what: str, ask: Any) -> None:
        asked.append((service, what))
        await ask()

    monkeypatch.setattr(actives, "retry", retry)
    await made.actives._let_flow({A, TP("sums", 2)}, frozenset())
    flowing = {SOURCES[1], SOURCES[3]}
    assert made.acts == [("seek", flowing), ("resume", flowing)]
    assert asked == [(made, "Committed offsets")]
    await made.actives._let_flow({E1}, frozenset({"sums"}))
    assert (len(made.acts), len(asked)) == (2, 1)


async def test_a_recovery_of_a_former_generation_restores_nothing(made: Any) -> None:
    """The present generation's streams have not resumed, and no partition of it is complete."""
    made.is_flowing, made._roles = False, (frozenset({A}), frozenset())
    made.actives.complete, made.restored = {B}, {B: 1}
    await made._resume_streams(6)
    assert (made.actives.complete, made.is_flowing, made.restored) == ({B}, False, {B: 1})
    assert made.acts == [("resumed", 6), "subscribe"]


async def test_a_partition_restored_again_has_its_new_result(made: Any) -> None:
    """The results of partitions outside this round's restore stay; the meter gets the new ones."""
    restores(made, A)
    made.restored = {A: "old", C: "kept"}
    met: list[Any] = []
    made.meter = SimpleNamespace(
        note_start=lambda tps, restored: met.append((set(tps), dict(restored))), finish=met.append
    )
    brought_up = made.actives._restored_chunks

    async def noting(*given: Any) -> AsyncGenerator[frozenset[TP], None]:
        async for part in brought_up(*given):
            made.restored[A] = "new"
            yield part

    made.actives._restored_chunks = noting
    await made.actives.restore({A})
    assert made.restored == {A: "new", C: "kept"}
    assert met == [({A}, {A: "new"}), {A}]


async def test_callbacks_end_before_the_recovery_does(made: Any) -> None:
    """The tables are closed after the recovery's stop."""

    async def callback() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            made.acts.append("cancelled")

    made.tables["totals"].call_recover_callbacks = callback
    made.actives.callbacks.owe(made.tables.values())
    made.actives.begin_callbacks(set())
    await asyncio.sleep(0)
    await made.on_stop()
    assert made.acts == ["cancelled", "stop_and_wait", ("on_stop", False, False)]


async def test_a_new_recovery_lets_nothing_flow(made: Any) -> None:
    """Before its first round it has no partitions and restores none."""
    fresh = Recovery(made.app, made.tables["totals"])
    assert (fresh.is_flowing, fresh.is_taking_on, fresh.meter) == (False, False, None)
    assert fresh._roles == fresh.books._before == (frozenset(), frozenset())
    assert not fresh.is_restored(A)


async def test_a_standby_that_is_not_followed_yet_lacks_records(made: Any) -> None:
    """While the actives are restored, and while it is restored itself, it is not ready."""
    made.standby_tps, made.standbys.followed, made._read_through = {A, B}, {B, C}, {}
    assert made.lacks_standby_records()
    made.standbys.followed = {A, B, C}
    assert not made.lacks_standby_records()
    made.standby_highwaters, made.standby_offsets = {B: 6}, {B: 5}
    assert made.lacks_standby_records()
