"""The broker settings the groups of KIP-848 obey (``group.consumer.*`` in Kafka's words)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class MigrationPolicy(Enum):
    """``group.consumer.migration.policy``: which way a live group may change its protocol.

    The first four are Kafka's. Under three of them a classic member may join a consumer group that has
    members. ``disabled`` refuses that too, as ``until-empty`` does: a group keeps its first member's protocol
    until it is empty.
    """

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"
    UNTIL_EMPTY = "until-empty"

    @property
    def upgrades(self) -> bool:
        """Whether a live classic group may become a consumer group."""
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def mixes(self) -> bool:
        """Whether a classic member may join, or join again, a consumer group that has members."""
        return self not in (MigrationPolicy.DISABLED, MigrationPolicy.UNTIL_EMPTY)

    @property
    def downgrades(self) -> bool:
        """Whether a live consumer group may become a classic group."""
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


@dataclass(frozen=True, slots=True)
class ConsumerLimits:
    """Each field is Kafka's ``group.consumer.<field with dots>``; times in ms.

    Whoever reads settings keeps the minima and maxima; a machine obeys what it is given.
    """

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 2**31 - 1
    #: The first is the default of members that name none.
    assignors: tuple[str, ...] = ("uniform", "range", "copartition")
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    #: The least time between two computations of the target (KIP-1263): a thousand joins are one computation.
    assignment_interval_ms: int = 1_000
    #: Subscriptions + partitions up to which a target is computed in the step; above, ``ComputeTarget``.
    inline_size: int = 2_000


#: The least and the most of Kafka's settings of that name (``group.consumer.min.session.timeout.ms``, ...).
SESSION_TIMEOUT_MS = (45_000, 60_000)
HEARTBEAT_INTERVAL_MS = (5_000, 15_000)
ASSIGNMENT_INTERVAL_MS = (0, 15_000)
