"""The service's settings: defaults and checks."""

from __future__ import annotations

from dataclasses import dataclass

from faust_assigner.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class ServiceSettings:
    """The settings of one group; times in seconds.

    ``prefix``                     the prefix of all keys; each group has its own prefix
    ``strict``                     the old owner drains before the new owner starts
    ``max_handoffs``               the most hand-offs under way at once in the group
    ``max_handoffs_per_consumer``  the same for each new owner
    ``release_timeout_s``          strict: an old owner without a release by then is expelled
    ``cooldown_s``                 the time during which a partition is not offered again to a
                                   consumer that failed to warm it
    ``rebalance_delay_s``          the first consumers after an outage wait this long for the rest
    ``replicas``                   standbys per partition, among the consumers that keep replicas
    """

    prefix: str = "/kafka-assigner/"
    consumer_ttl_s: float = 30.0
    consumer_keepalive_s: float = 5.0
    leader_ttl_s: float = 15.0
    leader_keepalive_s: float = 5.0
    election_retry_s: float = 5.0
    debounce_s: float = 1.0
    handoff_timeout_s: float = 300.0
    release_timeout_s: float = 60.0
    cooldown_s: float = 60.0
    rebalance_delay_s: float = 30.0
    reconcile_s: float = 5.0
    topic_refresh_s: float = 30.0
    strict: bool = True
    max_handoffs: int = 256
    max_handoffs_per_consumer: int = 16
    replicas: int = 0
    channel: int = 1024

    @property
    def pulse_s(self) -> float:
        """Seconds between two pulses of a stream; consumers send heartbeats as often."""
        return self.consumer_ttl_s / 9

    def __post_init__(self) -> None:
        if not (self.prefix.startswith("/") and self.prefix.endswith("/")):
            raise ConfigError(f"prefix must begin and end with a slash, got {self.prefix!r}")
        for name in ("consumer", "leader"):
            ttl, every = getattr(self, f"{name}_ttl_s"), getattr(self, f"{name}_keepalive_s")
            # After a failed keepalive a second must fit before the fence at two thirds of the TTL.
            if not 0 < every < ttl * 2 / 3:
                raise ConfigError(
                    f"{name}_keepalive_s must be above 0 and below two thirds of "
                    f"{name}_ttl_s ({ttl:g}), got {every:g}"
                )
        for name in (
            "election_retry_s",
            "handoff_timeout_s",
            "release_timeout_s",
            "reconcile_s",
            "topic_refresh_s",
        ):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be above 0, got {getattr(self, name)!r}")
        for name in ("debounce_s", "cooldown_s", "rebalance_delay_s", "replicas"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"{name} must be 0 or more, got {getattr(self, name)!r}")
        for name in ("max_handoffs", "max_handoffs_per_consumer", "channel"):
            if not getattr(self, name) >= 1:
                raise ConfigError(f"{name} must be 1 or more, got {getattr(self, name)!r}")
