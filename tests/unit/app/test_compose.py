"""An app is repaired once, before the repaired parts exist, unless its settings forbid it."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import faust
import pytest
from faust.tables.manager import TableManager
from faust.tables.sets import SetTable
from faust.transport.drivers import aiokafka as driver
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread

from faust_assigner.app import compose as module
from faust_assigner.app import fixup
from faust_assigner.app.compose import repair
from faust_assigner.app.queries.forwarding import AllowlistRouter
from faust_assigner.app.rebalance import consumer_thread
from faust_assigner.app.recovery.table_manager import RecoveringTables
from faust_assigner.app.tables.scope import ScopedTable
from faust_assigner.errors import ConfigError


def app_in(folder: Path, **options: Any) -> Any:
    """Return a stock Faust app, not started, which has no repairs by itself."""
    return faust.App(
        "plain",
        web_enabled=False,
        datadir=str(folder),
        **{"broker": "kafka://127.0.0.1:1", **options},
    )


def parts(app: Any) -> list[Any]:
    """Return the parts that a repair replaces."""
    conf = app.conf
    return [
        conf.TableManager,
        conf.Stream,
        app.flow_control,
        app._new_consumer,
        app.FlowControlQueue,
        app._stop_consumer,
    ]


async def test_a_second_repair_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Fixup and assignor may both repair, even after the tables exist, without a warning."""
    app = app_in(tmp_path)
    repair(app)
    once = parts(app)
    assert issubclass(once[0], RecoveringTables)
    repair(app)
    assert [a is b for a, b in zip(parts(app), once, strict=True)] == [True] * 6
    assert app.tables is not None
    repair(app)
    assert "before the repairs" not in caplog.text
    assert "Rebalances are eager" not in caplog.text


async def test_an_app_that_is_in_use_is_warned_about_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Half of the repairs would be worse than none."""
    app = app_in(tmp_path)
    assert app.tables is not None
    for _ in range(2):
        repair(app)
    lines = [
        one
        for one in caplog.records
        if "before the repairs of Faust's rebalance were installed" in one.getMessage()
    ]
    assert len(lines) == 1
    assert not issubclass(app.conf.TableManager, RecoveringTables)


def test_the_installers_are_the_parts_that_the_fixup_names() -> None:
    """The order is equal; the page is not installed into the app."""
    assert (*module.INSTALLERS, "page") == fixup.PARTS


async def test_only_the_parts_that_are_named_are_installed(tmp_path: Path) -> None:
    """Without the repairs the tables are Faust's."""
    app = app_in(tmp_path)
    module.install(app, ("driver_assignor", "router"))
    assert not issubclass(app.conf.TableManager, RecoveringTables)
    assert issubclass(app.conf.Router, AllowlistRouter)
    module.install(app, ("repairs",))
    assert issubclass(app.conf.TableManager, RecoveringTables)


class OwnTables(TableManager):
    """An app's own table manager."""


@pytest.mark.parametrize("repaired", [True, False])
async def test_snapshots_that_faust_s_recovery_cannot_use_are_named_in_the_log(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    repaired: bool,
) -> None:
    """Without the repairs no recovery restores from snapshots."""
    monkeypatch.setenv("FAUST_ASSIGNER_SNAPSHOTS", str(tmp_path))
    module.install(app_in(tmp_path), ["repairs"] if repaired else [])
    assert ("FAUST_ASSIGNER_SNAPSHOTS is not used" in caplog.text) == (not repaired)


async def test_an_apps_own_class_stays_below_ours(tmp_path: Path) -> None:
    """The app's class is mixed in once and keeps its name."""
    app = app_in(tmp_path, TableManager=OwnTables)
    module.install(app, ("repairs", "driver_assignor"))
    made = app.conf.TableManager
    assert made.__mro__.index(module.RepairedTables) < made.__mro__.index(OwnTables)
    assert made.__bases__ == (module.RepairedTables, OwnTables)
    assert made.__name__ == "OwnTables"


async def test_a_class_that_is_none_of_fausts_is_refused(tmp_path: Path) -> None:
    """Faust's methods would precede the class's own."""
    app = app_in(tmp_path, Router=Unrelated)
    with pytest.raises(
        ConfigError, match=r"Unrelated must be a subclass of faust.app.router.Router"
    ):
        module.install(app, ("router",))


class Unrelated:
    """A router without Faust's router as a base."""


async def test_queues_of_an_earlier_flow_control_follow_the_repaired_one(tmp_path: Path) -> None:
    """An app may create a queue before its settings are read."""
    app = app_in(tmp_path)
    before, queue = app.flow_control, app.FlowControlQueue(8, clear_on_resume=True)
    repair(app)
    assert type(app.flow_control) is module.FlowControl
    putting = asyncio.ensure_future(queue.put(1))
    await asyncio.sleep(0)
    assert queue.empty()
    assert not before.is_active()
    app.flow_control.resume()
    await putting
    assert before.is_active()
    assert queue.qsize() == 1
    app.flow_control.suspend()
    app.flow_control.resume()
    assert queue.empty(), "its records are of the last generation"


class OwnThread(AIOKafkaConsumerThread):  # type: ignore[misc]
    """An app's own thread of the consumer."""


