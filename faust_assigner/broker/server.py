"""Sockets: frames in, frames out, and the limits a stranger meets first. The only place that listens.

Each connection is served one request at a time, in order, as Kafka does: while an answer is pending (a parked
join, a long poll) nothing more of that connection is served. A frame that breaks a rule closes its own
connection, is counted in ``Node.counters`` and touches nobody else.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from faust_assigner.broker import wire
from faust_assigner.broker.api import APIS, CLOSE, NO_RESPONSE, Api, Call, Encoded
from faust_assigner.broker.api.versions import API_VERSIONS, unsupported_version
from faust_assigner.broker.limits import FRAME_TIMEOUT_S, WRITE_STALL_TIMEOUT_S
from faust_assigner.broker.node import Node
from faust_assigner.broker.wire import MalformedFrame, RequestHeader

logger = logging.getLogger(__name__)
SWEEP_INTERVAL_S: Final = 1.0
STOP_GRACE_S: Final = 1.0  # for peers to take the answers they were given
READ_AHEAD_BYTES: Final = 256 * 1024  # what may wait in a buffer while an answer is pending


class Connection(asyncio.Protocol):
    """One peer. ``_pending`` is the answer being waited for; None means the next frame may be served."""

    def __init__(self, server: BrokerServer) -> None:
        self._server = server
        self._node = server.node
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._pending: asyncio.Future[Any] | None = None
        self._reading_paused = False
        self._closing = False
        self._writing_since: float | None = None
        now = self._loop.time()
        self._incomplete_since: float | None = now  # the first frame is awaited from the start
        self._last_active = now
        self.address = ""

    # -- asyncio's side --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admit the peer, or drop it at once where it has too many connections."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if peer else "unknown"
        if not self._server.admit(self):
            self.close("connections_refused", "too many connections")

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the peer; what it parked is answered into the void."""
        self._closing = True
        self._transport = None
        self._buffer.clear()
        if self._pending is not None:
            self._pending.cancel()
        self._server.forget(self)

    def data_received(self, data: bytes) -> None:
        """Collect bytes, serve whole frames."""
        self._last_active = self._loop.time()
        self._buffer += data
        self._pump()

    def pause_writing(self) -> None:
        """The peer does not take what it asked for."""
        self._writing_since = self._loop.time()

    def resume_writing(self) -> None:
        """The peer reads again."""
        self._writing_since = None
        self._pump()

    # -- frames ----------------------------------------------------------------------------------

    def _pump(self) -> None:
        while not self._closing and self._pending is None and self._writing_since is None:
            frame = self._next_frame()
            if frame is None:
                break
            self._serve(frame)
        if self._closing or self._transport is None:
            return
        busy = self._pending is not None or self._writing_since is not None
        if busy and len(self._buffer) > READ_AHEAD_BYTES and not self._reading_paused:
            self._reading_paused = True
            self._transport.pause_reading()
        elif not busy and self._reading_paused:
            self._reading_paused = False
            self._transport.resume_reading()

    def _next_frame(self) -> bytes | None:
        if len(self._buffer) >= 4:
            (size,) = struct.unpack_from(">i", self._buffer)
            if not 0 < size <= self._node.settings.socket_request_max_bytes:
                self.close("frames_refused", f"a frame of {size} bytes")
                return None
            if len(self._buffer) >= 4 + size:
                frame = bytes(memoryview(self._buffer)[4 : 4 + size])
                del self._buffer[: 4 + size]
                self._incomplete_since = self._loop.time() if self._buffer else None
                return frame
        if self._buffer and self._incomplete_since is None:
            self._incomplete_since = self._loop.time()
        return None

    def _serve(self, frame: bytes) -> None:
        try:
            header = wire.read_header(frame, wire.is_flexible)
            api = APIS.get(header.api_key)
            if api is None or not api.low <= header.api_version <= api.high:
                self._unsupported(header, api)
                return
            request = wire.decode_request(header.api_key, header.api_version, frame, header.body)
        except MalformedFrame as error:
            self.close("frames_malformed", str(error))
            return
        call = Call(self._node, header.api_version, header.client_id, f"/{self.address}")
        try:
            outcome = api.handle(call, request)
        except Exception:
            logger.exception("%s v%d from %s failed", api.name, header.api_version, self.address)
            self.close("requests_failed", f"{api.name} failed")
            return
        if isinstance(outcome, asyncio.Future):
            self._wait(outcome, header)
        else:
            self._respond(header, outcome)

    def _unsupported(self, header: RequestHeader, api: Api | None) -> None:
        if header.api_key == API_VERSIONS:
            self._write(wire.encode_response(API_VERSIONS, 0, header.correlation_id, unsupported_version()))
        else:
            name = api.name if api else "unknown API"
            self.close("requests_unsupported", f"{name} (key {header.api_key}) version {header.api_version}")

    def _wait(self, outcome: asyncio.Future[Any], header: RequestHeader) -> None:
        if outcome.done():
            self._respond(header, outcome.result())
            return
        self._pending = outcome

        def finished(done: asyncio.Future[Any]) -> None:
            self._pending = None
            if done.cancelled() or self._closing:
                return
            self._respond(header, done.result())
            # What waited in the buffer meanwhile was held up by us, not by the peer.
            self._incomplete_since = self._loop.time() if self._buffer else None
            self._pump()

        outcome.add_done_callback(finished)

    def _respond(self, header: RequestHeader, outcome: Mapping[str, Any] | Encoded | object) -> None:
        if outcome is NO_RESPONSE:
            return
        if outcome is CLOSE:
            self.close("requests_failed", "a request without acknowledgement failed")
            return
        if isinstance(outcome, Encoded):
            self._write(outcome.frame_for(header.correlation_id))
            return
        assert isinstance(outcome, Mapping)
        try:
            frame = wire.encode_response(header.api_key, header.api_version, header.correlation_id, outcome)
        except Exception:
            logger.exception("the answer to %s v%d cannot be written", header.api_key, header.api_version)
            self.close("requests_failed", "unwritable answer")
            return
        self._write(frame)

    def _write(self, frame: bytes) -> None:
        if self._transport is not None and not self._closing:
            self._last_active = self._loop.time()
            self._transport.write(frame)

    # -- limits ----------------------------------------------------------------------------------

    def sweep(self, now: float) -> None:
        """Close the peer if it is too slow or silent for too long."""
        if self._closing:
            self.abort()  # it had a sweep's time to take what it was given
            return
        idle_s = self._node.settings.connections_max_idle_ms / 1000
        if self._writing_since is not None:
            if now - self._writing_since > WRITE_STALL_TIMEOUT_S:
                self.close("peers_stalled", "it does not read its answers")
                self.abort()
        elif self._pending is not None:
            return
        elif (
            self._incomplete_since is not None and now - self._incomplete_since > self._server.frame_timeout_s
        ):
            self.close("frames_slow", "a frame took too long")
        elif now - self._last_active > idle_s:
            self.close("peers_idle", "silent")

    def close(self, counter: str, why: str) -> None:
        """Serve the peer no longer and count why; answers given before are still delivered."""
        self._node.counters[counter] += 1
        logger.info("closed the connection of %s: %s", self.address, why)
        self.finish()

    def finish(self) -> None:
        """Deliver what was answered, then close."""
        self._closing = True
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Drop the peer, and what it has not taken yet."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()


