"""The options of ``faust-assigner serve``: read, checked and turned into settings."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from faust_assigner.errors import ConfigError
from faust_assigner.service.certificates import Certificates, check_authorities, check_pair
from faust_assigner.service.server.auth import (
    Authenticator,
    CertificateAuthenticator,
    NoAuthentication,
    TokenAuthenticator,
)
from faust_assigner.service.server.groups import NAME
from faust_assigner.settings.schema import read
from faust_assigner.settings.service import BY_NAME, ServerSettings, ServiceSettings, flag


@dataclass(frozen=True)
class Options:
    """The options of ``serve``: the settings of the instance, and of each of its groups."""

    server: ServerSettings
    settings: ServiceSettings

    @classmethod
    def read(cls, arguments: Mapping[str, object], environment: Mapping[str, str]) -> Options:
        """Read the options: arguments, then the environment, then the defaults.

        Raises ConfigError, with the names of the flags.
        """
        try:
            return cls._read(arguments, environment)
        except ConfigError as error:
            raise ConfigError(_error_with_flag(str(error))) from None

    @classmethod
    def _read(cls, arguments: Mapping[str, object], environment: Mapping[str, str]) -> Options:
        found = {
            name: read(setting, argument=arguments.get(name), environment=environment)
            for name, setting in BY_NAME.items()
        }
        for name, most in (
            ("consumer_keepalive_s", found["consumer_ttl_s"] / 3),
            ("leader_keepalive_s", found["leader_ttl_s"] / 3),
            ("release_timeout_s", found["handoff_timeout_s"]),
        ):
            # Lower a default that is above its limit; keep a value that the operator gave.
            if not (arguments.get(name) or environment.get(BY_NAME[name].name)):
                found[name] = min(found[name], most)
        options = cls(
            ServerSettings(**_field_values(ServerSettings, found)),
            ServiceSettings(**_field_values(ServiceSettings, found)),
        )
        options._check()
        return options

    def _check(self) -> None:
        said = self.server
        self._check_groups()
        if bool(said.tls_cert) != bool(said.tls_key):
            raise ConfigError("--tls-cert and --tls-key require each other")
        if said.tls_client_ca and not said.tls_cert:
            raise ConfigError("--tls-client-ca requires --tls-cert and --tls-key")
        if said.insecure or is_loopback(said.bind[0]):
            return
        if not said.tls_cert:
            raise ConfigError(
                f"{said.bind[0]} is not loopback: give --tls-cert and --tls-key, or --insecure"
            )
        if not (said.tokens or said.tls_client_ca):
            raise ConfigError(
                f"{said.bind[0]} is not loopback: give --tokens or --tls-client-ca, or --insecure"
            )

    def _check_groups(self) -> None:
        groups = self.server.groups
        for name in groups:
            if not NAME.fullmatch(name) or groups.count(name) > 1:
                raise ConfigError(
                    f"--groups: a group is up to 64 of A-Z a-z 0-9 _ -, each once: {name!r}"
                )
        for said, _ in self.server.topic:
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
        topics = dict(self.server.topic)
        if not self.server.groups:
            return {"": (self.settings, topics)}
        return {
            name: (
                replace(self.settings, prefix=f"{self.settings.prefix}{name}/"),
                {
                    topic.removeprefix(f"{name}/"): count
                    for topic, count in topics.items()
                    if topic.startswith(f"{name}/")
                },
            )
            for name in self.server.groups
        }

    def check_files(self) -> None:
        """Raise ConfigError if a file is not a certificate, or not the key of its certificate.

        Without this check, gRPC reports an invalid file as an error of the port's address.
        """
        said = self.server
        for name, cert, key in (
            ("tls", said.tls_cert, said.tls_key),
            ("etcd", said.etcd_cert, said.etcd_key),
        ):
            if cert and key:
                check_pair(cert, key, f"--{name}-cert and --{name}-key")
        for name, authority in (("tls_client_ca", said.tls_client_ca), ("etcd_ca", said.etcd_ca)):
            if authority:
                check_authorities(authority, flag(BY_NAME[name]))

    def certificates(self) -> Certificates | None:
        """Return the certificate files of the consumers' port; ``None`` without TLS."""
        said = self.server
        if not (said.tls_cert and said.tls_key):
            return None
        return Certificates(said.tls_cert, said.tls_key, said.tls_client_ca)

    def authenticator(self) -> Authenticator:
        """Return the authentication of callers. Raises ConfigError."""
        if self.server.tokens:
            return TokenAuthenticator.of_file(self.server.tokens, self.server.admins)
        return (
            CertificateAuthenticator(self.server.admins)
            if self.server.tls_client_ca
            else NoAuthentication()
        )


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _error_with_flag(error: str) -> str:
    """Return the error with the setting's flag in place of the setting's name."""
    first, _, rest = error.partition(" ")
    for name, setting in BY_NAME.items():
        first = f"{flag(setting)} ({first})" if first == setting.name else first
        if first == name:
            first = flag(setting)
        if name.endswith("_s"):  # an error may compare two times
            rest = rest.replace(f" {name} ", f" {flag(setting)} ")
    return f"{first} {rest}"


def _field_values(
    owner: type[ServerSettings | ServiceSettings], found: Mapping[str, object]
) -> dict[str, Any]:
    """Return the values for the fields of a settings class."""
    return {one.name: found[one.name] for one in fields(owner) if one.name in found}
