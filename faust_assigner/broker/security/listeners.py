"""Listeners: addresses of the broker, with or without TLS and log-in. Names are Kafka's."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from faust_assigner.errors import ConfigError

PLAINTEXT: Final = "PLAINTEXT"
PROTOCOLS: Final = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_ADDRESS: Final = re.compile(r"(?:([A-Z_]+)://)?\[?([^\[\],/]*?)\]?:(\d{1,5})")


@dataclass(frozen=True, slots=True)
class Listener:
    """One address to listen on or to advertise. ``protocol`` is one of PROTOCOLS."""

    protocol: str
    host: str
    port: int

    @property
    def has_tls(self) -> bool:
        """Whether clients must use TLS."""
        return self.protocol.endswith("SSL")

    @property
    def has_sasl(self) -> bool:
        """Whether clients must log in."""
        return self.protocol.startswith("SASL")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.protocol}://{host}:{self.port}"


def parse_listeners(setting: str, text: str) -> tuple[Listener, ...]:
    """Parse ``PROTOCOL://HOST:PORT,...``, each protocol once, default PLAINTEXT. Raises ConfigError.

    >>> parse_listeners("listeners", "SASL_SSL://127.0.0.1:9093, 127.0.0.1:9092")[1].protocol
    'PLAINTEXT'
    """
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _ADDRESS.fullmatch(part)
        protocol = (match[1] or PLAINTEXT) if match else ""
        if match is None or not match[2] or int(match[3]) > 65_535 or protocol not in PROTOCOLS:
            raise ConfigError(
                f"{setting} must be [PROTOCOL://]HOST:PORT, separated by commas, with a protocol of "
                f"{', '.join(PROTOCOLS)}, not {part!r}"
            )
        found.append(Listener(protocol, match[2], int(match[3])))
    if len({one.protocol for one in found}) < len(found):
        raise ConfigError(f"{setting} names a protocol twice: {text!r}")
    return tuple(found)
