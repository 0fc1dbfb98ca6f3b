"""The connection of a peer: read frames and answer them one at a time, in order, as Kafka does.

While an answer is pending (a parked join, a long poll), the connection serves no further frame. A frame
that breaks a rule closes its own connection, is counted in ``Node.counters`` and affects no other peer. A
whole frame waits for the turn of its lane (``scheduler``). Short requests are decoded, handled and answered
at once. Long requests are decoded, and long answers encoded, in a thread; long handlers run in slices
(``throttle``). A frame that repeats the previous frame, as heartbeats do, is answered without decoding.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, cast

from faust_assigner.broker import answering
from faust_assigner.broker.api import CLOSE, NO_RESPONSE
from faust_assigner.broker.api.produce import PRODUCE
from faust_assigner.broker.frames import FrameBuffer, WrongSize
from faust_assigner.broker.limits import WRITE_STALL_TIMEOUT_S
from faust_assigner.broker.node import Node
from faust_assigner.broker.peer import Peer, certified, peer_of
from faust_assigner.broker.request_walk import MalformedFrame
from faust_assigner.broker.scheduler import Scheduler, lane_of
from faust_assigner.broker.security.gate import FRAME_BYTES, LOG_IN_TIMEOUT_S
from faust_assigner.broker.security.listeners import PLAINTEXT, Listener
from faust_assigner.broker.wire import RequestHeader

READ_AHEAD_BYTES: Final = 256 * 1024  # unserved bytes in a buffer before reading pauses
INSIDE: Final = Listener(PLAINTEXT, "127.0.0.1", 0)


class Server(Protocol):
    """The part of the server that a connection uses."""

    node: Node
    scheduler: Scheduler
    frame_timeout_s: float

    def admit(self, connection: Connection) -> bool:
        """Count a new connection; return False if there are too many."""

    def hold(self, connection: Connection, size: int) -> None:
        """Set the number of the peer's bytes that wait."""

    def count_unsent(self, connection: Connection, size: int) -> None:
        """Set the number of answer bytes that the peer has not read."""

    def forget(self, connection: Connection) -> None:
        """Remove a closed connection from all counts."""


