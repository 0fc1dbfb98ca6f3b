"""Answer requests about an unknown group; errors in the request have priority."""

from __future__ import annotations

from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.absent import answer_absent
from faust_assigner.coordinator.consumer.refusals import refuse_heartbeat
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import (
    ConsumerGroupHeartbeat,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Request,
    SyncGroup,
)
from faust_assigner.coordinator.refusals import check_join_fields
from faust_assigner.coordinator.settings import ConsumerLimits
from faust_assigner.coordinator.states import GroupLimits


def answer_unknown(
    event: Request, group_id: str, classic: GroupLimits, consumer: ConsumerLimits
) -> fx.Reply:
    """Return the answer to a request about an unknown group, or the error of a malformed request."""
    if isinstance(event, ConsumerGroupHeartbeat):
        refusal = refuse_heartbeat(event, consumer, group_id)
        return (
            answer_absent(event)
            if refusal is None
            else fx.ConsumerHeartbeatReply(event.token, *refusal)
        )
    error = Code.NONE
    if isinstance(event, JoinGroup):
        error = check_join_fields(event, classic, group_id)
    elif not group_id and isinstance(event, SyncGroup | Heartbeat | LeaveGroup):
        error = Code.INVALID_GROUP_ID
    return answer_absent(event, None if error is Code.NONE else error)
