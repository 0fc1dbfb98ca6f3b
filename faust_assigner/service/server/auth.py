"""Finds a caller's names from its token or client certificate, never from a request's body."""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, Self

from faust_assigner.errors import ConfigError
from faust_assigner.service.certificates import Stamp, stamp_of
from faust_assigner.service.errors import WrongCaller
from faust_assigner.service.faults import Unauthenticated

if TYPE_CHECKING:
    from google.protobuf.message import Message
    from grpc.aio import ServicerContext

    #: The context of a call, as gRPC passes it.
    Context = ServicerContext[Message, Message]

log = logging.getLogger(__name__)

#: gRPC's names of the properties that hold a certificate's names.
_CERTIFICATE_NAMES: Final = ("x509_common_name", "x509_subject_alternative_name")
_HASHED: Final = "sha256:"
#: A name with this ending stands for all names with the same beginning.
ANY_END: Final = "*"


@dataclass(frozen=True)
class Caller:
    """The names under which a caller may act. ``None``: no authentication, every name is allowed.

    A name that ends in ``*`` stands for every name with the same beginning. ``GROUP/NAME`` is valid
    only in that group.
    """

    names: frozenset[str] | None
    is_admin: bool = False

    def acting_as(self, consumer_name: str, group: str = "") -> str:
        """Return the identity under which the caller acts as that consumer.

        Return "" without authentication. Raises WrongCaller.
        """
        if self.names is None:
            return ""
        if not any(_covers(name, group, consumer_name) for name in self.names):
            raise WrongCaller(
                f"{self._shown_names} may not act as {consumer_name!r}{_in_group(group)}"
            )
        return consumer_name

    def watching(self, group: str) -> None:
        """Raise WrongCaller if all of the caller's names belong to other groups."""
        if self.names is not None and not self.is_admin:
            groups = {name.rpartition("/")[0] for name in self.names}
            if not groups & {"", group}:
                raise WrongCaller(f"{self._shown_names} may not read assignments{_in_group(group)}")

    @property
    def _shown_names(self) -> str:
        return ", ".join(sorted(self.names or ()))

    def administering(self) -> None:
        """Raise WrongCaller if the caller is not an administrator."""
        if self.names is not None and not self.is_admin:
            raise WrongCaller(f"{self._shown_names} is not an administrator (--admins)")


def _covers(said: str, group: str, consumer_name: str) -> bool:
    """Return whether ``said`` is the consumer's name in this group, or ``*`` after its prefix.

    A ``*`` alone covers no name.
    """
    of, slash, name = said.rpartition("/")
    if slash and (not of or of != group):
        return False
    if name.endswith(ANY_END) and len(said) > 1:
        return consumer_name.startswith(name.removesuffix(ANY_END))
    return name == consumer_name


def _in_group(group: str) -> str:
    return f" in the group {group}" if group else ""


class Authenticator(Protocol):
    """Identifies the caller of a call."""

    def caller(self, context: Context) -> Caller:
        """Return the caller, from a call's context. Raises Unauthenticated."""

    def look(self) -> None:
        """Read changed files again."""


class NoAuthentication:
    """No authentication: every caller may act under every name."""

    def caller(self, context: Context) -> Caller:
        """Return a caller without restrictions."""
        return Caller(None)

    def look(self) -> None:
        """Do nothing: there is no file."""


@dataclass
class TokenAuthenticator:
    """Identifies callers by token; only the SHA-256 of each token is kept in memory.

    ``path`` is the file with the tokens.
    """

    tokens: Sequence[tuple[str, bytes]] = field(repr=False)
    admins: Collection[str] = ()
    path: Path | None = None
    _stamp: Stamp | None = field(default=None, init=False)
    _complaint: str = field(default="", init=False)

    @classmethod
    def of_file(cls, path: Path, admins: Collection[str] = ()) -> Self:
        """Read the tokens of a file; :meth:`look` reads the file again. Raises ConfigError."""
        stamp = stamp_of(path)
        authenticator = cls(read_tokens(path), admins, path)
        authenticator._stamp = stamp
        return authenticator

    def look(self) -> None:
        """Read the file again if it has changed; log an invalid file and keep the last tokens."""
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
                log.warning("The service keeps its current tokens: %s", error)
            return
        self._stamp, self._complaint = stamp, ""
        log.info("%s has changed: %d tokens are valid now", self.path, len(self.tokens))

    def caller(self, context: Context) -> Caller:
        """Return a caller with all names that have the call's token.

        Every known token is compared, in constant time. Raises Unauthenticated.
        """
        said = [
            value for key, value in context.invocation_metadata() or () if key == "authorization"
        ]
        scheme, _, token = str(said[0] if len(said) == 1 else "").partition(" ")
        if scheme.lower() != "bearer":
            raise Unauthenticated(
                "the call has no token: give --token, or the metadata authorization: Bearer TOKEN"
            )
        digest = hashlib.sha256(token.strip().encode()).digest()
        names = [name for name, known in self.tokens if hmac.compare_digest(known, digest)]
        if not names:
            raise Unauthenticated("the token is unknown")
        return Caller(frozenset(names), any(name in self.admins for name in names))


@dataclass(frozen=True)
class CertificateAuthenticator:
    """Identifies callers by the client certificate, which TLS has verified."""

    admins: Collection[str] = ()

    def caller(self, context: Context) -> Caller:
        """Return a caller with the certificate's common name and alternative names.

        Raises Unauthenticated.
        """
        said = context.auth_context()
        names = frozenset(
            name.decode() for kind in _CERTIFICATE_NAMES for name in said.get(kind, ())
        )
        if not names:
            raise Unauthenticated("the call has no client certificate")
        return Caller(names, any(name in self.admins for name in names))

    def look(self) -> None:
        """Do nothing: the TLS handshake reads the files."""


def read_tokens(path: Path) -> tuple[tuple[str, bytes], ...]:
    """Read a file of lines ``NAME TOKEN`` or ``NAME sha256:HEX``; # begins a comment.

    A name may have several tokens, so that a new token can replace an old one. A name may end in
    ``*``. Raises ConfigError.
    """
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"tokens: could not read {path}: {why}") from error
    found: dict[tuple[str, bytes], None] = {}
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2:
            raise ConfigError(f"{path}, line {number}: expected NAME TOKEN")
        if ANY_END in words[0][:-1] or words[0] == ANY_END:
            raise ConfigError(f"{path}, line {number}: a * may only end a name")
        found[words[0], _token_digest(words[1], f"{path}, line {number}")] = None
    if not found:
        raise ConfigError(f"{path} holds no token")
    return tuple(found)


def _token_digest(said: str, where: str) -> bytes:
    if not said.startswith(_HASHED):
        return hashlib.sha256(said.encode()).digest()
    try:
        digest = bytes.fromhex(said.removeprefix(_HASHED))
    except ValueError:
        digest = b""
    if len(digest) != 32:
        raise ConfigError(f"{where}: {_HASHED} wants 64 hexadecimal digits")
    return digest