class Connection(asyncio.Protocol):
    """The connection of one peer. ``_pending`` is the future of an unsent answer; None between answers."""

    def __init__(self, server: Server, listener: Listener = INSIDE) -> None:
        self._server = server
        self._listener, self.peer = listener, Peer(listener.protocol)
        self._node = server.node
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._pending: asyncio.Future[Any] | None = None
        self._pending_key = 0
        self._reading_paused = False
        self.is_closing = False  # whether the connection ends and serves no further frame
        self.stalled_since: float | None = None  # None while the peer reads its answers
        now = self._loop.time()
        self._frames = FrameBuffer(now)
        self._last_active = self._heard_at = self._connected_at = now
        self.unsent = 0  # bytes of answers that the peer has not read
        self._held = 0
        self._undecoded = 0  # bytes of a long request that waits for its turn
        self._in_lane = False
        self._has_ended = False
        self._is_shaking_hands = False
        self._last_answered: answering.RepeatedRequest | None = None

    # -- callbacks of asyncio --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admit the peer; close the connection if the broker or the address has too many connections."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport is not a subclass
        self.peer = peer_of(transport, self._listener, self._node)
        if not self._server.admit(self):
            self.close("connections_refused", "too many connections")

    async def secure(
        self, shake_hands: Callable[[asyncio.Transport], Awaitable[asyncio.Transport | None]]
    ) -> None:
        """Serve the peer after its TLS handshake; the connection counts from before it."""
        if self._transport is None or self.is_closing:
            return
        self._is_shaking_hands = True
        try:
            secured = await shake_hands(self._transport)
        except OSError:
            secured = None
        if secured is None or secured.is_closing():
            self.connection_lost(None)
            return
        self._transport = secured
        self.peer.certified = certified(secured)
        self._is_shaking_hands = False
        self._queue_or_pause()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the peer and cancel its pending answer, after its first step (see ``throttle.start``)."""
        if self._is_shaking_hands and not self.is_closing:
            self.close("handshakes_failed", "it did not complete the TLS handshake")
        self.is_closing = True
        self._transport = None
        self._count_unsent()
        self._frames.clear()
        if self._pending is not None:
            self._loop.call_soon(self._pending.cancel)
        self._server.forget(self)

    def data_received(self, data: bytes) -> None:
        """Collect bytes until a frame is complete."""
        self._last_active = self._heard_at = self._loop.time()
        self._frames += data
        self._queue_or_pause()

    def eof_received(self) -> bool:
        """Note the end of the peer's input; serve the frames that wait for a turn before closing.

        asyncio closes a TLS connection at once, and warns if a protocol asks it to wait.
        """
        self._has_ended = True
        return self._has_unfinished_work and not self._listener.has_tls

    @property
    def _has_unfinished_work(self) -> bool:
        """Whether a frame waits or a produce request runs: both must finish before the connection closes."""
        return self._in_lane or (self._pending is not None and self._pending_key == PRODUCE)

    def pause_writing(self) -> None:
        """Record that the peer does not read its answers."""
        self.stalled_since = self._loop.time()

    def resume_writing(self) -> None:
        """Record that the peer reads again, and serve its next frame."""
        self.stalled_since = None
        self._count_unsent()
        self._queue_or_pause()

    # -- frames ----------------------------------------------------------------------------------

    def _queue_or_pause(self) -> None:
        """Queue the connection if a frame is complete; pause reading while too many bytes wait."""
        if self.is_closing or self._transport is None or self._is_shaking_hands:
            return
        is_busy = self._pending is not None or self.stalled_since is not None
        if not (is_busy or self._in_lane) and self._has_frame():
            self._in_lane = True
            self._server.scheduler.wait(self, lane_of(self._frames.first_api_key()))
        # A peer that sends faster than its frames are served must not fill the buffer.
        waits = is_busy or self._in_lane
        much = len(self._frames) > READ_AHEAD_BYTES // (2 if self._reading_paused else 1)
        if (waits and much) != self._reading_paused:
            self._reading_paused = not self._reading_paused
            wire = self._transport
            (wire.pause_reading if self._reading_paused else wire.resume_reading)()
        self._hold(len(self._frames))

    def _stop_waiting(self) -> None:
        self._undecoded = 0
        self._hold(len(self._frames))

    def _hold(self, size: int) -> None:
        size += self._undecoded
        if size != self._held:
            self._held = size
            self._server.hold(self, size)

    def _has_frame(self) -> bool:
        largest = self._node.settings.socket_request_max_bytes
        most = largest if self.peer.is_known else min(largest, FRAME_BYTES)
        try:
            return self._frames.has_whole(most, self._loop.time)
        except WrongSize as wrong:
            self.close("frames_refused", str(wrong))
            return False

    def serve_one(self) -> None:
        """Serve one frame when the turn of this connection comes."""
        self._in_lane = False
        if self.is_closing:
            return
        frame = self._frames.take(self._loop.time())
        # Bytes of a further frame may remain. The time limit for its arrival starts again now.
        self._hold(0)
        try:
            if not self._answer_repeated(frame):
                self._serve(frame)
            self._node.groups.meter.served(api_key=frame[:2], heard_at=self._heard_at)
        except Exception as error:
            self.close("requests_failed", "could not serve a request", error)
        self._queue_or_pause()
        if self._has_ended and not self._has_unfinished_work:
            self.finish()

    def _answer_repeated(self, frame: bytes) -> bool:
        """Answer a frame that repeats the previous request; return False for any other frame."""
        answer = None if self._last_answered is None else self._last_answered.answer_again(frame)
        if answer is None:
            return False
        if self._transport is not None:
            self._transport.write(answer)
            self._count_unsent()
        return True

    def _serve(self, frame: bytes) -> None:
        try:
            started = answering.start(self._node, self.peer, frame, self._stop_waiting)
        except answering.FrameRefused as refused:
            self.close(refused.counter, str(refused))
            return
        if started.is_long:
            self._undecoded = len(frame)  # bytes held until ``_stop_waiting``
        if started.is_finished:
            self._respond(started.header, started.outcome)
        else:
            self._wait(started.outcome, started.header)
        if started.repeated is not None:
            self._last_answered = started.repeated

    def _wait(self, outcome: asyncio.Future[Any], header: RequestHeader) -> None:
        self._pending, self._pending_key = outcome, header.api_key

        def finished(done: asyncio.Future[Any]) -> None:
            self._pending = None
            if done.cancelled() or self.is_closing:
                return
            error = done.exception()
            if isinstance(error, MalformedFrame):
                self.close("frames_malformed", str(error))
                return
            if error is not None:
                why = f"could not answer its request with key {header.api_key}"
                self.close("requests_failed", why, error)
                return
            self._respond(header, done.result())
            # The broker delayed the bytes that waited in the buffer, so their timeout starts now.
            self._frames.restart_timeout(self._loop.time())
            self._queue_or_pause()
            if self._has_ended and not self._has_unfinished_work:
                self.finish()

        outcome.add_done_callback(finished)

    def _respond(self, header: RequestHeader, outcome: Any) -> None:
        if outcome is CLOSE:
            self.close("requests_failed", "a request without acknowledgement failed")
        elif outcome is not NO_RESPONSE:
            self._write(outcome)
        if self.peer.gate is not None and self.peer.gate.has_failed:
            self.close("log_ins_failed", "it did not log in")

    def _write(self, pieces: list[bytes]) -> None:
        if self._transport is not None and not self.is_closing:
            self._last_active = self._loop.time()
            if len(pieces) == 1:
                self._transport.write(pieces[0])
            else:
                self._transport.writelines(pieces)
            self._count_unsent()

    def _count_unsent(self) -> None:
        size = 0 if self._transport is None else self._transport.get_write_buffer_size()
        if size != self.unsent:
            self._server.count_unsent(self, size)

    # -- limits ----------------------------------------------------------------------------------

    def sweep(self, now: float) -> None:
        """Close a connection that is too slow, or idle for too long."""
        if self.is_closing:
            self.abort()  # the peer had the time between two sweeps to read its last answers
            return
        idle_s = self._node.settings.connections_max_idle_ms / 1000
        since = self._frames.incomplete_since
        if self.stalled_since is not None:
            if now - self.stalled_since > WRITE_STALL_TIMEOUT_S:
                self.close("peers_stalled", "it does not read its answers")
                self.abort()
        elif self._pending is not None:
            return
        elif not self.peer.is_known and now - self._connected_at > LOG_IN_TIMEOUT_S:
            self.close("log_ins_slow", "it did not log in in time")
        elif since is not None and now - since > self._server.frame_timeout_s:
            self.close("frames_slow", "a frame took too long")
        elif now - self._last_active > idle_s:
            self.close("peers_idle", "it was silent for too long")

    def close(self, counter: str, why: str, error: BaseException | None = None) -> None:
        """Close the connection, count and log the reason; answers written before are still delivered.

        ``error`` is an unexpected exception, which is logged as an error with its traceback.
        """
        self._node.counters[counter] += 1
        self._node.peer_log.log(
            counter,
            self._loop.time(),
            "closed the connection of %s: %s",
            self.peer.address,
            why,
            level=logging.INFO if error is None else logging.ERROR,
            trace=error,
        )
        self.finish()

    def finish(self) -> None:
        """Deliver the written answers, then close."""
        self.is_closing = True
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once and drop unsent answers."""
        self.is_closing = True
        if self._transport is not None:
            self._transport.abort()
