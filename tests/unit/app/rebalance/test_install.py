"""Where cooperative rounds cannot be: eager ones, and one line that says so."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import faust
import pytest
from faust.transport.drivers import aiokafka as driver

from faust_assigner.app import compose
from faust_assigner.app.consumer.lanes import Lanes
from faust_assigner.app.host.mixing import parts_of

EAGER = "Rebalances are eager and stop all partitions: cooperative rounds need "


def app_of(**settings: Any) -> Any:
    """An app that nobody uses yet."""
    return faust.App("made-up", broker="kafka://nowhere", store="memory://", **settings)


def tables_of(app: Any) -> str:
    """What its tables are mixed from."""
    return str(object.__getattribute__(app.conf, "TableManager").__qualname__)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Of cooperative rounds."""
    return [record.message for record in caplog.records if "ooperative" in record.message]


@pytest.mark.parametrize("part", [compose.repair, compose.restore])
def test_without_repairs_or_replay_rounds_are_eager(
    part: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It is built upon both: with the replay alone, FAUST_ASSIGNER_REPAIRS=0, a worker's recovery crashed."""
    app = app_of()
    part(app)
    compose.rebalance_incrementally(app)
    assert "ByPartition" not in tables_of(app)
    assert said(caplog) == [
        EAGER + "the repairs and the batched replay, installed before the app is in use"
    ]


def test_in_an_app_that_is_in_use_rounds_are_eager(caplog: pytest.LogCaptureFixture) -> None:
    """Its tables have been made."""
    app = app_of()
    compose.repair(app)
    compose.restore(app)
    assert app.tables == {}
    compose.rebalance_incrementally(app)
    assert "ByPartition" not in tables_of(app)
    assert len(said(caplog)) == 1


def test_with_another_driver_rounds_are_eager(caplog: pytest.LogCaptureFixture) -> None:
    """Only aiokafka's coordinator is known."""
    app = app_of()
    app.transport = SimpleNamespace(Consumer=object, url="confluent://nowhere")
    parts_of(app).add("cooperative")
    assert compose._new_consumer(app, lambda: "a consumer") == "a consumer"
    assert app.transport.Consumer is object
    assert said(caplog) == [
        EAGER + "Faust's aiokafka driver, not the driver of confluent://nowhere"
    ]


def test_the_tables_of_another_drivers_app_do_not_go_by_state(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """They ask their consumer for what only ours has, and ended the worker at its first recovery."""
    app = faust.App("made-up", broker="confluent://nowhere", store="memory://")
    compose.repair(app)
    compose.restore(app)
    compose.rebalance_incrementally(app)
    assert "ByPartition" not in tables_of(app)
    assert said(caplog) == [
        EAGER + "Faust's aiokafka driver, not the driver of confluent://nowhere"
    ]


def test_where_rounds_are_cooperative_queues_take_from_each_partition_in_turn() -> None:
    """A backlog that is taken over would hold up what was here all the time."""
    app = app_of()
    compose.repair(app)
    compose.restore(app)
    compose.rebalance_incrementally(app)
    assert isinstance(app.FlowControlQueue(maxsize=3)._queue, Lanes)


def test_twice_is_once_and_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """Where all is there."""
    app = app_of()
    compose.repair(app)
    compose.restore(app)
    for _ in range(2):
        compose.rebalance_incrementally(app)
    assert tables_of(app).count("TablesByPartition") == 1
    app.transport.Consumer = driver.Consumer
    assert issubclass(app._new_consumer().__class__, driver.Consumer)
    assert said(caplog) == []
