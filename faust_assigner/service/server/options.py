"""The options of ``faust-assigner serve``: read, checked and turned into settings."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from faust_assigner.errors import ConfigError
from faust_assigner.service.certificates import (
    Certificates,
    check_authorities,
    check_pair,
)
from faust_assigner.service.server.auth import (
    Authenticator,
    CertificateAuthenticator,
    NoAuthentication,
    TokenAuthenticator,
)
from faust_assigner.service.server.groups import NAME
from faust_assigner.service.server.table import BY_NAME, flag
from faust_assigner.service.settings import ServiceSettings
from faust_assigner.settings.schema import read


@dataclass(frozen=True)
class Options:
    """The values of ``serve``'s options, by the options' names in lower case."""

    said: Mapping[str, Any]
    settings: ServiceSettings

    @classmethod
    def read(cls, arguments: Mapping[str, object], environment: Mapping[str, str]) -> Options:
        """Read the options: arguments, then the environment, then the defaults.

        Raises ConfigError, with the names of the flags.
        """
        try:
            return cls._read(arguments, environment)
        except ConfigError as error:
            raise ConfigError(_in_flags(str(error))) from None

    @classmethod
    def _read(cls, arguments: Mapping[str, object], environment: Mapping[str, str]) -> Options:
        said = {
            name: read(setting, argument=arguments.get(name), environment=environment)
            for name, setting in BY_NAME.items()
        }
        for name in ("consumer", "leader"):
            # The default keepalive follows a short time to live.
            keepalive = BY_NAME[f"{name}_keepalive"]
            if not (arguments.get(f"{name}_keepalive") or environment.get(keepalive.name)):
                said[f"{name}_keepalive"] = min(said[f"{name}_keepalive"], said[f"{name}_ttl"] / 3)
        release = BY_NAME["release_timeout"]
        if not (arguments.get("release_timeout") or environment.get(release.name)):
            said["release_timeout"] = min(said["release_timeout"], said["handoff_timeout"])
        settings = ServiceSettings(
            prefix=said["prefix"],
            strict=said["strict"],
            replicas=said["replicas"],
            channel=said["channel"],
            max_handoffs=said["max_handoffs"],
            max_handoffs_per_consumer=said["max_handoffs_per_consumer"],
            **{
                f"{name}_s": said[name]
                for name in (
                    "consumer_ttl",
                    "consumer_keepalive",
                    "leader_ttl",
                    "leader_keepalive",
                    "election_retry",
                    "debounce",
                    "handoff_timeout",
                    "release_timeout",
                    "cooldown",
                    "rebalance_delay",
                    "topic_refresh",
                )
            },
        )
        options = cls(said, settings)
        options._check()
        return options

    def _check(self) -> None:
        said = self.said
        self._check_groups()
        if bool(said["tls_cert"]) != bool(said["tls_key"]):
            raise ConfigError("--tls-cert and --tls-key require each other")
        if said["tls_client_ca"] and not said["tls_cert"]:
            raise ConfigError("--tls-client-ca requires --tls-cert and --tls-key")
        if said["insecure"] or is_loopback(said["bind"][0]):
            return
        if not said["tls_cert"]:
            raise ConfigError(
                f"{said['bind'][0]} is not loopback: give --tls-cert and --tls-key, or --insecure"
            )
        if not (said["tokens"] or said["tls_client_ca"]):
            raise ConfigError(
                f"{said['bind'][0]} is not loopback: "
                "give --tokens or --tls-client-ca, or --insecure"
            )

    def _check_groups(self) -> None:
        groups = self.said["groups"]
        for name in groups:
            if not NAME.fullmatch(name) or groups.count(name) > 1:
                raise ConfigError(
                    f"--groups: a group is up to 64 of A-Z a-z 0-9 _ -, each once: {name!r}"
                )
        for said in self.said["topic"]:
            group, slash, _ = said.rpartition("/")
            if groups and group not in groups:
                raise ConfigError(
                    f"--topic {said}: give GROUP/TOPIC=COUNT, with a group of --groups"
                )
            if slash and not groups:
                raise ConfigError(f"--topic {said}: a group's topic needs --groups")

    @property
    def groups(self) -> Mapping[str, tuple[ServiceSettings, dict[str, int]]]:
        """Group -> settings and topics; "" is the only group of a service without ``--groups``."""
        topics: Mapping[str, int] = self.said["topic"]
        if not self.said["groups"]:
            return {"": (self.settings, dict(topics))}
        return {
            name: (
                replace(self.settings, prefix=f"{self.settings.prefix}{name}/"),
                {
                    topic.removeprefix(f"{name}/"): count
                    for topic, count in topics.items()
                    if topic.startswith(f"{name}/")
                },
            )
            for name in self.said["groups"]
        }

    def check_files(self) -> None:
        """Raise ConfigError if a file is not a certificate, or not the key of its certificate.

        gRPC's own error would blame the address.
        """
        said = self.said
        for role in ("tls", "etcd"):
            if said[f"{role}_cert"] and said[f"{role}_key"]:
                flags = f"--{role}-cert and --{role}-key"
                check_pair(said[f"{role}_cert"], said[f"{role}_key"], flags)
        for name in ("tls_client_ca", "etcd_ca"):
            if said[name]:
                check_authorities(said[name], flag(BY_NAME[name]))

    def certificates(self) -> Certificates | None:
        """Return the certificate files of the consumers' port; ``None`` without TLS."""
        said = self.said
        if not said["tls_cert"]:
            return None
        return Certificates(said["tls_cert"], said["tls_key"], said["tls_client_ca"])

    def authenticator(self) -> Authenticator:
        """Return the authentication of callers. Raises ConfigError."""
        if self.said["tokens"]:
            return TokenAuthenticator.of_file(self.said["tokens"], self.said["admins"])
        return (
            CertificateAuthenticator(self.said["admins"])
            if self.said["tls_client_ca"]
            else NoAuthentication()
        )


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _in_flags(error: str) -> str:
    """Return an error about a setting, with the name of its flag."""
    first, _, rest = error.partition(" ")
    for name, setting in BY_NAME.items():
        first = f"{flag(setting)} ({first})" if first == setting.name else first
        first = flag(setting) if first in (name, f"{name}_s") else first
        rest = rest.replace(f" {name}_s ", f" {flag(setting)} ")
    return f"{first} {rest}"
