"""Refuses requests that are not valid messages with INVALID_ARGUMENT; limits the log lines.

Without this interceptor gRPC logs a traceback for each such request, and answers UNKNOWN.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, NoReturn

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from faust_assigner.service.errors import BadRequest
from faust_assigner.service.server.frequent import FrequentEvent

log = logging.getLogger(__name__)

#: The packages of the services whose requests are checked: the assigner service and KEDA's scaler.
CHECKED: Final = ("/kafka_assigner.", "/externalscaler.")


class Unreadable:
    """The substitute for a request that cannot be decoded: reading a field raises BadRequest."""

    def __init__(self, method: str) -> None:
        self._method = method

    def __getattr__(self, name: str) -> NoReturn:
        raise BadRequest(f"the request of {self._method} is not a valid message")


class ReadableRequests(grpc.aio.ServerInterceptor):
    """Passes :class:`Unreadable` to the servicers for invalid bytes. ``clock`` returns seconds."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._refused = FrequentEvent(clock=clock)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Return the method's handler, with a deserializer that does not raise."""
        handler, method = await continuation(handler_call_details), handler_call_details.method
        if handler is None or not method.startswith(CHECKED):
            return handler
        read = handler.request_deserializer

        def read_or_refuse(data: bytes) -> Any:
            try:
                return read(data)
            except DecodeError:
                self._count(method, len(data))
                return Unreadable(method)

        return handler._replace(request_deserializer=read_or_refuse)

    def _count(self, method: str, size: int) -> None:
        """Log the requests since the last line, if a line is due."""
        if number := self._refused.count():
            log.warning(
                "refused requests that are not valid messages: %d; the last one, to %s, is %d bytes long; "
                "check the client's proto",
                number,
                method,
                size,
            )
