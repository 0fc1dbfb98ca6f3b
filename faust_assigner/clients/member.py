"""A member of a Kafka group that distributes any kind of work, not only partitions of topics.

Kafka's classic group protocol separates membership from assignment: any ``protocol_type`` may use the
protocol to elect a leader and to distribute work. A :class:`Strategy` returns this member's metadata and,
on the leader, the assignment of all members; :class:`Work` receives the result.

    async with GroupMember("pool", protocol_type="jobs", strategies=[mine], work=work,
                           bootstrap_servers="127.0.0.1:9092") as member:
        await member.wait()
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Protocol

from aiokafka.errors import KafkaError

from faust_assigner.clients.exchange import (
    FAILED,
    FATAL,
    GONE,
    MOVED,
    Exchange,
    GroupRefused,
    Share,
    Strategy,
    name_of,
)
from faust_assigner.concurrency.cancellation import is_cancelled
from faust_assigner.coordinator.errors import Code
from faust_assigner.errors import FaustAssignerError

__all__ = ["GroupMember", "GroupRefused", "NotInGroup", "Share", "Strategy", "Work"]
logger = logging.getLogger(__name__)


class NotInGroup(FaustAssignerError):
    """The member is not in the group, or its generation has ended."""


class Work(Protocol):
    """The app's callbacks for this member's share of the work."""

    async def on_assigned(self, share: Share) -> None:
        """Start the work. Heartbeats continue during this call; the next round cancels an unfinished call.

        An exception ends the member: the share is given up, the member leaves the group, and
        :meth:`GroupMember.wait` raises the exception.
        """

    async def on_revoked(self, share: Share, *, lost: bool) -> None:
        """End the work before the next round. ``lost``: write nothing, another member may own the share."""

    async def on_failed(self, reason: str) -> None:
        """Handle a failed assignment of the leader; after a delay, the member requests another round."""


class GroupMember:
    """One member. Times are in seconds. ``connection`` are aiokafka's keywords.

    If the coordinator does not answer for ``session_timeout_s``, the share counts as lost: by then the group
    may have assigned it to another member. The time counts from the last answered request.
    """

    def __init__(
        self,
        group_id: str,
        *,
        protocol_type: str,
        strategies: Sequence[Strategy],
        work: Work,
        instance_id: str | None = None,
        session_timeout_s: float = 45.0,
        rebalance_timeout_s: float = 300.0,
        heartbeat_interval_s: float = 3.0,
        retry_backoff_s: float = 0.1,
        **connection: object,
    ) -> None:
        self.group_id = group_id
        self._work = work
        self._session_s, self._interval_s = session_timeout_s, heartbeat_interval_s
        self._exchange = Exchange(
            group_id,
            protocol_type=protocol_type,
            strategies=strategies,
            instance_id=instance_id,
            session_timeout_s=session_timeout_s,
            rebalance_timeout_s=rebalance_timeout_s,
            retry_backoff_s=retry_backoff_s,
            **connection,
        )
        self._share: Share | None = None
        self._lost_at = math.inf  # the time at which the group may have removed this silent member
        self._rejoin = asyncio.Event()
        self._running: asyncio.Task[None] | None = None  # runs work.on_assigned()
        self._ending: asyncio.Task[None] | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> GroupMember:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def share(self) -> Share | None:
        """The current share of this member."""
        return self._share

    async def start(self) -> None:
        """Connect, and join in the background."""
        await self._exchange.start()
        self._task = asyncio.create_task(self._run(), name=f"group {self.group_id}")

    async def wait(self) -> None:
        """Wait for the end of the member; raises :class:`GroupRefused`, or the error of ``work``."""
        if self._task is not None:
            await asyncio.wait([self._task])
            if not self._task.cancelled():
                self._task.result()

    async def stop(self) -> None:
        """End the work, leave the group (a static member stays until its session ends), disconnect.

        Raises the error of the work's end, after the member has left the group.
        """
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.wait([self._task])
        try:
            await self._let_go(lost=False)
        finally:
            await self._exchange.leave()
            await self._exchange.close()

    def rejoin(self) -> None:
        """Request a new round, for example after a change of the result of :meth:`Strategy.metadata`."""
        self._rejoin.set()

    async def check(self) -> None:
        """Ask the coordinator whether the share is still valid; raises :class:`NotInGroup` if not."""
        share = self._share
        code = None if share is None else await self._exchange.beat(share, self._session_s / 3)
        if code not in (Code.NONE, Code.REBALANCE_IN_PROGRESS):
            member = self._exchange.member_id or "(without an id)"
            raise NotInGroup(f"member {member} is not in the group: {name_of(code)}")

    # -- rounds ------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            await self._rounds()
        except Exception as problem:
            logger.error(
                "Group %s: member %s stops after an error: %r",
                self.group_id,
                self._exchange.member_id or "-",
                problem,
            )
            try:
                await self._let_go(lost=False)
            finally:
                await self._exchange.leave()
            raise

    async def _rounds(self) -> None:
        failures = 0
        while True:
            self._rejoin.clear()
            try:
                share = await self._exchange.join()
            except KafkaError as problem:
                # the error of a lost connection has no errno
                self._exchange.refuse_fatal(getattr(problem, "errno", None))
                logger.info(
                    "Group %s: could not join, trying again: %s",
                    self.group_id,
                    type(problem).__name__,
                )
                share = None
            self._lost_at = asyncio.get_running_loop().time() + self._session_s
            if share is None:
                await asyncio.sleep(self._exchange.next_join_s)
            elif share.state[:1] == FAILED:
                reason = share.state[1:].decode(errors="replace")
                await self._while_beating(share, self._work.on_failed(reason))
                await self._watch(share, for_s=self._exchange.backoff_s(failures))
                failures += 1
            else:
                failures = 0
                self._share = replace(share, state=share.state[1:])
                self._running = asyncio.create_task(self._work.on_assigned(self._share))
                await self._let_go(lost=await self._watch(self._share))

    async def _watch(self, share: Share, *, for_s: float = math.inf) -> bool:
        """Send heartbeats until the generation or ``for_s`` seconds end; return whether the share is lost."""
        clock = asyncio.get_running_loop().time
        until = clock() + for_s
        while clock() < until and not self._rejoin.is_set():
            _raise_failure(self._running)
            left = min(until, self._lost_at) - clock()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(self._interval_s, left)):
                    await self._rejoin.wait()
            left = self._lost_at - clock()
            code = await self._beat(share, min(self._session_s / 3, left))
            if code == Code.REBALANCE_IN_PROGRESS:
                return False
            if code in GONE or code in FATAL or self._is_silent:
                logger.warning(
                    "Group %s: member %s is no longer in the group: %s",
                    self.group_id,
                    self._exchange.member_id,
                    name_of(code),
                )
                if code in FATAL:
                    await self._let_go(lost=True)
                self._exchange.refuse_fatal(code)
                return True  # the next join gets a new member id if the old id is invalid
        return False

    async def _let_go(self, *, lost: bool) -> None:
        share, self._share = self._share, None
        if share is not None:
            self._ending = asyncio.create_task(self._end(share, lost))
        ending = self._ending
        if ending is not None:
            try:
                await asyncio.shield(ending)  # a concurrent stop() waits for the same task
            finally:
                if ending.done():
                    self._ending = None

    async def _end(self, share: Share, lost: bool) -> None:
        work, self._running = self._running, None
        if work is not None:
            work.cancel()
            lost = await self._while_beating(share, _wait_for_end(work)) or lost
        await self._while_beating(share, self._work.on_revoked(share, lost=lost))
        if work is not None and not work.cancelled():
            work.result()

    async def _while_beating(self, share: Share, user: Coroutine[object, None, None]) -> bool:
        """Run the user's callback with heartbeats; return whether the share is lost at its end."""
        beats = asyncio.create_task(self._beat_on(share))
        try:
            await user
            return beats.done() or self._is_silent
        except asyncio.CancelledError:
            if is_cancelled():
                raise  # this member stops
            raise RuntimeError("the app's own code cancelled its callback") from None
        finally:
            beats.cancel()
            await asyncio.wait([beats])

    async def _beat_on(self, share: Share) -> None:
        """Send heartbeats until the coordinator has removed this member."""
        code: int | None = None
        while code not in GONE | FATAL:
            await asyncio.sleep(self._interval_s)
            code = await self._beat(share, self._session_s / 3)

    async def _beat(self, share: Share, timeout_s: float) -> int | None:
        """Send one heartbeat; return the coordinator's error code, or None without an answer in time."""
        asked = asyncio.get_running_loop().time()
        code = await self._exchange.beat(share, timeout_s)
        if code is not None and code not in MOVED:
            self._lost_at = asked + self._session_s
        return code

    @property
    def _is_silent(self) -> bool:
        """Whether the coordinator has answered no heartbeat for a session timeout."""
        return asyncio.get_running_loop().time() >= self._lost_at


async def _wait_for_end(work: asyncio.Task[None]) -> None:
    await asyncio.wait([work])


def _raise_failure(work: asyncio.Task[None] | None) -> None:
    """Raise the error of on_assigned, or RuntimeError if the app's own code cancelled it."""
    if work is None or not work.done():
        return
    if work.cancelled():
        raise RuntimeError("the app's own code cancelled on_assigned")
    work.result()
