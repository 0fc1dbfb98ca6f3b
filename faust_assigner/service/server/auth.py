"""Who calls: read from the channel, a token or a client's certificate, never from a request's body."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from faust_assigner.errors import ConfigError
from faust_assigner.service.errors import WrongCaller
from faust_assigner.service.faults import Unauthenticated

#: Of a certificate, as gRPC calls them.
_CERTIFICATE_NAMES: Final = ("x509_common_name", "x509_subject_alternative_name")
_HASHED: Final = "sha256:"


@dataclass(frozen=True)
class Caller:
    """The names a caller may act as; ``None``: nobody asked who it is, and it may act as anyone."""

    names: frozenset[str] | None
    is_admin: bool = False

    def acting_as(self, consumer_name: str) -> str:
        """The identity to act under as that consumer, "" without authentication. Raises WrongCaller."""
        if self.names is None:
            return ""
        if consumer_name not in self.names:
            raise WrongCaller(f"{', '.join(sorted(self.names))} may not act as {consumer_name!r}")
        return consumer_name

    def administering(self) -> None:
        """Raises WrongCaller where the caller is no administrator."""
        if self.names is not None and not self.is_admin:
            raise WrongCaller(f"{', '.join(sorted(self.names))} is no administrator (--admins)")


class Door(Protocol):
    """Tells who calls."""

    def caller(self, context: Any) -> Caller:
        """Of a call's context. Raises Unauthenticated."""


class OpenDoor:
    """Everybody may come in, as anyone."""

    def caller(self, context: Any) -> Caller:
        """Anyone."""
        return Caller(None)


@dataclass(frozen=True)
class TokenDoor:
    """A token for each name; only its SHA-256 is kept."""

    digests: Mapping[str, bytes] = field(repr=False)
    admins: Collection[str] = ()

    def caller(self, context: Any) -> Caller:
        """The name whose token the call carries; each is compared, in constant time."""
        said = [
            value for key, value in context.invocation_metadata() or () if key == "authorization"
        ]
        scheme, _, token = str(said[0] if len(said) == 1 else "").partition(" ")
        if scheme.lower() != "bearer":
            raise Unauthenticated(
                "the call carries no token: say --token, or authorization: Bearer TOKEN"
            )
        digest = hashlib.sha256(token.strip().encode()).digest()
        names = [name for name, known in self.digests.items() if hmac.compare_digest(known, digest)]
        if not names:
            raise Unauthenticated("the token is unknown")
        return Caller(frozenset(names), any(name in self.admins for name in names))


@dataclass(frozen=True)
class CertificateDoor:
    """The names in the client's certificate, which TLS has verified."""

    admins: Collection[str] = ()

    def caller(self, context: Any) -> Caller:
        """The certificate's common name and alternative names."""
        said = context.auth_context()
        names = frozenset(
            name.decode() for kind in _CERTIFICATE_NAMES for name in said.get(kind, ())
        )
        if not names:
            raise Unauthenticated("the call comes without a client's certificate")
        return Caller(names, any(name in self.admins for name in names))


def read_tokens(path: Path) -> dict[str, bytes]:
    """A file of lines ``NAME TOKEN`` or ``NAME sha256:HEX``; # begins a comment. Raises ConfigError."""
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise ConfigError(f"tokens: {path} cannot be read: {error.strerror}") from error
    found: dict[str, bytes] = {}
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2 or words[0] in found:
            raise ConfigError(f"{path}, line {number}: wants NAME TOKEN, each name once")
        found[words[0]] = _digest(words[1], f"{path}, line {number}")
    if not found:
        raise ConfigError(f"{path} holds no token")
    return found


def _digest(said: str, where: str) -> bytes:
    if not said.startswith(_HASHED):
        return hashlib.sha256(said.encode()).digest()
    try:
        digest = bytes.fromhex(said.removeprefix(_HASHED))
    except ValueError:
        digest = b""
    if len(digest) != 32:
        raise ConfigError(f"{where}: {_HASHED} wants 64 hexadecimal digits")
    return digest
