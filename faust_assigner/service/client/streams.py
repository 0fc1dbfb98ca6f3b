"""Keeps a consumer registered: one stream after the other, each at the next instance."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
import grpc.aio

from faust_assigner.concurrency.cancellation import is_cancelled
from faust_assigner.service.client.calls import Calls
from faust_assigner.service.client.holdings import Holdings
from faust_assigner.service.client.inbox import Inbox
from faust_assigner.service.client.registration import Registration, Retry
from faust_assigner.service.client.requests import Requests
from faust_assigner.service.client.session import Session
from faust_assigner.service.errors import Expelled, Replaced, ServiceRefused
from faust_assigner.service.faults import refusal
from faust_assigner.service.proto import kafka_assigner_pb2 as pb

log = logging.getLogger(__name__)

#: Maximum number of doublings of the wait for a first answer; slow instances need a long wait.
MOST_DOUBLED: Final = 5
#: A failed try is logged as a warning if its number is at least this and a power of 2.
FIRST_WARNING: Final = 4


@dataclass(eq=False, repr=False)
class Streams:
    """Keeps the consumer registered at any of ``targets``.

    It passes messages to the inbox and times to the session. It calls ``begun`` after each
    registration.
    """

    name: str
    targets: tuple[str, ...]
    registration: Registration
    retry: Retry
    clock: Callable[[], float]
    calls: Calls
    requests: Requests
    holdings: Holdings
    inbox: Inbox
    session: Session
    begun: Callable[[], None]
    _chance: random.Random = field(default_factory=random.Random, init=False)
    _stream: Any = field(default=None, init=False)
    _turn: int = field(default=0, init=False)

    @property
    def is_open(self) -> bool:
        """Whether a registration was sent and its stream has not ended."""
        return self._stream is not None

    def cancel(self) -> None:
        """End the stream, if there is one; :meth:`hold` then opens the next stream."""
        if self._stream is not None:
            self._stream.cancel()

    async def close(self) -> None:
        """End the stream and the connection."""
        if self._stream is not None:
            stream, self._stream = self._stream, None
            stream.cancel()
            await stream.code()  # wait for the end of gRPC's own tasks
        await self.calls.close()

    async def hold(self) -> None:
        """Register again after each end of a stream, until this consumer is drained or refused.

        Raises OSError if a file of the credentials cannot be read before the first registration.
        """
        attempt = 0
        while True:
            try:
                if await self.hold_one(self.retry.answer_s * 2.0 ** min(attempt, MOST_DOUBLED)):
                    # Status OK: leave() or an operator has drained this consumer.
                    self.inbox.put(None)
                    return
                self._log_failed_try(self._tries(attempt), "no answer")
            except ServiceRefused as error:
                if isinstance(error, Replaced | Expelled):
                    self.session.give_up()
                self.inbox.put(error)
                return
            except grpc.aio.AioRpcError as error:
                self._log_failed_try(
                    self._tries(attempt), f"{error.code().name}: {error.details()}"
                )
            except OSError as error:
                if not self.session.count:
                    raise
                # The file of a token or a certificate may be missing while it is replaced.
                log.warning("%s: cannot register again: %s", self.name, error)
            attempt = self._tries(attempt)
            self.session.is_registered, self._stream = False, None
            await asyncio.sleep(self.retry.wait(attempt, self._chance))
            attempt += 1

    def _tries(self, attempt: int) -> int:
        """Return the number of failed tries before this stream, since the last registration."""
        return 0 if self.session.is_registered else attempt

    def _log_failed_try(self, attempt: int, why: str) -> None:
        """Log a try that ended without a registration; ``attempt`` counts such tries from 0."""
        is_long = attempt >= FIRST_WARNING and attempt.bit_count() == 1
        log.log(
            logging.WARNING if is_long else logging.INFO,
            "%s: not registered at %s: %s; trying again until an instance answers",
            self.name,
            ", ".join(self.targets),
            why,
        )

    async def hold_one(self, patience_s: float) -> bool:
        """Register, and read until the stream ends.

        Return True after status OK, False without an answer. Raises the stream's error.
        """
        await self.close()
        target = self.targets[self._turn % len(self.targets)]
        self._turn += 1
        sent_at = self.clock()
        stream = self._stream = self.calls.register(target, self.request())
        # A stopped instance accepts the call and never answers. After the first message,
        # heartbeats detect such an instance.
        patience = asyncio.get_running_loop().call_later(patience_s, stream.cancel)
        try:
            await self._read(stream, patience, sent_at)
        except asyncio.CancelledError:
            # Either the silent stream was cancelled, or this task.
            if is_cancelled():
                raise
            return False
        except grpc.aio.AioRpcError as error:
            if (refused := refusal(error)) is not None:
                raise refused from error
            raise
        finally:
            patience.cancel()
        return True

    def request(self) -> pb.RegisterRequest:
        """Return the request of the next registration."""
        return self.requests.register(
            self.registration,
            returns=self.session.count > 0,
            former=self.holdings.former(),
            epoch=self.holdings.highest,
        )

    async def _read(self, stream: Any, patience: asyncio.TimerHandle, sent_at: float) -> None:
        is_first = True
        async for message in stream:
            self.session.note_message()
            if is_first:
                patience.cancel()
                until = await self.registration_end(message.assignment, sent_at)
                self.session.begin(message.assignment, until)
                self.begun()
            self.inbox.take(message, is_first=is_first)
            is_first = False

    async def registration_end(self, said: pb.AssignmentUpdate, sent_at: float) -> float:
        """Return the time until which the new registration surely lives; renew it if it is half over.

        The time counts from the request. If a busy service answers late, most of the time is over;
        this method then sends a heartbeat.
        """
        # The service's first version sends no lives_ms: a registration lives as long as its stream.
        lives_s = said.lives_ms / 1000 if said.lives_ms else math.inf
        until, now = sent_at + lives_s, self.clock()
        if until - now < lives_s / 2:
            with contextlib.suppress(grpc.aio.AioRpcError, ServiceRefused):
                request = self.requests.heartbeat(said.session_id, None)
                answer = await self.calls.once("Heartbeat", request, timeout=lives_s / 2)
                if answer.known:
                    until = max(until, now + answer.lives_ms / 1000)
        return until
