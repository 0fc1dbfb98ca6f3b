"""Requests without a group: an error of the request has priority over the unknown group."""

from __future__ import annotations

import pytest

from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import (
    ConsumerGroupHeartbeat,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Leaver,
    Protocol,
    Request,
    SyncGroup,
)
from faust_assigner.coordinator.settings import ConsumerLimits
from faust_assigner.coordinator.states import GroupLimits
from faust_assigner.coordinator.unknown import answer_unknown

PROTOCOLS = (Protocol("range", b""),)


@pytest.mark.parametrize(
    ("event", "nameless", "named"),
    [
        (JoinGroup(1, "m", "", PROTOCOLS), Code.INVALID_GROUP_ID, Code.UNKNOWN_MEMBER_ID),
        (JoinGroup(1, "m", "", ()), Code.INVALID_GROUP_ID, Code.UNKNOWN_MEMBER_ID),
        (
            JoinGroup(1, "m", "", PROTOCOLS, session_timeout_ms=1),
            Code.INVALID_GROUP_ID,
            Code.INVALID_SESSION_TIMEOUT,
        ),
        (SyncGroup(1, "m", 3), Code.INVALID_GROUP_ID, Code.UNKNOWN_MEMBER_ID),
        (Heartbeat(1, "m", 3), Code.INVALID_GROUP_ID, Code.UNKNOWN_MEMBER_ID),
        (LeaveGroup(1, ()), Code.INVALID_GROUP_ID, Code.NONE),
        (FetchOffsets(1, "m", 3), Code.NONE, Code.NONE),
        (ConsumerGroupHeartbeat(1, "m", 3), Code.INVALID_REQUEST, Code.GROUP_ID_NOT_FOUND),
        (ConsumerGroupHeartbeat(1, "m", 3, ""), Code.INVALID_REQUEST, Code.INVALID_REQUEST),
        (
            ConsumerGroupHeartbeat(1, "m", 3, server_assignor="x"),
            Code.INVALID_REQUEST,
            Code.UNSUPPORTED_ASSIGNOR,
        ),
        (
            ConsumerGroupHeartbeat(1, "m", 3, subscribed_topic_regex="("),
            Code.INVALID_REQUEST,
            Code.GROUP_ID_NOT_FOUND,
        ),
    ],
)
def test_the_request_is_looked_at_before_the_group(
    event: Request, nameless: Code, named: Code
) -> None:
    """GroupCoordinatorService has the same order; an empty id has each protocol's own error."""
    limits = GroupLimits(), ConsumerLimits()
    assert answer_unknown(event, "", *limits).error is nameless
    assert answer_unknown(event, "g", *limits).error is named


def test_whoever_leaves_a_group_nobody_knows_is_unknown_each_by_itself() -> None:
    """The request is valid, its members are unknown: old versions get the single member's error."""
    leavers = (Leaver("m"), Leaver("", "i"))
    answer = answer_unknown(LeaveGroup(1, leavers), "g", GroupLimits(), ConsumerLimits())
    assert getattr(answer, "results", ()) == (
        ("m", None, Code.UNKNOWN_MEMBER_ID),
        ("", "i", Code.UNKNOWN_MEMBER_ID),
    )
