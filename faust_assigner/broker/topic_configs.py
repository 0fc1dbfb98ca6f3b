"""Topic configs: Kafka's names, their types and valid values, and their defaults.

The broker knows all of Kafka's names, because applications set them unasked: Faust sets ``retention.ms`` and
``cleanup.policy`` on every changelog. docs/reference/broker.md names the configs that change the broker's
behaviour. All other configs are checked, stored and shown, but have no effect: this broker is one node
without segment files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass
from typing import Any, Final

from faust_assigner.broker.settings import INT32_MAX, INT64_MAX, Settings

BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = 1, 2, 3, 5, 6, 7  # Kafka's numbers of config types


@dataclass(frozen=True)
class Kind:
    """The type of a config, as DescribeConfigs reports it, and the check of its values."""

    config_type: int
    check: Callable[[str], bool]


def number_type(high: int) -> int:
    """Return INT, or LONG if the largest value does not fit into an INT."""
    return INT if high <= INT32_MAX else LONG


def kafka_type(setting: Field[Any]) -> int:
    """Return Kafka's type number of a broker setting."""
    if setting.metadata.keys() & {"several", "assignors"} or setting.name in (
        "advertised_listeners",
        "listeners",
        "log_cleanup_policy",
    ):
        return LIST
    if isinstance(setting.default, bool):
        return BOOLEAN
    if isinstance(setting.default, float):
        return DOUBLE
    return number_type(setting.metadata["high"]) if isinstance(setting.default, int) else STRING


def whole_number(text: str) -> int:
    """Parse a number as Java does: without underscores. Raises ValueError."""
    if "_" in text:
        raise ValueError(f"{text!r} is no number")
    return int(text)


def _number(low: int, high: int) -> Kind:
    def check(text: str) -> bool:
        try:
            return low <= whole_number(text) <= high
        except ValueError:
            return False

    return Kind(number_type(high), check)


def _is_ratio(text: str) -> bool:
    try:
        return "_" not in text and 0.0 <= float(text) <= 1.0
    except ValueError:
        return False


def _one_of(*choices: str, config_type: int = STRING) -> Kind:
    return Kind(config_type, lambda text: text in choices)


def _is_cleanup_policy(text: str) -> bool:
    words = (
        [word.strip() for word in text.split(",")] if text else []
    )  # an empty list keeps records without limit (KIP-1161)
    return set(words) <= {"delete", "compact"}


_ratio, _cleanup_policy = Kind(DOUBLE, _is_ratio), Kind(LIST, _is_cleanup_policy)
_replicas = Kind(LIST, lambda text: True)
_boolean = Kind(BOOLEAN, lambda text: text.strip().lower() in ("true", "false"))

TOPIC_CONFIGS: Final[Mapping[str, tuple[str, Kind]]] = {
    "cleanup.policy": ("delete", _cleanup_policy),
    "compression.gzip.level": ("-1", _number(-1, 9)),
    "compression.lz4.level": ("9", _number(1, 17)),
    "compression.type": (
        "producer",
        _one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    ),
    "compression.zstd.level": ("3", _number(-131_072, 22)),
    "delete.retention.ms": ("86400000", _number(0, INT64_MAX)),
    "file.delete.delay.ms": ("60000", _number(0, INT64_MAX)),
    "flush.messages": (str(INT64_MAX), _number(1, INT64_MAX)),
    "flush.ms": (str(INT64_MAX), _number(0, INT64_MAX)),
    "follower.replication.throttled.replicas": ("", _replicas),
    "index.interval.bytes": ("4096", _number(0, INT32_MAX)),
    "leader.replication.throttled.replicas": ("", _replicas),
    "local.retention.bytes": ("-2", _number(-2, INT64_MAX)),
    "local.retention.ms": ("-2", _number(-2, INT64_MAX)),
    "max.compaction.lag.ms": (str(INT64_MAX), _number(1, INT64_MAX)),
    "max.message.bytes": ("1048588", _number(0, INT32_MAX)),
    "message.timestamp.after.max.ms": ("3600000", _number(0, INT64_MAX)),
    "message.timestamp.before.max.ms": (str(INT64_MAX), _number(0, INT64_MAX)),
    "message.timestamp.type": ("CreateTime", _one_of("CreateTime", "LogAppendTime")),
    "min.cleanable.dirty.ratio": ("0.5", _ratio),
    "min.compaction.lag.ms": ("0", _number(0, INT64_MAX)),
    "min.insync.replicas": ("1", _number(1, INT32_MAX)),
    "preallocate": ("false", _boolean),
    "remote.storage.enable": ("false", _boolean),
    "retention.bytes": ("-1", _number(-1, INT64_MAX)),
    "retention.ms": ("604800000", _number(-1, INT64_MAX)),
    "segment.bytes": ("1073741824", _number(14, INT32_MAX)),
    "segment.index.bytes": ("10485760", _number(4, INT32_MAX)),
    "segment.jitter.ms": ("0", _number(0, INT64_MAX)),
    "segment.ms": ("604800000", _number(1, INT64_MAX)),
    "unclean.leader.election.enable": ("false", _boolean),
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
