"""The service's certificate and authorities: checked at the start, read again after changes."""

from __future__ import annotations

import contextlib
import logging
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
    """Raise ConfigError unless these are a certificate and its key.

    gRPC's own error would blame the address.
    """
    with _named(flags, "a certificate and its key"):
        # Without the empty password, OpenSSL prompts for the password of an encrypted key.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password="")


def check_authorities(path: Path, flags: str) -> None:
    """Raise ConfigError if the file contains no certificates."""
    with _named(flags, "certificates"):
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(path)


@contextlib.contextmanager
def _named(flags: str, what: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        why = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise ConfigError(f"{flags}: not {what} in PEM: {why}") from error


@dataclass
class Certificates:
    """The files of a TLS port; ``client_ca`` signs the certificates that consumers must present.

    gRPC calls :meth:`changed` at each handshake. In the middle of a replacement the files may be
    unreadable, or the key may not match the certificate. Meanwhile the last valid files are used.
    """

    cert: Path
    key: Path
    client_ca: Path | None = None
    _stamps: tuple[Stamp, ...] = field(default=(), init=False)
    _complaint: str = field(default="", init=False)

    def credentials(self) -> grpc.ServerCredentials:
        """Return a port's credentials. Raises ConfigError.

        New handshakes use changed files; existing connections stay open.
        """
        first = self._read()
        return grpc.dynamic_ssl_server_credentials(
            first, self.changed, require_client_authentication=self.client_ca is not None
        )

    def changed(self) -> Any:
        """Return the certificates if the files have changed since the last read, else ``None``."""
        try:
            if self._stamped() == self._stamps:
                return None
            found = self._read()
        except (OSError, ConfigError) as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                log.warning("The service goes on with its last certificates: %s", error)
            return None
        self._complaint = ""
        log.info("%s, or a file beside it, has changed: new connections use it", self.cert)
        return found

    def _stamped(self) -> tuple[Stamp, ...]:
        return tuple(stamp_of(path) for path in (self.cert, self.key, self.client_ca) if path)

    def _read(self) -> Any:
        stamps = self._stamped()
        check_pair(self.cert, self.key, "--tls-cert and --tls-key")
        if self.client_ca is not None:
            check_authorities(self.client_ca, "--tls-client-ca")
        pair = (self.key.read_bytes(), self.cert.read_bytes())
        authorities = self.client_ca.read_bytes() if self.client_ca else None
        self._stamps = stamps
        return grpc.ssl_server_certificate_configuration([pair], authorities)
