"""Answers to requests about a group that does not exist or was deleted."""

from __future__ import annotations

from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.errors import Code, CoordinatorBug
from faust_assigner.coordinator.events import (
    CommitOffsets,
    ConsumerGroupHeartbeat,
    DeleteGroup,
    Event,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    SyncGroup,
)


def answer_absent(event: Event, error: Code | None = None) -> fx.Reply:
    """Return the answer to a request about an unknown group (or a dead group, with ``error``)."""
    unknown = Code.UNKNOWN_MEMBER_ID if error is None else error
    match event:
        case JoinGroup():
            return fx.JoinReply(event.token, unknown, event.member_id)
        case SyncGroup():
            return fx.SyncReply(event.token, unknown)
        case Heartbeat():
            return fx.HeartbeatReply(event.token, unknown)
        case LeaveGroup() if error is None:
            # All named members are unknown; the request itself succeeds.
            gone = tuple((w.member_id, w.instance_id, unknown) for w in event.leavers)
            return fx.LeaveReply(event.token, Code.NONE, gone)
        case LeaveGroup():
            return fx.LeaveReply(event.token, unknown)
        case ConsumerGroupHeartbeat():
            return fx.ConsumerHeartbeatReply(
                event.token, Code.GROUP_ID_NOT_FOUND if error is None else error
            )
        case FetchOffsets():
            return fx.FetchReply(event.token, Code.NONE if error is None else error)
        case CommitOffsets():
            return fx.CommitReply(event.token, Code.ILLEGAL_GENERATION if error is None else error)
        case DeleteGroup():
            return fx.DeleteReply(event.token, Code.GROUP_ID_NOT_FOUND)
        case _:
            raise CoordinatorBug(f"{event} has no request to answer")
