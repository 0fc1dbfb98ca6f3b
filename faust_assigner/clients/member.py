"""A member of a group that need not consume anything: join, sync, heartbeat, leave, and the leader's turn.

Kafka's classic group protocol splits membership from assignment: any ``protocol_type`` may use it to elect
a leader and to share things out. A :class:`Strategy` says what this member tells the leader and, when it is
the leader itself, who gets what; :class:`Work` is told what came of it.

    async with GroupMember("pool", protocol_type="jobs", strategies=[mine], work=work,
                           bootstrap_servers="127.0.0.1:9092") as member:
        await member.wait()
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping, Sequence
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

_GIVEN, _FAILED = b"\x00", b"\x01"  # the first byte of each state: what was given, or why nothing was
LONGEST_REASON: Final = 1_000
MAX_BACKOFF_S: Final = 30.0
GOODBYE_S: Final = 5.0
#: Errors no other try can cure.
FATAL: Final = frozenset({Code.INCONSISTENT_GROUP_PROTOCOL, Code.INVALID_GROUP_ID,
                          Code.INVALID_SESSION_TIMEOUT, Code.FENCED_INSTANCE_ID, 30})  # 30: not authorized
_GONE: Final = frozenset({Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION})
_MOVED: Final = frozenset({14, Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR})  # 14: still loading


class GroupRefused(FaustAssignerError):
    """The coordinator will not have this member, and no other try can change that."""


class NotInGroup(FaustAssignerError):
    """The member is not, or no longer, in a generation that the coordinator knows."""


@dataclass(frozen=True, kw_only=True)
class Share:
    """What came of one round for this member. ``state`` are the bytes that the leader gave it."""

    member_id: str
    generation: int
    protocol: str
    is_leader: bool
    state: bytes


class Strategy(Protocol):
    """One way to share things out; members only make a group when they offer a common ``name``."""

    @property
    def name(self) -> str:
        """How the group knows it."""

    def metadata(self) -> bytes:
        """What this member tells the leader; asked for at each join."""

    def assign(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """The leader's turn: member id -> metadata in, id -> state out; what it raises, all are told."""


class Work(Protocol):
    """What a member does with its share."""

    async def on_assigned(self, share: Share) -> None:
        """Begin; heartbeats go on meanwhile. Cancelled when the next round comes first."""

    async def on_revoked(self, share: Share, *, lost: bool) -> None:
        """End; the next round waits for it. ``lost``: others may have this share already, touch nothing."""

    async def on_failed(self, reason: str) -> None:
        """The leader could not share things out; another round is asked for after a while."""


