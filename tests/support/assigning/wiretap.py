"""Between an instance and etcd: calls go through unchanged, and what was asked and answered is kept."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import grpc

from faust_assigner.service.store.base import Compare, Delete, Field, Put, Write
from faust_assigner.service.store.etcd import CHANNEL_OPTIONS
from faust_assigner.service.store.etcd_api import etcd_pb2 as pb

_STREAMS = ("/etcdserverpb.Watch/Watch", "/etcdserverpb.Lease/LeaseKeepAlive")
_FIELDS = {pb.Compare.VALUE: (Field.VALUE, "value"), pb.Compare.VERSION: (Field.VERSION, "version"),
           pb.Compare.MOD: (Field.MOD_REVISION, "mod_revision"), pb.Compare.LEASE: (Field.LEASE, "lease"),
           pb.Compare.CREATE: (Field.CREATE_REVISION, "create_revision")}


@dataclass(frozen=True)
class Transaction:
    """One of an instance; ``revision`` 0: it did not succeed, or its answer is unknown.

    ``asked`` and ``answered`` in seconds of ``time.monotonic``: etcd carried it out in between, if at all.
    """

    asked: float
    answered: float
    compares: tuple[Compare, ...]
    writes: tuple[Write, ...]
    revision: int


@dataclass(frozen=True)
class Renewal:
    """A lease was granted or renewed, by a request that came by at ``asked``."""

    asked: float
    lease_id: int


class Tap:
    """One instance's way to etcd, on a port of its own."""

    def __init__(self, endpoint: str) -> None:
        self.transactions: list[Transaction] = []
        self.renewals: list[Renewal] = []
        self._channel = grpc.insecure_channel(endpoint, options=CHANNEL_OPTIONS)
        self._pool = ThreadPoolExecutor(64)
        self._server = grpc.server(self._pool, options=[
            ("grpc.http2.min_ping_interval_without_data_ms", 1_000), ("grpc.so_reuseport", 0)])
        self._server.add_generic_rpc_handlers((_Passing(self),))
        self.endpoint = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def close(self) -> None:
        """End all connections."""
        self._server.stop(None).wait()
        self._channel.close()
        self._pool.shutdown()

    def once(self, path: str, request: bytes, context: Any) -> bytes:
        """A call and its answer."""
        asked = time.monotonic()
        try:
            answer: bytes = self._channel.unary_unary(path)(
                request, timeout=context.time_remaining(), metadata=_of(context))
        except grpc.RpcError as error:
            self._keep(path, request, b"", asked)
            context.abort(error.code(), error.details())
        self._keep(path, request, answer, asked)
        return answer

    def _keep(self, path: str, request: bytes, answer: bytes, asked: float) -> None:
        if path.endswith("KV/Txn"):
            said, done = pb.TxnRequest.FromString(request), pb.TxnResponse.FromString(answer)
            self.transactions.append(Transaction(
                asked, time.monotonic(), tuple(map(_compare, said.compare)), tuple(map(_write, said.success)),
                done.header.revision if done.succeeded else 0))
        elif path.endswith("Lease/LeaseGrant") and answer:
            self.renewals.append(Renewal(asked, pb.LeaseGrantResponse.FromString(answer).ID))

    def stream(self, path: str, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        """A watch, or a lease that is kept alive."""
        asked = time.monotonic()
        call = self._channel.stream_stream(path)(
            _until_cancelled(requests), timeout=context.time_remaining(), metadata=_of(context))
        context.add_callback(call.cancel)
        try:
            for answer in call:
                if path.endswith("LeaseKeepAlive"):
                    said = pb.LeaseKeepAliveResponse.FromString(answer)
                    if said.TTL > 0:
                        self.renewals.append(Renewal(asked, said.ID))
                yield answer
        except grpc.RpcError as error:
            context.abort(error.code(), error.details())


class _Passing(grpc.GenericRpcHandler):
    def __init__(self, tap: Tap) -> None:
        self._tap = tap

    def service(self, details: Any) -> Any:
        path = details.method
        if path in _STREAMS:
            return grpc.stream_stream_rpc_method_handler(
                lambda requests, context: self._tap.stream(path, requests, context))
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: self._tap.once(path, request, context))


def _until_cancelled(requests: Iterator[bytes]) -> Iterator[bytes]:
    with contextlib.suppress(grpc.RpcError):
        yield from requests


def _of(context: Any) -> list[tuple[str, str]]:
    """The metadata of etcd's own."""
    return [(key, value) for key, value in context.invocation_metadata() if key == "token"]


def _compare(said: Any) -> Compare:
    field, name = _FIELDS[said.target]
    return Compare(said.key.decode(), field, getattr(said, name))


def _write(said: Any) -> Write:
    if said.HasField("request_put"):
        put = said.request_put
        return Put(put.key.decode(), put.value, put.lease)
    return Delete(said.request_delete_range.key.decode())


@contextlib.contextmanager
def taps(endpoint: str, count: int) -> Iterator[list[Tap]]:
    """One for each of so many instances."""
    opened = [Tap(endpoint) for _ in range(count)]
    try:
        yield opened
    finally:
        for tap in opened:
            tap.close()
