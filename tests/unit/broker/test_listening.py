"""Listening with several listeners, a start that cannot be interrupted, and long names in lists."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.broker import housekeeping, serve
from faust_assigner.broker import server as server_module
from faust_assigner.broker.connection import Connection
from faust_assigner.broker.node import Node
from faust_assigner.broker.request_walk import MalformedFrame, Walk, _length_prefixed_rule
from faust_assigner.broker.security.gate import LOG_IN_TIMEOUT_S
from faust_assigner.broker.server import STOP_GRACE_S, BrokerServer, TlsDoor
from faust_assigner.broker.settings import Settings
from faust_assigner.broker.storage.store import StoreFailed
from faust_assigner.broker.throttle import HandlerQueue
from faust_assigner.errors import ConfigError
from tests.support.hall import Wire
from tests.support.waiting import PATIENCE_S

HOSTS = [("h1", 1), ("h2", 0), ("h3", 3)]
LISTENERS = "SSL://h1:1,PLAINTEXT://h2:0,SASL_SSL://h3:3"


async def test_all_listeners_share_their_certificates_and_the_first_one_is_the_brokers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each listener has its actual port; a connection without TLS shakes no hands."""
    opened: list[Any] = []
    made: list[Any] = []
    factories: list[Any] = []

    def certificates(settings: Settings) -> Any:
        made.append(SimpleNamespace(context=object()))
        return made[-1]

    async def create_server(factory: Any, host: str, port: int, **more: Any) -> Any:
        opened.append((host, port, more))
        factories.append(factory)
        taken = 5_000 + len(opened)
        socket = SimpleNamespace(getsockname=lambda: (host, taken))
        return SimpleNamespace(sockets=[socket], close=lambda: opened.append("close"))

    monkeypatch.setattr(server_module, "Certificates", certificates)
    monkeypatch.setattr(asyncio.get_running_loop(), "create_server", create_server)
    settings = {"listeners": LISTENERS, "ssl.keystore.location": "key.pem"}
    node = Node(Settings.parse(settings))
    server = BrokerServer(node)
    assert await server.start("unused", 9) == 5_001
    (certified,) = made
    assert opened == [(host, port, {"backlog": 1024}) for host, port in HOSTS]
    assert [type(factory()) for factory in factories] == [TlsDoor, Connection, TlsDoor]
    hands: list[Any] = []

    async def start_tls(*given: Any, **more: Any) -> None:
        hands.append((given, more))

    monkeypatch.setattr(asyncio.get_running_loop(), "start_tls", start_tls)
    door, wire = factories[0](), Wire("a", [])
    door.connection_made(wire)
    tls = {
        "server_side": True,
        "ssl_handshake_timeout": LOG_IN_TIMEOUT_S,
        "ssl_shutdown_timeout": STOP_GRACE_S,
    }
    assert hands == [((wire, door._connection, certified.context), tls)]
    assert list(map(str, server.listeners)) == [
        "SSL://h1:5001",
        "PLAINTEXT://h2:5002",
        "SASL_SSL://h3:5003",
    ]
    assert (node.host, node.port) == ("h1", 5_001)
    assert node.address_for("local", "SASL_SSL") == ("h3", 5_003)
    node.space.is_open = True
    await server.stop()
    assert opened[3:] == ["close"] * 3
    assert not node.space.is_open


@pytest.mark.parametrize(
    ("advertised", "problem"),
    [
        ("SSL://h:1,PLAINTEXT://h:2", None),
        ("PLAINTEXT://h:2,SASL_PLAINTEXT://h:3", "listeners has no SASL_PLAINTEXT"),
        ("SASL_PLAINTEXT://h:3", "listeners has no SASL_PLAINTEXT"),
        ("PLAINTEXT://h:2,SSL://0.0.0.0:1", "no client can connect to SSL://0.0.0.0:1"),
    ],
)
def test_each_advertised_listener_is_served(advertised: str, problem: str | None) -> None:
    """Clients of another protocol would get an address at which no broker listens."""
    given = {
        "listeners": LISTENERS,
        "ssl.keystore.location": "key.pem",
        "advertised.listeners": advertised,
    }
    if problem is None:
        assert Settings.parse(given).advertised_listeners == advertised
    else:
        with pytest.raises(ConfigError, match=problem):
            Settings.parse(given)


class Ended(Exception):
    """The process has ended."""


async def test_a_start_that_cannot_be_interrupted_ends_the_process_after_the_grace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The store's files survive a kill at any time."""
    release = threading.Event()
    monkeypatch.setattr(serve, "Node", lambda *_, **__: release.wait(PATIENCE_S))
    monkeypatch.setattr(serve, "STOP_GRACE_S", 0.001)

    def end(code: int) -> None:
        assert code == 0
        release.set()
        raise Ended

    monkeypatch.setattr(serve.os, "_exit", end)
    stop = asyncio.Event()
    stop.set()
    with pytest.raises(Ended):
        await asyncio.wait_for(serve._open(Settings(), None, stop), PATIENCE_S)
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*others, return_exceptions=True)


@pytest.mark.parametrize("lengths", [(0, 1, 126, 127, 128, 3), (127,), (126, 126), (16_383, 5)])
def test_names_of_any_length_are_skipped_together(lengths: tuple[int, ...]) -> None:
    """A compact length is one greater than the text; from 127 characters on it has two bytes."""
    data = bytearray()
    for length in lengths:
        value = length + 1
        while value >= 0x80:
            data.append(value & 0x7F | 0x80)
            value >>= 7
        data += bytes([value]) + b"n" * length
    shape = _length_prefixed_rule(2, compact=True)
    assert shape.skip_many is not None
    assert shape.skip_many(Walk(bytes(data)), 0, len(lengths)) == len(data)
    position = 0
    for _ in lengths:
        position = shape.skip(Walk(bytes(data)), position)
    assert position == len(data)
    with pytest.raises(MalformedFrame):
        shape.skip_many(Walk(bytes(data[:-1])), 0, len(lengths))


@pytest.mark.parametrize("choice", ["none", "requested", "required"])
def test_certificates_of_clients_are_checked_with_a_trust_store_alone(choice: str) -> None:
    """Without authorities no certificate of a client could be checked, not even a voluntary one."""
    given = {
        "listeners": "SSL://127.0.0.1:9093",
        "ssl.keystore.location": "broker.pem",
        "ssl.client.auth": choice,
    }
    found = Settings.parse({**given, "ssl.truststore.location": "ca.pem"})
    assert found.ssl_client_auth == choice
    if choice == "none":
        assert Settings.parse(given).ssl_client_auth == "none"
        return
    with pytest.raises(ConfigError, match=f"ssl.client.auth={choice} needs ssl.truststore"):
        Settings.parse(given)


async def test_a_chore_begins_after_each_interval_in_milliseconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A failure of the chore does not change the pause."""
    done: list[Any] = []

    async def sleep(seconds: float) -> None:
        done.append(seconds)
        if len(done) > 5:
            raise asyncio.CancelledError

    def chore() -> Iterator[int]:
        done.append("chore")
        if len(done) == 2:
            raise StoreFailed("full")
        yield 1

    monkeypatch.setattr(housekeeping.asyncio, "sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        await housekeeping.repeat(HandlerQueue(), 2_500, chore)
    assert done == [2.5, "chore", 2.5, "chore", 2.5, "chore", 2.5]
