"""Etcd's endpoints: the next endpoint after an error, and one connection per endpoint."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import grpc
import grpc.aio
import pytest

from faust_assigner.service.errors import StoreError, StoreUnavailable
from faust_assigner.service.store.access import CHANNEL_OPTIONS, EtcdAccess
from faust_assigner.service.store.etcd import EtcdStore, loses_leases
from faust_assigner.service.store.etcd_api import etcd_pb2 as pb
from tests.support.assigning.instances import calls_ended


def closed_ports(count: int) -> list[str]:
    """Loopback addresses without a listener."""
    found = []
    for _ in range(count):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            found.append(f"127.0.0.1:{taken.getsockname()[1]}")
    return found


async def test_an_error_says_which_etcd_it_was() -> None:
    """A system may have several etcds, a Kafka and the service."""
    store = EtcdStore(EtcdAccess(endpoints=("127.0.0.1:1", "127.0.0.1:2"), deadline_s=1.0))
    for number in (1, 2):
        with pytest.raises(StoreUnavailable, match=f"etcd at 127.0.0.1:{number}: UNAVAILABLE"):
            await store.get("/x")
    await store.close()


async def test_a_failed_call_is_observed_with_the_name_of_its_error() -> None:
    """Metrics count errors by this name."""
    seen: list[Any] = []
    access = EtcdAccess(endpoints=tuple(closed_ports(1)), deadline_s=2.0)
    store = EtcdStore(access, observe=lambda *call: seen.append(call))
    with pytest.raises(StoreUnavailable):
        await store.get("/a")
    ((name, took_s, error),) = seen
    assert (name, error) == ("KV/Range", "StoreUnavailable")
    assert 0.0 < took_s < 60.0
    await store.close()


async def test_the_first_call_waits_for_a_slow_connection() -> None:
    """An instance ends if its first call fails: it never started with an etcd far away.

    A connection with TLS takes four round trips; here etcd's first bytes come after 0.4 s.
    """

    async def found(request: pb.RangeRequest, context: object) -> pb.RangeResponse:
        return pb.RangeResponse(kvs=[{"key": request.key, "value": b"1"}])

    async def slowed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        near, far = await asyncio.open_connection("127.0.0.1", port)

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            while data := await source.read(65_536):
                target.write(data)
            target.close()

        sending = asyncio.create_task(copy(reader, far))
        await asyncio.sleep(0.4)
        await asyncio.gather(sending, copy(near, writer))

    handler = grpc.unary_unary_rpc_method_handler(
        found, pb.RangeRequest.FromString, lambda answer: answer.SerializeToString()
    )
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("etcdserverpb.KV", {"Range": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with await asyncio.start_server(slowed, "127.0.0.1", 0) as relay:
        address = f"127.0.0.1:{relay.sockets[0].getsockname()[1]}"
        store = EtcdStore(EtcdAccess(endpoints=(address,)))
        kv = await store.get("/a")
        assert kv is not None
        assert (kv.key, kv.value) == ("/a", b"1")
        await store.close()
        await asyncio.sleep(0.1)  # the relay's connections end
    await server.stop(None)
    await calls_ended()


async def test_an_outage_opens_no_connection_after_the_other() -> None:
    """Each endpoint has one connection, even after several attempts."""
    store = EtcdStore(EtcdAccess(endpoints=tuple(closed_ports(3)), deadline_s=2.0))
    for _ in range(12):
        with pytest.raises(StoreUnavailable):
            await store.get("/a")
    assert len(store._calls._connections._open) == 3
    await store.close()


async def test_calls_that_fail_together_turn_to_one_next_endpoint() -> None:
    """Simultaneous failures must not skip the next endpoint."""
    store = EtcdStore(EtcdAccess(endpoints=tuple(closed_ports(3)), deadline_s=2.0))
    await asyncio.gather(*(store.get("/a") for _ in range(5)), return_exceptions=True)
    assert store._calls._number == 1
    await store.close()


@pytest.mark.parametrize(
    ("code", "details"),
    [
        (grpc.StatusCode.UNAUTHENTICATED, "etcdserver: authentication failed"),
        (grpc.StatusCode.PERMISSION_DENIED, "etcdserver: permission denied"),
        (grpc.StatusCode.UNKNOWN, "etcdserver: invalid auth token"),
        (grpc.StatusCode.INVALID_ARGUMENT, "etcdserver: revision of auth store is old"),
        (grpc.StatusCode.UNKNOWN, "auth: revision in header is old"),
    ],
)
async def test_a_refusal_is_an_error_and_no_outage(code: grpc.StatusCode, details: str) -> None:
    """A new token is requested; the next endpoint would refuse too, so it is not tried."""
    store = EtcdStore(EtcdAccess(endpoints=tuple(closed_ports(2))))
    store._calls._token = "old"
    refusal = grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details)
    error = store._calls._failed(refusal, 0)
    assert type(error) is StoreError
    assert str(error) == f"etcd at {store._calls._access.address(0)} refuses: {details}"
    assert (store._calls._token, store._calls._number) == (None, 0)
    await store.close()


class _Large:
    """Calls to an etcd with twenty keys; only three fit into a message."""

    async def ask(self, path: str, request: Any, response: Any) -> Any:
        keys = [key for number in range(20) if (key := f"/a/{number:02}".encode()) >= request.key]
        if min(len(keys), request.limit) > 3:
            raise StoreUnavailable("RESOURCE_EXHAUSTED: Received message larger than max (9 vs. 8)")
        page = pb.RangeResponse(
            kvs=[{"key": key} for key in keys[: request.limit]], more=len(keys) > request.limit
        )
        page.header.revision = 5
        return page


async def test_a_listing_of_large_values_comes_in_smaller_pages() -> None:
    """Otherwise the listing would always fail, and no instance could start."""
    store: Any = EtcdStore(EtcdAccess(endpoints=("127.0.0.1:1",)))
    store._calls = _Large()
    listing = await store.list("/a/")
    assert [kv.key for kv in listing.items] == [f"/a/{number:02}" for number in range(20)]


@pytest.mark.parametrize(
    ("version", "loses"),
    [
        ("3.3.27", True),
        ("3.4.30", True),
        ("3.4.31", False),
        ("3.5.1", True),
        ("3.5.12", True),
        ("3.5.13", False),
        ("3.5.13-rc.0", False),
        ("3.6.0", False),
        ("4.0.0", False),
        ("unknown", False),
    ],
)
def test_releases_whose_paused_leader_ends_living_leases_are_known(
    version: str, loses: bool
) -> None:
    """The bounds come from etcd's change logs."""
    assert loses_leases(version) is loses


def test_a_connection_without_calls_is_closed_and_not_kept_by_pings() -> None:
    """etcd answers such pings with too_many_pings, and gRPC then pings this endpoint less often."""
    options = dict(CHANNEL_OPTIONS)
    assert not options.get("grpc.keepalive_permit_without_calls")
    assert options["grpc.client_idle_timeout_ms"] <= options["grpc.keepalive_time_ms"]
