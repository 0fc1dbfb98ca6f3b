"""The URLs of members to which requests may be forwarded: any member may advertise any URL."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from fnmatch import fnmatchcase

from yarl import URL


def allowed(url: URL, own: URL, patterns: Sequence[str]) -> bool:
    """Return whether requests may be forwarded to ``url`` from the worker at ``own``.

    With ``patterns`` (``host``, ``host:port``, ``*.domain`` or a network such as ``10.0.0.0/8``) only
    matching URLs are allowed. Without patterns, all URLs are allowed except impossible ones: addresses
    that are link-local, multicast or unspecified, and loopback unless ``own`` is loopback too.
    """
    host = _host(url)
    if url.scheme not in ("http", "https") or not host:
        return False
    if patterns:
        return named(url, patterns)
    address = _address(host)
    if is_loopback(host):
        return is_loopback(_host(own))
    return address is None or not (
        address.is_link_local or address.is_multicast or address.is_unspecified
    )


def named(url: URL, patterns: Sequence[str]) -> bool:
    """Return whether any of ``patterns`` matches the host of ``url``."""
    return any(_names(pattern, _host(url), url.port) for pattern in patterns)


def _host(url: URL) -> str:
    """Return the host as resolvers read it: a trailing dot marks a complete name."""
    return (url.host or "").lower().removesuffix(".")


def _names(pattern: str, host: str, port: int | None) -> bool:
    if "/" in pattern:
        address = _address(host)
        return address is not None and address in ipaddress.ip_network(pattern, strict=False)
    return fnmatchcase(host, pattern) or fnmatchcase(f"{host}:{port}", pattern)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        try:  # connect() accepts 127.1, 2130706433, 0x7f000001 as addresses
            address = ipaddress.ip_address(socket.inet_aton(host))
        except OSError:
            return None
    return getattr(address, "ipv4_mapped", None) or address


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, by name or address."""
    address = _address(host)
    return (
        host == "localhost"
        or host.endswith(".localhost")
        or (address is not None and address.is_loopback)
    )


def is_loopback_url(url: str) -> bool:
    """Return whether a remote reader of ``url`` would connect to its own machine."""
    try:
        return is_loopback(_host(URL(url)))
    except ValueError:
        return False
