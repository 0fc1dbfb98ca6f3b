"""Calls to etcd over gRPC, each with a deadline.

If a call finds its endpoint unavailable, the next call uses the next endpoint.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import grpc
import grpc.aio

from faust_assigner.service.errors import (
    Compacted,
    LeaseLost,
    QuotaExceeded,
    StoreError,
    StoreUnavailable,
)
from faust_assigner.service.store.access import Connections, EtcdAccess
from faust_assigner.service.store.etcd_api import etcd_pb2 as pb
from faust_assigner.service.tasks import cancel_and_wait

if TYPE_CHECKING:
    from google.protobuf.message import Message

T = TypeVar("T")
log = logging.getLogger(__name__)

#: With this header, an etcd member that is cut off from its peers refuses calls. Without the header
#: a call would wait until its deadline, and a watch forever.
REQUIRE_LEADER = (("hasleader", "true"),)

#: Parts of etcd's errors for a token from before a change of users or roles; their codes are
#: UNKNOWN and INVALID_ARGUMENT.
OLD_TOKEN = ("auth: revision in header is old", "revision of auth store is old")

#: Parts of two of etcd's errors: for a login while authentication is off, and for a call without a
#: token while authentication is on.
AUTH_IS_OFF, NO_USER = "authentication is not enabled", "user name is empty"


class _Start(NamedTuple):
    """The start of a call: its time on the loop's clock, its endpoint's number, its metadata."""

    began: float
    number: int
    metadata: tuple[tuple[str, str], ...]


class EtcdCalls:
    """The calls of one store, over one connection at a time.

    ``observe`` is called after every call except a watch, with the call's name, its seconds, and
    the error's name or None. Every call raises :class:`StoreError`.
    """

    def __init__(
        self, access: EtcdAccess, observe: Callable[[str, float, str | None], None]
    ) -> None:
        self._access = access
        self._observe = observe
        self._number = 0
        self._connections = Connections(access)
        self._token: str | None = None
        self._login: asyncio.Task[None] | None = None
        self._closed = False

    async def ask(self, path: str, request: Message, response: type[T]) -> T:
        """Send a request and return its answer."""
        start = await self._start()
        with self._observe_call(path, start, request):
            answer: T = await self._method(path, response)(
                request, timeout=self._access.deadline_s, metadata=start.metadata
            )
            return answer

    async def keep_alive(
        self, request: pb.LeaseKeepAliveRequest, *, timeout_s: float
    ) -> pb.LeaseKeepAliveResponse:
        """Renew a lease once, on a separate stream, so that it delays no other renewal."""
        path, start = "Lease/LeaseKeepAlive", await self._start()
        call = self._method(path, pb.LeaseKeepAliveResponse, streaming=True)(
            metadata=start.metadata, timeout=timeout_s
        )
        with self._observe_call(path, start):
            try:
                await call.write(request)
                answer: Any = await call.read()
            finally:
                await _cancel_stream(call)
        if answer is grpc.aio.EOF:
            self._turn(start.number)
            raise StoreUnavailable("the keepalive ended")
        return answer  # type: ignore[no-any-return]

    async def watch(self, request: pb.WatchRequest) -> AsyncGenerator[pb.WatchResponse, None]:
        """Yield the answers of a watch, until it is closed or fails."""
        start = await self._start()
        call = self._method("Watch/Watch", pb.WatchResponse, streaming=True)(
            metadata=start.metadata
        )
        try:
            await call.write(request)
            # The first answer has a deadline. Later the watch may be silent for long: the channel's
            # pings detect a broken connection.
            loop = asyncio.get_running_loop()
            async with asyncio.timeout_at(loop.time() + self._access.deadline_s):
                answer = await call.read()
            while answer is not grpc.aio.EOF:
                if answer.canceled:
                    asked = request.create_request.start_revision
                    raise self._cancelled(answer, asked, start.number)
                yield answer
                answer = await call.read()
            self._turn(start.number)
            raise StoreUnavailable("the watch ended")
        except (grpc.aio.AioRpcError, TimeoutError, asyncio.InvalidStateError) as error:
            raise self._failed(error, start.number) from None
        finally:
            await _cancel_stream(call)

    def _cancelled(self, response: Any, start_revision: int, number: int) -> StoreError:
        if response.compact_revision:
            return Compacted(start_revision, response.compact_revision)
        self._token = None
        self._turn(number)
        return StoreUnavailable(
            f"etcd cancelled the watch: {response.cancel_reason or 'no reason given'}"
        )

    @contextlib.contextmanager
    def _observe_call(
        self, path: str, start: _Start, request: Message | None = None
    ) -> Iterator[None]:
        """Convert an error of the block into a StoreError, and report the call to ``observe``."""
        error: StoreError | None = None
        try:
            yield
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as failed:
            error = self._failed(failed, start.number, request)
            raise error from None
        finally:
            took_s = asyncio.get_running_loop().time() - start.began
            self._observe(path, took_s, type(error).__name__ if error else None)

    async def _start(self) -> _Start:
        began = asyncio.get_running_loop().time()
        metadata = await self._metadata()
        return _Start(began, self._number, metadata)

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
        """Return the metadata of every call: :data:`REQUIRE_LEADER`, and the user's token if any.

        A new token is requested at the first call, and after a refused token or a new endpoint.
        """
        if self._access.user is None:
            return REQUIRE_LEADER
        if self._token is None:
            await self._log_in()
        return (*REQUIRE_LEADER, ("token", self._token)) if self._token else REQUIRE_LEADER

    async def _log_in(self) -> None:
        """Request a token, in one request for all calls that wait for it.

        etcd computes the hash of the password for each request, for some 100 ms: if each of many
        calls requested a token, all of them would exceed their deadline.
        """
        if self._login is None:
            self._login = asyncio.create_task(self._request_token(), name="log in to etcd")
            self._login.add_done_callback(self._logged_in)
        await asyncio.shield(self._login)

    def _logged_in(self, login: asyncio.Task[None]) -> None:
        self._login = None
        if not login.cancelled():
            login.exception()  # every waiting call raises it

    async def _request_token(self) -> None:
        request = pb.AuthenticateRequest(
            name=self._access.user or "", password=self._access.password or ""
        )
        method = self._method("Auth/Authenticate", pb.AuthenticateResponse)
        number = self._number
        try:
            answer = await method(request, timeout=self._access.deadline_s)
            self._token = answer.token
        except grpc.aio.AioRpcError as failed:
            if AUTH_IS_OFF not in (failed.details() or ""):
                raise self._failed(failed, number) from None
            # This is normal while an operator introduces authentication: every instance gets
            # its user first.
            log.warning("etcd's authentication is off: etcd does not check --etcd-user")
            self._token = ""

    def _failed(self, error: Exception, number: int, request: Message | None = None) -> StoreError:
        """Convert an error of a call into a StoreError; switch endpoints if ``number`` is down."""
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
            # Each change of etcd's users or roles makes a signed token (JWT) invalid.
            or any(old in details for old in OLD_TOKEN)
            or NO_USER in details  # authentication was off at the last call
        ):
            self._token = None
            return StoreError(f"{where} refuses: {details}")
        # RESOURCE_EXHAUSTED means too many calls or too large a message; a different endpoint
        # would not help.
        if code is not grpc.StatusCode.RESOURCE_EXHAUSTED:
            self._turn(number)
        return StoreUnavailable(f"{where}: {code.name}: {details}")

    def _turn(self, number: int) -> None:
        """Switch to the next endpoint, unless a different call has already switched.

        Open calls stay on their channel.
        """
        if len(self._access.endpoints) > 1 and number == self._number:
            self._number += 1
            self._token = None

    async def close(self) -> None:
        """Close the connections."""
        self._closed = True
        if self._login is not None:
            await cancel_and_wait(self._login)
        await self._connections.close()


async def _cancel_stream(call: Any) -> None:
    """Cancel a stream, and give gRPC time to end it.

    gRPC ends the stream in a separate task, at its poller's next event, and reports nothing.
    """
    call.cancel()
    await asyncio.sleep(0.005)


def _lease_of(request: Message | None) -> int:
    """Return the lease id in a request; 0 if there is none."""
    if isinstance(request, pb.TxnRequest):
        return next((op.request_put.lease for op in request.success if op.request_put.lease), 0)
    return int(getattr(request, "ID", 0))
