"""Sends a consumer's heartbeats, and ends a session that no heartbeat has renewed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

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

#: The number of heartbeats in one time to live.
BEATS = 6


@dataclass(eq=False, repr=False)
class Heart:
    """Renews the session by heartbeats, and ends the session when its time is over."""

    name: str
    clock: Callable[[], float]
    calls: Calls
    requests: Requests
    holdings: Holdings
    inbox: Inbox
    session: Session
    streams: Streams

    async def beat(self) -> None:
        """Send heartbeats until this consumer is replaced or expelled.

        End the stream if the session is over, if heartbeats have failed for half of the time to
        live, or if the stream is silent. If many consumers register at once, a registration waits
        for its turn. Meanwhile the heartbeats renew the previous session, at the same instance.
        """
        while True:
            await self.session.timed()
            every_s = self.session.lives_s / BEATS
            await asyncio.sleep(every_s)
            session = self.session.id
            try:
                is_well = await self._renew(session, every_s)
            except (Replaced, Expelled) as error:
                self.session.give_up()
                self.inbox.put(error)
                return
            if not self.session.is_registered or session != self.session.id:
                continue
            if is_silent := self.session.is_silent:
                log.info("%s: the stream is silent; connecting to another instance", self.name)
            if is_silent or not is_well:
                self.streams.cancel()

    async def _renew(self, session: str, timeout_s: float) -> bool:
        """Send one heartbeat; return whether the session may go on. Raises Replaced and Expelled."""
        sent_at = self.clock()
        try:
            request = self.requests.heartbeat(session, self.holdings.held())
            answer = await self.calls.once("Heartbeat", request, timeout=timeout_s)
        except (Replaced, Expelled):
            raise
        except (grpc.aio.AioRpcError, ServiceRefused):
            return self.session.left_s > self.session.lives_s / 2
        if self.session.check_time():
            return False  # too late: the lost partitions need a new registration
        if session == self.session.id:
            if answer.known:
                self.holdings.confirm(sent_at + answer.lives_ms / 1000)
            else:
                self.session.give_up()  # other consumers may own the partitions
        return bool(answer.known)

    async def fence(self) -> None:
        """Report the lost partitions when the session's time is over; begin a new session."""
        while True:
            await asyncio.sleep(min(max(self.session.left_s, 0.02), 1.0))
            # Without a registration there is no stream to end: the pending registration begins a new
            # session.
            if self.session.check_time() and self.session.is_registered:
                self.streams.cancel()
