"""Who calls: read from the channel, a token or a client's certificate, never from a request's body."""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, Self

from faust_assigner.errors import ConfigError
from faust_assigner.service.errors import WrongCaller
from faust_assigner.service.faults import Unauthenticated
from faust_assigner.service.server.certificates import Stamp, stamp_of

log = logging.getLogger(__name__)

#: Of a certificate, as gRPC calls them.
_CERTIFICATE_NAMES: Final = ("x509_common_name", "x509_subject_alternative_name")
_HASHED: Final = "sha256:"
#: At the end of a name: all names that begin so.
ANY_END: Final = "*"


@dataclass(frozen=True)
class Caller:
    """The names a caller may act as; ``None``: nobody asked who it is, and it may act as anyone.

    A name that ends in ``*`` stands for every name that begins with what is before it. ``GROUP/NAME`` counts
    in one group alone.
    """

    names: frozenset[str] | None
    is_admin: bool = False

    def acting_as(self, consumer_name: str, group: str = "") -> str:
        """The identity to act under as that consumer, "" without authentication. Raises WrongCaller."""
        if self.names is None:
            return ""
        if not any(_covers(name, group, consumer_name) for name in self.names):
            raise WrongCaller(f"{self._said} may not act as {consumer_name!r}{_within(group)}")
        return consumer_name

    def watching(self, group: str) -> None:
        """Raises WrongCaller where the caller is only known in other groups."""
        if self.names is not None and not self.is_admin:
            groups = {name.rpartition("/")[0] for name in self.names}
            if not groups & {"", group}:
                raise WrongCaller(f"{self._said} may not look at assignments{_within(group)}")

    @property
    def _said(self) -> str:
        return ", ".join(sorted(self.names or ()))

    def administering(self) -> None:
        """Raises WrongCaller where the caller is no administrator."""
        if self.names is not None and not self.is_admin:
            raise WrongCaller(f"{self._said} is no administrator (--admins)")


def _covers(said: str, group: str, consumer_name: str) -> bool:
    """Whether ``said`` is the consumer's name, or a prefix of it with a star, in this group; a star alone is
    nobody's."""
    of, slash, name = said.rpartition("/")
    if slash and (not of or of != group):
        return False
    if name.endswith(ANY_END) and len(said) > 1:
        return consumer_name.startswith(name.removesuffix(ANY_END))
    return name == consumer_name


def _within(group: str) -> str:
    return f" in the group {group}" if group else ""


class Door(Protocol):
    """Tells who calls."""

    def caller(self, context: Any) -> Caller:
        """Of a call's context. Raises Unauthenticated."""

    def look(self) -> None:
        """Read again what has changed since the last look."""


class OpenDoor:
    """Everybody may come in, as anyone."""

    def caller(self, context: Any) -> Caller:
        """Anyone."""
        return Caller(None)

    def look(self) -> None:
        """Nothing to read."""


@dataclass
class TokenDoor:
    """Tokens of names, of which only the SHA-256 is kept. ``path``: the file that they are read from."""

    tokens: Sequence[tuple[str, bytes]] = field(repr=False)
    admins: Collection[str] = ()
    path: Path | None = None
    _stamp: Stamp | None = field(default=None, init=False)
    _complaint: str = field(default="", init=False)

    @classmethod
    def of_file(cls, path: Path, admins: Collection[str] = ()) -> Self:
        """The tokens of a file, which is looked at again by :meth:`look`. Raises ConfigError."""
        stamp = stamp_of(path)
        door = cls(read_tokens(path), admins, path)
        door._stamp = stamp
        return door

    def look(self) -> None:
        """Read the file again where it has changed. One that is wrong is logged, and the tokens stay."""
        if self.path is None:
            return
        try:
            stamp = stamp_of(self.path)
            if stamp == self._stamp:
                return
            self.tokens = read_tokens(self.path)
        except (OSError, ConfigError) as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                log.warning("The service goes on with the tokens that it has: %s", error)
            return
        self._stamp, self._complaint = stamp, ""
        log.info("%s has changed: %d tokens are known now", self.path, len(self.tokens))

    def caller(self, context: Any) -> Caller:
        """The names whose token the call carries; each is compared, in constant time."""
        said = [
            value for key, value in context.invocation_metadata() or () if key == "authorization"
        ]
        scheme, _, token = str(said[0] if len(said) == 1 else "").partition(" ")
        if scheme.lower() != "bearer":
            raise Unauthenticated(
                "the call carries no token: say --token, or authorization: Bearer TOKEN"
            )
        digest = hashlib.sha256(token.strip().encode()).digest()
        names = [name for name, known in self.tokens if hmac.compare_digest(known, digest)]
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

    def look(self) -> None:
        """Nothing to read: the handshake has."""


def read_tokens(path: Path) -> tuple[tuple[str, bytes], ...]:
    """A file of lines ``NAME TOKEN`` or ``NAME sha256:HEX``; # begins a comment. Raises ConfigError.

    A name may have several tokens, so that one can follow the other, and may end in ``*``.
    """
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"tokens: {path} cannot be read: {why}") from error
    found: dict[tuple[str, bytes], None] = {}
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2:
            raise ConfigError(f"{path}, line {number}: wants NAME TOKEN")
        if ANY_END in words[0][:-1] or words[0] == ANY_END:
            raise ConfigError(f"{path}, line {number}: a * stands at the end of a name's beginning")
        found[words[0], _digest(words[1], f"{path}, line {number}")] = None
    if not found:
        raise ConfigError(f"{path} holds no token")
    return tuple(found)


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
