"""The service's server from its making to its end: what it is made of, and the order of its steps."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.service.server import admin_servicer
from faust_assigner.service.server import server as server_module
from faust_assigner.service.server.groups import Groups
from faust_assigner.service.server.options import Options
from faust_assigner.service.server.server import AssignerServer, channel_options
from tests.unit.service.rpcs import Context, operators
from tests.unit.service.test_operator_rpcs import STATE_REQUEST, group_of

Act = tuple[Any, ...]


class Port:
    """A server of gRPC that only records; ``taken`` is the port that it gets."""

    def __init__(self, acts: list[Act], name: str, taken: int) -> None:
        self.acts, self.name, self.taken = acts, name, taken

    def add_insecure_port(self, address: str) -> int:
        """Record the address."""
        self.acts.append((self.name, "listens", address))
        return self.taken

    def add_secure_port(self, address: str, credentials: object) -> int:
        """Record the address and the credentials."""
        self.acts.append((self.name, "listens with TLS", address, credentials))
        return self.taken

    def add_registered_method_handlers(self, name: str, handlers: Mapping[str, object]) -> None:
        """Do nothing: the generic handlers have the same methods."""

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        """Record the services' names."""
        self.acts += [(self.name, "serves", handler.service_name()) for handler in handlers]

    async def start(self) -> None:
        """Record the call."""
        self.acts.append((self.name, "starts"))

    async def stop(self, grace: float | None) -> None:
        """Take two turns of the loop, as a server with open calls does."""
        self.acts.append((self.name, "stops", grace))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self.acts.append((self.name, "has stopped"))


class Node:
    """A node that serves, and records its stop."""

    lives = serving = True
    leads = False

    def __init__(self, acts: list[Act]) -> None:
        self.acts = acts
        self.condition = SimpleNamespace(has_leader=True)

    async def stop(self) -> None:
        """Record the call."""
        self.acts.append(("node", "stops"))


class Stage:
    """A server whose ports, health and node record their acts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **said: object) -> None:
        self.acts: list[Act] = []
        self.made: list[dict[str, Any]] = []

        def server(**more: Any) -> Port:
            self.made.append(more)
            return Port(self.acts, "calls", 7_001)

        def probing(health: object, address: str, options: Any) -> tuple[Port, int]:
            self.acts.append(("probes", "listens", address, options))
            assert health is self.server._health
            return Port(self.acts, "probes", 7_002), 7_002

        monkeypatch.setattr(server_module.grpc.aio, "server", server)
        monkeypatch.setattr(server_module, "probing", probing)
        options = Options.read({"bind": "[::1]:71", "max_calls": "33", **said}, {})
        options = replace(options, settings=replace(options.settings, consumer_ttl_s=36.0))
        node: Any = Node(self.acts)
        self.server = AssignerServer(Groups({"": node}), options)
        health: Any = self.server._health

        async def look() -> None:
            self.acts.append(("health", "looks"))

        async def follow() -> None:
            try:
                self.acts.append(("health", "follows"))
                await asyncio.sleep(1e9)
            finally:
                self.acts.append(("health", "no longer follows"))

        async def shut() -> None:
            self.acts.append(("health", "is shut"))

        health.look, health.follow = look, follow
        health.servicer.enter_graceful_shutdown = shut
        self.server._authenticator.look = lambda: self.acts.append(("tokens", "looked at"))  # type: ignore[method-assign]

    def rest(self) -> list[Act]:
        """Return and forget the acts so far."""
        acts, self.acts[:] = list(self.acts), []
        return acts


async def test_a_server_is_made_started_and_stopped_in_this_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A consumer that looks for an instance must find the health before the streams end."""
    stage = Stage(monkeypatch, health="127.0.0.1:72", max_connection_age_s="900")
    [made] = stage.made
    assert made["options"] == channel_options(36.0, 900.0)
    assert made["maximum_concurrent_rpcs"] == 33
    assert [type(one).__name__ for one in made["interceptors"]] == ["ReadableRequests"]
    assert [(act[1], act[2]) for act in stage.rest()] == [
        ("serves", "kafka_assigner.v1.KafkaAssigner"),
        ("serves", "kafka_assigner.v1.KafkaAssignerAdmin"),
        ("serves", "grpc.health.v1.Health"),
        ("serves", "grpc.reflection.v1alpha.ServerReflection"),
    ]
    assert stage.server.health_port == 0
    assert await stage.server.start() == 7_001
    assert stage.server.health_port == 7_002
    await asyncio.sleep(0)
    assert stage.rest() == [
        ("calls", "listens", "[::1]:71"),
        ("probes", "listens", "127.0.0.1:72", channel_options(36.0)),
        ("health", "looks"),
        ("calls", "starts"),
        ("probes", "starts"),
        ("health", "follows"),
    ]
    names = [task.get_name() for task in stage.server._tasks]
    await stage.server.stop()
    assert stage.rest() == [
        ("health", "no longer follows"),
        ("health", "is shut"),
        ("calls", "stops", server_module.STOP_GRACE_S),
        ("node", "stops"),
        ("calls", "has stopped"),
        ("probes", "stops", None),
        ("probes", "has stopped"),
    ]
    assert names == ["assigner-health", "assigner-tokens"]
    assert [task.cancelled() for task in stage.server._tasks] == [True, True]


