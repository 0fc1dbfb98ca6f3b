"""The leave of a consumer: the service is asked until it answers, and the wait is limited."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

from faust_assigner.service.client.calls import Calls
from faust_assigner.service.client.holdings import Holdings
from faust_assigner.service.client.inbox import Inbox
from faust_assigner.service.client.registration import Retry
from faust_assigner.service.client.requests import Requests
from faust_assigner.service.client.session import Session
from faust_assigner.service.client.streams import Streams
from faust_assigner.service.errors import NotFound, ServiceRefused
from faust_assigner.service.proto import kafka_assigner_pb2 as pb

log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class Leave:
    """Asks the service to hand over all partitions, and ends the inbox when that is done.

    ``start`` runs a coroutine as a task of the client.
    """

    name: str
    clock: Callable[[], float]
    retry: Retry
    start: Callable[[Coroutine[object, None, None]], None]
    calls: Calls
    requests: Requests
    holdings: Holdings
    inbox: Inbox
    session: Session
    streams: Streams
    is_begun: bool = field(default=False, init=False)

    async def ask(self) -> bool:
        """Begin the leave, and return as ``AssignerClient.leave``."""
        if not self.is_begun:
            self.is_begun = True
            self.start(self._end_late())
        try:
            async with asyncio.timeout(self.retry.leave_s):
                answer = await self.calls.retried("Deregister", self.requests.farewell())
        except (TimeoutError, NotFound):
            return False
        if answer.action == pb.SHUTDOWN_NOW:
            # A first registration under way may still succeed. It ends by again(), or after
            # Retry.answer_s; otherwise the service would give partitions to a process that ended.
            if self.session.is_alive or not self.streams.is_open:
                self.inbox.put(None)
            return False
        return True

    async def again(self) -> None:
        """Deregister again: the first Deregister went to a session that is over."""
        with contextlib.suppress(ServiceRefused):
            answer = await self.calls.retried("Deregister", self.requests.farewell())
            if answer.action == pb.SHUTDOWN_NOW:
                self.inbox.put(None)

    async def _end_late(self) -> None:
        """End a leave after ``Retry.leave_s``, or ``Retry.answer_s`` after the registration."""
        try:
            async with asyncio.timeout(self.retry.leave_s):
                await self._dead()
        except TimeoutError:
            self._warn_of_the_rest()
        else:
            log.warning(
                "%s: leaves without an answer: its registration has expired, and no instance has "
                "answered for %g s",
                self.name,
                self.retry.answer_s,
            )
        self.session.give_up()
        self.inbox.put(None)

    async def _dead(self) -> None:
        """Return when no registration has lived for ``Retry.answer_s``."""
        died_at = self.clock()
        while self.clock() - died_at < self.retry.answer_s:
            await asyncio.sleep(min(self.retry.answer_s, 1.0))
            if self.session.is_alive:
                died_at = self.clock()

    def _warn_of_the_rest(self) -> None:
        """Log the partitions that are not handed over after ``Retry.leave_s``."""
        left = sorted(self.holdings.owned)
        log.warning(
            "%s: could not hand over all partitions within %g s: %d partitions (%s) go to other "
            "consumers when this registration's time to live is over",
            self.name,
            self.retry.leave_s,
            len(left),
            ", ".join(map(str, left[:5])),
        )
