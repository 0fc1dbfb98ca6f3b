"""The embedded broker around a fake node and a fake server: its settings, effects and second life."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.broker import EmbeddedBroker, embedded
from faust_assigner.broker.settings import Settings
from faust_assigner.errors import ConfigError

happened: list[Any] = []
failing: set[str] = set()


class FakeNode:
    """A node that notes its calls."""

    def __init__(self, settings: Settings, folder: Path | None, *, clock: Any) -> None:
        happened.append(("open", settings.num_partitions, folder, clock))
        self.credentials = SimpleNamespace(
            set_password=lambda user, password: happened.append((user, password))
        )

    def close(self) -> None:
        """Note the call."""
        happened.append("close node")


class FakeServer:
    """A server with two listeners that notes its calls; port 0 becomes 9500, 9501, ..."""

    ports = 9500

    def __init__(self, node: FakeNode) -> None:
        self.node = node
        self.listeners = (
            SimpleNamespace(protocol="PLAINTEXT", host="127.0.0.1", port=9092),
            SimpleNamespace(protocol="SASL_SSL", host="::1", port=9093),
        )

    async def start(self, host: str, port: int) -> int:
        """Note the call, and return the port."""
        happened.append(("start", host, port))
        if "start" in failing:
            raise OSError("taken")
        if "cancelled" in failing:
            raise asyncio.CancelledError
        if not port:
            FakeServer.ports += 1
        return port or FakeServer.ports

    async def stop(self) -> None:
        """Note the call."""
        happened.append("stop")
        if "stop" in failing:
            raise OSError("broken")


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Replace the node and the server."""
    monkeypatch.setattr(embedded, "Node", FakeNode)
    monkeypatch.setattr(embedded, "BrokerServer", FakeServer)
    monkeypatch.setattr(FakeServer, "ports", 9500)
    yield
    happened.clear()
    failing.clear()


def of_broker() -> list[threading.Thread]:
    """Return the living threads of embedded brokers."""
    return [one for one in threading.enumerate() if one.name == "embedded-broker"]


def test_a_broker_for_tests_has_short_times_unless_they_are_set() -> None:
    """The given values have priority over all four."""
    names = (
        "group_initial_rebalance_delay_ms",
        "group_min_session_timeout_ms",
        "group_consumer_min_session_timeout_ms",
        "group_consumer_min_heartbeat_interval_ms",
    )
    usual = EmbeddedBroker().settings
    assert [getattr(usual, name) for name in names] == [0, 100, 100, 50]
    given = {name.replace("_", "."): 900 + number for number, name in enumerate(names)}
    found = EmbeddedBroker(settings={**given, "num.partitions": 4}).settings
    assert [getattr(found, name) for name in names] == [900, 901, 902, 903]
    assert found.num_partitions == 4
    with pytest.raises(ConfigError, match="nonsense"):
        EmbeddedBroker(settings={"nonsense": 1})


def test_a_broker_in_a_thread_keeps_its_port_and_data_over_a_restart(tmp_path: Path) -> None:
    """Users get their passwords before the port is open; the thread ends with the block."""

    def clock() -> int:
        return 5

    broker = EmbeddedBroker(
        str(tmp_path),
        settings={"num.partitions": 6},
        host="127.0.0.9",
        users={"ann": "a", "bob": "b"},
        clock=clock,
    )
    life = [("open", 6, tmp_path, clock), ("ann", "a"), ("bob", "b")]
    with broker as entered:
        assert entered is broker
        assert happened == [*life, ("start", "127.0.0.9", 0)]
        assert broker.bootstrap == "127.0.0.9:9501"
        assert broker.address("SASL_SSL") == "::1:9093"
        assert broker.address("PLAINTEXT") == "127.0.0.1:9092"
        (thread,) = of_broker()
        asked = broker.call(lambda node: (node, threading.current_thread()))
        assert asked == (broker.node, thread)
        assert broker.server.node is broker.node
        loop = broker.loop
        assert loop.is_running()
        first = broker.server
        happened.clear()
        broker.restart()
        assert happened == ["stop", *life, ("start", "127.0.0.9", 9501)]
        assert broker.server is not first
        assert of_broker() == [thread]
        happened.clear()
    assert happened == ["stop"]
    assert not of_broker()
    assert loop.is_closed()
    for name in ("node", "server", "loop"):
        with pytest.raises(RuntimeError, match="the broker is not running"):
            getattr(broker, name)
    with broker:
        assert broker.bootstrap == "127.0.0.9:9501"


def test_a_start_that_fails_closes_the_node_and_ends_the_thread() -> None:
    """The broker can start afterwards."""
    broker = EmbeddedBroker()
    failing.add("start")
    with pytest.raises(OSError, match="taken"):
        broker.__enter__()
    assert happened == [("open", 1, None, None), ("start", "127.0.0.1", 0), "close node"]
    assert not of_broker()
    with pytest.raises(RuntimeError):
        _ = broker.server
    failing.clear()
    with broker:
        assert broker.port == 9501


async def test_a_start_that_is_cancelled_closes_the_node() -> None:
    """Otherwise the data would stay locked; the next start works."""
    broker = EmbeddedBroker(port=7)
    failing.add("cancelled")
    with pytest.raises(asyncio.CancelledError):
        await broker.start()
    assert happened == [("open", 1, None, None), ("start", "127.0.0.1", 7), "close node"]
    failing.clear()
    await broker.start()
    await broker.stop()


def test_an_interrupt_during_the_start_ends_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C arrives in the main thread while it waits for the broker's loop."""
    broker = EmbeddedBroker()
    run = broker._run

    def interrupted(coroutine: Any) -> Any:
        run(coroutine)
        raise KeyboardInterrupt

    monkeypatch.setattr(broker, "_run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        broker.__enter__()
    assert not of_broker()


def test_a_stop_that_fails_ends_the_thread() -> None:
    """The error of the stop is raised."""
    failing.add("stop")
    with pytest.raises(OSError, match="broken"), EmbeddedBroker():
        pass
    assert not of_broker()


def test_a_broker_on_the_callers_loop_stops_once() -> None:
    """There is no thread; a second stop does nothing."""

    async def story() -> None:
        async with EmbeddedBroker(port=7) as broker:
            assert broker.loop is asyncio.get_running_loop()
            assert broker.bootstrap == "127.0.0.1:7"
            assert not of_broker()
        await broker.stop()

    asyncio.run(story())
    assert happened == [("open", 1, None, None), ("start", "127.0.0.1", 7), "stop"]
