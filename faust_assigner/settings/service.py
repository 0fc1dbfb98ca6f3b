"""The settings of the assigner service: flags of ``faust-assigner serve`` and their variables.

docs/generate generates the table of docs/reference/service.md from these settings.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from faust_assigner.errors import ConfigError
from faust_assigner.settings.schema import SWITCH, TEXT, Setting, declared, declared_in, parse
from faust_assigner.settings.service_kinds import (
    ADDRESS,
    COUNT,
    COUNT_OR_ZERO,
    FILE,
    LEVEL,
    LIST,
    PREFIX,
    SECONDS,
    SECONDS_OR_ZERO,
    TOPICS,
    URLS,
    WORD,
)


def _environment(name: str) -> str:
    return f"FAUST_ASSIGNER_{name.upper()}"


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """The settings of one instance of the service: its addresses, its files, its store."""

    bind: tuple[str, int] = declared(
        ADDRESS,
        ("127.0.0.1", 50051),
        "the address to which consumers connect",
        shown="127.0.0.1:50051",
    )
    etcd: tuple[str, ...] = declared(
        URLS,
        (),
        "etcd's endpoints, `http://host:port`; without them the state is in memory",
        shown="none",
    )
    groups: tuple[str, ...] = declared(
        LIST,
        (),
        "the groups of the service; each group has the prefix `PREFIX/NAME/` and a separate leader",
        shown="none: one group, under the prefix itself",
    )
    topic: tuple[tuple[str, int], ...] = declared(
        TOPICS,
        (),
        "a topic and its partition count; may be repeated; with `--groups` the form is `GROUP/NAME=COUNT`",
        shown="none",
    )
    kafka: str | None = declared(
        WORD,
        None,
        "Kafka's `host:port`; the service reads the partition counts of topics there",
        shown="none",
    )
    max_calls: int = declared(
        COUNT,
        20_000,
        "the maximum number of concurrent streams and calls; further calls are refused",
    )
    max_connection_age_s: float = declared(
        SECONDS_OR_ZERO,
        1800.0,
        "the age at which a connection is closed, so that load balancers distribute the consumers "
        "again; with 0 no connection is closed by age",
    )
    tls_cert: Path | None = declared(
        FILE, None, "the PEM file with the service's certificate", shown="none: no encryption"
    )
    tls_key: Path | None = declared(
        FILE, None, "the PEM file with this certificate's key", shown="none"
    )
    tls_client_ca: Path | None = declared(
        FILE,
        None,
        "the PEM file with the authority of consumers' certificates; a consumer's name must equal the name "
        "in its certificate, or match a certificate's name that ends with `*`",
        shown="none",
    )
    tokens: Path | None = declared(
        FILE,
        None,
        "a file of lines `NAME TOKEN` or `NAME sha256:HEX`; a consumer's name must equal its "
        "token's name, or match a token's name that ends with `*`",
        shown="none",
    )
    admins: tuple[str, ...] = declared(
        LIST, (), "the names that may use the operators' calls", shown="none"
    )
    insecure: bool = declared(
        SWITCH,
        False,
        "whether the service may listen beyond loopback without encryption or authentication",
    )
    etcd_ca: Path | None = declared(
        FILE, None, "the PEM file with the authority of etcd's certificate", shown="none"
    )
    etcd_cert: Path | None = declared(
        FILE, None, "the PEM file with the service's certificate for etcd", shown="none"
    )
    etcd_key: Path | None = declared(
        FILE, None, "the PEM file with the key of that certificate", shown="none"
    )
    etcd_user: str = declared(WORD, "", "the name of the service's user at etcd", shown="none")
    etcd_password: str = declared(
        WORD,
        "",
        "the password of this user; give it in the environment, because `ps` shows options",
        shown="none",
    )
    metrics: tuple[str, int] | None = declared(
        ADDRESS, None, "the address of the metrics for Prometheus", shown="none: no metrics"
    )
    health: tuple[str, int] | None = declared(
        ADDRESS,
        None,
        "an address that answers only gRPC health probes, without TLS, such as the probes of "
        "Kubernetes",
        shown="none: only the address of `--bind` answers probes",
    )
    log_level: str = declared(LEVEL, "info", "the lowest level of logged lines")
    node: str = declared(
        WORD,
        "",
        "this instance's name in the leader's key",
        shown="the machine's name and the process id",
    )


@dataclass(frozen=True, kw_only=True)
class ServiceSettings:
    """The settings of one group in the service. Raises ConfigError for a wrong value."""

    prefix: str = declared(PREFIX, "/kafka-assigner/", "the prefix of all keys in etcd")
    consumer_ttl_s: float = declared(
        SECONDS, 30.0, "the lease of a consumer: a silent consumer is removed after this time"
    )
    consumer_keepalive_s: float = declared(
        SECONDS, 5.0, "the interval at which a consumer's lease is renewed"
    )
    leader_ttl_s: float = declared(
        SECONDS, 15.0, "the lease of the leader: a silent leader is replaced after this time"
    )
    leader_keepalive_s: float = declared(
        SECONDS, 5.0, "the interval at which the leader's lease is renewed"
    )
    election_retry_s: float = declared(
        SECONDS, 5.0, "the interval at which a follower tries to become the leader"
    )
    debounce_s: float = declared(
        SECONDS_OR_ZERO,
        1.0,
        "the time for which the leader collects joins and leaves before a rebalance",
    )
    handoff_timeout_s: float = declared(
        SECONDS, 300.0, "the time limit of a hand-off, which then ends without a move"
    )
    release_timeout_s: float = declared(
        SECONDS,
        60.0,
        "the time limit of a release; with `--strict` the old owner is expelled afterwards",
    )
    cooldown_s: float = declared(
        SECONDS_OR_ZERO,
        60.0,
        "the time for which the leader does not ask a consumer again to warm a partition "
        "that it could not warm",
    )
    rebalance_delay_s: float = declared(
        SECONDS_OR_ZERO,
        30.0,
        "after an outage of all consumers: the time for which returned consumers wait for missing consumers",
    )
    #: Seconds between two comparisons of an instance's copy with the store. This is not an option.
    reconcile_s: float = 5.0
    topic_refresh_s: float = declared(
        SECONDS, 30.0, "the interval at which the leader reads the partition counts from Kafka"
    )
    strict: bool = declared(
        SWITCH,
        True,
        "whether the old owner stops before the new owner starts; `--no-strict` allows two owners at a time",
    )
    max_handoffs: int = declared(
        COUNT, 256, "the maximum number of concurrent hand-offs in the group"
    )
    max_handoffs_per_consumer: int = declared(
        COUNT, 16, "the maximum number of concurrent hand-offs to one new owner"
    )
    replicas: int = declared(
        COUNT_OR_ZERO,
        0,
        "the number of standbys of each partition, on consumers that keep replicas",
    )
    channel: int = declared(
        COUNT,
        1024,
        "the maximum length of a consumer's command queue; a longer queue is replaced by a full "
        "assignment",
    )

    @property
    def pulse_s(self) -> float:
        """Seconds between two pulses of a stream, and between two heartbeats of a consumer."""
        return self.consumer_ttl_s / 9

    def __post_init__(self) -> None:
        for name, setting in declared_in(type(self), str).items():
            parse(setting, getattr(self, name))
        if not self.reconcile_s > 0:
            raise ConfigError(f"reconcile_s must be above 0, got {self.reconcile_s!r}")
        for name in ("consumer", "leader"):
            ttl, every = getattr(self, f"{name}_ttl_s"), getattr(self, f"{name}_keepalive_s")
            # The lease is given up at two thirds of the TTL. If one keepalive fails, the next
            # keepalive must still be sent before this time.
            if not every < ttl * 2 / 3:
                raise ConfigError(
                    f"{name}_keepalive_s must be below two thirds of "
                    f"{name}_ttl_s ({ttl:g}), got {every:g}"
                )


BY_NAME: Final[dict[str, Setting[Any]]] = {
    **declared_in(ServerSettings, _environment),
    **declared_in(ServiceSettings, _environment),
}
OPTIONS: Final = tuple(BY_NAME.values())
#: The service's address and the caller's token, for an operator's commands.
AT: Final = Setting(_environment("at"), ADDRESS, ("127.0.0.1", 50051), "an instance of the service")
TOKEN: Final = Setting(_environment("token"), TEXT, "", "the caller's token")


def flag(setting: Setting[object]) -> str:
    """Return the flag of a setting: ``FAUST_ASSIGNER_LEADER_TTL_S`` -> ``--leader-ttl-s``."""
    return "--" + setting.name.removeprefix("FAUST_ASSIGNER_").lower().replace("_", "-")
