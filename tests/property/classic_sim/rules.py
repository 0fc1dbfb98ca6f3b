"""The rules of the protocol: functions from a group's snapshot to the right answer.

They are written from Kafka's behaviour, not from the code under test. Each function reads only the
state before a request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import Enum, auto

from faust_assigner.coordinator.classic import GroupLimits, State
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import (
    CommitOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    SyncGroup,
)
from tests.property.classic_sim.seen import GroupSeen, MemberSeen


class Kind(Enum):
    """The effect of an accepted JoinGroup."""

    ADMIT = auto()
    REPLACE = auto()  # a static member is back under a new id
    UPDATE = auto()  # a member rejoins, and waits for the join phase to end
    REPEAT = auto()  # the member gets its last answer again


def fence(member_id: str, instance_id: str | None, seen: GroupSeen) -> Code:
    """Check the instance id by KIP-345, then the member id."""
    if instance_id is not None:
        if instance_id not in seen.instances:
            return Code.UNKNOWN_MEMBER_ID
        if seen.instances[instance_id] != member_id:
            return Code.FENCED_INSTANCE_ID
    return Code.NONE if member_id in seen.members else Code.UNKNOWN_MEMBER_ID


def _of_this_generation(event: SyncGroup | Heartbeat | CommitOffsets, seen: GroupSeen) -> Code:
    error = fence(event.member_id, event.instance_id, seen)
    if error is Code.NONE and event.generation != seen.generation:
        return Code.ILLEGAL_GENERATION
    return error


def heartbeat(event: Heartbeat, seen: GroupSeen) -> Code:
    """Return REBALANCE_IN_PROGRESS in the join phase, else NONE."""
    error = _of_this_generation(event, seen)
    rejoin = error is Code.NONE and seen.state is State.PREPARING
    return Code.REBALANCE_IN_PROGRESS if rejoin else error


def commit(event: CommitOffsets, seen: GroupSeen) -> Code:
    """Allow members of this generation outside a rebalance, and outsiders of an empty group."""
    if event.generation < 0 and seen.state in (State.EMPTY, State.DEAD):
        return Code.NONE
    if seen.state is State.DEAD:
        return Code.ILLEGAL_GENERATION
    error = fence(event.member_id, event.instance_id, seen)
    if error is Code.NONE:
        error = _of_this_generation(event, seen)
    waits = error is Code.NONE and seen.state is State.COMPLETING
    return Code.REBALANCE_IN_PROGRESS if waits else error


def sync(event: SyncGroup, seen: GroupSeen) -> Code:
    """Return the error of a SyncGroup; NONE includes a parked request."""
    error = _of_this_generation(event, seen)
    if error is not Code.NONE:
        return error
    if event.protocol_type not in (None, seen.protocol_type):
        return Code.INCONSISTENT_GROUP_PROTOCOL
    if event.protocol_name is not None and seen.protocol_name not in (None, event.protocol_name):
        return Code.INCONSISTENT_GROUP_PROTOCOL
    return Code.REBALANCE_IN_PROGRESS if seen.state in (State.EMPTY, State.PREPARING) else Code.NONE


def join(event: JoinGroup, seen: GroupSeen, limits: GroupLimits) -> Code:
    """Return the error of a refused JoinGroup, or NONE."""
    if (
        not limits.min_session_timeout_ms
        <= event.session_timeout_ms
        <= limits.max_session_timeout_ms
    ):
        return Code.INVALID_SESSION_TIMEOUT
    if not (event.protocols and event.protocol_type):
        return Code.INCONSISTENT_GROUP_PROTOCOL
    if seen.state is State.DEAD and event.member_id:
        return Code.UNKNOWN_MEMBER_ID
    if not has_room(event.member_id, seen, limits):
        return Code.GROUP_MAX_SIZE_REACHED
    if seen.members:
        spoken = common(seen.members.values())
        if event.protocol_type != seen.protocol_type or spoken.isdisjoint(
            p.name for p in event.protocols
        ):
            return Code.INCONSISTENT_GROUP_PROTOCOL
    if event.member_id:
        handed_out = event.instance_id is None and event.member_id in seen.pending
        return Code.NONE if handed_out else fence(event.member_id, event.instance_id, seen)
    if event.instance_id is not None or not event.needs_known_id:
        return Code.NONE
    full = len(seen.pending) >= limits.max_pending
    return Code.GROUP_MAX_SIZE_REACHED if full else Code.MEMBER_ID_REQUIRED


def has_room(member_id: str, seen: GroupSeen, limits: GroupLimits) -> bool:
    """Whether the group has room: in the join phase the waiting members count, else all."""
    if seen.state is State.PREPARING:
        waits = member_id in seen.members and bool(seen.members[member_id].joins)
        return waits or seen.joined() < limits.max_size
    inside = member_id in seen.members or seen.state in (State.EMPTY, State.DEAD)
    return inside or len(seen.members) < limits.max_size


def kind(event: JoinGroup, seen: GroupSeen) -> Kind:
    """Return the effect of a JoinGroup accepted by ``join``."""
    if not event.member_id:
        return Kind.REPLACE if event.instance_id in seen.instances else Kind.ADMIT
    if event.member_id not in seen.members:
        return Kind.ADMIT
    if seen.state is State.PREPARING or seen.members[event.member_id].protocols != event.protocols:
        return Kind.UPDATE
    leads_stable = seen.state is State.STABLE and seen.leader == event.member_id
    return Kind.UPDATE if leads_stable else Kind.REPEAT


def common(members: Iterable[MemberSeen]) -> set[str]:
    """Return the protocols offered by all members."""
    offers = [{p.name for p in m.protocols} for m in members]
    return set.intersection(*offers) if offers else set()


def choice(members: Mapping[str, MemberSeen]) -> str | None:
    """Return the elected protocol: members vote for their first common one; ties go by order."""
    spoken = common(members.values())
    ballots = [
        next(p.name for p in m.protocols if p.name in spoken) for m in members.values() if spoken
    ]
    return max(ballots, key=Counter(ballots).__getitem__, default=None)


def leave(event: LeaveGroup, seen: GroupSeen) -> tuple[list[Code], set[str], set[str]]:
    """Return each leaver's answer, the removed members, and the returned ids."""
    codes: list[Code] = []
    gone: set[str] = set()
    back: set[str] = set()
    for who in event.leavers:
        member_id = who.member_id
        if who.instance_id is not None:
            current = seen.instances.get(who.instance_id)
            if current is None or current in gone:
                codes.append(Code.UNKNOWN_MEMBER_ID)
                continue
            if member_id not in ("", current):
                codes.append(Code.FENCED_INSTANCE_ID)
                continue
            member_id = current
        elif member_id in seen.pending - back:
            back.add(member_id)
            codes.append(Code.NONE)
            continue
        known = member_id in seen.members and member_id not in gone
        codes.append(Code.NONE if known else Code.UNKNOWN_MEMBER_ID)
        gone |= {member_id} if known else set()
    return codes, gone, back
