"""An etcd member that cannot serve: the next endpoint is used, and no watch blocks forever."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest

from faust_assigner.service.errors import StoreUnavailable
from faust_assigner.service.store.access import EtcdAccess
from faust_assigner.service.store.etcd import EtcdStore
from faust_assigner.service.store.etcd_api import etcd_pb2 as pb
from tests.support.assigning.instances import calls_ended

PATIENCE_S = 10.0


class _Member(grpc.GenericRpcHandler):
    """An etcd with two methods. ``fault`` is its kind of failure, "" for none."""

    def __init__(self, fault: str = "") -> None:
        self.fault = fault
        self.calls = 0

    def service(self, details: Any) -> Any:
        """Return the handler of a call."""
        self.calls += 1
        call = {"/etcdserverpb.Watch/Watch": (self._watch, pb.WatchRequest)} | {
            "/etcdserverpb.Lease/LeaseKeepAlive": (self._renew, pb.LeaseKeepAliveRequest)
        }
        behaviour, request = call[details.method]
        return grpc.stream_stream_rpc_method_handler(
            behaviour,
            request_deserializer=request.FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )

    async def _faulty(self, context: Any) -> None:
        wants_leader = ("hasleader", "true") in tuple(context.invocation_metadata())
        if self.fault == "no leader" and wants_leader:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "etcdserver: no leader")
        if self.fault in ("UNKNOWN", "INTERNAL", "CANCELLED"):
            await context.abort(grpc.StatusCode[self.fault], "etcdserver: server stopped")

    async def _watch(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        await anext(aiter(requests))
        await self._faulty(context)
        yield pb.WatchResponse(created=True)
        if self.fault == "cancels":
            yield pb.WatchResponse(canceled=True, cancel_reason="etcdserver: no leader")
        elif self.fault == "no leader":
            await asyncio.Event().wait()  # silent: the member receives no replicated changes
        elif self.fault != "ends":
            kv = {"key": b"/g/a", "mod_revision": 7, "create_revision": 7}
            yield pb.WatchResponse(events=[{"kv": kv}])

    async def _renew(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        request = await anext(aiter(requests))
        await self._faulty(context)
        if self.fault != "ends":
            yield pb.LeaseKeepAliveResponse(ID=request.ID, TTL=9)


@contextlib.asynccontextmanager
async def _members(fault: str) -> AsyncIterator[tuple[EtcdStore, _Member, _Member]]:
    """Yield a store whose first member is faulty and whose second is healthy."""
    servers, members, endpoints = [], (_Member(fault), _Member()), []
    for member in members:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((member,))
        endpoints.append(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
        await server.start()
        servers.append(server)
    store = EtcdStore(EtcdAccess(endpoints=tuple(endpoints), deadline_s=3.0))
    try:
        yield store, *members
    finally:
        await store.close()
        for server in servers:
            await server.stop(None)
        await calls_ended()


async def _first_key(store: EtcdStore) -> str:
    async with asyncio.timeout(PATIENCE_S):
        async with contextlib.aclosing(store.watch("/g/", 1)) as batches:  # type: ignore[type-var]
            async for batch in batches:
                return str(batch.events[0].key)
    raise AssertionError("the watch ended without an event")


@pytest.mark.parametrize(
    "fault", ["no leader", "cancels", "ends", "UNKNOWN", "INTERNAL", "CANCELLED"]
)
async def test_a_watch_that_a_member_cannot_serve_is_made_at_the_next_one(fault: str) -> None:
    """A member without its peers accepts a watch and never sends an event."""
    async with _members(fault) as (store, faulty, healthy):
        with pytest.raises(StoreUnavailable):
            await _first_key(store)
        assert await _first_key(store) == "/g/a"
        assert (faulty.calls, healthy.calls) == (1, 1)


@pytest.mark.parametrize("fault", ["no leader", "ends", "UNKNOWN"])
async def test_a_lease_that_a_member_cannot_renew_is_renewed_at_the_next_one(fault: str) -> None:
    """Retries at the same member would use up the time to live."""
    async with _members(fault) as (store, faulty, healthy):
        with pytest.raises(StoreUnavailable):
            await store.keep_alive(1)
        assert await store.keep_alive(1) == 9.0
        assert (faulty.calls, healthy.calls) == (1, 1)
