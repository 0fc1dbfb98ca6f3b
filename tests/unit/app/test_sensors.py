"""A record calls only its sensors' own hooks, with the states they returned."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import faust
import pytest
from faust.sensors.base import SensorDelegate
from faust.types import TP

from faust_assigner.app.sensors import HOOKS, SensorsByHook, install

PLACE = TP("orders", 0)


class Timer(faust.Sensor):
    """A sensor with states, as Faust's monitor has."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def on_stream_event_in(self, tp: Any, offset: int, stream: Any, event: Any) -> Any:
        """Return the state of an event."""
        return offset

    def on_stream_event_out(
        self, tp: Any, offset: int, stream: Any, event: Any, state: Any = None
    ) -> None:
        """Note the state of the event."""
        self.seen.append(state)

    def on_send_completed(self, producer: Any, state: Any, metadata: Any) -> None:
        """Note the state of the message; this sensor has no begin hook."""
        self.seen.append(("sent", state))


@pytest.fixture
def app(tmp_path: Path) -> Any:
    """An app with our assignor, not started."""
    app = faust.App(
        "shop",
        broker="kafka://127.0.0.1:1",
        datadir=str(tmp_path),
        PartitionAssignor="faust_assigner:PartitionAssignor",
    )
    app.finalize()
    return app


def called(app: Any, hook: str) -> set[str]:
    """Return the class names of the sensors that a hook calls."""
    return {type(one).__name__ for one in app.sensors._by_hook[hook]}


def test_a_record_calls_no_hook_of_the_metrics_and_three_of_the_ledger(app: Any) -> None:
    """Each further call would take time for every record."""
    hooks = {hook for hook in HOOKS if "LedgerSensor" in called(app, hook)}
    assert hooks == {"on_message_in", "on_stream_event_out", "on_send_initiated"}
    assert not any("MetricsSensor" in called(app, hook) for hook in HOOKS)


def test_a_sensor_gets_the_state_that_it_returned(app: Any) -> None:
    """This includes methods that a stream stored before the sensor was added."""
    begins, ends = app.sensors.on_stream_event_in, app.sensors.on_stream_event_out
    timer = Timer()
    app.sensors.add(timer)
    ends(PLACE, 7, None, None, begins(PLACE, 7, None, None))
    assert timer.seen == [7]


def test_a_sensor_with_the_end_of_a_send_alone_gets_the_state_of_its_base_class(app: Any) -> None:
    """Faust looks up the state by sensor, and a missing begin state would raise KeyError."""
    timer = Timer()
    app.sensors.add(timer)
    message = SimpleNamespace(partition=None)
    state = app.sensors.on_send_initiated(None, "orders", message, 1, 1)
    app.sensors.on_send_completed(None, state, None)
    app.sensors.on_send_error(None, OSError(), state)
    assert timer.seen == [("sent", None)]


def test_a_removed_sensor_is_called_no_more(app: Any) -> None:
    """This covers records and rounds."""
    timer = Timer()
    app.sensors.add(timer)
    app.sensors.remove(timer)
    app.sensors.on_stream_event_out(PLACE, 7, None, None)
    assert timer.seen == []
    assert timer not in set(app.sensors)


def test_sensors_that_were_added_before_are_kept(tmp_path: Path) -> None:
    """An app adds its sensors before its settings are read."""
    plain = faust.App("plain", broker="kafka://127.0.0.1:1", datadir=str(tmp_path))
    timer = Timer()
    plain.sensors.add(timer)
    install(plain)
    assert called(plain, "on_stream_event_out") == {"Timer"}
    before = plain.sensors
    install(plain)
    assert plain.sensors is before


def test_each_hook_in_the_path_of_records_is_one_of_fausts(app: Any) -> None:
    """A hook unknown to Faust would never be called."""
    assert all(callable(getattr(SensorDelegate, hook)) for hook in HOOKS)
    assert isinstance(app.sensors, SensorsByHook)
