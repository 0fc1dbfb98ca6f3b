"""The service's settings: defaults, and what cannot be."""

from __future__ import annotations

from dataclasses import dataclass

from faust_assigner.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class ServiceSettings:
    """One group's settings; times in seconds.

    ``prefix`` of all keys: one prefix, one group. ``strict``: the old owner drains before the new one starts.
    ``max_handoffs`` and ``max_handoffs_per_consumer`` are what may be under way at once (per new owner).
    ``release_timeout_s``: strict, an old owner that has not released by then is expelled.
    ``cooldown_s``: how long a consumer that could not warm a partition is not asked for it again.
    ``rebalance_delay_s``: how long the first consumers after an outage wait for the others that were there.
    ``replicas``: standbys per partition among the consumers that keep replicas.
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
        """How often a stream says that it lives, as often as a consumer does."""
        return self.consumer_ttl_s / 9

    def __post_init__(self) -> None:
        if not (self.prefix.startswith("/") and self.prefix.endswith("/")):
            raise ConfigError(f"prefix must begin and end with a slash, got {self.prefix!r}")
        for name in ("consumer", "leader"):
            ttl, every = getattr(self, f"{name}_ttl_s"), getattr(self, f"{name}_keepalive_s")
            # A keepalive that fails once must leave time for a second one before the fence at two thirds.
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
