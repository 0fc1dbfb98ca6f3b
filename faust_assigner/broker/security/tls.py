"""The TLS context of listeners, with certificates that are reloaded when their files change."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from faust_assigner.broker.settings import Settings
from faust_assigner.errors import ConfigError

logger = logging.getLogger(__name__)
CLIENT_CERTIFICATES = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


class Certificates:
    """The TLS context of the listeners. Each new connection gets the context of the latest files.

    Open connections keep their certificate. A context that is in use is never changed: OpenSSL can add
    authorities to a context, but cannot remove them.
    """

    def __init__(self, settings: Settings) -> None:
        """Load the files. Raises ConfigError if a file is missing or unusable."""
        self._settings = settings
        self._seen = self._stamps()
        try:
            self.context = self._latest = self._load()
        except OSError as error:
            raise ConfigError(f"the TLS files cannot be read: {error}") from None
        self.context.sni_callback = self._hand_over

    def _hand_over(self, peer: ssl.SSLObject | ssl.SSLSocket, name: str | None, _: object) -> None:
        peer.context = self._latest

    def _files(self) -> tuple[Path, ...]:
        names = (self._settings.ssl_keystore_location, self._settings.ssl_truststore_location)
        return tuple(Path(name) for name in names if name)

    def _stamps(self) -> tuple[tuple[int, int], ...]:
        try:
            stats = [path.stat() for path in self._files()]
        except OSError:
            return ()
        return tuple((one.st_mtime_ns, one.st_size) for one in stats)

    def _load(self) -> ssl.SSLContext:
        settings = self._settings
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = CLIENT_CERTIFICATES[settings.ssl_client_auth]
        if (
            settings.ssl_client_auth != "none"
        ):  # a resumed session would skip the check of a certificate
            context.options |= ssl.OP_NO_TICKET
            context.num_tickets = 0
        context.load_cert_chain(settings.ssl_keystore_location, password=_refuse_encrypted_key)
        if settings.ssl_truststore_location:
            context.load_verify_locations(settings.ssl_truststore_location)
        return context

    def reload(self) -> bool:
        """Load changed files; return whether this succeeded. Unusable files do not change the certificate."""
        stamps = self._stamps()
        if not stamps or stamps == self._seen:
            return False
        self._seen = stamps
        try:
            self._latest = self._load()
        except (OSError, ConfigError) as error:
            logger.error(
                "the changed TLS files are unusable; new connections get the former "
                "certificate: %s",
                error,
            )
            return False
        logger.info("the TLS files changed; new connections get the new certificate")
        return True


def _refuse_encrypted_key() -> str:
    """Refuse encrypted keys; without this callback OpenSSL would ask the terminal for a password."""
    raise ConfigError(
        "ssl.keystore.location has an encrypted key; only keys without a password are read"
    )
