"""What is wrong with a JoinGroup whatever the group it is for."""

from __future__ import annotations

from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import JoinGroup
from faust_assigner.coordinator.states import GroupLimits


def refuse_join_itself(event: JoinGroup, limits: GroupLimits, group_id: str) -> Code:
    """What can be said about a JoinGroup before looking for its group; NONE when nothing is wrong."""
    if not group_id:
        return Code.INVALID_GROUP_ID
    if not limits.min_session_timeout_ms <= event.session_timeout_ms <= limits.max_session_timeout_ms:
        return Code.INVALID_SESSION_TIMEOUT
    return Code.NONE


def refuse_join(event: JoinGroup, limits: GroupLimits, group_id: str) -> Code:
    """The same, and what nobody's group can serve."""
    error = refuse_join_itself(event, limits, group_id)
    if error is not Code.NONE:
        return error
    if not event.protocol_type or not event.protocols:
        return Code.INCONSISTENT_GROUP_PROTOCOL
    return Code.NONE
