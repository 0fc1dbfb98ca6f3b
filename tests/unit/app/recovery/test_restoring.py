"""Our restore inside Faust's recovery: its delays, and its fallback to Faust's loop."""

import asyncio
import gc
import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import faust
import pytest
from aiokafka import TopicPartition
from faust.tables.base import Collection
from faust.types import TP

from faust_assigner.app.compose import repair
from faust_assigner.app.recovery import bring_up, restore_task
from faust_assigner.app.recovery import restoring as recovery
from faust_assigner.app.recovery.bring_up import Extent
from faust_assigner.app.recovery.by_partition import PartitionRecovery
from faust_assigner.app.recovery.restore_task import SNAPSHOT, Cold, Restored, Settings, Stop
from faust_assigner.app.recovery.restoring import BatchedRestore
from faust_assigner.app.tables.disk import takes_files
from tests.support.waiting import PATIENCE_S

HERE = TP("app-table-changelog", 0)


class Table(SimpleNamespace):
    """A table with Faust's methods."""

    on_changelog_event = Collection.on_changelog_event
    apply_changelog_batch = Collection.apply_changelog_batch


@pytest.fixture
async def app() -> Any:
    """An app with our recovery, not started."""
    made = faust.App(
        "restoring", broker="kafka://127.0.0.1:1", store="rocksdb://", web_enabled=False
    )
    repair(made)
    return made