class BrokerServer:
    """A listening broker on one event loop: ``await start()``, ``await stop()``."""

    def __init__(self, node: Node, *, frame_timeout_s: float = FRAME_TIMEOUT_S) -> None:
        self.node = node
        self.frame_timeout_s = frame_timeout_s
        self._connections: set[Connection] = set()
        self._per_address: Counter[str] = Counter()
        self._listener: asyncio.Server | None = None
        self._sweeper: asyncio.Task[None] | None = None

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Listen; return the port (a free one for port 0). Raises OSError where the port is taken."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(lambda: Connection(self), host, port, backlog=1024)
        self.node.host = host
        self.node.port = int(self._listener.sockets[0].getsockname()[1])
        self.node.start(loop)
        self._sweeper = loop.create_task(self._sweep())
        return self.node.port

    async def stop(self) -> None:
        """Stop listening, drop every peer, close the store. What was acknowledged is on disk already."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._connections):
            connection.finish()
        deadline = asyncio.get_running_loop().time() + STOP_GRACE_S
        while self._connections and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.01)
        for connection in list(self._connections):
            connection.abort()
        await asyncio.sleep(0)
        self.node.close()

    def admit(self, connection: Connection) -> bool:
        """Count a new peer; False where max.connections or max.connections.per.ip is reached."""
        settings = self.node.settings
        self._connections.add(connection)
        self._per_address[connection.address] += 1
        return (
            len(self._connections) <= settings.max_connections
            and self._per_address[connection.address] <= settings.max_connections_per_ip
        )

    def forget(self, connection: Connection) -> None:
        """A peer is gone."""
        self._connections.discard(connection)
        self._per_address[connection.address] -= 1
        if not self._per_address[connection.address]:
            del self._per_address[connection.address]

    @property
    def connections(self) -> int:
        """How many peers are connected."""
        return len(self._connections)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(min(SWEEP_INTERVAL_S, self.frame_timeout_s / 4))
            now = asyncio.get_running_loop().time()
            for connection in list(self._connections):
                connection.sweep(now)
