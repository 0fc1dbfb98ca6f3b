"""The broker's settings, under Kafka's own names (``num.partitions``), typed and bounded.

The dataclass below has the defaults, bounds and help texts; docs/generate makes the reference page of them.
Unknown names and invalid values raise :class:`~faust_assigner.errors.ConfigError`, with name and value.

>>> Settings.parse({"num.partitions": "12"}).num_partitions
12
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from faust_assigner.broker.connection_settings import ConnectionSettings
from faust_assigner.broker.setting_checks import check_together
from faust_assigner.broker.setting_kinds import (
    ASSIGNORS,
    FLAG,
    INT32_MAX,
    INT64_MAX,
    LIST,
    POSITIVE,
    RATIO,
    as_text,
    config,
    kafka_name,
    one_of,
    some_of,
    whole,
)
from faust_assigner.coordinator.settings import ConsumerLimits, MigrationPolicy
from faust_assigner.coordinator.states import GroupLimits
from faust_assigner.coordinator.transactions import TransactionLimits
from faust_assigner.errors import ConfigError
from faust_assigner.settings.schema import declared_in, parse

DAY_MS = 86_400_000
#: The defaults of the settings of groups and transactions; ``coordinator/settings.py`` has the values for
#: the consumer protocol.
_CLASSIC, _CONSUMER, _TRANSACTION = GroupLimits(), ConsumerLimits(), TransactionLimits()


@dataclass(frozen=True, kw_only=True)
class Settings(ConnectionSettings):
    """All settings of the embedded broker; the Kafka name of a field has dots for underscores."""

    node_id: int = config(whole(0, INT32_MAX), 1, "the broker's node id in metadata")
    num_partitions: int = config(
        whole(1, 10_000), 1, "the partition count of a new topic if the request contains no count"
    )
    auto_create_topics_enable: bool = config(
        FLAG, True, "whether a producer's metadata request creates a missing topic"
    )
    delete_topic_enable: bool = config(FLAG, True, "whether DeleteTopics is allowed")
    message_max_bytes: int = config(
        whole(1, 2**30), 1_048_588, "the maximum size of a record batch, and of a group's record"
    )
    fetch_max_bytes: int = config(
        whole(1024, 2**30),
        57_671_680,
        "the maximum size of a fetch answer; a single larger batch is still returned",
    )
    max_incremental_fetch_session_cache_slots: int = config(
        whole(0, INT32_MAX),
        1_000,
        "the maximum number of fetch sessions; a consumer without a session names all "
        "its partitions in each fetch",
    )
    log_retention_ms: int = config(
        whole(-1, INT64_MAX),
        7 * DAY_MS,
        "the age at which batches are deleted; -1 keeps all batches",
    )
    log_retention_bytes: int = config(
        whole(-1, INT64_MAX),
        -1,
        "the maximum size of a partition; older batches are deleted; -1 sets no limit",
    )
    log_retention_check_interval_ms: int = config(
        whole(10, INT64_MAX), 300_000, "the interval at which the broker deletes expired batches"
    )
    log_cleanup_policy: str = config(
        one_of("delete", "compact", "compact,delete", "delete,compact", config_type=LIST),
        "delete",
        "the default cleanup.policy of topics; 'compact' keeps the latest record of each key",
    )
    log_cleaner_backoff_ms: int = config(
        whole(10, INT64_MAX),
        15_000,
        "the pause of the cleaner between two searches for logs to compact",
    )
    log_cleaner_dedupe_buffer_size: int = config(
        whole(4_096, 2**40),
        134_217_728,
        "the bytes of memory for the keys of one pass; a log with more keys is compacted in several passes",
    )
    log_cleaner_delete_retention_ms: int = config(
        whole(0, INT64_MAX), DAY_MS, "the default delete.retention.ms of topics"
    )
    log_cleaner_max_compaction_lag_ms: int = config(
        whole(1, INT64_MAX), INT64_MAX, "the default max.compaction.lag.ms of topics"
    )
    log_cleaner_min_cleanable_ratio: float = config(
        RATIO, 0.5, "the default min.cleanable.dirty.ratio of topics"
    )
    log_cleaner_min_compaction_lag_ms: int = config(
        whole(0, INT64_MAX), 0, "the default min.compaction.lag.ms of topics"
    )
    log_message_timestamp_type: str = config(
        one_of("CreateTime", "LogAppendTime"),
        "CreateTime",
        "the default message.timestamp.type of topics",
    )
    log_flush_interval_messages: int = config(
        whole(1, INT64_MAX),
        INT64_MAX,
        "the number of records between two fsyncs; with 1, records survive a power loss; "
        "with any value, they survive kill -9",
    )
    log_recovery_check_batches: bool = config(
        FLAG,
        True,
        "whether the start reads every batch to find damaged batches; this costs one pass over the data",
    )
    log_recovery_accept_loss: bool = config(
        FLAG,
        False,
        "whether the broker starts although acknowledged data is damaged or missing; each loss is logged",
    )
    group_initial_rebalance_delay_ms: int = config(
        whole(0, 1_800_000),
        _CLASSIC.initial_rebalance_delay_ms,
        "the time for which a new group waits for more members",
    )
    group_min_session_timeout_ms: int = config(
        POSITIVE,
        _CLASSIC.min_session_timeout_ms,
        "the minimum session timeout that a member may request",
    )
    group_max_session_timeout_ms: int = config(
        POSITIVE,
        _CLASSIC.max_session_timeout_ms,
        "the maximum session timeout that a member may request",
    )
    group_max_size: int = config(
        POSITIVE, _CLASSIC.max_size, "the maximum number of members in one group"
    )
    group_coordinator_rebalance_protocols: str = config(
        some_of("classic", "consumer"),
        "classic,consumer",
        "the group protocols that the broker serves",
    )
    group_consumer_session_timeout_ms: int = config(
        POSITIVE,
        _CONSUMER.session_timeout_ms,
        "the time after which a silent member of the consumer protocol is removed",
    )
    group_consumer_min_session_timeout_ms: int = config(
        POSITIVE, 45_000, "the minimum session timeout that a group's own config may set"
    )
    group_consumer_max_session_timeout_ms: int = config(
        POSITIVE, 60_000, "the maximum session timeout that a group's own config may set"
    )
    group_consumer_heartbeat_interval_ms: int = config(
        POSITIVE,
        _CONSUMER.heartbeat_interval_ms,
        "the interval of heartbeats for members of the consumer protocol",
    )
    group_consumer_min_heartbeat_interval_ms: int = config(
        POSITIVE, 5_000, "the minimum heartbeat interval that a group's own config may set"
    )
    group_consumer_max_heartbeat_interval_ms: int = config(
        POSITIVE, 15_000, "the maximum heartbeat interval that a group's own config may set"
    )
    group_consumer_max_size: int = config(
        POSITIVE,
        _CONSUMER.max_size,
        "the maximum number of members in one group of the consumer protocol",
    )
    group_consumer_assignors: str = config(
        ASSIGNORS,
        ",".join(_CONSUMER.assignors),
        "the server-side assignors; your own as NAME=MODULE:FUNCTION; the first assignor is the default",
    )
    group_consumer_assignment_interval_ms: int = config(
        whole(0, INT32_MAX),
        _CONSUMER.assignment_interval_ms,
        "the minimum time between two target computations of one group (KIP-1263); with "
        "0 the target is computed at once",
    )
    group_consumer_regex_refresh_interval_ms: int = config(
        whole(10, INT32_MAX),
        600_000,
        "without effect: the broker resolves regular expressions again after each change of topics or rights",
    )
    group_consumer_migration_policy: str = config(
        one_of(*(policy.value for policy in MigrationPolicy)),
        _CONSUMER.migration_policy.value,
        "the protocol changes that are allowed for a group with members; with disabled or until-empty "
        "a group keeps the protocol of its first member until it is empty",
    )
    offset_metadata_max_bytes: int = config(
        whole(0, 2**20), 4_096, "the maximum size of the metadata text of a committed offset"
    )
    offsets_topic_num_partitions: int = config(
        whole(1, 10_000),
        50,
        "the number of partitions of the empty topic __consumer_offsets, which clients see",
    )
    offsets_retention_minutes: int = config(
        POSITIVE, 10_080, "the time for which unused offsets are kept (KIP-211)"
    )
    offsets_retention_check_interval_ms: int = config(
        whole(10, INT64_MAX),
        600_000,
        "the interval at which the broker removes expired offsets, and empty groups without offsets",
    )
    producer_id_expiration_ms: int = config(
        whole(1, INT64_MAX), DAY_MS, "the time for which the broker remembers an idle producer id"
    )
    transaction_max_timeout_ms: int = config(
        POSITIVE,
        _TRANSACTION.max_timeout_ms,
        "the maximum transaction timeout that a producer may request",
    )
    transaction_state_log_num_partitions: int = config(
        whole(1, 10_000),
        50,
        "the number of partitions of the empty topic __transaction_state, which clients see",
    )
    transactional_id_expiration_ms: int = config(
        whole(1, INT64_MAX),
        7 * DAY_MS,
        "the time for which the broker remembers an idle transactional id",
    )

    @classmethod
    def parse(cls, given: Mapping[str, object]) -> Settings:
        """Parse a mapping from Kafka names to values (text or typed). Raises ConfigError."""
        known = {setting.name: field for field, setting in SETTINGS.items()}
        values: dict[str, Any] = {}
        for name, value in given.items():
            if name not in known:
                close = difflib.get_close_matches(name, known, 1)
                listed = "faust-assigner broker --settings lists the names"
                hint = f"did you mean {close[0]!r}?" if close else listed
                raise ConfigError(f"unknown setting {name!r}; {hint}")
            field = known[name]
            values[field] = parse(SETTINGS[field], as_text(value).strip())
        settings = cls(**values)
        check_together(settings)
        return settings

    @property
    def serves_consumer_protocol(self) -> bool:
        """Whether groups of the consumer protocol (KIP-848) are served."""
        return "consumer" in self.group_coordinator_rebalance_protocols.split(",")

    def by_kafka_name(self) -> dict[str, str]:
        """Return all settings as DescribeConfigs shows them."""
        return {one.name: as_text(getattr(self, field)) for field, one in SETTINGS.items()}


#: Field of Settings -> its Setting, whose ``name`` is Kafka's name.
SETTINGS: Final = declared_in(Settings, kafka_name)
