"""The listening sockets: admission of connections, and the limit on memory for waiting frames."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from faust_assigner.broker import throttle
from faust_assigner.broker.connection import Connection
from faust_assigner.broker.frames import HeldBytes
from faust_assigner.broker.limits import DISCONNECT_UNSENT_BYTES, FRAME_TIMEOUT_S
from faust_assigner.broker.node import Node
from faust_assigner.broker.scheduler import Scheduler
from faust_assigner.broker.security.gate import LOG_IN_TIMEOUT_S
from faust_assigner.broker.security.listeners import WILDCARDS, Listener, listeners_of
from faust_assigner.broker.security.tls import Certificates
from faust_assigner.broker.settings import Settings

logger = logging.getLogger(__name__)
SWEEP_INTERVAL_S: Final = 1.0
STOP_GRACE_S: Final = 1.0  # time for peers to read their last answers
#: Turns of the loop for a peer's end, the cancellation of its request, and the request's last step.
TURNS_TO_CANCEL: Final = 4

EVERYBODY: Final = (
    "%s accepts every client that reaches this machine, without log-in: each client may read, "
    "write and delete all topics. Listen on 127.0.0.1, or use a SASL listener."
)


def warn_if_open(listener: Listener, addresses: Iterable[str], settings: Settings) -> None:
    """Log a warning about a listener on all addresses of the machine that accepts every client."""
    needs_certificate = listener.has_tls and settings.ssl_client_auth == "required"
    is_checked = listener.has_sasl or needs_certificate or bool(settings.authorizer_class_name)
    if not is_checked and not set(WILDCARDS).isdisjoint(addresses):
        logger.warning(EVERYBODY, listener)


class TlsDoor(asyncio.Protocol):
    """A new connection of a TLS listener up to its handshake."""

    def __init__(self, connection: Connection, context: ssl.SSLContext) -> None:
        self._connection, self._context = connection, context
        self._handshake: object = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection, then start the handshake."""
        self._connection.connection_made(transport)
        if not self._connection.is_closing:
            # At once: bytes that arrive before the handshake begins would be lost.
            self._handshake = throttle.start(self._connection.secure(self._shake_hands))

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection that ended before its handshake began."""
        self._connection.connection_lost(exc)

    async def _shake_hands(self, transport: asyncio.Transport) -> asyncio.Transport | None:
        """Return the transport; None, or OSError, if the peer ends the handshake."""
        return await asyncio.get_running_loop().start_tls(
            transport,
            self._connection,
            self._context,
            server_side=True,
            ssl_handshake_timeout=LOG_IN_TIMEOUT_S,
            ssl_shutdown_timeout=STOP_GRACE_S,
        )


class BrokerServer:
    """A listening broker on one event loop: ``await start()``, ``await stop()``."""

    def __init__(self, node: Node, *, frame_timeout_s: float = FRAME_TIMEOUT_S) -> None:
        self.node = node
        self.frame_timeout_s = frame_timeout_s
        self.connection_type: type[Connection] = Connection
        self._connections: set[Connection] = set()
        self._held: HeldBytes[Connection] = HeldBytes(node.settings.queued_max_request_bytes)
        self._per_address: Counter[str] = Counter()
        self.scheduler = Scheduler()
        node.group_timers.serve_first = lambda call: self.scheduler.after_arrived(call)
        self._listening: list[asyncio.Server] = []
        self._certificates: Certificates | None = None
        self.listeners: tuple[Listener, ...] = ()  # with their actual ports
        self._sweeper: asyncio.Task[None] | None = None

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Listen; return the port of the first listener. Port 0 means any free port.

        Raises OSError if a port is taken, ConfigError if the TLS files are unusable.
        """
        loop = asyncio.get_running_loop()
        try:
            for wanted in listeners_of(self.node.settings.listeners, host, port):
                await self._listen(wanted)
        except BaseException:
            self._stop_listening()
            raise
        self.node.start(loop)
        self._sweeper = loop.create_task(self._sweep())
        return self.node.port

    async def _listen(self, wanted: Listener) -> None:
        if wanted.has_tls:
            self._certificates = self._certificates or Certificates(self.node.settings)
        try:
            opened = await asyncio.get_running_loop().create_server(
                lambda: self._accept(wanted), wanted.host, wanted.port, backlog=1024
            )
        except socket.gaierror as error:
            raise OSError(f"the host {wanted.host!r} has no address: {error}") from error
        self._listening.append(opened)
        taken = replace(wanted, port=int(opened.sockets[0].getsockname()[1]))
        self.listeners += (taken,)
        self.node.listen_on(taken.host, taken.port, taken.protocol)
        addresses = [one.getsockname()[0] for one in opened.sockets]
        warn_if_open(taken, addresses, self.node.settings)

    def _accept(self, listener: Listener) -> asyncio.Protocol:
        connection = self.connection_type(self, listener)
        if listener.has_tls and self._certificates is not None:
            return TlsDoor(connection, self._certificates.context)
        return connection

    def _stop_listening(self) -> None:
        for opened in self._listening:
            opened.close()
        self._listening.clear()

    async def stop(self) -> None:
        """Stop listening, close all connections and the store. Acknowledged writes are on disk."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._stop_listening()
        for connection in list(self._connections):
            connection.finish()
        deadline = asyncio.get_running_loop().time() + STOP_GRACE_S
        while self._connections and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.01)
        for connection in list(self._connections):
            connection.abort()
        for _ in range(TURNS_TO_CANCEL):
            await asyncio.sleep(0)
        self.node.close()

    def admit(self, connection: Connection) -> bool:
        """Count a new connection; return False beyond max.connections(.per.ip)."""
        settings = self.node.settings
        self._connections.add(connection)
        self._per_address[connection.peer.address] += 1
        return (
            len(self._connections) <= settings.max_connections
            and self._per_address[connection.peer.address] <= settings.max_connections_per_ip
        )

    def hold(self, connection: Connection, size: int) -> None:
        """Set the number of a peer's bytes that wait for the end of their frame, an answer, or decoding.

        All peers share queued.max.request.bytes. Above it, the peers with the longest wait are disconnected.
        """
        for oldest in self._held.hold(connection, size):
            oldest.close("frames_over_budget", "frames that wait hold too much memory")
            oldest.abort()

    def count_unsent(self, connection: Connection, size: int) -> None:
        """Set the number of answer bytes that a peer has not read; beyond the limit, disconnect peers."""
        self.node.unsent_bytes += size - connection.unsent
        connection.unsent = size
        if self.node.unsent_bytes > DISCONNECT_UNSENT_BYTES:
            self._drop_stalled()

    def _drop_stalled(self) -> None:
        """Disconnect peers, the longest stalled first, until few enough bytes are unsent."""
        surplus = self.node.unsent_bytes - DISCONNECT_UNSENT_BYTES
        stalled = [one for one in self._connections if one.stalled_since is not None]
        for oldest in sorted(stalled, key=lambda one: one.stalled_since or 0.0):
            if surplus <= 0:
                return
            surplus -= oldest.unsent
            if oldest.is_closing:
                continue  # its bytes are released soon
            oldest.close("answers_over_budget", "its unread answers hold too much memory")
            oldest.abort()

    def forget(self, connection: Connection) -> None:
        """Remove a closed connection from all counts."""
        if connection not in self._connections:
            return  # after a failed handshake
        self._held.hold(connection, 0)
        self._connections.remove(connection)
        self._per_address[connection.peer.address] -= 1
        if not self._per_address[connection.peer.address]:
            del self._per_address[connection.peer.address]

    @property
    def connections(self) -> int:
        """The number of connected peers."""
        return len(self._connections)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(min(SWEEP_INTERVAL_S, self.frame_timeout_s / 4))
            if self._certificates is not None:
                await asyncio.to_thread(self._certificates.reload)
            now = asyncio.get_running_loop().time()
            for connection in list(self._connections):
                connection.sweep(now)
            self.node.peer_log.sweep(now)