class GroupMember:
    """One member. Times in seconds. ``connection`` are aiokafka's keywords.

    Without an answer from the coordinator for ``session_timeout_s`` the share counts as lost: by then the
    group may have given it to another member.
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
        **connection: Any,
    ) -> None:
        self.group_id = group_id
        self._protocol_type = protocol_type
        self._strategies = {strategy.name: strategy for strategy in strategies}
        self._work = work
        self._instance_id = instance_id
        self._session_s, self._rebalance_s = session_timeout_s, rebalance_timeout_s
        self._interval_s, self._backoff_s = heartbeat_interval_s, retry_backoff_s
        self._connection = {"request_timeout_ms": int(1000 * (rebalance_timeout_s + 5)), **connection}
        self._member_id = JoinGroupRequest.UNKNOWN_MEMBER_ID
        self._share: Share | None = None
        self._rejoin = asyncio.Event()
        self._ending: asyncio.Task[None] | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> GroupMember:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def share(self) -> Share | None:
        """What this member has now."""
        return self._share

    async def start(self) -> None:
        """Connect and join in the background."""
        self._link = CoordinatorLink(self.group_id, retry_backoff_s=self._backoff_s, **self._connection)
        await self._link.start()
        self._task = asyncio.create_task(self._run(), name=f"group {self.group_id}")

    async def wait(self) -> None:
        """Until the member is stopped; raises :class:`GroupRefused`, or what ``work`` raised."""
        if self._task is not None:
            await asyncio.wait([self._task])
            if not self._task.cancelled():
                self._task.result()

    async def stop(self) -> None:
        """End the work, leave the group (a static member stays in it until its session ends), disconnect."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        try:
            await self._let_go(lost=False)
            if self._member_id and self._instance_id is None:
                with contextlib.suppress(TimeoutError, KafkaError):
                    goodbye = LeaveGroupRequest(self.group_id, self._member_id)
                    await asyncio.wait_for(self._link.send(goodbye), GOODBYE_S)
        finally:
            await self._link.close()

    def rejoin(self) -> None:
        """Ask for a round, because what :meth:`Strategy.metadata` says has changed."""
        self._rejoin.set()

    async def check(self) -> None:
        """Ask the coordinator whether the share still counts; raises :class:`NotInGroup` if it may not."""
        share = self._share
        code = None if share is None else await self._beat(share)
        if code not in (Code.NONE, Code.REBALANCE_IN_PROGRESS):
            raise NotInGroup(f"{self._member_id or 'no member yet'}: {_name(code)}")

    # -- rounds ------------------------------------------------------------------------------------

    async def _run(self) -> None:
        failures = 0
        while True:
            self._rejoin.clear()
            try:
                share = await self._join()
            except KafkaError as problem:
                logger.info("Group %s: %s, trying again", self.group_id, type(problem).__name__)
                share = None
            if share is None:
                await asyncio.sleep(self._backoff_s)
            elif share.state[:1] == _FAILED:
                await self._work.on_failed(share.state[1:].decode(errors="replace"))
                await asyncio.sleep(min(self._backoff_s * 2**failures, MAX_BACKOFF_S))
                failures = min(failures + 1, 20)
            else:
                failures = 0
                self._share = replace(share, state=share.state[1:])
                await self._let_go(lost=await self._live(self._share))

    async def _live(self, share: Share) -> bool:
        """Work on the share until its generation ends; whether it was lost."""
        work = asyncio.create_task(self._work.on_assigned(share))
        heard = time.monotonic()
        try:
            while True:
                if work.done():
                    work.result()
                if self._rejoin.is_set():
                    return False
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._rejoin.wait(), self._interval_s)
                code = await self._beat(share)
                if code is not None and code not in _MOVED:
                    heard = time.monotonic()
                if code == Code.REBALANCE_IN_PROGRESS:
                    return False
                if code in _GONE or time.monotonic() - heard > self._session_s:
                    logger.warning("Group %s: %s lost its place: %s", self.group_id, self._member_id,
                                   _name(code))
                    return True  # the next join says under which id: a static one may have been replaced
                self._refuse_fatal(code)
        finally:
            work.cancel()
            await asyncio.wait([work])

    async def _beat(self, share: Share) -> int | None:
        """The coordinator's word on our generation; None: no answer within a third of the session."""
        request = HeartbeatRequest(self.group_id, share.generation, share.member_id)
        try:
            answer = await asyncio.wait_for(self._link.send(request), self._session_s / 3)
        except (TimeoutError, KafkaError):
            self._link.lost()
            return None
        if answer.error_code in _MOVED:
            self._link.lost()
        return int(answer.error_code)

    async def _let_go(self, *, lost: bool) -> None:
        share, self._share = self._share, None
        if share is not None:
            self._ending = asyncio.create_task(self._end(share, lost))
        if self._ending is not None:
            await asyncio.shield(self._ending)  # a stop in the middle waits for the same end

    async def _end(self, share: Share, lost: bool) -> None:
        beats = asyncio.create_task(self._keep_beating(share))
        try:
            await self._work.on_revoked(share, lost=lost)
        finally:
            beats.cancel()
            await asyncio.wait([beats])

    async def _keep_beating(self, share: Share) -> None:
        """While the work ends: it may take as long as the rebalance timeout, the session must not run out."""
        while True:
            await asyncio.sleep(self._interval_s)
            await self._beat(share)

    # -- joining -----------------------------------------------------------------------------------

    async def _join(self) -> Share | None:
        """One round, None when it has to be tried again."""
        offers = [(name, strategy.metadata()) for name, strategy in self._strategies.items()]
        answer = await self._link.send(JoinGroupRequest(
            self.group_id, int(1000 * self._session_s), int(1000 * self._rebalance_s), self._member_id,
            self._instance_id, self._protocol_type, offers))
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
        synced = await self._link.send(SyncGroupRequest(
            self.group_id, answer.generation_id, answer.member_id, self._instance_id, states))
        if synced.error_code != Code.NONE:
            self._not_now(synced.error_code)
            return None
        return Share(member_id=answer.member_id, generation=answer.generation_id, is_leader=is_leader,
                     protocol=answer.group_protocol, state=synced.member_assignment)

    def _lead(self, answer: Any) -> list[tuple[str, bytes]]:
        members = {row[0]: row[-1] for row in answer.members}
        try:
            given = self._strategies[answer.group_protocol].assign(members)
            return [(member_id, _GIVEN + given.get(member_id, b"")) for member_id in members]
        except Exception as problem:  # the strategy is the user's: all members learn why there is no work
            logger.exception("Group %s: %r could not be shared out", self.group_id, answer.group_protocol)
            reason = f"{type(problem).__name__}: {problem}"[:LONGEST_REASON].encode()
            return [(member_id, _FAILED + reason) for member_id in members]

    def _not_now(self, code: int) -> None:
        self._refuse_fatal(code)
        if code == Code.UNKNOWN_MEMBER_ID:
            self._member_id = JoinGroupRequest.UNKNOWN_MEMBER_ID
        elif code in _MOVED:
            self._link.lost()

    def _refuse_fatal(self, code: int | None) -> None:
        if code in FATAL:
            raise GroupRefused(f"group {self.group_id}: {_name(code)}")


def _name(code: int | None) -> str:
    if code is None:
        return "no answer"
    return Code(code).name if code in set(Code) else f"error {code}"
