"""The broker's listeners: addresses with or without TLS and log-in, under Kafka's names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from faust_assigner.errors import ConfigError

PLAINTEXT: Final = "PLAINTEXT"
PROTOCOLS: Final = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
WILDCARDS: Final = ("0.0.0.0", "::")  # valid for listening, but not as an address to connect to
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
    """Parse ``PROTOCOL://HOST:PORT,...``. Raises ConfigError, also if a protocol occurs twice.

    The default protocol is PLAINTEXT.

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


def listeners_of(setting: str, host: str, port: int) -> tuple[Listener, ...]:
    """Return the listeners of ``listeners``; if it is empty, one PLAINTEXT listener at ``host``:``port``."""
    given = parse_listeners("listeners", setting)
    return given or (Listener(PLAINTEXT, host, port),)


def advertised(setting: str, protocol: str = PLAINTEXT) -> tuple[str, int] | None:
    """Return the address of a protocol in ``advertised.listeners``, or None. Raises ConfigError."""
    for one in parse_listeners("advertised.listeners", setting):
        if one.port == 0 or one.host in WILDCARDS:
            raise ConfigError(f"advertised.listeners: no client can connect to {one}")
        if one.protocol == protocol:
            return one.host, one.port
    return None


def mechanisms(enabled: str, listener: Listener, *, plain_without_tls: bool) -> tuple[str, ...]:
    """Return the mechanisms of ``sasl.enabled.mechanisms`` that a listener offers."""
    names = enabled.split(",")
    may_be_plain = listener.has_tls or plain_without_tls
    return tuple(name for name in names if name != "PLAIN" or may_be_plain)
