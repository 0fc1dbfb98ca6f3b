"""Lets a consumer leave: repeats the request until the service answers, for a limited time."""

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
    """Asks the service to hand over all partitions, and limits the time of the hand-over.

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
        """Ask the service to drain this consumer; return whether it has partitions to hand over."""
        if not self.is_begun:
            self.is_begun = True
            self.start(self._end_late())
        try:
            async with asyncio.timeout(self.retry.leave_s):
                answer = await self.calls.retried("Deregister", self.requests.farewell())
        except (TimeoutError, NotFound):
            return False
        if answer.action == pb.SHUTDOWN_NOW:
            # A first registration may still succeed; the service would then assign partitions to
            # a process that has ended. To prevent this, again() deregisters, or _end_late() ends
            # the leave.
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
        """End an unanswered leave.

        The leave ends after ``Retry.leave_s``, or earlier: once the registration has expired and no
        instance has answered for ``Retry.answer_s``.
        """
        try:
            async with asyncio.timeout(self.retry.leave_s):
                await self._wait_for_expiry()
        except TimeoutError:
            self._log_remaining_partitions()
        else:
            log.warning(
                "%s: leaves without an answer: its registration has expired, and no instance has "
                "answered for %g s",
                self.name,
                self.retry.answer_s,
            )
        self.session.give_up()
        self.inbox.put(None)

    async def _wait_for_expiry(self) -> None:
        """Return when no registration has lived for ``Retry.answer_s``."""
        died_at = self.clock()
        while self.clock() - died_at < self.retry.answer_s:
            await asyncio.sleep(min(self.retry.answer_s, 1.0))
            if self.session.is_alive:
                died_at = self.clock()

    def _log_remaining_partitions(self) -> None:
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
