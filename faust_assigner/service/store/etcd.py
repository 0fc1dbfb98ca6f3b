"""The store in etcd: a thin client of the v3 API over gRPC, with a deadline for every call.

The caller of a broken watch watches again, from the revision after the last seen. After a call
finds an endpoint unavailable, the next call uses the next endpoint.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
import grpc.aio

from faust_assigner.service.errors import (
    Compacted,
    LeaseLost,
    QuotaExceeded,
    StoreError,
    StoreUnavailable,
    TooManyOperations,
)
from faust_assigner.service.store.access import Connections, EtcdAccess
from faust_assigner.service.store.base import (
    MAX_OPERATIONS,
    Batch,
    Compare,
    Event,
    Field,
    KeyValue,
    Lease,
    Listing,
    Put,
    TxnResult,
    Write,
)
from faust_assigner.service.store.etcd_api import etcd_pb2 as pb

if TYPE_CHECKING:
    from google.protobuf.message import Message

T = TypeVar("T")
log = logging.getLogger(__name__)

#: The most keys of one page of a listing; all pages have the same revision.
PAGE = 2_000

#: Without this header a member of etcd that is cut off from its peers lets a call wait, and a watch
#: for ever.
REQUIRE_LEADER = (("hasleader", "true"),)

#: Parts of etcd's answers to a token of earlier users and roles; the codes are UNKNOWN and
#: INVALID_ARGUMENT.
OLD_TOKEN = ("auth: revision in header is old", "revision of auth store is old")

#: etcd's answer to a user while its authentication is off, and to a call without a user later.
AUTH_IS_OFF, NO_USER = "authentication is not enabled", "user name is empty"

#: The first release of each minor version whose paused leader ends no lease after its successor has
#: renewed it (etcd-io/etcd 15247); 3.6 and later never do.
KEEPS_LEASES = {(3, 4): 31, (3, 5): 13}

_TARGETS = {
    Field.VALUE: (pb.Compare.VALUE, "value"),
    Field.VERSION: (pb.Compare.VERSION, "version"),
    Field.MOD_REVISION: (pb.Compare.MOD, "mod_revision"),
    Field.LEASE: (pb.Compare.LEASE, "lease"),
    Field.CREATE_REVISION: (pb.Compare.CREATE, "create_revision"),
}


class EtcdStore:
    """The store in etcd, over one connection at a time.

    ``observe`` is called after every call, with the call's name, its seconds, and the error's name
    or None.
    """

    def __init__(
        self,
        access: EtcdAccess,
        *,
        observe: Callable[[str, float, str | None], None] | None = None,
    ) -> None:
        self._access = access
        self._observe = observe or (lambda name, took_s, error: None)
        self._number = 0
        self._connections = Connections(access)
        self._token: str | None = None
        self._closed = False

    # -- reads ---------------------------------------------------------------------------------------

    async def get(self, key: str) -> KeyValue | None:
        """Read a key."""
        found = await self._call("KV/Range", pb.RangeRequest(key=key.encode()), pb.RangeResponse)
        return _kv(found.kvs[0]) if found.kvs else None

    async def list(self, prefix: str) -> Listing:
        """List all keys under ``prefix``, page by page, at the first page's revision."""
        items: list[KeyValue] = []
        start, end, revision, limit = prefix.encode(), _end_of(prefix.encode()), 0, PAGE
        while True:
            try:
                page = await self._call(
                    "KV/Range",
                    pb.RangeRequest(key=start, range_end=end, limit=limit, revision=revision),
                    pb.RangeResponse,
                )
            except StoreUnavailable as error:
                if "larger than max" not in str(error) or limit < 2:
                    raise
                limit = max(limit // 8, 1)  # large values: fewer fit into a message
                continue
            revision = revision or page.header.revision
            items += map(_kv, page.kvs)
            if not page.more:
                return Listing(revision, tuple(items))
            start = page.kvs[-1].key + b"\0"

    async def watch(self, prefix: str, start_revision: int) -> AsyncIterator[Batch]:
        """Iterate over the changes from ``start_revision`` on."""
        request = pb.WatchRequest(
            create_request=pb.WatchCreateRequest(
                key=prefix.encode(),
                range_end=_end_of(prefix.encode()),
                start_revision=start_revision,
                fragment=True,
            )
        )
        loop, metadata, number = asyncio.get_running_loop(), await self._metadata(), self._number
        call = self._method("Watch/Watch", pb.WatchResponse, streaming=True)(metadata=metadata)
        held: list[Event] = []
        try:
            await call.write(request)
            # The first answer has a deadline. Later the watch may be silent for long: the channel's
            # pings detect a broken connection.
            async with asyncio.timeout_at(loop.time() + self._access.deadline_s):
                response = await call.read()
            while response is not grpc.aio.EOF:
                if response.canceled:
                    raise self._cancelled(response, start_revision, number)
                held += map(_event, response.events)
                if held and not response.fragment:
                    # While a watch catches up, the header's revision is ahead of the events.
                    batch, held = Batch(held[-1].revision, tuple(held)), []
                    yield batch
                response = await call.read()
            self._turn(number)
            raise StoreUnavailable("the watch ended")
        except (grpc.aio.AioRpcError, TimeoutError, asyncio.InvalidStateError) as error:
            raise self._failed(error, number) from None
        finally:
            await _settled(call)

    def _cancelled(self, response: Any, start_revision: int, number: int) -> StoreError:
        if response.compact_revision:
            return Compacted(start_revision, response.compact_revision)
        self._token = None
        self._turn(number)
        return StoreUnavailable(
            f"etcd cancelled the watch: {response.cancel_reason or 'no reason given'}"
        )

    # -- writes --------------------------------------------------------------------------------------

    async def txn(self, compares: Sequence[Compare], writes: Sequence[Write]) -> TxnResult:
        """Run a transaction."""
        for operations in (compares, writes):
            if len(operations) > MAX_OPERATIONS:
                raise TooManyOperations(len(operations), MAX_OPERATIONS)
        if len({write.key for write in writes}) < len(writes):
            raise ValueError("a transaction writes a key twice")
        request = pb.TxnRequest(compare=map(_compare, compares), success=map(_operation, writes))
        done = await self._call("KV/Txn", request, pb.TxnResponse)
        return TxnResult(done.succeeded, done.header.revision)

    async def compact(self, revision: int) -> None:
        """Forget the history before ``revision``. An already compacted revision is no error."""
        try:
            await self._call(
                "KV/Compact", pb.CompactionRequest(revision=revision), pb.CompactionResponse
            )
        except Compacted:
            return

    # -- leases --------------------------------------------------------------------------------------

    async def grant(self, ttl_s: float) -> Lease:
        """Grant a new lease. etcd counts whole seconds, and may grant more than ``ttl_s``."""
        request = pb.LeaseGrantRequest(TTL=max(math.ceil(ttl_s), 1))
        granted = await self._call("Lease/LeaseGrant", request, pb.LeaseGrantResponse)
        if granted.error:
            raise StoreError(f"no lease: {granted.error}")
        return Lease(granted.ID, float(granted.TTL))

    async def keep_alive(self, lease_id: int, *, timeout_s: float | None = None) -> float:
        """Renew a lease once, on a separate stream: a hanging renewal does not delay the rest."""
        deadline_s = min(self._access.deadline_s, timeout_s or self._access.deadline_s)
        began, error = asyncio.get_running_loop().time(), None
        metadata, number = await self._metadata(), self._number
        call = self._method("Lease/LeaseKeepAlive", pb.LeaseKeepAliveResponse, streaming=True)(
            metadata=metadata, timeout=deadline_s
        )
        try:
            await call.write(pb.LeaseKeepAliveRequest(ID=lease_id))
            answer = await call.read()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as failed:
            error = self._failed(failed, number)
            raise error from None
        finally:
            await _settled(call)
            took_s = asyncio.get_running_loop().time() - began
            self._observe("Lease/LeaseKeepAlive", took_s, type(error).__name__ if error else None)
        if answer is grpc.aio.EOF:
            self._turn(number)
            raise StoreUnavailable("the keepalive ended")
        # For an expired lease etcd answers with a time to live of 0, not with an error.
        if answer.TTL <= 0:
            raise LeaseLost(lease_id)
        return float(answer.TTL)

    async def revoke(self, lease_id: int) -> None:
        """End a lease."""
        try:
            await self._call(
                "Lease/LeaseRevoke", pb.LeaseRevokeRequest(ID=lease_id), pb.LeaseRevokeResponse
            )
        except LeaseLost:
            return

    # -- the connection ------------------------------------------------------------------------------

    async def version(self) -> str:
        """Return etcd's version."""
        status = await self._call("Maintenance/Status", pb.StatusRequest(), pb.StatusResponse)
        return str(status.version)

    async def _call(self, path: str, request: Message, response: type[T]) -> T:
        began, error = asyncio.get_running_loop().time(), None
        metadata, number = await self._metadata(), self._number
        try:
            answer: T = await self._method(path, response)(
                request, timeout=self._access.deadline_s, metadata=metadata
            )
            return answer
        except grpc.aio.AioRpcError as failed:
            error = self._failed(failed, number, request)
            raise error from None
        finally:
            took_s = asyncio.get_running_loop().time() - began
            self._observe(path, took_s, type(error).__name__ if error else None)

    def _method(self, path: str, response: type[Any], *, streaming: bool = False) -> Any:
        if self._closed:
            raise StoreUnavailable("the store is closed")
        channel = self._connections.of(self._number)
        kind = channel.stream_stream if streaming else channel.unary_unary
        return kind(
            f"/etcdserverpb.{path}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=response.FromString,
        )

    async def _metadata(self) -> tuple[tuple[str, str], ...]:
        """Return the metadata of every call: the demand for a leader, and the user's token if any.

        With the demand, a member of etcd without a leader refuses the call at once.
        """
        if self._access.user is None:
            return REQUIRE_LEADER
        if self._token is None:
            request = pb.AuthenticateRequest(
                name=self._access.user, password=self._access.password or ""
            )
            method, number = (
                self._method("Auth/Authenticate", pb.AuthenticateResponse),
                self._number,
            )
            try:
                answer = await method(request, timeout=self._access.deadline_s)
                self._token = answer.token
            except grpc.aio.AioRpcError as failed:
                if AUTH_IS_OFF not in (failed.details() or ""):
                    raise self._failed(failed, number) from None
                # Every instance gets its user before an operator turns authentication on.
                log.warning("etcd's authentication is off: etcd does not check --etcd-user")
                self._token = ""
        return (*REQUIRE_LEADER, ("token", self._token)) if self._token else REQUIRE_LEADER

    def _failed(self, error: Exception, number: int, request: Message | None = None) -> StoreError:
        """Turn etcd's answer into a StoreError; switch endpoints if ``number`` did not answer."""
        where = f"etcd at {self._access.address(number)}"
        if not isinstance(error, grpc.aio.AioRpcError):
            self._turn(number)
            return StoreUnavailable(f"{where}: {str(error) or 'no answer in time'}")
        code, details = error.code(), error.details() or ""
        if code is grpc.StatusCode.NOT_FOUND and "lease" in details:
            return LeaseLost(_lease_of(request))
        if code is grpc.StatusCode.OUT_OF_RANGE and "compacted" in details:
            return Compacted(getattr(request, "revision", 0), 0)
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "space" in details:
            return QuotaExceeded(details)
        if (
            code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
            or "token" in details
            # A signed token (JWT) is outdated after each change of etcd's users or roles.
            or any(old in details for old in OLD_TOKEN)
            or NO_USER in details  # authentication was off at the last call
        ):
            self._token = None
            return StoreError(f"{where} refuses: {details}")
        if (
            code is not grpc.StatusCode.RESOURCE_EXHAUSTED
        ):  # too many calls, or too large a message, at any endpoint
            self._turn(number)
        return StoreUnavailable(f"{where}: {code.name}: {details}")

    def _turn(self, number: int) -> None:
        """Switch to the next endpoint, unless a different call has already switched.

        Calls under way end on their first channel.
        """
        if len(self._access.endpoints) > 1 and number == self._number:
            self._number += 1
            self._token = None

    async def close(self) -> None:
        """Close the connections."""
        self._closed = True
        await self._connections.close()


def loses_leases(version: str) -> bool:
    """Return whether a paused leader of this etcd may end leases that its successor has renewed.

    The consumers of such leases work on without a registration until their next heartbeat, while
    their partitions get new owners; only sinks that compare epochs then refuse the late writes.
    """
    number = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    if number is None:
        return False
    major, minor, patch = map(int, number.groups())
    return (major, minor) < (3, 6) and patch < KEEPS_LEASES.get((major, minor), patch + 1)


async def _settled(call: Any) -> None:
    """Cancel a stream, and give gRPC time to end the stream.

    gRPC ends the stream in a separate task, at its poller's next event, without a notification.
    """
    call.cancel()
    await asyncio.sleep(0.005)


def _kv(kv: Any) -> KeyValue:
    key = kv.key.decode("utf-8", "replace")
    return KeyValue(key, kv.value, kv.create_revision, kv.mod_revision, kv.version, kv.lease)


def _event(event: Any) -> Event:
    kv = _kv(event.kv)
    return Event(kv.key, kv.mod_revision, kv if event.type == pb.Event.PUT else None)


def _compare(compare: Compare) -> Any:
    target, name = _TARGETS[compare.field]
    expected: dict[str, Any] = {name: compare.expected}
    return pb.Compare(result=pb.Compare.EQUAL, target=target, key=compare.key.encode(), **expected)


def _operation(write: Write) -> Any:
    if isinstance(write, Put):
        put = pb.PutRequest(key=write.key.encode(), value=write.value, lease=write.lease)
        return pb.RequestOp(request_put=put)
    return pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=write.key.encode()))


def _end_of(prefix: bytes) -> bytes:
    """Return the first key after all keys with ``prefix``."""
    for i in range(len(prefix) - 1, -1, -1):
        if prefix[i] < 0xFF:
            return prefix[:i] + bytes([prefix[i] + 1])
    return b"\0"


def _lease_of(request: Message | None) -> int:
    """Return the lease id in a request; 0 if there is none."""
    if isinstance(request, pb.TxnRequest):
        return next((op.request_put.lease for op in request.success if op.request_put.lease), 0)
    return int(getattr(request, "ID", 0))
