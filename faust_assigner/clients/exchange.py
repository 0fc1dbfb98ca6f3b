"""A member's requests to its group's coordinator: join and sync, heartbeat, leave."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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

#: The first byte of each member's state: after ``GIVEN`` an assignment follows, after ``FAILED`` the
#: reason why the leader could not assign.
GIVEN, FAILED = b"\x00", b"\x01"
LONGEST_REASON: Final = 1_000
MAX_BACKOFF_S: Final = 30.0
GOODBYE_S: Final = 5.0
#: A refused join is logged if its number since the last share is at least this and a power of 2.
FIRST_WARNING: Final = 64
#: Errors that a retry does not resolve.
#: 30: not authorized
FATAL: Final = frozenset(
    {
        Code.INCONSISTENT_GROUP_PROTOCOL,
        Code.INVALID_GROUP_ID,
        Code.INVALID_SESSION_TIMEOUT,
        Code.FENCED_INSTANCE_ID,
        30,
    }
)
#: Errors after which the member must join again: the group no longer has it or its generation.
GONE: Final = frozenset({Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION})
#: Errors after which the coordinator is looked up again, because it may be a different node (14: the
#: coordinator still loads the group).
MOVED: Final = frozenset({14, Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR})
#: Expected errors of a join. Other errors are logged as warnings and retried with growing delays.
_USUAL: Final = GONE | MOVED | {Code.REBALANCE_IN_PROGRESS}


class GroupRefused(FaustAssignerError):
    """The coordinator refuses this member permanently."""


@dataclass(frozen=True, kw_only=True)
class Share:
    """The result of a round for this member. ``state`` are the bytes from the leader."""

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
        """As the leader, map member id -> metadata to member id -> state.
        If this method raises, :meth:`Work.on_failed` is called on every member with the error.
        """


class Exchange:
    """The requests of one member. Times are in seconds. ``connection`` are aiokafka's keywords."""

    def __init__(
        self,
        group_id: str,
        *,
        protocol_type: str,
        strategies: Sequence[Strategy],
        instance_id: str | None,
        session_timeout_s: float,
        rebalance_timeout_s: float,
        retry_backoff_s: float,
        **connection: object,
    ) -> None:
        self._group_id = group_id
        self._protocol_type = protocol_type
        self._strategies = {strategy.name: strategy for strategy in strategies}
        self._instance_id = instance_id
        self._session_s, self._rebalance_s = session_timeout_s, rebalance_timeout_s
        self._backoff_s = retry_backoff_s
        self._connection = {
            "request_timeout_ms": int(1000 * (rebalance_timeout_s + 5)),
            **connection,
        }
        self.member_id = JoinGroupRequest.UNKNOWN_MEMBER_ID
        self._odd = 0  # the number of consecutive unexpected errors, from which the delay grows
        self._refused = 0  # the number of refused joins since the last share

    async def start(self) -> None:
        """Connect to the cluster."""
        self._link = CoordinatorLink(
            self._group_id, retry_backoff_s=self._backoff_s, **self._connection
        )
        await self._link.start()

    async def close(self) -> None:
        """Close all connections."""
        await self._link.close()

    def backoff_s(self, failures: int) -> float:
        """Return the delay after this number of failures."""
        return min(self._backoff_s * 2.0 ** min(failures, 20), MAX_BACKOFF_S)

    @property
    def next_join_s(self) -> float:
        """The delay in seconds before the next join, after a join that must be retried."""
        return self.backoff_s(self._odd)

    async def join(self) -> Share | None:
        """Run one round (JoinGroup and SyncGroup); return None if the round must be retried.

        Raises :class:`GroupRefused`, and ``KafkaError`` if a request fails.
        """
        offers = [(name, strategy.metadata()) for name, strategy in self._strategies.items()]
        answer = await self._link.send(
            JoinGroupRequest(
                self._group_id,
                int(1000 * self._session_s),
                int(1000 * self._rebalance_s),
                self.member_id,
                self._instance_id,
                self._protocol_type,
                offers,
            )
        )
        code = answer.error_code
        if code == Code.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            return await self.join()
        if code != Code.NONE:
            self._not_now(code)
            return None
        self.member_id = answer.member_id
        is_leader = answer.leader_id == answer.member_id
        states = self._lead(answer) if is_leader else []
        synced = await self._link.send(
            SyncGroupRequest(
                self._group_id, answer.generation_id, answer.member_id, self._instance_id, states
            )
        )
        if synced.error_code != Code.NONE:
            self._not_now(synced.error_code)
            return None
        self._odd = self._refused = 0
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
            return [(member_id, GIVEN + given.get(member_id, b"")) for member_id in members]
        except Exception as problem:
            # The strategy is user code and may raise: send the reason of the failure to all members.
            logger.exception(
                "Group %s: could not assign the work of protocol %r",
                self._group_id,
                answer.group_protocol,
            )
            reason = f"{type(problem).__name__}: {problem}"[:LONGEST_REASON].encode(
                errors="replace"
            )
            return [(member_id, FAILED + reason) for member_id in members]

    def _not_now(self, code: int) -> None:
        self.refuse_fatal(code)
        if code == Code.UNKNOWN_MEMBER_ID:
            self.member_id = JoinGroupRequest.UNKNOWN_MEMBER_ID
        elif code in MOVED:
            self._link.lost()
        self._refused += 1
        if code in _USUAL:
            self._odd = 0
            # These errors end within seconds, unless the coordinator cannot store the group.
            if self._refused >= FIRST_WARNING and self._refused.bit_count() == 1:
                logger.warning(
                    "Group %s: this member has no share, because the coordinator has refused its last %d "
                    "joins, the last one with %s; trying again until it accepts the member",
                    self._group_id,
                    self._refused,
                    name_of(code),
                )
        else:
            self._odd += 1
            logger.warning(
                "Group %s: the coordinator answers %s; the next attempt is in %.1f s",
                self._group_id,
                name_of(code),
                self.next_join_s,
            )

    def refuse_fatal(self, code: int | None) -> None:
        """Raise :class:`GroupRefused` for an error that a retry does not resolve."""
        if code in FATAL:
            raise GroupRefused(f"group {self._group_id}: the coordinator answers {name_of(code)}")

    async def beat(self, share: Share, timeout_s: float) -> int | None:
        """Send a heartbeat; return the coordinator's error code, or None without an answer in time."""
        request = HeartbeatRequest(self._group_id, share.generation, share.member_id)
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self._link.send(request)
        except TimeoutError:
            self._link.drop_connections()
            self._link.lost()
            return None
        except KafkaError:
            return None
        if answer.error_code in MOVED:
            self._link.lost()
        return int(answer.error_code)

    async def leave(self) -> None:
        """Send LeaveGroup on a new connection, as a waiting join may block the old one; not if static."""
        member_id, self.member_id = self.member_id, JoinGroupRequest.UNKNOWN_MEMBER_ID
        if member_id and self._instance_id is None:
            self._link.drop_connections()
            goodbye = LeaveGroupRequest(self._group_id, member_id)
            with contextlib.suppress(TimeoutError, KafkaError):
                async with asyncio.timeout(GOODBYE_S):
                    await self._link.send(goodbye)


def name_of(code: int | None) -> str:
    """Return the name of an error code, or "no answer" for None."""
    if code is None:
        return "no answer"
    return Code(code).name if code in set(Code) else f"error {code}"
