"""The states of a classic group and the table of transitions between them.

The original design ("Kafka Client-side Assignment Proposal") has other names: Down for Dead, Joining for
PreparingRebalance, AwaitSync for CompletingRebalance. It has no state Empty: a group without members is
Stable. Its state Initialize corresponds to the replay of the broker's store, before any group exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final


class State(Enum):
    """Kafka's state names, as DescribeGroups shows them."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Cause(Enum):
    """The cause of a group's state change."""

    REBALANCE = "membership or metadata changed"
    ALL_JOINED = "the join phase ended with members"
    NOBODY_JOINED = "the join phase ended without members"
    LEADER_ASSIGNED = "the leader's assignment is stored"
    DELETED = "the group was deleted"


NEXT: Final[Mapping[tuple[State, Cause], State]] = {
    (State.EMPTY, Cause.REBALANCE): State.PREPARING,
    (State.EMPTY, Cause.DELETED): State.DEAD,
    (State.PREPARING, Cause.ALL_JOINED): State.COMPLETING,
    (State.PREPARING, Cause.NOBODY_JOINED): State.EMPTY,
    (State.COMPLETING, Cause.LEADER_ASSIGNED): State.STABLE,
    (State.COMPLETING, Cause.REBALANCE): State.PREPARING,
    (State.STABLE, Cause.REBALANCE): State.PREPARING,
}


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """The broker settings of a classic group (Kafka's ``group.*``), and a limit on unused member ids."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1
    max_pending: int = 10_000
