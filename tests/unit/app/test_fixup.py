"""What Faust loads from its entry point: our assignor is asked, wherever it can be."""

from __future__ import annotations

import gc
import weakref
from importlib.metadata import entry_points
from typing import Any

import faust
import pytest
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from faust.assignor.partition_assignor import PartitionAssignor as StockAssignor

from faust_assigner.app.fixup import Fixup
from faust_assigner.app.repairs import driver_assignor, router
from tests.support.faust_group import make_app

OURS = "faust_assigner:PartitionAssignor"


def strategies_of(app: Any) -> list[Any]:
    """What the consumer that Faust creates would join the group with; nothing is connected."""
    consumer = app.consumer._thread._create_worker_consumer(app.transport)
    try:
        found: list[Any] = consumer._partition_assignment_strategy
        return found
    finally:
        consumer._closed = True


def app_of(assignor: Any, **options: Any) -> faust.App:
    """A configured app with a broker nobody listens at."""
    app = make_app("http://w", assignor=assignor, broker="kafka://127.0.0.1:1", **options)
    app.finalize()
    return app


def test_faust_finds_the_fixup_by_its_entry_point() -> None:
    """One app, one fixup, without a line in the app."""
    (entry,) = [e for e in entry_points(group="faust.fixups") if e.name == "faust_assigner"]
    assert entry.load() is Fixup


def test_an_app_that_nobody_uses_any_more_is_freed() -> None:
    """Faust's signals are those of all apps of a process, and keep for ever who is connected strongly."""
    app = weakref.ref(app_of(OURS))
    gc.collect()
    assert app() is None
    assert sum(isinstance(f, Fixup) for f in faust.App("x").fixups) == 1


async def test_without_tables_and_standbys_faust_would_take_round_robin() -> None:
    """The fact this exists for; if Faust changes it, the fixup can go."""
    assert strategies_of(app_of(StockAssignor, replicas=0)) == [RoundRobinPartitionAssignor]


async def test_without_tables_and_standbys_ours_is_asked() -> None:
    """The consumer joins with the app's assignor."""
    app = app_of(OURS, replicas=0)
    assert strategies_of(app) == [app.assignor]
    assert app.consumer._thread._assignor is app.assignor


@pytest.mark.parametrize("tables", [(), ("totals",)])
async def test_with_standbys_or_tables_nothing_changes(tables: tuple[str, ...]) -> None:
    """Faust asks ours by itself."""
    app = app_of(OURS, replicas=1, tables=tables)
    assert strategies_of(app) == [app.assignor]


async def test_apps_that_chose_another_assignor_are_left_alone() -> None:
    """The fixup is created for every app of the process and must not touch theirs."""
    app = app_of(StockAssignor, replicas=0)
    assert app.configured
    assert not [name for name in vars(app) if "faust_assigner" in name]
    assert "_new_consumer" not in vars(app)


async def test_a_driver_that_never_asks_is_named_at_the_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """confluent:// assigns inside librdkafka, whatever assignor the app chose."""
    app = make_app("http://w", assignor=OURS, broker="confluent://127.0.0.1:1")
    app.finalize()
    assert "not used" not in caplog.text
    assert app.consumer is not None
    assert "assignor is not used" in caplog.text
    assert "confluent://127.0.0.1:1" in caplog.text


def test_a_failing_part_stops_the_app_at_every_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the parts would be worse than an app that does not start."""

    def broken(app: Any) -> None:
        raise ZeroDivisionError("broken on purpose")

    monkeypatch.setattr(router, "install", broken)
    app = make_app("http://w", assignor=OURS, broker="kafka://127.0.0.1:1")
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="broken on purpose"):
            assert app.conf.id


async def test_too_late_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """A consumer that exists already keeps what it was given."""
    app = app_of(OURS, replicas=0)
    assert app.consumer is not None
    driver_assignor.install(app)
    assert "Too late" in caplog.text
