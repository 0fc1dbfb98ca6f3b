"""The service's server: the options of its connections, and the release of its ports."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from faust_assigner.service.client import Access
from faust_assigner.service.client.operator import Operator
from faust_assigner.service.faults import Unauthenticated
from faust_assigner.service.node import AssignerNode
from faust_assigner.service.server import server as server_module
from faust_assigner.service.server.groups import Groups
from faust_assigner.service.server.options import Options
from faust_assigner.service.server.serve import running
from faust_assigner.service.server.server import AssignerServer, _grpc_address, channel_options
from faust_assigner.service.store.memory import MemoryStore
from tests.support.assigning.instances import calls_ended
from tests.support.waiting import PATIENCE_S


@pytest.mark.parametrize(
    ("at", "address"), [(("127.0.0.1", 7), "127.0.0.1:7"), (("::1", 8), r"\[::1\]:8")]
)
def test_an_address_that_is_taken_is_named_in_grpcs_form(at: tuple[str, int], address: str) -> None:
    """gRPC needs brackets around an address of IPv6, and raises RuntimeError."""
    with (
        pytest.raises(OSError, match=f"^cannot listen on {address}: ") as error,
        _grpc_address(at) as given,
    ):
        raise RuntimeError
    assert re.fullmatch(address, given)
    assert isinstance(error.value.__cause__, RuntimeError)


@pytest.mark.parametrize(
    ("ttl_s", "every_ms"),
    [(30.0, 7_500), (10.0, 2_500), (4.5, 1_125), (4.0, 1_000), (3.9, 1_000), (1.0, 1_000)],
)
def test_a_silent_peer_is_found_within_half_a_time_to_live(ttl_s: float, every_ms: int) -> None:
    """A ping comes after a quarter of the time to live, at most once a second, and waits as long."""
    asked = dict(channel_options(ttl_s))
    for name in ("keepalive_time_ms", "keepalive_timeout_ms", "http2.ping_timeout_ms"):
        assert asked[f"grpc.{name}"] == every_ms


def test_connections_grow_old_only_where_that_is_asked_for() -> None:
    """Calls in flight get some more seconds."""
    assert not [name for name, _ in channel_options(30.0) if "connection_age" in name]
    aged = dict(channel_options(30.0, 1.5))
    assert aged["grpc.max_connection_age_ms"] == 1_500
    assert aged["grpc.max_connection_age_grace_ms"] > 0


async def test_a_server_that_has_stopped_listens_on_no_port() -> None:
    """The next instance can use the ports for consumers and probes."""
    said = {"bind": "127.0.0.1:0", "health": "127.0.0.1:0", "topic": "orders=1"}
    options = Options.read(said, {})
    node = AssignerNode(MemoryStore(), options.settings, node_id="n", topics={"orders": 1})
    server = AssignerServer(Groups({"": node}), options)
    await node.start()
    ports = (await server.start(), server.health_port)
    for port in ports:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
    await server.stop()
    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)


async def test_a_running_service_takes_tokens_from_a_changed_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new token works and the old token is refused without a restart."""
    monkeypatch.setattr(server_module, "LOOK_S", 0.05)
    path = tmp_path / "tokens"
    path.write_text("ops old")
    said = {"bind": "127.0.0.1:0", "tokens": str(path), "admins": "ops"}
    async with running(Options.read(said, {})) as (port, *_):
        target = f"127.0.0.1:{port}"
        async with (
            Operator(target, Access(token="old")) as old,
            Operator(target, Access(token="new-one")) as new,
        ):
            await old.state()
            path.write_text("ops new-one")
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    try:
                        await new.state()
                        break
                    except Unauthenticated:
                        await asyncio.sleep(0.05)
            with pytest.raises(Unauthenticated):
                await old.state()
    await calls_ended()
