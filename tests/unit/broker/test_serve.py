"""The command that runs a broker: its end after a signal, and the effects of a failed start."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.broker import serve
from faust_assigner.broker.node import Node
from faust_assigner.broker.server import BrokerServer
from faust_assigner.broker.settings import Settings
from faust_assigner.broker.storage.rocks_store import RocksStore
from faust_assigner.errors import ConfigError
from tests.support.waiting import PATIENCE_S


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the tests' garbage collector unchanged, and never end their process."""
    same = SimpleNamespace(collect=int, freeze=int, set_threshold=lambda *counts: None)
    monkeypatch.setattr(serve, "gc", same)
    monkeypatch.setattr(serve, "STOP_GRACE_S", 60.0)


async def served(folder: Path, say: Any = lambda line: None, **settings: object) -> None:
    """Run a broker on this data until it ends."""
    parsed = Settings.parse({name.replace("_", "."): value for name, value in settings.items()})
    await serve._serve(parsed, folder, "127.0.0.1", 0, say, None)


@pytest.mark.parametrize("error", [OSError("taken"), ConfigError("unusable"), KeyError("a bug")])
async def test_a_start_that_fails_releases_the_data(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a busy port, unusable TLS files or a bug the next broker can open the store."""

    async def failing(self: BrokerServer, host: str, port: int) -> int:
        raise error

    monkeypatch.setattr(BrokerServer, "start", failing)
    with pytest.raises(type(error)):
        await served(tmp_path)
    RocksStore(tmp_path).close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_the_broker_after_it_has_said_where_it_listens(
    number: signal.Signals, tmp_path: Path
) -> None:
    """If listeners are set, each has a line with its protocol; the data is unlocked afterwards."""
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        os.kill(os.getpid(), number)

    await asyncio.wait_for(served(tmp_path, say), PATIENCE_S)
    await asyncio.wait_for(served(tmp_path, say, listeners="PLAINTEXT://127.0.0.1:0"), PATIENCE_S)
    RocksStore(tmp_path).close()
    ports = [line.rpartition(":")[2] for line in lines]
    assert all(0 < int(port) < 65_536 for port in ports)
    assert [line.removesuffix(port) for line, port in zip(lines, ports, strict=True)] == [
        "listening on 127.0.0.1:",
        "listening on PLAINTEXT://127.0.0.1:",
    ]


async def test_a_signal_while_the_data_is_read_ends_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start checks for the signal repeatedly; the store is closed and no port is open."""
    Node(Settings(), tmp_path).close()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    asked = 0
    restore = Node._restore

    def slow(node: Node, progress: Any) -> None:
        def asking() -> None:
            nonlocal asked
            asked += 1
            progress()

        loop.call_soon_threadsafe(stop.set)
        while True:
            asking()

    monkeypatch.setattr(Node, "_restore", slow)
    assert await asyncio.wait_for(serve._open(Settings(), tmp_path, stop), PATIENCE_S) is None
    assert asked
    monkeypatch.setattr(Node, "_restore", restore)
    RocksStore(tmp_path).close()


async def test_a_signal_at_the_end_of_the_start_closes_the_store(tmp_path: Path) -> None:
    """All data was read, and no broker runs."""
    stop = asyncio.Event()
    stop.set()
    assert await serve._open(Settings(), tmp_path, stop) is None
    RocksStore(tmp_path).close()
