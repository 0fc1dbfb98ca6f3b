"""The broker settings for groups of KIP-848 (Kafka's ``group.consumer.*``)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class MigrationPolicy(Enum):
    """``group.consumer.migration.policy``: the allowed conversions of a live group.

    The first four values are Kafka's; three of them let a classic member join a consumer group with
    members. ``disabled`` and ``until-empty`` refuse this join: a group keeps its first member's protocol
    until the group is empty.
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

    The settings' reader enforces minima and maxima; a machine uses its values unchecked.
    """

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 2**31 - 1
    #: The first assignor is the default for members without a preference.
    assignors: tuple[str, ...] = ("uniform", "range", "copartition")
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    #: The minimum time between two target computations (KIP-1263): a thousand joins cost one computation.
    assignment_interval_ms: int = 1_000
    #: The largest sum of subscriptions and partitions for which the state machine computes the target itself.
    #: The broker computes a larger target in a thread.
    inline_size: int = 2_000
