"""An app is repaired as a whole or not at all, and a log line has the reason for eager rounds."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import faust
import pytest
from faust.transport.drivers import aiokafka as driver

from faust_assigner.app import compose
from faust_assigner.app.consumer.delivery import Lanes
from faust_assigner.app.host.mixing import parts_of
from faust_assigner.app.membership.leave import MARK as LEAVES
from faust_assigner.errors import ConfigError


def app_of(broker: str = "kafka://nowhere", **settings: Any) -> Any:
    """Return an unused app."""
    return faust.App("made-up", broker=broker, store="memory://", **settings)


def tables_of(app: Any) -> str:
    """Return the name of the class of its tables."""
    return str(object.__getattribute__(app.conf, "TableManager").__qualname__)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the log lines about rebalances."""
    return [record.message for record in caplog.records if "rebalance" in record.message.lower()]


def test_an_app_that_is_in_use_is_not_repaired(caplog: pytest.LogCaptureFixture) -> None:
    """Its tables already exist."""
    app = app_of()
    assert app.tables == {}
    compose.repair(app)
    assert "RepairedTables" not in tables_of(app)
    assert len(said(caplog)) == 1


def test_an_app_of_another_driver_is_not_repaired(caplog: pytest.LogCaptureFixture) -> None:
    """Repaired tables need attributes of our consumer."""
    app = app_of("confluent://nowhere")
    before = tables_of(app), app._new_consumer, app._stop_consumer
    compose.repair(app)
    assert (tables_of(app), app._new_consumer, app._stop_consumer) == before
    assert said(caplog) == [
        "Records may be lost or repeated at a rebalance, and rebalances stop all partitions: the "
        "repairs need Faust's aiokafka driver, and the app uses the driver of confluent://nowhere"
    ]


def test_a_driver_that_comes_after_the_repairs_is_refused() -> None:
    """The repaired tables would end the worker at its first recovery."""
    app = app_of()
    compose.repair(app)
    app.transport = SimpleNamespace(Consumer=object, url="confluent://nowhere")
    with pytest.raises(ConfigError, match="driver of confluent://nowhere after its configuration"):
        app._new_consumer()


def test_another_driver_is_not_asked_for_our_assignor(caplog: pytest.LogCaptureFixture) -> None:
    """Its consumer is created as before."""
    app = app_of()
    app.transport = SimpleNamespace(Consumer=object, url="confluent://nowhere")
    parts_of(app).add("driver_assignor")
    assert compose._new_consumer(app, lambda: "a consumer") == "a consumer"
    assert issubclass(app.transport.Consumer, compose.IgnoresAppAssignor)


@pytest.mark.parametrize("cooperative", [True, False])
def test_a_repaired_app_takes_from_each_partition_in_turn(cooperative: bool) -> None:
    """A newly assigned backlog would delay the kept partitions."""
    app = app_of(faust_assigner_cooperative=cooperative)
    compose.repair(app)
    assert isinstance(app.FlowControlQueue(maxsize=3)._queue, Lanes)
    assert getattr(app, LEAVES)


def test_a_second_repair_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """All repairs are already installed."""
    app = app_of()
    for _ in range(2):
        compose.repair(app)
    assert tables_of(app).count("RepairedTables") == 1
    app.transport.Consumer = driver.Consumer
    assert issubclass(app._new_consumer().__class__, driver.Consumer)
    assert said(caplog) == []


def test_eager_rounds_are_logged_with_their_setting(caplog: pytest.LogCaptureFixture) -> None:
    """The same repairs serve eager rounds."""
    caplog.set_level(logging.INFO)
    app = app_of(faust_assigner_cooperative=False)
    compose.repair(app)
    assert "RepairedTables" in tables_of(app)
    assert said(caplog) == [
        "Rebalances are eager and stop all partitions: FAUST_ASSIGNER_COOPERATIVE is off"
    ]