@pytest.fixture
async def restoring(app: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The app's recovery with one lagging partition; stubs replace Faust's steps."""
    service = app.tables.recovery
    service.active_highwaters[HERE] = 9
    monkeypatch.setattr(
        BatchedRestore,
        "_cold",
        lambda self, tp, offsets, highwaters: Cold(TopicPartition(*tp), None, -1, 9, True),
    )
    monkeypatch.setattr(
        recovery,
        "settings_of",
        lambda app: Settings("somewhere", True, {}, "read_uncommitted", None),
    )  # type: ignore[arg-type]
    return service


def batches(service: Any) -> Any:
    """Return the restores in batches of a recovery."""
    return service.actives._batches


def answer(offset: int) -> Any:
    """Return a restore that brings the partition to ``offset``."""
    return lambda settings, partitions, stop, told: {
        HERE: Restored(HERE, SNAPSHOT, 0.0, 1.0, -1, offset, 10)
    }


async def build(service: Any) -> dict[TP, int]:
    """Restore in batches from the beginning; check that the partition is reported once."""
    offsets, stop = {HERE: -1}, recovery.Stop(None)
    highwaters = service.active_highwaters
    assert [tp async for tp in batches(service).restore([HERE], offsets, highwaters, stop)] == [
        HERE
    ]
    return offsets


async def test_a_restored_offset_is_what_recovery_goes_on_from(
    restoring: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger finds the source in ``restored``."""
    monkeypatch.setattr(recovery, "bring_up", answer(7))
    assert await build(restoring) == {HERE: 7}
    assert restoring.active_highwaters[HERE] == 9
    assert restoring.app.tables.recovery.restored[HERE].source == "snapshot"


async def test_an_offset_beyond_the_known_highwater_raises_the_highwater(
    restoring: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the old highwater, Faust would report lost records and crash."""
    monkeypatch.setattr(recovery, "bring_up", answer(12))
    assert await build(restoring) == {HERE: 12}
    assert restoring.active_highwaters[HERE] == 12


async def test_a_restore_that_raises_leaves_the_offsets_to_the_replay(
    restoring: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Faust's loop replays the partition, and the progress is idle again."""

    def broken(settings: Any, *_: Any) -> None:
        settings.progress.begin({HERE: (0, 10)})
        raise RuntimeError("of any kind")

    monkeypatch.setattr(recovery, "bring_up", broken)
    assert await build(restoring) == {HERE: -1}
    assert "Could not restore in batches" in caplog.text
    assert restoring.progress.is_idle


async def test_a_partition_is_reported_once_though_it_was_told_before_the_end(
    restoring: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch reports each finished partition, and all partitions at its end."""

    def early(settings: Any, partitions: Any, stop: Any, told: Any) -> Any:
        done = answer(7)(settings, partitions, stop, told)
        told(done[HERE])
        return done

    monkeypatch.setattr(recovery, "bring_up", early)
    offsets = {HERE: -1}
    stop = recovery.Stop(None)
    highwaters = restoring.active_highwaters
    told = [tp async for tp in batches(restoring).restore([HERE], offsets, highwaters, stop)]
    assert (told, offsets) == ([HERE], {HERE: 7})


async def test_a_rebalance_stops_the_thread_and_waits_for_it(
    restoring: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The databases may belong to another restore right after the rebalance."""
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def until_stopped(settings: Any, partitions: Any, stop: Any, told: Any) -> dict[TP, Restored]:
        begun.set()
        while not stop():
            time.sleep(0.01)
        may_end.wait(PATIENCE_S)
        time.sleep(0.1)
        ended.set()
        return {}

    monkeypatch.setattr(recovery, "bring_up", until_stopped)
    building = asyncio.ensure_future(build(restoring))
    assert await asyncio.to_thread(begun.wait, PATIENCE_S)
    building.cancel()
    await asyncio.wait([building], timeout=0.05)
    assert not ended.is_set()
    may_end.set()
    restoring.app.tables.on_partitions_revoked({HERE})
    await restoring.stop_and_wait()
    assert ended.is_set()


async def test_a_thread_that_fails_after_its_waiter_is_gone_is_no_error_of_asyncio(
    restoring: Any,
) -> None:
    """A disk may fill up during a round; the next open of the table reports the error."""
    may_fail, complaints = threading.Event(), list[Any]()

    def fail() -> None:
        may_fail.wait(PATIENCE_S)
        raise OSError("No space left on device")

    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    waiter = asyncio.ensure_future(restoring.threads.run(fail))
    await asyncio.sleep(0.01)
    waiter.cancel()
    await asyncio.gather(waiter, return_exceptions=True)
    del waiter  # its traceback references the thread's task
    may_fail.set()
    await restoring.stop_and_wait()
    await asyncio.sleep(0.01)
    gc.collect()
    assert complaints == []


async def test_the_recovery_is_made_once_and_keeps_fausts_tasks(app: Any) -> None:
    """Every task of Faust's recovery runs in ours."""
    service = app.tables.recovery
    assert app.tables.recovery is service
    assert isinstance(service, PartitionRecovery)
    names = {task.fun.__name__ for task in service._get_tasks()}
    assert {"_restart_recovery", "_slurp_changelogs", "_publish_stats"} <= names


def test_stores_whose_values_are_not_the_changelogs_take_no_files(tmp_path: Any) -> None:
    """These are memory stores, set tables, databases with a TTL and read-only databases."""
    app = faust.App(
        "stores",
        broker="kafka://127.0.0.1:1",
        store="rocksdb://",
        datadir=str(tmp_path),
        web_enabled=False,
    )
    (tmp_path / "v1" / "tables").mkdir(parents=True, exist_ok=True)
    plain = app.Table("plain")
    assert takes_files(plain.data)
    assert not takes_files(app.Table("ttl", options={"ttl": 60}).data)
    assert not takes_files(app.Table("read", options={"read_only": True}).data)
    assert not takes_files(app.SetTable("set").data)
    memory = faust.App("memory", broker="kafka://127.0.0.1:1", store="memory://", web_enabled=False)
    assert not takes_files(memory.Table("table").data)
    assert not takes_files(SimpleNamespace())


def test_the_last_offset_to_reach_is_the_one_before_the_committed_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The end is the next record's offset: a wait for it would last a minute at each restore."""

    async def extents(connection: Any, tps: Any) -> Any:
        return {tp: Extent(0, 30) for tp in tps}

    monkeypatch.setattr(bring_up, "extents_of", extents)
    tp = TopicPartition(*HERE)
    for isolation_level, reached in (("read_committed", 29), ("read_uncommitted", 9)):
        settings: Any = Settings(None, True, {}, isolation_level, None)  # type: ignore[arg-type]
        (cold,) = bring_up._with_committed_ends(settings, [Cold(tp, None, -1, 9, True)], Stop())
        assert cold.highwater == reached


@pytest.mark.parametrize(
    ("persisted", "offset", "highwater", "in_transaction", "start"),
    [
        (3, 7, 9, False, 7),
        (8, 7, 9, False, 8),
        (None, -1, 9, False, -1),
        (8, 8, 8, False, None),
        (8, 8, 8, True, 8),
        (None, None, 9, False, None),
        (0, -1, 9, False, 0),
        (None, 0, 1, False, 0),
        (-1, -1, 0, False, -1),
        (None, 9, 8, False, None),
        (None, None, None, True, None),
    ],
)
async def test_a_partition_is_read_from_its_file_or_from_the_first_record_there_is(
    monkeypatch: pytest.MonkeyPatch,
    app: Any,
    persisted: int | None,
    offset: int | None,
    highwater: int | None,
    in_transaction: bool,
    start: int | None,
) -> None:
    """A complete partition is not read; under transactions the committed end may be unknown."""
    monkeypatch.setattr(recovery, "is_writable", lambda store: True)
    monkeypatch.setattr(recovery, "takes_files", lambda store: True)
    monkeypatch.setattr(recovery, "decoding_of", lambda table: None)
    store = SimpleNamespace(
        persisted_offset=lambda tp: persisted, _db_for_partition=lambda partition: "database"
    )
    table = SimpleNamespace(data=store, _on_changelog_event=None)
    service = app.tables.recovery
    service.tp_to_table[HERE] = table
    app.in_transaction = in_transaction
    found = batches(service)._cold(HERE, {HERE: offset}, {HERE: highwater})
    assert (None if found is None else found.offset) == start
    table._on_changelog_event = "callback"
    assert batches(service)._cold(HERE, {HERE: offset}, {HERE: highwater}) is None, (
        "it sees each record"
    )


@pytest.mark.parametrize("method", ["on_changelog_event", "apply_changelog_batch"])
def test_an_app_s_own_table_class_gets_each_record(method: str) -> None:
    """A restore in batches would bypass the overridden method."""
    own = type("Own", (Table,), {method: lambda self, *args: None})
    assert recovery.sees_records(own(_on_changelog_event=None))
    assert not recovery.sees_records(Table(_on_changelog_event=None))


async def test_settling_stops_the_threads_that_it_waits_for(app: Any) -> None:
    """Otherwise a thread would continue as long as records arrive."""
    service = app.tables.recovery
    assert not service.threads.stop_signal()
    await service.stop_and_wait()
    assert service.threads.stop_signal()


# -- several partitions in one restore

TPS = [TP("app-table-changelog", number) for number in range(5)]


async def collected(service: Any, tps: Any, offsets: Any, highwaters: Any, stop: Any) -> list[TP]:
    """Return the partitions in the order of their reports."""
    return [tp async for tp in batches(service).restore(tps, offsets, highwaters, stop)]


async def test_each_partition_is_reported_with_its_own_result(
    app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partitions for Faust's loop come first, then early results; a foreign result is ignored."""
    service, seen, used = app.tables.recovery, list[Any](), list[Any]()
    zero, one, two, three, four = TPS
    settings = Settings(None, True, {"client_id": "x"}, "read_committed", None)  # type: ignore[arg-type]
    monkeypatch.setattr(recovery, "settings_of", lambda app: settings)

    def cold(self: Any, tp: TP, offsets: Any, highwaters: Any) -> Cold | None:
        seen.append((tp, offsets, highwaters))
        own = TopicPartition(*tp)
        return None if tp in (zero, three) else Cold(own, None, offsets[tp], highwaters[tp], True)

    def restored(tp: TP, end: int) -> Restored:
        return Restored(TopicPartition(*tp), SNAPSHOT, 1.0, 2.0, 0, end, 10 + tp.partition)

    def bring(settings: Any, colds: Any, stop: Any, told: Any) -> Any:
        used.append((settings, colds, stop))
        told(restored(two, 25))
        told(restored(TP("other", 0), 99))
        return {tp: restored(tp, 20 + tp.partition) for tp in (one, two, four)}

    monkeypatch.setattr(BatchedRestore, "_cold", cold)
    monkeypatch.setattr(recovery, "bring_up", bring)
    pace = object()
    monkeypatch.setattr(batches(service), "_pace", lambda: pace)
    offsets = {tp: tp.partition for tp in TPS} | {four: 30}
    highwaters = dict.fromkeys(TPS, 22)
    stop = recovery.Stop(None)
    order = [three, one, four, zero, two]
    found = await collected(service, order, offsets, highwaters, stop)
    assert found == [three, zero, two, one, four]
    assert [each[0] for each in seen] == order
    assert all(each[1] is offsets and each[2] is highwaters for each in seen)
    ((given, colds, own_stop),) = used
    assert given == replace(settings, progress=service.progress, pace=pace)
    assert given.progress is service.progress
    assert [each.tp for each in colds] == [one, four, two]
    assert own_stop is stop is service.threads.stop_signal
    assert offsets == {zero: 0, one: 21, two: 25, three: 3, four: 30}
    assert highwaters == {zero: 22, one: 22, two: 25, three: 22, four: 24}
    assert service.restored == {
        one: restored(one, 21),
        two: restored(two, 25),
        four: restored(four, 24),
    }


@pytest.mark.parametrize(
    ("snapshots", "batched", "is_used"),
    [(None, False, False), ("there", False, True), (None, True, True)],
)
async def test_a_restore_without_snapshots_and_batches_is_faust_s(
    restoring: Any,
    monkeypatch: pytest.MonkeyPatch,
    snapshots: str | None,
    batched: bool,
    is_used: bool,
) -> None:
    """No thread starts, and no database is opened."""
    settings = Settings(snapshots, batched, {}, "read_uncommitted", None)  # type: ignore[arg-type]
    monkeypatch.setattr(recovery, "settings_of", lambda app: settings)
    monkeypatch.setattr(recovery, "bring_up", answer(7))
    stop = restoring.threads.stop_signal
    assert await build(restoring) == {HERE: 7 if is_used else -1}
    assert (restoring.threads.stop_signal is stop) is not is_used


async def test_partitions_of_a_failed_restore_are_reported_in_order(
    app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Early reports are not repeated; the progress is idle again."""
    service = app.tables.recovery
    monkeypatch.setattr(
        recovery, "settings_of", lambda app: Settings("s", True, {}, "read_uncommitted", None)
    )  # type: ignore[arg-type]
    monkeypatch.setattr(
        BatchedRestore, "_cold", lambda self, tp, *_: Cold(TopicPartition(*tp), None, -1, 9, True)
    )

    def bring(settings: Any, colds: Any, stop: Any, told: Any) -> Any:
        settings.progress.begin({each.tp: (0, 10) for each in colds})
        told(Restored(TopicPartition(*TPS[1]), SNAPSHOT, 0.0, 1.0, -1, 7, 10))
        settings.progress.finish(TPS[1])
        raise RuntimeError("of any kind")

    monkeypatch.setattr(recovery, "bring_up", bring)
    offsets, highwaters = dict.fromkeys(TPS[:4], -1), dict.fromkeys(TPS[:4], 9)
    order = [TPS[3], TPS[1], TPS[0], TPS[2]]
    found = await collected(service, order, offsets, highwaters, recovery.Stop(None))
    assert found == [TPS[1], TPS[0], TPS[2], TPS[3]]
    assert offsets == {TPS[0]: -1, TPS[1]: 7, TPS[2]: -1, TPS[3]: -1}
    assert service.progress.is_idle


@pytest.mark.parametrize("reason", [None, "not writable", "no highwater", "at its end"])
async def test_a_restore_task_has_all_of_its_partition(
    monkeypatch: pytest.MonkeyPatch, app: Any, reason: str | None
) -> None:
    """It has the database, offset, end and decoding; a partition in a foreign store has no task."""
    monkeypatch.setattr(recovery, "is_writable", lambda store: reason != "not writable")
    monkeypatch.setattr(recovery, "takes_files", lambda store: store.takes)
    monkeypatch.setattr(recovery, "decoding_of", lambda table: ("decoding", table.name))
    tp = TPS[3]
    store = SimpleNamespace(
        persisted_offset=lambda tp: 5 + tp.partition,
        _db_for_partition=lambda number: f"database {number}",
        takes=False,
    )
    service = app.tables.recovery
    service.tp_to_table[tp] = Table(data=store, _on_changelog_event=None, name="counts")
    highwaters = {tp: {"no highwater": None, "at its end": 6}.get(reason or "", 60)}
    found = batches(service)._cold(tp, {tp: 6}, highwaters)
    assert found == (
        None if reason else Cold(tp, "database 3", 8, 60, False, ("decoding", "counts"))  # type: ignore[arg-type]
    )


async def test_a_restore_takes_its_share_beside_the_app_s_records(
    app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The monitor's counter of received messages measures live records."""
    made: list[Any] = []
    monkeypatch.setattr(recovery, "read_or_default", lambda app, setting: (app, setting))
    monkeypatch.setattr(recovery, "RestoreThrottle", lambda *given: made.append(given) or "pace")
    assert batches(app.tables.recovery)._pace() == "pace"
    ((share, count),) = made
    assert share == (app, recovery.RESTORE_SHARE)
    app.monitor.messages_received_total = 41
    assert count() == 41


async def test_a_restore_that_does_not_end_in_time_is_logged(
    app: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """All restores are awaited together; an ended thread is not awaited again."""
    service = app.tables.recovery
    monkeypatch.setattr(restore_task, "SETTLE_TIMEOUT_S", 0.01)
    quick, stuck = (asyncio.get_running_loop().create_future() for _ in range(2))
    service.threads._working = {quick, stuck}
    quick.set_result(None)
    await service.stop_and_wait()
    assert "A restore did not stop within" in caplog.text
    caplog.clear()
    stuck.set_result(None)
    await service.stop_and_wait()
    assert caplog.text == ""
    assert await service.threads.run(lambda *given: given, 1, "two") == (1, "two")
    await asyncio.sleep(0)
    assert service.threads._working == {quick, stuck}


async def test_a_partition_is_reported_with_its_offset(
    restoring: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The consumer seeks to this offset after the report."""
    monkeypatch.setattr(recovery, "bring_up", answer(12))
    offsets, seen = {HERE: -1}, list[Any]()
    highwaters, stop = restoring.active_highwaters, recovery.Stop(None)
    async for tp in batches(restoring).restore([HERE], offsets, highwaters, stop):
        seen.append((tp, offsets[tp], highwaters[tp], restoring.restored[tp].end_offset))
    assert seen == [(HERE, 12, 12, 12)]
