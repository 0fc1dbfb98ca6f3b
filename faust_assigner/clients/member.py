"""A group member that need not consume topics: join, sync, heartbeat, leave, and the leader's assignment.

Kafka's classic group protocol separates membership from assignment: any ``protocol_type`` may use the
protocol to elect a leader and to distribute work. A :class:`Strategy` provides this member's metadata and,
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
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from aiokafka.errors import KafkaError
from aiokafka.protocol.group import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)

from faust_assigner.clients.coordinator_link import CoordinatorLink
from faust_assigner.coordinator.errors import Code
from faust_assigner.errors import FaustAssignerError

logger = logging.getLogger(__name__)

_GIVEN, _FAILED = (
    b"\x00",
    b"\x01",
)  # the first byte of each state: an assignment follows, or the reason of a failure
LONGEST_REASON: Final = 1_000
MAX_BACKOFF_S: Final = 30.0
GOODBYE_S: Final = 5.0
#: Errors that a retry cannot cure.
FATAL: Final = frozenset(
    {
        Code.INCONSISTENT_GROUP_PROTOCOL,
        Code.INVALID_GROUP_ID,
        Code.INVALID_SESSION_TIMEOUT,
        Code.FENCED_INSTANCE_ID,
        30,
    }
)  # 30: not authorized
_GONE: Final = frozenset({Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION})
_MOVED: Final = frozenset(
    {14, Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR}
)  # 14: still loading
#: Expected errors of a join. Other errors are logged as warnings and retried with growing delays.
_USUAL: Final = _GONE | _MOVED | {Code.REBALANCE_IN_PROGRESS}


class GroupRefused(FaustAssignerError):
    """The coordinator refuses this member permanently."""


class NotInGroup(FaustAssignerError):
    """The coordinator does not know this member's generation, or no longer."""


@dataclass(frozen=True, kw_only=True)
class Share:
    """The result of a round for this member. ``state`` holds the bytes from the leader."""

    member_id: str
    generation: int
    protocol: str
    is_leader: bool
    state: bytes


