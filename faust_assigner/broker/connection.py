"""The connection of a peer: read frames and answer them one at a time, in order, as Kafka does.

While an answer is pending (a parked join, a long poll), the connection serves no further frame. A frame
that breaks a rule closes its own connection, is counted in ``Node.counters`` and affects no other peer. A
whole frame waits for the turn of its lane (``scheduler``). Short requests are decoded, handled and answered
at once. Long requests are decoded, and long answers encoded, in a thread; long handlers run in slices
(``throttle``). A frame that repeats the previous one, as heartbeats do, is answered without decoding.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from faust_assigner.broker import answering, answers, throttle
from faust_assigner.broker.answering import FRAME_SIZE, answer_token, read_request
from faust_assigner.broker.api import APIS, CLOSE, NO_RESPONSE, Api, Encoded
from faust_assigner.broker.api.call import Again
from faust_assigner.broker.api.produce import PRODUCE
from faust_assigner.broker.api.versions import API_VERSIONS, unsupported_version
from faust_assigner.broker.limits import (
    INLINE_ELEMENTS,
    MOST_UNSENT_BYTES,
    WRITE_STALL_TIMEOUT_S,
)
from faust_assigner.broker.request_walk import LongRequest, MalformedFrame, NullArray
from faust_assigner.broker.scheduler import lane_of
from faust_assigner.broker.security.authorizer import ANONYMOUS, distinguished_name
from faust_assigner.broker.security.gate import (
    FRAME_BYTES,
    LOG_IN_TIMEOUT_S,
    SASL_AUTHENTICATE,
    Gate,
)
from faust_assigner.broker.security.listeners import PLAINTEXT, Listener, mechanisms
from faust_assigner.broker.wire import RequestHeader, read_header

if TYPE_CHECKING:
    from faust_assigner.broker.api.fetch_sessions import FetchSession
    from faust_assigner.broker.server import BrokerServer

logger = logging.getLogger(__name__)
READ_AHEAD_BYTES: Final = 256 * 1024  # unserved bytes in a buffer before reading pauses
CORRELATION: Final = slice(4, 8)  # the only bytes that differ when a client repeats a request
REPEATED_BYTES: Final = 4_096  # longer requests are decoded each time


class Repeated(NamedTuple):
    """A short request without its correlation id, and the function that answers its repetitions."""

    size: int
    head: bytes
    rest: bytes
    answer: Again


def _nothing() -> Encoded:
    raise LookupError("no earlier answer")


RAW_TOKEN: Final = RequestHeader(SASL_AUTHENTICATE, 0, 0, "", 0)
INSIDE: Final = Listener(PLAINTEXT, "127.0.0.1", 0)
ECHO_OF_NOTHING: Final = Repeated(-1, b"", b"", _nothing)


class Connection(asyncio.Protocol):
    """One peer. ``_pending`` is the future of an unsent answer; if None, the next frame may be served."""

    def __init__(self, server: BrokerServer, listener: Listener = INSIDE) -> None:
        self._server = server
        self._listener, self.protocol = listener, listener.protocol
        self.gate: Gate | None = None
        self.fetch_session: FetchSession | None = None
        self._node = server.node
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._pending: asyncio.Future[Any] | None = None
        self._pending_key = 0
        self._reading_paused = False
        self._closing = False
        self.stalled_since: float | None = None  # None while the peer reads its answers
        now = self._loop.time()
        self._incomplete_since: float | None = now  # the timeout of the first frame starts here
        self._last_active = self._heard_at = self._connected_at = now
        self.address = ""
        self.created_groups = 0
        self.unsent = 0  # bytes of answers that the peer has not read
        self._held = 0
        self._undecoded = 0  # bytes of a long request that waits for its turn
        self._in_lane = False
        self._has_ended = False
        self._repeated = ECHO_OF_NOTHING

    @property
    def is_closing(self) -> bool:
        """Whether the connection ends and serves no further frame."""
        return self._closing

    def local_host(self) -> str:
        """Return the local address to which the peer connected."""
        name = self._transport.get_extra_info("sockname") if self._transport is not None else None
        return str(name[0]) if name else self._node.host

    @property
    def principal(self) -> str:
        """The authenticated name: the SASL user, the subject of the TLS certificate, or ANONYMOUS."""
        if self.gate is not None:
            return f"User:{self.gate.user}" if self.gate.is_open else ANONYMOUS
        return self._certified

    @functools.cached_property
    def _certified(self) -> str:
        transport = self._transport
        name = distinguished_name(
            None if transport is None else transport.get_extra_info("peercert")
        )
        return ANONYMOUS if name is None else f"User:{name}"

    # -- callbacks of asyncio --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admit the peer, or close the connection if the broker or its address has too many."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's class is no subclass
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if peer else "unknown"
        if self._listener.has_sasl:
            self.gate = Gate(
                self._node.credentials,
                mechanisms(self._node.settings, self._listener),
                self._node.failed_log_ins,
                self.address,
                self._node.aside,
            )
        if not self._server.admit(self):
            self.close("connections_refused", "too many connections")

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the peer and cancel its pending answer."""
        self._closing = True
        self._transport = None
        self._count_unsent()
        self._buffer.clear()
        if self._pending is not None:
            self._pending.cancel()
        self._server.forget(self)

    def data_received(self, data: bytes) -> None:
        """Collect bytes until a frame is complete."""
        self._last_active = self._heard_at = self._loop.time()
        self._buffer += data
        self._get_on()

    def eof_received(self) -> bool:
        """Note the end of the peer's input; serve the frames that wait for a turn before closing.

        asyncio closes a TLS connection at once, and warns if a protocol asks it to wait.
        """
        self._has_ended = True
        return self._is_owed and not self._listener.has_tls

    @property
    def _is_owed(self) -> bool:
        """Whether a frame waits for its turn or a produce request runs; other answers have no reader."""
        return self._in_lane or (self._pending is not None and self._pending_key == PRODUCE)

    def pause_writing(self) -> None:
        """Record that the peer does not read its answers."""
        self.stalled_since = self._loop.time()

    def resume_writing(self) -> None:
        """Record that the peer reads again, and serve its next frame."""
        self.stalled_since = None
        self._count_unsent()
        self._get_on()

    # -- frames ----------------------------------------------------------------------------------

    def _get_on(self) -> None:
        """Queue the connection if a frame is complete; pause reading while too many bytes wait."""
        if self._closing or self._transport is None:
            return
        is_busy = self._pending is not None or self.stalled_since is not None
        if not (is_busy or self._in_lane) and self._has_frame():
            self._in_lane = True
            self._server.scheduler.wait(self, lane_of(int.from_bytes(self._buffer[4:6], "big")))
        waits = (
            is_busy or self._in_lane
        )  # a peer that sends faster than its frames are served must not fill the buffer
        much = len(self._buffer) > READ_AHEAD_BYTES // (2 if self._reading_paused else 1)
        if (waits and much) != self._reading_paused:
            self._reading_paused = not self._reading_paused
            (
                self._transport.pause_reading
                if self._reading_paused
                else self._transport.resume_reading
            )()
        self._hold(len(self._buffer))

    def _stop_waiting(self) -> None:
        self._undecoded = 0
        self._hold(len(self._buffer))

    def _hold(self, size: int) -> None:
        size += self._undecoded
        if size != self._held:
            self._held = size
            self._server.hold(self, size)

    def _has_frame(self) -> bool:
        if len(self._buffer) >= 4:
            (size,) = FRAME_SIZE.unpack_from(self._buffer)
            if not 0 < size <= self._largest_frame:
                self.close("frames_refused", f"a frame of {size} bytes")
                return False
            if len(self._buffer) >= 4 + size:
                return True
        if self._buffer and self._incomplete_since is None:
            self._incomplete_since = self._loop.time()
        return False

    @property
    def _largest_frame(self) -> int:
        largest = self._node.settings.socket_request_max_bytes
        is_known = self.gate is None or self.gate.is_open
        return largest if is_known else min(largest, FRAME_BYTES)

    def serve_one(self) -> None:
        """Serve one frame when the turn of this connection comes."""
        self._in_lane = False
        if self._closing:
            return
        end = 4 + FRAME_SIZE.unpack_from(self._buffer)[0]
        frame = bytes(memoryview(self._buffer)[4:end])
        del self._buffer[:end]
        self._hold(0)  # progress: the bytes that remain count as held from now
        self._incomplete_since = self._loop.time() if self._buffer else None
        try:
            if not self._serve_again(frame):
                self._serve(frame)
            self._node.groups.meter.served(frame, self._heard_at)
        except Exception:
            logger.exception("could not serve a request of %s", self.address)
            self.close("requests_failed", "could not serve a request")
        self._get_on()
        if self._has_ended and not self._is_owed:
            self.finish()

    def _serve_again(self, frame: bytes) -> bool:
        """Answer a frame that repeats the previous request; return False if it does not."""
        again = self._repeated
        if not (
            len(frame) == again.size and frame.endswith(again.rest) and frame.startswith(again.head)
        ):
            return False
        try:
            answer = again.answer().framed(frame[CORRELATION])
        except Exception as error:
            logger.debug(
                "a repeated frame failed with its earlier answer and is decoded again: %r", error
            )
            return False
        if self._transport is not None:
            self._transport.write(answer)
            self._count_unsent()
        return True

    def _serve(self, frame: bytes) -> None:
        if self.gate is not None and self.gate.is_raw:
            self._wait(self._loop.create_task(answer_token(self.gate, frame)), RAW_TOKEN)
            return
        try:
            header = read_header(frame)
        except MalformedFrame as error:
            self.close("frames_malformed", str(error))
            return
        if self.gate is not None and not self.gate.admits(header.api_key):
            why = f"a request with key {header.api_key} before log-in"
            self.close("requests_unauthenticated", why)
            return
        api = APIS.get(header.api_key)
        if api is None or not api.low <= header.api_version <= api.high:
            self._unsupported(header, api)
            return
        try:
            request = read_request(header, frame, limit=INLINE_ELEMENTS)
        except MalformedFrame as error:
            self.close("frames_malformed", str(error))
            return
        except LongRequest:
            self._undecoded = len(frame)  # held from the end of this turn on
            long = answering.answer_long(self._node, self, api, header, frame, self._stop_waiting)
            self._wait(self._loop.create_task(long), header)
            return
        except NullArray as error:
            refusal = answering.answer_error(self._node, self, header, None, error)
            self._wait(self._loop.create_task(refusal), header)
            return
        self._handle(api, header, request)
        if api.again is not None and len(frame) <= REPEATED_BYTES and not self._is_checked:
            answer = api.again(self._node, header.api_version, request)
            head, rest = frame[: CORRELATION.start], frame[CORRELATION.stop :]
            self._repeated = Repeated(len(frame), head, rest, answer)

    @property
    def _is_checked(self) -> bool:
        """Whether an authorizer checks each request, also one that repeats the previous request."""
        return self._node.authorizer is not None

    def _handle(self, api: Api, header: RequestHeader, request: Any) -> None:
        handler = answering.answer(self._node, self, api, header, request)
        finished, outcome = throttle.start(handler)
        if finished:
            self._respond(header, outcome)
        else:
            self._wait(outcome, header)

    def _unsupported(self, header: RequestHeader, api: Api | None) -> None:
        if header.api_key == API_VERSIONS:
            self._write(
                answers.encode_pieces(API_VERSIONS, 0, header.correlation_id, unsupported_version())
            )
        else:
            name = api.name if api else "unknown API"
            self.close(
                "requests_unsupported",
                f"{name} (key {header.api_key}) version {header.api_version}",
            )

    def _wait(self, outcome: asyncio.Future[Any], header: RequestHeader) -> None:
        self._pending, self._pending_key = outcome, header.api_key

        def finished(done: asyncio.Future[Any]) -> None:
            self._pending = None
            if done.cancelled() or self._closing:
                return
            error = done.exception()
            if isinstance(error, MalformedFrame):
                self.close("frames_malformed", str(error))
                return
            if error is not None:
                logger.error("could not send an answer with key %d", header.api_key, exc_info=error)
                self.close("requests_failed", "unwritable answer")
                return
            self._respond(header, done.result())
            # The broker delayed the bytes that waited in the buffer, so their timeout starts now.
            self._incomplete_since = self._loop.time() if self._buffer else None
            self._get_on()
            if self._has_ended and not self._is_owed:
                self.finish()

        outcome.add_done_callback(finished)

    def _respond(self, header: RequestHeader, outcome: Any) -> None:
        if outcome is CLOSE:
            self.close("requests_failed", "a request without acknowledgement failed")
        elif outcome is not NO_RESPONSE:
            self._write(outcome)
        if self.gate is not None and self.gate.has_failed:
            self.close("log_ins_failed", "it did not log in")

    def _write(self, pieces: list[bytes]) -> None:
        if self._transport is not None and not self._closing:
            self._last_active = self._loop.time()
            if len(pieces) == 1:
                self._transport.write(pieces[0])
            else:
                self._transport.writelines(pieces)
            self._count_unsent()

    def _count_unsent(self) -> None:
        now = 0 if self._transport is None else self._transport.get_write_buffer_size()
        if now != self.unsent:
            self._node.unsent_bytes += now - self.unsent
            self.unsent = now
            if self._node.unsent_bytes > MOST_UNSENT_BYTES:
                self._server.drop_stalled()

    # -- limits ----------------------------------------------------------------------------------

    def sweep(self, now: float) -> None:
        """Close a connection that is too slow, or idle for too long."""
        if self._closing:
            self.abort()  # the peer had the time between two sweeps to read its last answers
            return
        idle_s = self._node.settings.connections_max_idle_ms / 1000
        if self.stalled_since is not None:
            if now - self.stalled_since > WRITE_STALL_TIMEOUT_S:
                self.close("peers_stalled", "it does not read its answers")
                self.abort()
        elif self._pending is not None:
            return
        elif (
            self.gate is not None
            and not self.gate.is_open
            and now - self._connected_at > LOG_IN_TIMEOUT_S
        ):
            self.close("log_ins_slow", "it did not log in in time")
        elif (
            self._incomplete_since is not None
            and now - self._incomplete_since > self._server.frame_timeout_s
        ):
            self.close("frames_slow", "a frame took too long")
        elif now - self._last_active > idle_s:
            self.close("peers_idle", "silent")

    def close(self, counter: str, why: str) -> None:
        """Close the connection, count and log the reason; answers written before are still delivered."""
        self._node.counters[counter] += 1
        now = self._loop.time()
        self._node.peer_log.say(counter, now, "closed the connection of %s: %s", self.address, why)
        self.finish()

    def finish(self) -> None:
        """Deliver the written answers, then close."""
        self._closing = True
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once and drop unsent answers."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()
