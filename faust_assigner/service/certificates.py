"""Reads TLS certificates and authorities from files: at the start, and again after each change."""

from __future__ import annotations

import contextlib
import logging
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import grpc

from faust_assigner.errors import ConfigError

log = logging.getLogger(__name__)

#: The state of a file: its modification time in ns, its size, its inode.
Stamp = tuple[int, int, int]


def stamp_of(path: Path) -> Stamp:
    """Return a stamp that differs after a change of the file; links are followed.

    Raises OSError.
    """
    found = path.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino


def check_pair(cert: Path, key: Path, flags: str) -> None:
    """Raise ConfigError unless ``cert`` and ``key`` are a certificate and its private key.

    Without this check, gRPC reports an invalid pair as an error of the port's address.
    """
    with _explained(flags, "a certificate and its key"):
        # Without the empty password, OpenSSL prompts for the password of an encrypted key.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password="")


def check_authorities(path: Path, flags: str) -> None:
    """Raise ConfigError if the file contains no certificates."""
    with _explained(flags, "certificates"):
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(path)


@contextlib.contextmanager
def _explained(flags: str, what: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        why = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise ConfigError(f"{flags}: could not read {what} in PEM format: {why}") from error


class Pem(NamedTuple):
    """The content of :class:`PemFiles`; ``None`` for a file that is not given."""

    authorities: bytes | None
    certificate: bytes | None
    key: bytes | None


@dataclass
class PemFiles:
    """A certificate with its key, and the authorities that sign the peer's certificate.

    The pair and the authorities are optional. ``flags`` and ``ca_flag`` name the command's options
    in errors; ``user`` names this side in log lines. While an operator replaces the files, they may
    be unreadable, or the key may not match the certificate. Then the last valid content is used.
    """

    certificate: Path | None
    key: Path | None
    authorities: Path | None
    flags: str
    ca_flag: str
    user: str
    _stamps: tuple[Stamp, ...] = field(default=(), init=False)
    _complaint: str = field(default="", init=False)

    def read(self) -> Pem:
        """Return the files' content. Raises ConfigError and OSError."""
        stamps = self._stamped()
        if self.certificate is not None and self.key is not None:
            check_pair(self.certificate, self.key, self.flags)
        if self.authorities is not None:
            check_authorities(self.authorities, self.ca_flag)
        read = (path.read_bytes() if path else None for path in self._paths)
        found, self._stamps = Pem(*read), stamps
        return found

    def changed(self) -> Pem | None:
        """Return the content if the files have changed since the last read, else ``None``."""
        try:
            if self._stamped() == self._stamps:
                return None
            found = self.read()
        except (OSError, ConfigError) as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                log.warning("%s keeps its previous certificates: %s", self.user, error)
            return None
        self._complaint = ""
        log.info("a file of %s has changed: new connections of %s use it", self.flags, self.user)
        return found

    @property
    def _paths(self) -> tuple[Path | None, Path | None, Path | None]:
        return self.authorities, self.certificate, self.key

    def _stamped(self) -> tuple[Stamp, ...]:
        return tuple(stamp_of(path) for path in self._paths if path)


class Certificates:
    """The files of a TLS port; ``client_ca`` signs the certificates that callers must present.

    ``user`` names the server in log lines.
    """

    def __init__(
        self, cert: Path, key: Path, client_ca: Path | None = None, *, user: str = "The service"
    ) -> None:
        flags = "--tls-cert and --tls-key"
        self._files = PemFiles(cert, key, client_ca, flags, "--tls-client-ca", user)

    def credentials(self) -> grpc.ServerCredentials:
        """Return a port's credentials. Raises ConfigError and OSError.

        gRPC calls :meth:`changed` at each handshake; existing connections stay open.
        """
        return grpc.dynamic_ssl_server_credentials(
            _configuration(self._files.read()),
            self.changed,
            require_client_authentication=self._files.authorities is not None,
        )

    def changed(self) -> Any:
        """Return the certificates if the files have changed since the last read, else ``None``."""
        found = self._files.changed()
        return None if found is None else _configuration(found)


def _configuration(pem: Pem) -> Any:
    assert pem.key is not None
    assert pem.certificate is not None
    pair = (pem.key, pem.certificate)
    return grpc.ssl_server_certificate_configuration([pair], pem.authorities)
