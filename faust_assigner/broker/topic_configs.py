"""Topic configs: Kafka's names, their types and valid values, and their defaults.

The broker knows all of Kafka's names, because applications set them by default: Faust sets
``retention.ms`` and ``cleanup.policy`` on every changelog. docs/reference/broker.md names the configs that
change the broker's behaviour. All other configs are checked, stored and shown, but have no effect: this
broker is one node without segment files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from faust_assigner.broker.setting_kinds import (
    CLEANUP_POLICY,
    FLAG,
    INT32_MAX,
    INT64_MAX,
    RATIO,
    TEXTS,
    ConfigKind,
    as_text,
    one_of,
    whole,
)
from faust_assigner.broker.settings import Settings


@dataclass(frozen=True, slots=True)
class OfBroker:
    """A topic config's default that a setting of the broker gives. ``setting`` is a field of Settings."""

    setting: str


#: Name of a topic config -> its default and its valid values.
TOPIC_CONFIGS: Final[Mapping[str, tuple[str | OfBroker, ConfigKind[object]]]] = {
    "cleanup.policy": (OfBroker("log_cleanup_policy"), CLEANUP_POLICY),
    "compression.gzip.level": ("-1", whole(-1, 9)),
    "compression.lz4.level": ("9", whole(1, 17)),
    "compression.type": (
        "producer",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    ),
    "compression.zstd.level": ("3", whole(-131_072, 22)),
    "delete.retention.ms": (OfBroker("log_cleaner_delete_retention_ms"), whole(0, INT64_MAX)),
    "file.delete.delay.ms": ("60000", whole(0, INT64_MAX)),
    "flush.messages": (OfBroker("log_flush_interval_messages"), whole(1, INT64_MAX)),
    "flush.ms": (str(INT64_MAX), whole(0, INT64_MAX)),
    "follower.replication.throttled.replicas": ("", TEXTS),
    "index.interval.bytes": ("4096", whole(0, INT32_MAX)),
    "leader.replication.throttled.replicas": ("", TEXTS),
    "local.retention.bytes": ("-2", whole(-2, INT64_MAX)),
    "local.retention.ms": ("-2", whole(-2, INT64_MAX)),
    "max.compaction.lag.ms": (OfBroker("log_cleaner_max_compaction_lag_ms"), whole(1, INT64_MAX)),
    "max.message.bytes": (OfBroker("message_max_bytes"), whole(0, INT32_MAX)),
    "message.timestamp.after.max.ms": ("3600000", whole(0, INT64_MAX)),
    "message.timestamp.before.max.ms": (str(INT64_MAX), whole(0, INT64_MAX)),
    "message.timestamp.type": (
        OfBroker("log_message_timestamp_type"),
        one_of("CreateTime", "LogAppendTime"),
    ),
    "min.cleanable.dirty.ratio": (OfBroker("log_cleaner_min_cleanable_ratio"), RATIO),
    "min.compaction.lag.ms": (OfBroker("log_cleaner_min_compaction_lag_ms"), whole(0, INT64_MAX)),
    "min.insync.replicas": ("1", whole(1, INT32_MAX)),
    "preallocate": ("false", FLAG),
    "remote.storage.enable": ("false", FLAG),
    "retention.bytes": (OfBroker("log_retention_bytes"), whole(-1, INT64_MAX)),
    "retention.ms": (OfBroker("log_retention_ms"), whole(-1, INT64_MAX)),
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
        int(configs.get(name, _KAFKAS[name]))
        for name in ("min.compaction.lag.ms", "max.compaction.lag.ms")
    )
    if low > high:
        return f"min.compaction.lag.ms ({low}) is above max.compaction.lag.ms ({high})"
    return None


def default_configs(settings: Settings) -> dict[str, str]:
    """Return the configs of a topic that sets none: Kafka's defaults or the broker's settings."""
    return {
        name: default if isinstance(default, str) else as_text(getattr(settings, default.setting))
        for name, (default, _) in TOPIC_CONFIGS.items()
    }


_KAFKAS: Final = default_configs(Settings())
