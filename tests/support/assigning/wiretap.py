"""A proxy between an instance and etcd: calls pass unchanged, requests and answers are kept."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from faust_assigner.service.store.access import CHANNEL_OPTIONS
from faust_assigner.service.store.base import Compare, Delete, Field, Put, Write
from faust_assigner.service.store.etcd_api import etcd_pb2 as pb

ROOT = Path(__file__).resolve().parents[3]
_STREAMS = ("/etcdserverpb.Watch/Watch", "/etcdserverpb.Lease/LeaseKeepAlive")
_FIELDS = {
    pb.Compare.VALUE: (Field.VALUE, "value"),
    pb.Compare.VERSION: (Field.VERSION, "version"),
    pb.Compare.MOD: (Field.MOD_REVISION, "mod_revision"),
    pb.Compare.LEASE: (Field.LEASE, "lease"),
    pb.Compare.CREATE: (Field.CREATE_REVISION, "create_revision"),
}


@dataclass(frozen=True)
class Transaction:
    """A transaction of an instance; ``revision`` 0: it failed, or its answer is unknown.

    ``asked`` and ``answered`` are seconds of ``time.monotonic``: etcd carried it out in between, if
    at all.
    """

    asked: float
    answered: float
    compares: tuple[Compare, ...]
    writes: tuple[Write, ...]
    revision: int


@dataclass(frozen=True)
class Renewal:
    """A lease granted or renewed by a request that passed at ``asked``."""

    asked: float
    lease_id: int


class Tap:
    """An instance's connection to etcd on its own port; a process, so that the test cannot delay it."""

    def __init__(self, endpoint: str, record: Path) -> None:
        self._record = record
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.assigning.wiretap", endpoint, str(record)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert self._process.stdout is not None
        self.endpoint = self._process.stdout.readline().strip()

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def _kept(self, kind: str) -> Iterator[dict[str, Any]]:
        lines = self._record.read_text().splitlines()
        return (one for one in map(json.loads, lines) if one["kind"] == kind)

    @property
    def transactions(self) -> list[Transaction]:
        """All transactions so far."""
        found = []
        for one in self._kept("transaction"):
            said = pb.TxnRequest.FromString(bytes.fromhex(one["request"]))
            done = pb.TxnResponse.FromString(bytes.fromhex(one["answer"]))
            found.append(
                Transaction(
                    one["asked"],
                    one["answered"],
                    tuple(map(_compare, said.compare)),
                    tuple(map(_write, said.success)),
                    done.header.revision if done.succeeded else 0,
                )
            )
        return found

    @property
    def renewals(self) -> list[Renewal]:
        """All renewals so far."""
        return [Renewal(one["asked"], one["lease"]) for one in self._kept("renewal")]

    def close(self) -> None:
        """End the tap."""
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


class Wire:
    """The work of a tap's process."""

    def __init__(self, endpoint: str, record: Path) -> None:
        self._channel = grpc.insecure_channel(endpoint, options=CHANNEL_OPTIONS)
        self._out = record.open("a", buffering=1)
        self._server = grpc.server(
            ThreadPoolExecutor(64),
            options=[
                ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
                ("grpc.so_reuseport", 0),
            ],
        )
        self._server.add_generic_rpc_handlers((_Passing(self),))
        self.endpoint = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def wait(self) -> None:
        """Wait until the process is killed."""
        self._server.wait_for_termination()

    def _keep(self, kind: str, **facts: Any) -> None:
        self._out.write(json.dumps({"kind": kind, **facts}) + "\n")

    def once(self, path: str, request: bytes, context: Any) -> bytes:
        """Pass a call and its answer."""
        asked, answer = time.monotonic(), b""
        try:
            answer = self._channel.unary_unary(path)(
                request, timeout=_left(context), metadata=_of(context)
            )
        except grpc.RpcError as error:
            context.abort(error.code(), error.details())
        finally:
            if path.endswith("KV/Txn"):
                self._keep(
                    "transaction",
                    asked=asked,
                    answered=time.monotonic(),
                    request=request.hex(),
                    answer=answer.hex(),
                )
            elif path.endswith("Lease/LeaseGrant") and answer:
                self._keep(
                    "renewal", asked=asked, lease=pb.LeaseGrantResponse.FromString(answer).ID
                )
        return answer

    def stream(self, path: str, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        """Pass a watch, or a lease that is kept alive."""
        asked = time.monotonic()
        call = self._channel.stream_stream(path)(
            _until_cancelled(requests), timeout=_left(context), metadata=_of(context)
        )
        context.add_callback(call.cancel)
        try:
            for answer in call:
                if path.endswith("LeaseKeepAlive"):
                    said = pb.LeaseKeepAliveResponse.FromString(answer)
                    if said.TTL > 0:
                        self._keep("renewal", asked=asked, lease=said.ID)
                yield answer
        except grpc.RpcError as error:
            context.abort(error.code(), error.details())


class _Passing(grpc.GenericRpcHandler):
    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def service(self, details: Any) -> Any:
        path = details.method
        if path in _STREAMS:
            return grpc.stream_stream_rpc_method_handler(
                lambda requests, context: self._wire.stream(path, requests, context)
            )
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: self._wire.once(path, request, context)
        )


def _left(context: Any) -> float | None:
    """The seconds of a call; None for a watch, for which gRPC returns a very large number."""
    left = context.time_remaining()
    return left if left is not None and left < 3600 else None


def _until_cancelled(requests: Iterator[bytes]) -> Iterator[bytes]:
    with contextlib.suppress(grpc.RpcError):
        yield from requests


def _of(context: Any) -> list[tuple[str, str]]:
    """Return the metadata that etcd uses."""
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
def taps(endpoint: str, count: int, folder: Path) -> Iterator[list[Tap]]:
    """A tap for each of ``count`` instances; the records are in ``folder``."""
    opened = [Tap(endpoint, folder / f"tap-{number}.jsonl") for number in range(count)]
    try:
        yield opened
    finally:
        for tap in opened:
            tap.close()


def main() -> None:
    """``python -m tests.support.assigning.wiretap ENDPOINT FILE``: print the address and pass calls."""
    wire = Wire(sys.argv[1], Path(sys.argv[2]))
    print(wire.endpoint, flush=True)
    wire.wait()


if __name__ == "__main__":
    main()
