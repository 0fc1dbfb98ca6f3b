"""The checks of a ConsumerGroupHeartbeat that need no group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from faust_assigner.coordinator.assignors import ASSIGNORS
from faust_assigner.coordinator.consumer.subscriptions import BadPattern, pattern
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import ConsumerGroupHeartbeat
from faust_assigner.coordinator.settings import ConsumerLimits

JOIN: Final = 0
LEAVE: Final = -1
LEAVE_FOR_A_WHILE: Final = -2
Refusal = tuple[Code, str]
Check = tuple[Callable[[ConsumerGroupHeartbeat], bool], str]


def _has_empty_field(event: ConsumerGroupHeartbeat) -> bool:
    # As in Kafka, epoch -2 is not checked in version 0: an empty member id gets FENCED_INSTANCE_ID.
    names_itself = event.api_version >= 1 or event.member_epoch not in (JOIN, LEAVE_FOR_A_WHILE)
    return not event.member_id and names_itself


# Each line: the condition of a refusal, and the message for the client.
ALWAYS: Final[Sequence[Check]] = (
    (lambda e: e.member_epoch < LEAVE_FOR_A_WHILE, "the member epoch is below -2"),
    (_has_empty_field, "the member id is empty"),
    (lambda e: e.instance_id == "", "the instance id is empty"),
    (lambda e: e.rack_id == "", "the rack id is empty"),
)
WHEN_JOINING: Final[Sequence[Check]] = (
    (lambda e: e.rebalance_timeout_ms == -1, "the first heartbeat has no rebalance timeout"),
    (
        lambda e: e.owned is None or bool(e.owned),
        "a joining member must report an empty list of owned partitions",
    ),
    (
        lambda e: e.subscribed_topic_names is None and e.subscribed_topic_regex is None,
        "the first heartbeat has no subscription, by names or by a regular expression",
    ),
)
WHEN_LEAVING_FOR_A_WHILE: Final[Sequence[Check]] = (
    (lambda e: e.instance_id is None, "only a member with an instance id can leave with epoch -2"),
)
BY_EPOCH: Final = {JOIN: WHEN_JOINING, LEAVE_FOR_A_WHILE: WHEN_LEAVING_FOR_A_WHILE}


def refuse_heartbeat(
    event: ConsumerGroupHeartbeat, limits: ConsumerLimits, group_id: str
) -> Refusal | None:
    """Return the error and its message, or None for a well-formed request."""
    if not group_id.strip():
        return Code.INVALID_REQUEST, "the group id is empty"
    for is_wrong, why in (*ALWAYS, *BY_EPOCH.get(event.member_epoch, ())):
        if is_wrong(event):
            return Code.INVALID_REQUEST, why
    assignor = event.server_assignor
    if assignor is not None and (assignor not in limits.assignors or assignor not in ASSIGNORS):
        known = ", ".join(name for name in limits.assignors if name in ASSIGNORS)
        return (
            Code.UNSUPPORTED_ASSIGNOR,
            f"unknown assignor {assignor!r}; the server has: {known}",
        )
    return None


def refuse_pattern(text: str | None) -> Refusal | None:
    """Check the regular expression of a heartbeat that passed all other checks and is not a leave."""
    if not text:
        return None
    try:
        pattern(text)
    except BadPattern as error:
        return Code.INVALID_REGULAR_EXPRESSION, f"the regular expression is not valid: {error}"
    return None
