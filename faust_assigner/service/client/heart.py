"""The heartbeats of a consumer, and the end of a session without them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import grpc
import grpc.aio

from faust_assigner.service.client.calls import Calls
from faust_assigner.service.client.holdings import Holdings
from faust_assigner.service.client.inbox import Inbox
from faust_assigner.service.client.requests import Requests
from faust_assigner.service.client.session import Session
from faust_assigner.service.client.streams import Streams
from faust_assigner.service.errors import Expelled, Replaced, ServiceRefused

log = logging.getLogger(__name__)

#: Heartbeats in each time to live.
BEATS = 6


class Heart:
    """Renews the session, and ends it in time if it cannot be renewed."""

    def __init__(
        self,
        name: str,
        clock: Callable[[], float],
        *,
        calls: Calls,
        requests: Requests,
        holdings: Holdings,
        inbox: Inbox,
        session: Session,
        streams: Streams,
    ) -> None:
        self._name = name
        self._clock = clock
        self._calls = calls
        self._requests = requests
        self._holdings = holdings
        self._inbox = inbox
        self._session = session
        self._streams = streams

    async def beat(self) -> None:
        """Send :data:`BEATS` heartbeats in each time to live, until this consumer is replaced.

        End the stream on failure or silence. A registration waits for its turn if many arrive at
        once. Meanwhile the heartbeats renew the previous session, at the same instance.
        """
        while True:
            await self._session.timed()
            every_s = self._session.lives_s / BEATS
            await asyncio.sleep(every_s)
            session = self._session.id
            try:
                is_well = await self._renew(session, every_s)
            except (Replaced, Expelled) as error:
                self._session.give_up()
                self._inbox.put(error)
                return
            if not self._session.is_registered or session != self._session.id:
                continue
            if is_deaf := self._session.is_deaf:
                log.info("%s: the stream is silent; connecting to another instance", self._name)
            if is_deaf or not is_well:
                self._streams.cancel()

    async def _renew(self, session: str, timeout_s: float) -> bool:
        """Send one heartbeat; return whether the session may go on. Raises Replaced and Expelled."""
        sent_at = self._clock()
        try:
            request = self._requests.heartbeat(session, self._holdings.held())
            answer = await self._calls.once("Heartbeat", request, timeout=timeout_s)
        except (Replaced, Expelled):
            raise
        except (grpc.aio.AioRpcError, ServiceRefused):
            return self._session.left_s > self._session.lives_s / 2
        if self._session.check_time():
            return False  # too late: the lost partitions need a new registration
        if session == self._session.id:
            if answer.known:
                self._holdings.confirm(sent_at + answer.lives_ms / 1000)
            else:
                self._session.give_up()  # other consumers may own the partitions
        return bool(answer.known)

    async def fence(self) -> None:
        """Report the lost partitions when the session's time is over; begin a new session."""
        while True:
            await asyncio.sleep(min(max(self._session.left_s, 0.02), 1.0))
            # A registration that waits for its turn begins a new session anyway.
            if self._session.check_time() and self._session.is_registered:
                self._streams.cancel()
