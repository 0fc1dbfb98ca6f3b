"""Which URLs of members may be asked: any member of a group may advertise any URL."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from fnmatch import fnmatchcase

from yarl import URL


def allowed(url: URL, own: URL, patterns: Sequence[str]) -> bool:
    """Whether requests may be forwarded to ``url`` from the worker at ``own``.

    With ``patterns`` (``host``, ``host:port``, ``*.domain`` or a network such as ``10.0.0.0/8``) only what
    one of them names. Without, anything but what no worker of another machine has: addresses that are
    link-local, multicast or unspecified, and loopback unless ``own`` is loopback too.
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
    """Whether one of ``patterns`` names the host of ``url``."""
    return any(_names(pattern, _host(url), url.port) for pattern in patterns)


def _host(url: URL) -> str:
    """As resolvers take it: a dot at the end says that the name is whole."""
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
        try:  # 127.1, 2130706433, 0x7f000001: addresses to whoever connects
            address = ipaddress.ip_address(socket.inet_aton(host))
        except OSError:
            return None
    return getattr(address, "ipv4_mapped", None) or address


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, by name or address."""
    address = _address(host)
    return (
        host == "localhost"
        or host.endswith(".localhost")
        or (address is not None and address.is_loopback)
    )


def is_loopback_url(url: str) -> bool:
    """Whether others that follow it reach themselves."""
    try:
        return is_loopback(_host(URL(url)))
    except ValueError:
        return False
