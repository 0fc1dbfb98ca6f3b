"""Checks whether requests may be forwarded to a URL, because any member may advertise any URL."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from fnmatch import fnmatchcase

from yarl import URL


def allowed(url: URL, own: URL, patterns: Sequence[str]) -> bool:
    """Return whether requests may be forwarded to ``url`` from the worker at ``own``.

    With ``patterns`` (``host``, ``host:port``, ``*.domain`` or a network such as ``10.0.0.0/8``) only
    matching URLs are allowed. An IPv6 address may have brackets. Without patterns, all URLs are allowed
    except link-local, multicast and unspecified addresses, and loopback unless ``own`` is loopback too.
    """
    host = _host_of(url)
    if url.scheme not in ("http", "https") or not host:
        return False
    if patterns:
        return matches_any(url, patterns)
    address = _ip_address(host)
    if is_loopback(host):
        return is_loopback(_host_of(own))
    return address is None or not (
        address.is_link_local or address.is_multicast or address.is_unspecified
    )


def matches_any(url: URL, patterns: Sequence[str]) -> bool:
    """Return whether any of ``patterns`` matches the host, or the host and port, of ``url``."""
    return any(_pattern_matches(pattern, _host_of(url), url.port) for pattern in patterns)


def _host_of(url: URL) -> str:
    """Return the host in lower case, without the trailing dot that marks a complete DNS name."""
    return (url.host or "").lower().removesuffix(".")


def _pattern_matches(pattern: str, host: str, port: int | None) -> bool:
    if "/" in pattern:
        address = _ip_address(host)
        return address is not None and address in ipaddress.ip_network(pattern, strict=False)
    written = f"[{host}]" if ":" in host else host
    # Brackets at the beginning belong to an IPv6 address, and are no set of characters.
    literal = pattern.replace("[", "[[]") if pattern.startswith("[") else pattern
    names = host, f"{host}:{port}", written, f"{written}:{port}"
    return any(fnmatchcase(name, literal) for name in names)


def _ip_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        try:  # connect() also accepts 127.1, 2130706433 and 0x7f000001 as addresses
            address = ipaddress.ip_address(socket.inet_aton(host))
        except OSError:
            return None
    return getattr(address, "ipv4_mapped", None) or address


def is_loopback(host: str) -> bool:
    """Return whether a host is a loopback name or a loopback address."""
    address = _ip_address(host)
    return (
        host == "localhost"
        or host.endswith(".localhost")
        or (address is not None and address.is_loopback)
    )


def is_loopback_url(url: str) -> bool:
    """Return whether the host of ``url`` is loopback, so that other machines cannot use the URL."""
    try:
        return is_loopback(_host_of(URL(url)))
    except ValueError:
        return False
