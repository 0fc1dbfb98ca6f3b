"""A connected client as request handlers see it: its addresses, its authenticated name and its sessions."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from faust_assigner.broker.fetch_session import FetchSession
from faust_assigner.broker.node import Node
from faust_assigner.broker.security.authorizer import ANONYMOUS, distinguished_name
from faust_assigner.broker.security.gate import Gate
from faust_assigner.broker.security.listeners import Listener, mechanisms


@dataclass(eq=False)
class Peer:
    """One client.

    ``protocol`` is the listener's protocol. ``address`` is the client's address, and ``local_host`` the
    broker's address to which the client connected. ``certified`` is the principal in the client's TLS
    certificate. ``gate`` is the log-in, or None on a listener without SASL. ``created_groups`` counts the
    existing groups that the client's requests created.
    """

    protocol: str
    address: str = ""
    local_host: str = ""
    certified: str = ANONYMOUS
    gate: Gate | None = None
    fetch_session: FetchSession | None = None
    created_groups: int = 0

    @property
    def principal(self) -> str:
        """The authenticated name: ``User:`` and the SASL user, the certificate's subject or ANONYMOUS."""
        if self.gate is not None:
            return f"User:{self.gate.user}" if self.gate.is_open else ANONYMOUS
        return self.certified

    @property
    def is_known(self) -> bool:
        """Whether the client has logged in or needs no log-in."""
        return self.gate is None or self.gate.is_open


def peer_of(transport: asyncio.BaseTransport, listener: Listener, node: Node) -> Peer:
    """Return the client at the other end of a new connection of a listener."""
    remote, local = (transport.get_extra_info(name) for name in ("peername", "sockname"))
    address = str(remote[0]) if remote else "unknown"
    gate = None
    if listener.has_sasl:
        offered = mechanisms(
            node.settings.sasl_enabled_mechanisms,
            listener,
            plain_without_tls=node.settings.sasl_plain_without_tls,
        )
        gate = Gate(node.credentials, offered, node.failed_log_ins, address, node.aside)
    return Peer(
        listener.protocol,
        address,
        str(local[0]) if local else node.host,
        certified(transport),
        gate,
    )


def certified(transport: asyncio.BaseTransport) -> str:
    """Return the principal in the client's TLS certificate; ANONYMOUS without one."""
    name = distinguished_name(transport.get_extra_info("peercert"))
    return ANONYMOUS if name is None else f"User:{name}"