class Strategy(Protocol):
    """A way to distribute work; members form a group only if they offer a common ``name``."""

    @property
    def name(self) -> str:
        """The protocol name in the group."""

    def metadata(self) -> bytes:
        """Return this member's metadata for the leader; called at each join."""

    def assign(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Assign on the leader: member id -> metadata to id -> state; every member gets a raised error."""


class Work(Protocol):
    """A member's processing of its share."""

    async def on_assigned(self, share: Share) -> None:
        """Start the work; heartbeats continue meanwhile. An earlier next round cancels the call and waits.

        An exception ends the member: the share is given up, the member leaves the group, and
        :meth:`GroupMember.wait` raises the exception.
        """

    async def on_revoked(self, share: Share, *, lost: bool) -> None:
        """End the work; the next round waits. ``lost``: another member may own the share, touch no data."""

    async def on_failed(self, reason: str) -> None:
        """Handle a failed assignment by the leader; the member requests another round after a delay."""


class GroupMember:
    """One member. Times are in seconds. ``connection`` are aiokafka's keywords.

    Without an answer from the coordinator for ``session_timeout_s`` the share counts as lost: by then the
    group may have assigned it to another member. The time starts with the last answered request.
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
        self._protocol_type = protocol_type
        self._strategies = {strategy.name: strategy for strategy in strategies}
        self._work = work
        self._instance_id = instance_id
        self._session_s, self._rebalance_s = session_timeout_s, rebalance_timeout_s
        self._interval_s, self._backoff_s = heartbeat_interval_s, retry_backoff_s
        self._connection = {
            "request_timeout_ms": int(1000 * (rebalance_timeout_s + 5)),
            **connection,
        }
        self._member_id = JoinGroupRequest.UNKNOWN_MEMBER_ID
        self._share: Share | None = None
        self._rejoin = asyncio.Event()
        self._running: asyncio.Task[None] | None = None  # the task of on_assigned
        self._ending: asyncio.Task[None] | None = None
        self._odd = 0  # consecutive answers without a decision
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
        self._link = CoordinatorLink(
            self.group_id, retry_backoff_s=self._backoff_s, **self._connection
        )
        await self._link.start()
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
            await self._say_goodbye()
            await self._link.close()

    async def _say_goodbye(self) -> None:
        """Send LeaveGroup on a new connection: a parked join may block the old connection."""
        member_id, self._member_id = self._member_id, JoinGroupRequest.UNKNOWN_MEMBER_ID
        if member_id and self._instance_id is None:
            self._link.hang_up()
            goodbye = LeaveGroupRequest(self.group_id, member_id)
            with contextlib.suppress(TimeoutError, KafkaError):
                await asyncio.wait_for(self._link.send(goodbye), GOODBYE_S)

    def rejoin(self) -> None:
        """Request a round because the result of :meth:`Strategy.metadata` has changed."""
        self._rejoin.set()

    async def check(self) -> None:
        """Ask the coordinator whether the share is still valid; raises :class:`NotInGroup` if not."""
        share = self._share
        code = None if share is None else await self._beat(share, self._session_s / 3)
        if code not in (Code.NONE, Code.REBALANCE_IN_PROGRESS):
            raise NotInGroup(f"{self._member_id or 'no member yet'}: {_name(code)}")

    # -- rounds ------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            await self._rounds()
        except Exception as problem:
            logger.error(
                "Group %s: member %s ends: %r", self.group_id, self._member_id or "-", problem
            )
            try:
                await self._let_go(lost=False)
            finally:
                await self._say_goodbye()
            raise

    async def _rounds(self) -> None:
        failures = 0
        while True:
            self._rejoin.clear()
            try:
                share = await self._join()
            except KafkaError as problem:
                self._refuse_fatal(getattr(problem, "errno", None))  # a lost connection has none
                logger.info("Group %s: %s, trying again", self.group_id, type(problem).__name__)
                share = None
            if share is None:
                await asyncio.sleep(self._pause(self._odd))
            elif share.state[:1] == _FAILED:
                reason = share.state[1:].decode(errors="replace")
                await self._while_beating(share, self._work.on_failed(reason))
                await self._watch(share, for_s=self._pause(failures))
                failures += 1
            else:
                failures = 0
                self._share = replace(share, state=share.state[1:])
                self._running = asyncio.create_task(self._work.on_assigned(self._share))
                await self._let_go(lost=await self._watch(self._share))

    def _pause(self, failures: int) -> float:
        return min(self._backoff_s * 2.0 ** min(failures, 20), MAX_BACKOFF_S)

    async def _watch(self, share: Share, *, for_s: float = math.inf) -> bool:
        """Send heartbeats until the generation or ``for_s`` ends; return whether the share was lost."""
        clock = asyncio.get_running_loop().time
        until, lost_at = clock() + for_s, clock() + self._session_s
        while clock() < until and not self._rejoin.is_set():
            _raise_failure(self._running)
            left = min(until, lost_at) - clock()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._rejoin.wait(), min(self._interval_s, left))
            asked = clock()
            code = await self._beat(share, min(self._session_s / 3, lost_at - asked))
            if code is not None and code not in _MOVED:
                lost_at = asked + self._session_s
            if code == Code.REBALANCE_IN_PROGRESS:
                return False
            if code in _GONE or code in FATAL or clock() >= lost_at:
                logger.warning(
                    "Group %s: member %s is no longer in the group: %s",
                    self.group_id,
                    self._member_id,
                    _name(code),
                )
                if code in FATAL:
                    await self._let_go(lost=True)
                self._refuse_fatal(code)
                return True  # the next join gets a valid id: a static member may have been replaced
        return False

    async def _beat(self, share: Share, timeout_s: float) -> int | None:
        """Send a heartbeat; return the coordinator's error code, or None without an answer in time."""
        request = HeartbeatRequest(self.group_id, share.generation, share.member_id)
        try:
            answer = await asyncio.wait_for(self._link.send(request), timeout_s)
        except TimeoutError:
            self._link.hang_up()
            self._link.lost()
            return None
        except KafkaError:
            return None
        if answer.error_code in _MOVED:
            self._link.lost()
        return int(answer.error_code)

    async def _let_go(self, *, lost: bool) -> None:
        share, self._share = self._share, None
        if share is not None:
            self._ending = asyncio.create_task(self._end(share, lost))
        ending = self._ending
        if ending is not None:
            try:
                await asyncio.shield(ending)  # a concurrent stop waits for the same end
            finally:
                if ending.done():
                    self._ending = None

    async def _end(self, share: Share, lost: bool) -> None:
        work, self._running = self._running, None
        if work is not None:
            work.cancel()
            lost = await self._while_beating(share, _ended(work)) or lost
        await self._while_beating(share, self._work.on_revoked(share, lost=lost))
        if work is not None and not work.cancelled():
            work.result()

    async def _while_beating(self, share: Share, user: Coroutine[object, None, None]) -> bool:
        """Run the user's callback with heartbeats; return whether the group removed this member meanwhile."""
        beats = asyncio.create_task(self._beat_on(share))
        try:
            await user
            return beats.done()
        finally:
            beats.cancel()
            await asyncio.wait([beats])

    async def _beat_on(self, share: Share) -> None:
        """Send heartbeats until the coordinator no longer knows this member."""
        code: int | None = None
        while code not in _GONE:
            await asyncio.sleep(self._interval_s)
            code = await self._beat(share, self._session_s / 3)

    # -- joining -----------------------------------------------------------------------------------

    async def _join(self) -> Share | None:
        """Run one round; None if the round must be retried."""
        offers = [(name, strategy.metadata()) for name, strategy in self._strategies.items()]
        answer = await self._link.send(
            JoinGroupRequest(
                self.group_id,
                int(1000 * self._session_s),
                int(1000 * self._rebalance_s),
                self._member_id,
                self._instance_id,
                self._protocol_type,
                offers,
            )
        )
        code = answer.error_code
        if code == Code.MEMBER_ID_REQUIRED:
            self._member_id = answer.member_id
            return await self._join()
        if code != Code.NONE:
            self._not_now(code)
            return None
        self._member_id = answer.member_id
        is_leader = answer.leader_id == answer.member_id
        states = self._lead(answer) if is_leader else []
        synced = await self._link.send(
            SyncGroupRequest(
                self.group_id, answer.generation_id, answer.member_id, self._instance_id, states
            )
        )
        if synced.error_code != Code.NONE:
            self._not_now(synced.error_code)
            return None
        self._odd = 0
        return Share(
            member_id=answer.member_id,
            generation=answer.generation_id,
            is_leader=is_leader,
            protocol=answer.group_protocol,
            state=synced.member_assignment,
        )

    def _lead(self, answer: Any) -> list[tuple[str, bytes]]:
        members = {row[0]: row[-1] for row in answer.members}
        try:
            given = self._strategies[answer.group_protocol].assign(members)
            return [(member_id, _GIVEN + given.get(member_id, b"")) for member_id in members]
        except (
            Exception
        ) as problem:  # the strategy is user code: all members get the reason of the failure
            logger.exception(
                "Group %s: could not assign the work of protocol %r",
                self.group_id,
                answer.group_protocol,
            )
            reason = f"{type(problem).__name__}: {problem}"[:LONGEST_REASON].encode()
            return [(member_id, _FAILED + reason) for member_id in members]

    def _not_now(self, code: int) -> None:
        self._refuse_fatal(code)
        if code == Code.UNKNOWN_MEMBER_ID:
            self._member_id = JoinGroupRequest.UNKNOWN_MEMBER_ID
        elif code in _MOVED:
            self._link.lost()
        if code in _USUAL:
            self._odd = 0
        else:
            self._odd += 1
            logger.warning(
                "Group %s: the coordinator answers %s; the next attempt is in %.1f s",
                self.group_id,
                _name(code),
                self._pause(self._odd),
            )

    def _refuse_fatal(self, code: int | None) -> None:
        if code in FATAL:
            raise GroupRefused(f"group {self.group_id}: {_name(code)}")


async def _ended(work: asyncio.Task[None]) -> None:
    await asyncio.wait([work])


def _raise_failure(work: asyncio.Task[None] | None) -> None:
    """Raise the error of the work, or RuntimeError if other code cancelled the work."""
    if work is None or not work.done():
        return
    if work.cancelled():
        raise RuntimeError("on_assigned was cancelled from within")
    work.result()


def _name(code: int | None) -> str:
    if code is None:
        return "no answer"
    return Code(code).name if code in set(Code) else f"error {code}"
