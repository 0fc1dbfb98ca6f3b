"""The checks of classic requests. Each check returns the error, or NONE, and changes nothing."""

from __future__ import annotations

from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import CommitOffsets, Heartbeat, JoinGroup, Leaver, SyncGroup
from faust_assigner.coordinator.members import Roster
from faust_assigner.coordinator.rounds import GroupRounds
from faust_assigner.coordinator.states import GroupLimits, State


def check_join_fields(event: JoinGroup, limits: GroupLimits, group_id: str) -> Code:
    """Check the group id and the session timeout of a JoinGroup, without its group."""
    if not group_id:
        return Code.INVALID_GROUP_ID
    if (
        not limits.min_session_timeout_ms
        <= event.session_timeout_ms
        <= limits.max_session_timeout_ms
    ):
        return Code.INVALID_SESSION_TIMEOUT
    return Code.NONE


def refuse_join(event: JoinGroup, limits: GroupLimits, group_id: str) -> Code:
    """Check a JoinGroup like :func:`check_join_fields`, and refuse joins that no group can accept."""
    error = check_join_fields(event, limits, group_id)
    if error is not Code.NONE:
        return error
    if not event.protocol_type or not event.protocols:
        return Code.INCONSISTENT_GROUP_PROTOCOL
    return Code.NONE


def check_join(group: GroupRounds, event: JoinGroup) -> Code:
    """Check a JoinGroup, the room for its member, the protocols in common, and the member's id."""
    error = refuse_join(event, group.limits, group.group_id)
    if error is not Code.NONE:
        return error
    if not _has_room(group, event.member_id):
        return Code.GROUP_MAX_SIZE_REACHED
    if not _is_compatible(group, event):
        return Code.INCONSISTENT_GROUP_PROTOCOL
    is_issued = event.instance_id is None and event.member_id in group.roster.pending
    if not event.member_id or is_issued:
        return Code.NONE
    return check_member(group.roster, event.member_id, event.instance_id)


def _has_room(group: GroupRounds, member_id: str) -> bool:
    """Return whether the group has a place for the member, or already counts it."""
    roster = group.roster
    if group.state is State.PREPARING:
        waiting = member_id in roster and bool(roster[member_id].join_tokens)
        return waiting or roster.joined() < group.limits.max_size
    return member_id in roster or len(roster) < group.limits.max_size


def _is_compatible(group: GroupRounds, event: JoinGroup) -> bool:
    """Return whether all members offer a protocol of the join."""
    if not len(group.roster):
        return True
    fits = any(group.roster.is_common(p.name) for p in event.protocols)
    return event.protocol_type == group.protocol_type and fits


def check_member(roster: Roster, member_id: str, instance_id: str | None) -> Code:
    """Check that the member exists, and that it owns the instance id, if there is one (KIP-345)."""
    if instance_id is not None:
        current = roster.instances.get(instance_id)
        if current is None:
            return Code.UNKNOWN_MEMBER_ID
        if current != member_id:
            return Code.FENCED_INSTANCE_ID
    return Code.NONE if member_id in roster else Code.UNKNOWN_MEMBER_ID


def check_generation(group: GroupRounds, event: SyncGroup | Heartbeat | CommitOffsets) -> Code:
    """Check that the request is from a member of the current generation."""
    error = check_member(group.roster, event.member_id, event.instance_id)
    if error is Code.NONE and event.generation != group.generation:
        error = Code.ILLEGAL_GENERATION
    return error


def check_sync(group: GroupRounds, event: SyncGroup) -> Code:
    """Check the member, the generation and the protocol that a SyncGroup names (KIP-559)."""
    error = check_generation(group, event)
    if error is not Code.NONE:
        return error
    other_type = event.protocol_type is not None and event.protocol_type != group.protocol_type
    named = event.protocol_name is not None and group.protocol_name is not None
    if other_type or (named and event.protocol_name != group.protocol_name):
        return Code.INCONSISTENT_GROUP_PROTOCOL
    return Code.NONE


def check_commit(group: GroupRounds, event: CommitOffsets) -> Code:
    """Check the committing member. A transactional producer need not name a member."""
    is_nameless = event.generation < 0 and not event.member_id and event.instance_id is None
    if event.transactional and is_nameless:
        return Code.NONE  # a producer without the group metadata of its consumer (before KIP-447)
    return check_generation(group, event)


def find_leaver(roster: Roster, leaver: Leaver) -> tuple[str, Code]:
    """Return the id of the leaving member, and the error if there is no such member."""
    member_id = leaver.member_id
    if leaver.instance_id is not None:
        current = roster.instances.get(leaver.instance_id)
        if current is None:
            return member_id, Code.UNKNOWN_MEMBER_ID
        if member_id and member_id != current:
            return member_id, Code.FENCED_INSTANCE_ID
        member_id = current
    return member_id, Code.NONE if member_id in roster else Code.UNKNOWN_MEMBER_ID
