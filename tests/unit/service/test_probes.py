"""The port for probes, and the server's lines about what cannot be listened on, with fakes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from faust_assigner.service.server import health as health_module
from faust_assigner.service.server.health import PROBES, Probes, probing
from faust_assigner.service.server.server import _grpc_address


class Aborted(Exception):
    """A call ended with a status."""


class Context:
    """The context of a call."""

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        """End the call."""
        raise Aborted(code, details)


async def test_a_probe_is_answered_and_a_watch_is_refused() -> None:
    """The answer is that of the health service, for the same request and context."""
    context: Any = Context()

    async def check(request: Any, given: Any) -> Any:
        return request, given

    health: Any = SimpleNamespace(servicer=SimpleNamespace(Check=check))
    assert await Probes(health).Check("liveness", context) == ("liveness", context)
    with pytest.raises(Aborted) as aborted:
        await Probes(health).Watch("liveness", context)
    said = (grpc.StatusCode.UNIMPLEMENTED, "only Check is answered on this port")
    assert aborted.value.args == said


def test_the_port_for_probes_has_few_calls_and_no_encryption(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The limits of the connection are the caller's; the port is the one that was got."""
    told: list[Any] = []
    server = SimpleNamespace(add_insecure_port=lambda address: told.append(address) or 9201)

    def make(**said: Any) -> Any:
        told.append(said)
        return server

    aio = SimpleNamespace(server=make)
    monkeypatch.setattr(health_module, "grpc", SimpleNamespace(aio=aio, StatusCode=grpc.StatusCode))
    add = health_module.health_pb2_grpc
    monkeypatch.setattr(
        add, "add_HealthServicer_to_server", lambda one, to: told.append((type(one), to))
    )
    health: Any = SimpleNamespace()
    options = [("grpc.so_reuseport", 0)]
    assert probing(health, "h:9200", options) == (server, 9201)
    assert told == [
        {"options": options, "maximum_concurrent_rpcs": PROBES},
        (Probes, server),
        "h:9200",
    ]


@pytest.mark.parametrize(
    ("at", "address"),
    [(("127.0.0.1", 7), "127.0.0.1:7"), (("::1", 7), "[::1]:7"), (("shop", 0), "shop:0")],
)
def test_an_address_that_is_taken_is_named_as_grpc_gets_it(
    at: tuple[str, int], address: str
) -> None:
    """Other errors are passed on."""
    with _grpc_address(at) as said:
        assert said == address

    def fails(error: Exception) -> None:
        with _grpc_address(at):
            raise error

    with pytest.raises(OSError, match="cannot listen on") as raised:
        fails(RuntimeError("bind"))
    assert str(raised.value) == (
        f"cannot listen on {address}: the address is in use, or not this machine's"
    )
    with pytest.raises(ZeroDivisionError):
        fails(ZeroDivisionError())
