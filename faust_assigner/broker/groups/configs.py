"""Configs of single groups (KIP-848's resource type GROUP), which override the broker's settings.

A config may be set before its group exists, and stays after the group is deleted, as in Kafka.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kio.schema.errors import ErrorCode

from faust_assigner.broker import limits
from faust_assigner.broker.groups.plug_ins import names_in
from faust_assigner.broker.setting_kinds import whole_number
from faust_assigner.broker.settings import Settings
from faust_assigner.broker.storage.store import Store
from faust_assigner.broker.topics import Refused
from faust_assigner.coordinator.settings import ConsumerLimits, MigrationPolicy
from faust_assigner.coordinator.states import GroupLimits

PREFIX: Final = b"c\0"


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """One config: the broker setting that is its default, and its bounds (setting names or numbers)."""

    fallback: str
    least: str | int
    most: str | int


GROUP_CONFIGS: Final[Mapping[str, GroupConfig]] = {
    "consumer.session.timeout.ms": GroupConfig(
        "group.consumer.session.timeout.ms",
        "group.consumer.min.session.timeout.ms",
        "group.consumer.max.session.timeout.ms",
    ),
    "consumer.heartbeat.interval.ms": GroupConfig(
        "group.consumer.heartbeat.interval.ms",
        "group.consumer.min.heartbeat.interval.ms",
        "group.consumer.max.heartbeat.interval.ms",
    ),
    "consumer.assignment.interval.ms": GroupConfig(
        "group.consumer.assignment.interval.ms", 0, 15_000
    ),
}


def classic_limits(settings: Settings) -> GroupLimits:
    """Return the limits of classic groups, which have no configs of their own."""
    return GroupLimits(
        settings.group_min_session_timeout_ms,
        settings.group_max_session_timeout_ms,
        settings.group_initial_rebalance_delay_ms,
        settings.group_max_size,
    )


class GroupConfigs:
    """The explicit configs of all groups, restored from the store and written to it."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self._broker, self._defaults = settings.by_kafka_name(), Settings().by_kafka_name()
        self._set: dict[str, dict[str, str]] = {
            key[len(PREFIX) :].decode(): json.loads(value) for key, value in store.scan(PREFIX)
        }

    def __iter__(self) -> Iterator[str]:
        return iter(self._set)

    def explicit(self, group_id: str) -> Mapping[str, str]:
        """Return the explicit configs of a group."""
        return self._set.get(group_id, {})

    def number(self, group_id: str, name: str) -> int:
        """Return the effective value for a group; cost O(1)."""
        return int(self.explicit(group_id).get(name) or self._broker[GROUP_CONFIGS[name].fallback])

    def consumer_limits(self, group_id: str) -> ConsumerLimits:
        """Return the limits of a consumer group: its own configs, else the broker's settings."""
        settings = self._settings
        return ConsumerLimits(
            self.number(group_id, "consumer.session.timeout.ms"),
            self.number(group_id, "consumer.heartbeat.interval.ms"),
            settings.group_consumer_max_size,
            names_in(settings.group_consumer_assignors),
            MigrationPolicy(settings.group_consumer_migration_policy),
            self.number(group_id, "consumer.assignment.interval.ms"),
        )

    def is_broker_default(self, name: str) -> bool:
        """Whether the broker setting behind a config has Kafka's default value."""
        fallback = GROUP_CONFIGS[name].fallback
        return self._broker[fallback] == self._defaults[fallback]

    def configure(self, group_id: str, configs: Mapping[str, str], *, validate_only: bool) -> None:
        """Replace the explicit configs of a group. Raises Refused, StoreFailed."""
        if not limits.is_group_id(group_id):
            raise Refused(ErrorCode.invalid_request, "Default group resources are not allowed.")
        for name, value in configs.items():
            self._check(name, value)
        self._check_together(configs)
        if configs and group_id not in self._set and len(self._set) >= limits.MAX_GROUPS:
            raise Refused(
                ErrorCode.policy_violation,
                f"the limit is reached: {limits.MAX_GROUPS} groups have their own configs",
            )
        if validate_only:
            return
        key = PREFIX + group_id.encode()
        if configs:
            self._store.write([(key, json.dumps(dict(configs)).encode())])
            self._set[group_id] = dict(configs)
        else:
            self._store.write((), [key])
            self._set.pop(group_id, None)

    def _check(self, name: str, value: str) -> None:
        config = GROUP_CONFIGS.get(name)
        if config is None:
            raise Refused(ErrorCode.invalid_config, f"Unknown group config name: {name}")
        try:
            number = whole_number(value)
        except ValueError:
            raise Refused(
                ErrorCode.invalid_config,
                f"Invalid value {value} for configuration {name}: Not a number of type INT",
            ) from None
        least, most = (self._limit(bound) for bound in (config.least, config.most))
        if number < least:
            problem = f"{name} must be greater than or equal to {config.least}"
        elif number > most:
            problem = f"{name} must be less than or equal to {config.most}"
        else:
            return
        raise Refused(ErrorCode.invalid_config, problem)

    def _limit(self, bound: str | int) -> int:
        return int(self._broker[bound]) if isinstance(bound, str) else bound

    def _check_together(self, configs: Mapping[str, str]) -> None:
        session, heartbeat = (
            int(configs.get(name) or self._broker[GROUP_CONFIGS[name].fallback])
            for name in ("consumer.session.timeout.ms", "consumer.heartbeat.interval.ms")
        )
        if session <= heartbeat:
            raise Refused(
                ErrorCode.invalid_config,
                "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms",
            )
