"""Topic configs: Kafka's names, their types and valid values, and their defaults.

The broker knows all of Kafka's names, because applications set them unasked: Faust sets ``retention.ms`` and
``cleanup.policy`` on every changelog. docs/reference/broker.md names the configs that change the broker's
behaviour. All other configs are checked, stored and shown, but have no effect: this broker is one node
without segment files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from faust_assigner.broker.setting_kinds import (
    CLEANUP_POLICY,
    FLAG,
    INT32_MAX,
    INT64_MAX,
    RATIO,
    TEXTS,
    ConfigKind,
    one_of,
    whole,
)
from faust_assigner.broker.settings import Settings

TOPIC_CONFIGS: Final[Mapping[str, tuple[str, ConfigKind[object]]]] = {
    "cleanup.policy": ("delete", CLEANUP_POLICY),
    "compression.gzip.level": ("-1", whole(-1, 9)),
    "compression.lz4.level": ("9", whole(1, 17)),
    "compression.type": (
        "producer",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    ),
    "compression.zstd.level": ("3", whole(-131_072, 22)),
    "delete.retention.ms": ("86400000", whole(0, INT64_MAX)),
    "file.delete.delay.ms": ("60000", whole(0, INT64_MAX)),
    "flush.messages": (str(INT64_MAX), whole(1, INT64_MAX)),
    "flush.ms": (str(INT64_MAX), whole(0, INT64_MAX)),
    "follower.replication.throttled.replicas": ("", TEXTS),
    "index.interval.bytes": ("4096", whole(0, INT32_MAX)),
    "leader.replication.throttled.replicas": ("", TEXTS),
    "local.retention.bytes": ("-2", whole(-2, INT64_MAX)),
    "local.retention.ms": ("-2", whole(-2, INT64_MAX)),
    "max.compaction.lag.ms": (str(INT64_MAX), whole(1, INT64_MAX)),
    "max.message.bytes": ("1048588", whole(0, INT32_MAX)),
    "message.timestamp.after.max.ms": ("3600000", whole(0, INT64_MAX)),
    "message.timestamp.before.max.ms": (str(INT64_MAX), whole(0, INT64_MAX)),
    "message.timestamp.type": ("CreateTime", one_of("CreateTime", "LogAppendTime")),
    "min.cleanable.dirty.ratio": ("0.5", RATIO),
    "min.compaction.lag.ms": ("0", whole(0, INT64_MAX)),
    "min.insync.replicas": ("1", whole(1, INT32_MAX)),
    "preallocate": ("false", FLAG),
    "remote.storage.enable": ("false", FLAG),
    "retention.bytes": ("-1", whole(-1, INT64_MAX)),
    "retention.ms": ("604800000", whole(-1, INT64_MAX)),
    "segment.bytes": ("1073741824", whole(14, INT32_MAX)),
    "segment.index.bytes": ("10485760", whole(4, INT32_MAX)),
    "segment.jitter.ms": ("0", whole(0, INT64_MAX)),
    "segment.ms": ("604800000", whole(1, INT64_MAX)),
    "unclean.leader.election.enable": ("false", FLAG),
}


def check_configs(configs: Mapping[str, str]) -> str | None:
    """Return the reason why configs are invalid, or None."""
    for name, value in configs.items():
        if name not in TOPIC_CONFIGS:
            return f"unknown topic config {name!r}"
        if not TOPIC_CONFIGS[name][1].check(value):
            return f"{value!r} is not a valid value of topic config {name}"
    return _lag_problem(configs)


def _lag_problem(configs: Mapping[str, str]) -> str | None:
    low, high = (
        int(configs.get(name, TOPIC_CONFIGS[name][0]))
        for name in ("min.compaction.lag.ms", "max.compaction.lag.ms")
    )
    if low > high:
        return f"min.compaction.lag.ms ({low}) is above max.compaction.lag.ms ({high})"
    return None


def default_configs(settings: Settings) -> dict[str, str]:
    """Return the configs of a topic that sets none: Kafka's defaults or the broker's settings."""
    defaults = {name: default for name, (default, _) in TOPIC_CONFIGS.items()}
    return defaults | {
        "cleanup.policy": settings.log_cleanup_policy,
        "delete.retention.ms": str(settings.log_cleaner_delete_retention_ms),
        "flush.messages": str(settings.log_flush_interval_messages),
        "max.compaction.lag.ms": str(settings.log_cleaner_max_compaction_lag_ms),
        "max.message.bytes": str(settings.message_max_bytes),
        "message.timestamp.type": settings.log_message_timestamp_type,
        "min.cleanable.dirty.ratio": str(settings.log_cleaner_min_cleanable_ratio),
        "min.compaction.lag.ms": str(settings.log_cleaner_min_compaction_lag_ms),
        "retention.bytes": str(settings.log_retention_bytes),
        "retention.ms": str(settings.log_retention_ms),
    }
