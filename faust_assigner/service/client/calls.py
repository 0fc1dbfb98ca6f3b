"""Calls to one instance of the service at a time, with the caller's credentials."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio

from faust_assigner.concurrency.cancellation import is_cancelled
from faust_assigner.service.client.channel import Access
from faust_assigner.service.client.registration import Retry
from faust_assigner.service.errors import NotFound
from faust_assigner.service.faults import refusal
from faust_assigner.service.proto.kafka_assigner_pb2_grpc import KafkaAssignerStub

if TYPE_CHECKING:
    from google.protobuf.message import Message

log = logging.getLogger(__name__)

#: Timeout of a call, in seconds; the client then repeats the call.
CALL_S: Final = 5.0


class Calls:
    """The connection to one instance. Without a connection, a call waits for the next connection.

    ``has_ended`` is True if no further connection will be opened. ``name``: the consumer's name,
    for errors.
    """

    def __init__(self, name: str, access: Access, retry: Retry) -> None:
        self.has_ended = False
        self._name = name
        self._access = access
        self._retry = retry
        self._chance = random.Random()
        self._channel: grpc.aio.Channel | None = None
        self._stub: Any = None

    def register(self, target: str, request: Message) -> Any:
        """Connect to ``target``, register the consumer, and return the registration's stream.

        Raises OSError if a file of the credentials cannot be read.
        """
        self._channel = self._access.open(target)
        self._stub = KafkaAssignerStub(self._channel)
        return self._stub.Register(request, metadata=self._access.metadata())

    async def close(self) -> None:
        """Close the current connection, if any."""
        if self._channel is not None:
            channel, self._channel, self._stub = self._channel, None, None
            await channel.close()

    async def retried(self, method: str, request: Message) -> Any:
        """Repeat the call until the service answers. Raises ServiceRefused.

        A gRPC status in ``faults.CODE`` is a refusal; after every other status the call is retried.
        """
        attempt = 0
        while True:
            try:
                return await self.once(method, request)
            except grpc.aio.AioRpcError as error:
                log.info(
                    "%s failed and is tried again: %s: %s",
                    method,
                    error.code().name,
                    error.details(),
                )
            await asyncio.sleep(self._retry.wait(attempt, self._chance))
            attempt += 1

    async def once(self, method: str, request: Message, *, timeout: float = CALL_S) -> Any:
        """Call once. Raises ServiceRefused, and AioRpcError if no answer comes."""
        while self._stub is None:
            if self.has_ended:
                raise NotFound(
                    f"{self._name}: the consumer's session and its connection have ended"
                )
            await asyncio.sleep(0.02)
        try:
            return await getattr(self._stub, method)(
                request, timeout=timeout, metadata=self._access.metadata()
            )
        except OSError as error:
            raise _unavailable(f"could not read the token: {error}") from error
        except grpc.aio.AioRpcError as error:
            if (refused := refusal(error)) is not None:
                raise refused from error
            raise
        except (asyncio.CancelledError, grpc.aio.UsageError):
            if is_cancelled():
                raise
            # Streams closed the channel during the call, to open the next stream.
            raise _unavailable("the connection ended") from None


def _unavailable(why: str) -> grpc.aio.AioRpcError:
    none = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, none, none, why)