def transport_of(app: Any, **attributes: Any) -> None:
    """Give the app a driver whose consumer class has ``attributes``."""
    consumer = type("OwnConsumer", (driver.Consumer,), attributes)
    kind = type("OwnTransport", (driver.Transport,), {"Consumer": consumer})
    app.transport = kind(app.conf.broker, app)


@pytest.mark.parametrize(
    ("installed", "ours"),
    [
        (("driver_assignor",), "AssigningThread"),
        (("repairs",), "RepairedThread"),
        (("repairs", "driver_assignor"), "RepairedThread"),
    ],
)
async def test_an_apps_own_thread_of_the_consumer_stays_below_ours(
    tmp_path: Path, installed: tuple[str, ...], ours: str
) -> None:
    """The app's consumer class names the thread class."""
    app = app_in(tmp_path)
    transport_of(app, thread_class=OwnThread)
    module.install(app, installed)
    made = type(app._new_consumer()._thread)
    assert made.__bases__ == (getattr(consumer_thread, ours), OwnThread)
    assert made.__name__ == "OwnThread"


async def test_a_thread_that_an_apps_consumer_makes_without_naming_it_is_refused(
    tmp_path: Path,
) -> None:
    """Otherwise the app's thread would no longer be created."""
    app = app_in(tmp_path)
    transport_of(app, _new_consumer_thread=lambda self: OwnThread(self))
    module.install(app, ("driver_assignor",))
    with pytest.raises(ConfigError, match=r"OwnConsumer must name the class of its thread"):
        app._new_consumer()


async def test_tables_are_guarded_only_where_copies_may_answer(tmp_path: Path) -> None:
    """Each table class of the settings is guarded; an app's own class stays a base."""
    for stale_s, guarded in ((30.0, True), (0.0, False)):
        app = app_in(tmp_path, faust_assigner_stale_reads_s=stale_s, SetTable=OwnSets)
        module.install(app, ("repairs", "reads"))
        made = [app.Table("a"), app.GlobalTable("b"), app.SetTable("c"), app.SetGlobalTable("d")]
        assert [isinstance(table, ScopedTable) for table in made] == [guarded] * 4
        assert isinstance(made[2], OwnSets)


class OwnSets(SetTable):  # type: ignore[misc]
    """An app's own set table."""


@pytest.mark.parametrize(
    ("installed", "tables", "recovery", "consumer"),
    [
        (("repairs",), "RepairedTables", "PartitionRecovery", "RepairedConsumer"),
        (("repairs", "driver_assignor"), "RepairedTables", "PartitionRecovery", "RepairedConsumer"),
        (("driver_assignor",), None, None, "AssigningConsumer"),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, tuple) else "",
)
async def test_each_set_of_parts_has_classes_of_its_own(
    tmp_path: Path,
    installed: tuple[str, ...],
    tables: str | None,
    recovery: str | None,
    consumer: str | None,
) -> None:
    """The repairs include transactions and a producer that knows all its topics."""
    app = app_in(tmp_path)
    module.install(app, installed)
    made = app._new_consumer()
    for one, name in ((app.tables, tables), (app.tables.recovery, recovery), (made, consumer)):
        names = [base.__name__ for base in type(one).__mro__]
        ours = [base for base in type(one).__mro__ if base.__module__.startswith("faust_assigner.")]
        assert name in names if name else not ours
    assert isinstance(made.transactions, module.PartitionTransactions) == ("repairs" in installed)
    is_ours = app.producer._new_producer.__class__ is partial
    assert is_ours == ("repairs" in installed)


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
async def test_streams_take_batches_of_ours(tmp_path: Path, guarantee: str) -> None:
    """Faust's own batches lose records after an error, and delay rebalances."""
    app = app_in(tmp_path, processing_guarantee=guarantee)
    module.install(app, ("repairs",))
    assert issubclass(app.conf.Stream, module.BatchingStream)


async def test_copies_are_watched_only_where_they_may_answer(tmp_path: Path) -> None:
    """The service polls the broker several times a second."""
    for stale_s, count in ((30.0, 1), (0.0, 0)):
        app = app_in(tmp_path, faust_assigner_stale_reads_s=stale_s)
        module.install(app, ("repairs", "router", "reads"))
        module.install(app, ("reads",))
        watching = [one for one in app._extra_services if isinstance(one, module.ReplicaStatus)]
        assert len(watching) == count
        assert issubclass(app.conf.Router, module.KeyRouter)


async def test_an_app_without_the_repairs_answers_no_requests_for_keys(tmp_path: Path) -> None:
    """It does not know which partitions are restored: Faust's own answers stay."""
    app = app_in(tmp_path, faust_assigner_stale_reads_s=30.0)
    before = app.table_route
    module.install(app, ("router", "reads"))
    assert not issubclass(app.conf.Router, module.KeyRouter)
    assert issubclass(app.conf.Router, AllowlistRouter)
    assert app.table_route == before
    assert not hasattr(app, module.STANDING)
    assert not [one for one in app._extra_services if isinstance(one, module.ReplicaStatus)]


async def test_an_apps_consumer_is_wrapped_once_for_all_of_its_parts(tmp_path: Path) -> None:
    """Otherwise the warning about memory tables would be logged twice."""
    app = app_in(tmp_path)
    create = app._new_consumer
    module.install(app, ("repairs", "driver_assignor"))
    made = app._new_consumer
    assert (made.func, made.args) == (module._new_consumer, (app, create))
    assert module.parts_of(app) == {"repairs", "driver_assignor"}
