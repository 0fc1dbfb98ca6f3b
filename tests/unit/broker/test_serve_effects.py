"""The command that runs a broker: its effects in order, and the port of its metrics."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from faust_assigner.broker import metrics, serve
from faust_assigner.broker.metrics import BrokerCollector, MetricsPort
from faust_assigner.broker.settings import Settings
from faust_assigner.errors import ConfigError
from tests.support.waiting import PATIENCE_S

happened: list[Any] = []


class FakeServer:
    """A server that notes its calls."""

    fails = False
    error: BaseException = OSError("taken")

    def __init__(self, node: object) -> None:
        happened.append(("serve", node))
        self.listeners = ("SSL://h:1", "PLAINTEXT://h:2")

    async def start(self, host: str, port: int) -> int:
        """Note the call, and return a port."""
        happened.append(("start", host, port))
        if self.fails:
            raise self.error
        return 99

    async def stop(self) -> None:
        """Note the call."""
        happened.append("stop")


class FakePort:
    """A port of metrics that notes its calls; port 8 is taken."""

    def __init__(self, server: FakeServer, loop: object, port: int) -> None:
        happened.append(("metrics", loop is asyncio.get_running_loop(), port))
        if port == 8:
            raise OSError("taken")
        self.port = 4321

    def close(self) -> None:
        """Note the call."""
        happened.append("close metrics")


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace all parts of the command."""
    happened.clear()

    def noting(name: str) -> Any:
        return lambda *values: happened.append((name, *values))

    async def opened(settings: Settings, data: Path | None, stop: asyncio.Event) -> Any:
        happened.append(("open", data, stop.is_set()))
        return SimpleNamespace(close=lambda: happened.append("close node"))

    gc = {name: noting(name) for name in ("collect", "freeze", "set_threshold")}
    monkeypatch.setattr(serve, "gc", SimpleNamespace(**gc))
    monkeypatch.setattr(serve, "_open", opened)
    monkeypatch.setattr(serve, "BrokerServer", FakeServer)
    monkeypatch.setattr(metrics, "MetricsPort", FakePort)


async def served(metrics_port: int | None, **settings: object) -> list[Any]:
    """Run a broker until its line about the port, and return all effects after the start of the server."""

    def say(line: str) -> None:
        happened.append(line)
        if line.startswith("listening"):
            os.kill(os.getpid(), signal.SIGTERM)

    parsed = Settings.parse(settings)
    await asyncio.wait_for(serve._serve(parsed, Path("d"), "h", 5, say, metrics_port), PATIENCE_S)
    assert happened[:4] == [
        ("open", Path("d"), False),
        ("collect",),
        ("freeze",),
        ("set_threshold", 50_000, 5, 1_000),
    ]
    assert (happened[4][0], happened[5]) == ("serve", ("start", "h", 5))
    return happened[6:]


async def test_the_metrics_are_shown_before_the_port_and_end_before_the_server() -> None:
    """Without listeners in the settings, the line names the host and the port."""
    assert await served(0) == [
        ("metrics", True, 0),
        "metrics on http://127.0.0.1:4321/metrics",
        "listening on h:99",
        "close metrics",
        "stop",
    ]


async def test_a_broker_without_metrics_names_each_of_its_listeners() -> None:
    """The listeners have their actual ports."""
    listeners = "PLAINTEXT://127.0.0.1:0"
    assert await served(None, listeners=listeners) == [
        "listening on SSL://h:1, PLAINTEXT://h:2",
        "stop",
    ]


async def test_a_taken_port_of_the_metrics_stops_the_server() -> None:
    """Nothing was said, and no metrics are closed."""
    with pytest.raises(OSError, match="taken"):
        await served(8)
    assert happened[6:] == [("metrics", True, 8), "stop"]


async def test_a_taken_port_closes_the_node_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that never listened is not stopped."""
    monkeypatch.setattr(FakeServer, "fails", True)
    with pytest.raises(OSError, match="taken"):
        await served(0)
    assert happened[5:] == [("start", "h", 5), "close node"]


async def test_a_start_that_is_cancelled_closes_the_node_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The store must be closed whatever ends the start."""
    monkeypatch.setattr(FakeServer, "fails", True)
    monkeypatch.setattr(FakeServer, "error", asyncio.CancelledError())
    with pytest.raises(asyncio.CancelledError):
        await served(None)
    assert happened[5:] == [("start", "h", 5), "close node"]


def test_the_command_passes_everything_to_the_broker_on_its_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The settings are parsed first; the log and the interpreter are set before the broker runs."""
    monkeypatch.setattr(serve, "_serve", lambda *values: values)
    monkeypatch.setattr(
        serve, "uvloop", SimpleNamespace(run=lambda values: happened.append(values))
    )
    monkeypatch.setattr(serve.sys, "setswitchinterval", lambda seconds: happened.append(seconds))
    monkeypatch.setattr(serve.logging, "basicConfig", lambda **more: happened.append(more["level"]))
    say = print
    serve.serve(Path("d"), "h", 5, {"num.partitions": "7"}, say, metrics_port=3)
    assert happened == [
        logging.INFO,
        0.001,
        (Settings.parse({"num.partitions": 7}), Path("d"), "h", 5, say, 3),
    ]
    happened.clear()
    with pytest.raises(ConfigError, match=r"num\.partitions"):
        serve.serve(None, "h", 5, {"num.partitions": "none"}, say)
    assert not happened


@pytest.mark.parametrize(
    ("pairs", "given"),
    [
        ((), {}),
        ((" a = b=c ", "d=", "e=1"), {"a": "b=c", "d": "", "e": "1"}),
        (("a",), "--set needs NAME=VALUE, not 'a'"),
        (("a=1", "b=2", " a =3"), "setting 'a' is given twice"),
    ],
)
def test_assignments_are_names_and_texts(pairs: tuple[str, ...], given: Any) -> None:
    """Blanks around names and values are dropped; only the first equals sign separates."""
    if isinstance(given, str):
        with pytest.raises(ConfigError, match=given):
            serve.parse_assignments(pairs)
    else:
        assert serve.parse_assignments(pairs) == given


def test_a_port_of_metrics_listens_on_the_loopback_and_ends_with_its_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The registry has one collector, of this server; the thread is waited for last."""
    done: list[Any] = []
    listener = SimpleNamespace(
        server_port=4321,
        shutdown=lambda: done.append("shutdown"),
        server_close=lambda: done.append("server_close"),
    )
    thread = SimpleNamespace(join=lambda: done.append("join"))
    registries: list[Any] = []

    def listen(port: int, address: str, registry: Any) -> Any:
        done.append((port, address))
        registries.append(registry)
        return listener, thread

    monkeypatch.setattr(metrics, "start_http_server", listen)
    server, loop = object(), object()
    port = MetricsPort(cast(Any, server), cast(Any, loop), 7)
    assert port.port == 4321
    ((collector,),) = (list(one._collector_to_names) for one in registries)
    assert isinstance(collector, BrokerCollector)
    assert (collector._server, collector._loop) == (server, loop)
    assert list(collector.describe()) == []
    port.close()
    assert done == [(7, "127.0.0.1"), "shutdown", "server_close", "join"]
