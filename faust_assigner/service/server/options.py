"""What ``faust-assigner serve`` was asked for: its options read, checked and turned into settings."""

from __future__ import annotations

import contextlib
import ipaddress
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from faust_assigner.errors import ConfigError
from faust_assigner.service.server.auth import (
    CertificateDoor,
    Door,
    OpenDoor,
    TokenDoor,
    read_tokens,
)
from faust_assigner.service.server.table import BY_NAME, flag
from faust_assigner.service.settings import ServiceSettings
from faust_assigner.settings.schema import read


@dataclass(frozen=True)
class Options:
    """What ``serve`` was asked for, by the options' names in small letters."""

    said: Mapping[str, Any]
    settings: ServiceSettings

    @classmethod
    def read(cls, arguments: Mapping[str, object], environment: Mapping[str, str]) -> Options:
        """Arguments before the environment before the defaults. Raises ConfigError, in the flags' names."""
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
            # A short time to live needs no second option: its keepalive follows.
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
        if bool(said["tls_cert"]) != bool(said["tls_key"]):
            raise ConfigError("--tls-cert and --tls-key go together")
        if said["tls_client_ca"] and not said["tls_cert"]:
            raise ConfigError("--tls-client-ca wants --tls-cert and --tls-key")
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

    def check_files(self) -> None:
        """Raises ConfigError for what is no certificate, or not its key: gRPC would blame the address."""
        said, context = self.said, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        for role in ("tls", "etcd"):
            if said[f"{role}_cert"] and said[f"{role}_key"]:
                with _loaded(f"--{role}-cert and --{role}-key", "a certificate and its key"):
                    # Without the empty password somebody would be asked for that of an encrypted key.
                    context.load_cert_chain(said[f"{role}_cert"], said[f"{role}_key"], password="")
        for name in ("tls_client_ca", "etcd_ca"):
            if said[name]:
                with _loaded(flag(BY_NAME[name]), "certificates"):
                    context.load_verify_locations(said[name])

    def door(self) -> Door:
        """Who may come in. Raises ConfigError."""
        if self.said["tokens"]:
            return TokenDoor(read_tokens(self.said["tokens"]), self.said["admins"])
        return CertificateDoor(self.said["admins"]) if self.said["tls_client_ca"] else OpenDoor()


@contextlib.contextmanager
def _loaded(flags: str, what: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        why = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise ConfigError(f"{flags}: not {what} in PEM: {why}") from error


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _in_flags(error: str) -> str:
    """A setting that cannot be, as whoever typed it knows it."""
    first, _, rest = error.partition(" ")
    for name, setting in BY_NAME.items():
        first = f"{flag(setting)} ({first})" if first == setting.name else first
        first = flag(setting) if first in (name, f"{name}_s") else first
        rest = rest.replace(f" {name}_s ", f" {flag(setting)} ")
    return f"{first} {rest}"
