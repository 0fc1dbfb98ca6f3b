"""Requests that are no valid messages: one status for every method, and few log lines."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.message import DecodeError

from faust_assigner.service.errors import StoreUnavailable
from faust_assigner.service.server import servicer
from faust_assigner.service.server.frequent import QUIET_S, FrequentEvent
from faust_assigner.service.server.options import Options
from faust_assigner.service.server.readable import ReadableRequests
from faust_assigner.service.server.serve import running
from tests.support.assigning.instances import calls_ended

GARBAGE = b"\xff\xff\xff"
CONSUMERS = "/kafka_assigner.v1.KafkaAssigner"


async def refused(channel: Any, method: str, *, is_stream: bool) -> grpc.StatusCode:
    """The status of a call with an invalid request."""
    kind = channel.unary_stream if is_stream else channel.unary_unary
    call = kind(method)(GARBAGE, timeout=30.0)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await (call.read() if is_stream else call)
    code: grpc.StatusCode = caught.value.code()
    return code


async def test_a_request_that_is_no_message_is_an_invalid_argument(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Earlier, the status was UNKNOWN, with a traceback in the log for each request."""
    caplog.set_level(logging.WARNING)
    async with running(Options.read({"bind": "127.0.0.1:0"}, {})) as (port, *_):
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            for service, method, is_stream in (
                ("KafkaAssigner", "Register", True),
                ("KafkaAssigner", "Heartbeat", False),
                ("KafkaAssigner", "WatchAssignments", True),
                ("KafkaAssignerAdmin", "Pause", False),
                ("KafkaAssignerAdmin", "WatchState", True),
            ):
                path = f"/kafka_assigner.v1.{service}/{method}"
                code = await refused(channel, path, is_stream=is_stream)
                assert code is grpc.StatusCode.INVALID_ARGUMENT, method
        await calls_ended()
    said = [record for record in caplog.records if record.name.startswith(("grpc", "faust_"))]
    assert not [record for record in said if record.exc_info]
    assert [record for record in said if "not valid messages" in record.getMessage()]


async def test_a_line_in_the_log_counts_the_requests_since_the_last_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A flood of requests does not fill the log, but its size is logged."""
    now = [0.0]
    readable = ReadableRequests(clock=lambda: now[0])
    handler = grpc.unary_unary_rpc_method_handler(
        lambda request, context: None, request_deserializer=_broken
    )

    async def continuation(details: Any) -> Any:
        return handler

    details: Any = SimpleNamespace(method=f"{CONSUMERS}/Heartbeat")
    wrapped = await readable.intercept_service(continuation, details)
    for _ in range(5):
        wrapped.request_deserializer(GARBAGE)
    now[0] += QUIET_S
    wrapped.request_deserializer(GARBAGE)
    said = [one.getMessage() for one in caplog.records if one.name.endswith("server.readable")]
    begin = "refused requests that are not valid messages:"
    assert [line.split(";")[0] for line in said] == [f"{begin} 1", f"{begin} 5"]


async def test_calls_without_an_answer_of_the_store_are_counted_in_one_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While etcd is silent, each heartbeat of each consumer had its own line."""
    now = [0.0]
    monkeypatch.setattr(servicer, "_UNANSWERED", FrequentEvent(clock=lambda: now[0]))
    codes: list[grpc.StatusCode] = []

    async def abort(code: grpc.StatusCode, details: str) -> None:
        codes.append(code)

    context: Any = SimpleNamespace(abort=abort)
    for wait_s in (0.0, 1.0, 1.0, QUIET_S):
        now[0] += wait_s
        async with servicer.refusals_as_status(context):
            raise StoreUnavailable("no answer")
    assert codes == [grpc.StatusCode.UNAVAILABLE] * 4
    said = [one.getMessage().split(" calls")[0] for one in caplog.records]
    assert said == ["1", "3"]


def _broken(data: bytes) -> Any:

    raise DecodeError("no message")


@pytest.mark.parametrize(
    "method",
    ["/kafka_assigner.v1.KafkaAssigner/Other", "/grpc.health/Check", "/proxy/kafka_assigner.v1/X"],
)
@pytest.mark.parametrize("has_handler", [True, False])
async def test_only_known_methods_of_the_service_get_a_reader(
    method: str, has_handler: bool
) -> None:
    """gRPC refuses an unknown method itself, and other services read their own requests."""
    handler: Any = grpc.unary_unary_rpc_method_handler(lambda *_: None) if has_handler else None

    async def continuation(_: Any) -> Any:
        return handler

    details: Any = SimpleNamespace(method=method)
    found = await ReadableRequests().intercept_service(continuation, details)
    assert (found is handler) is not (has_handler and method.startswith("/kafka"))


async def test_a_bug_of_a_reader_is_no_fault_of_the_request() -> None:
    """Only bytes that are no message are answered so; gRPC logs any other error."""

    def read(data: bytes) -> Any:
        raise KeyError(data)

    handler = grpc.unary_unary_rpc_method_handler(lambda *_: None, request_deserializer=read)

    async def continuation(_: Any) -> Any:
        return handler

    details: Any = SimpleNamespace(method="/kafka_assigner.v1.KafkaAssigner/Heartbeat")
    found = await ReadableRequests().intercept_service(continuation, details)
    with pytest.raises(KeyError):
        found.request_deserializer(b"x")
