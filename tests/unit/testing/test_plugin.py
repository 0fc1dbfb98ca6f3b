"""The fixtures of the pytest plugin, called as plain functions."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from faust_assigner import broker as broker_module
from faust_assigner.testing import fleet as fleet_module
from faust_assigner.testing import kafka as kafka_module
from faust_assigner.testing import plugin
from faust_assigner.testing import virtual_broker as virtual_module


def opened(fixture: Any, *given: Any) -> Iterator[Any]:
    """Return the generator of a fixture."""
    made: Iterator[Any] = inspect.unwrap(fixture)(*given)
    return made


def test_each_fleet_of_a_test_has_its_own_folder_and_is_closed_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fleet that fails to start is closed too; the last fleet is closed first."""
    events: list[Any] = []

    class Made:
        def __init__(self, app: Any, folder: Path, **options: Any) -> None:
            self.app = app
            events.append(("made", app, folder, options))

        def start(self) -> None:
            events.append(("start", self.app))
            if self.app == "broken":
                raise ZeroDivisionError

        def close(self) -> None:
            events.append(("close", self.app))

    monkeypatch.setattr(fleet_module, "Fleet", Made)
    fixture = opened(plugin.fleet, tmp_path)
    start = next(fixture)
    assert start("shop", workers=3).app == "shop"
    with pytest.raises(ZeroDivisionError):
        start("broken", static=True)
    assert events == [
        ("made", "shop", tmp_path / "fleet-0", {"workers": 3}),
        ("start", "shop"),
        ("made", "broken", tmp_path / "fleet-1", {"static": True}),
        ("start", "broken"),
    ]
    events.clear()
    assert next(fixture, None) is None
    assert events == [("close", "broken"), ("close", "shop")]


@pytest.mark.parametrize(
    ("module", "name", "fixture", "options"),
    [
        (
            broker_module,
            "EmbeddedBroker",
            plugin.embedded_broker,
            {"settings": {"group.initial.rebalance.delay.ms": "0"}},
        ),
        (virtual_module, "VirtualBroker", plugin.virtual_broker, {}),
        (kafka_module, "kafka_server", plugin.kafka, {}),
    ],
)
def test_a_server_lives_for_its_test(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, fixture: Any, options: Any
) -> None:
    """The embedded broker does not wait for further members of a new group."""
    events: list[Any] = []

    @contextlib.contextmanager
    def server(**given: Any) -> Iterator[str]:
        events.append(given)
        yield name
        events.append("stopped")

    monkeypatch.setattr(module, name, server)
    made = opened(fixture)
    assert next(made) == name
    assert events == [options]
    assert next(made, None) is None
    assert events == [options, "stopped"]