async def test_a_server_without_probes_has_one_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connections keep their age if the setting is 0."""
    stage = Stage(monkeypatch, max_connection_age_s="0")
    assert stage.made[0]["options"] == channel_options(36.0)
    stage.rest()
    assert (await stage.server.start(), stage.server.health_port) == (7_001, 0)
    await stage.server.stop()
    assert {act[0] for act in stage.rest()} == {"calls", "health", "node"}


async def test_reflection_names_the_services_and_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tools such as grpcurl list them."""
    named: list[tuple[str, ...]] = []
    monkeypatch.setattr(
        server_module.reflection,
        "enable_server_reflection",
        lambda names, server: named.append(names),
    )
    Stage(monkeypatch)
    assert named == [
        (
            "kafka_assigner.v1.KafkaAssigner",
            "kafka_assigner.v1.KafkaAssignerAdmin",
            "grpc.health.v1.Health",
            "grpc.reflection.v1alpha.ServerReflection",
        )
    ]


async def test_the_file_of_tokens_is_looked_at_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first look comes after the first interval."""
    stage = Stage(monkeypatch)
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        stage.acts.append(("waits", seconds))
        waits.append(seconds)
        if len(waits) == 3:
            raise asyncio.CancelledError

    stage.rest()
    monkeypatch.setattr(server_module.asyncio, "sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        await stage.server._look()
    waited, looked = ("waits", server_module.LOOK_S), ("tokens", "looked at")
    assert stage.acts == [waited, looked, waited, looked, waited]


async def test_a_port_with_certificates_is_opened_with_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The probes have no TLS."""
    (tmp_path / "c").touch()
    (tmp_path / "k").touch()
    stage = Stage(monkeypatch, tls_cert=str(tmp_path / "c"), tls_key=str(tmp_path / "k"))
    files: Any = SimpleNamespace(credentials=lambda: "the credentials")
    monkeypatch.setattr(Options, "certificates", lambda self: files)
    stage.rest()
    assert stage.server._listen("host:1") == 7_001
    assert stage.rest() == [("calls", "listens with TLS", "host:1", "the credentials")]


# -- states


def _clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Replace the loop's time as the servicer reads it; the list's only item is the time."""
    now = [500.0]
    loop = SimpleNamespace(time=lambda: now[0])
    monkeypatch.setattr(admin_servicer.asyncio, "get_running_loop", lambda: loop)
    return now


async def test_a_state_counts_for_a_fifth_of_a_second_and_for_its_revision_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A restored store has a lower revision: its state is another one, too."""
    now = _clock(monkeypatch)
    node = group_of()
    servicer = operators(node)

    async def revisions() -> list[int]:
        return [part.revision async for part in servicer.GetState(STATE_REQUEST, Context())]

    assert await revisions() == [41]
    now[0] += 0.1875
    assert (await revisions(), node.overview.reads) == ([41], 1)
    now[0] += 0.0625
    assert (await revisions(), node.overview.reads) == ([41], 2)
    node.revision = 7
    assert (await revisions(), node.overview.reads) == ([7], 3)


async def test_a_change_during_a_read_makes_the_state_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The state is dated before the read: its revision is not newer than its content."""
    _clock(monkeypatch)
    node = group_of()
    node.overview.during.append(lambda: setattr(node, "revision", 60))
    servicer = operators(node)

    async def revisions() -> list[int]:
        return [part.revision async for part in servicer.GetState(STATE_REQUEST, Context())]

    assert [await revisions() for _ in range(3)] == [[41], [60], [60]]
    assert node.overview.reads == 2


def test_the_options_of_a_connection_are_these() -> None:
    """An instance on a port that is taken must fail; messages have gRPC's usual limit."""
    assert dict(channel_options(40.0, 2.5)) == {
        "grpc.so_reuseport": 0,
        "grpc.max_receive_message_length": 4_194_304,
        "grpc.max_send_message_length": 4_194_304,
        "grpc.max_metadata_size": 16_384,
        "grpc.max_concurrent_streams": 128,
        "grpc.max_connection_idle_ms": 300_000,
        "grpc.server_handshake_timeout_ms": 10_000,
        "grpc.keepalive_time_ms": 10_000,
        "grpc.keepalive_timeout_ms": 10_000,
        "grpc.http2.ping_timeout_ms": 10_000,
        "grpc.keepalive_permit_without_calls": 1,
        "grpc.http2.max_pings_without_data": 0,
        "grpc.http2.min_ping_interval_without_data_ms": 5_000,
        "grpc.max_connection_age_ms": 2_500,
        "grpc.max_connection_age_grace_ms": 5_000,
    }


async def test_a_watch_waits_after_each_change_for_those_that_follow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A plan is many changes, and each state is a whole one."""
    node = group_of()
    node.condition.hears_store = True
    waits: list[float] = []
    sleep = asyncio.sleep

    async def slept(seconds: float) -> None:
        waits.append(seconds)
        await sleep(60.0 if seconds == admin_servicer.SILENT_S else 0.0)

    monkeypatch.setattr(
        admin_servicer, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": slept})
    )
    watching = operators(node).WatchState(STATE_REQUEST, Context())
    for revision in (41, 42, 43):
        node.revision = revision
        node.overview.changed.set()
        assert (await anext(watching)).revision == revision
    await watching.aclose()
    assert [one for one in waits if one != admin_servicer.SILENT_S] == [0.2, 0.2]
