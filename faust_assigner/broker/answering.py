"""Answer one request: read its header, decode, call the handler, encode the answer or the error."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from faust_assigner.broker import answers, throttle
from faust_assigner.broker.api import APIS, CLOSE, NO_RESPONSE, Api, Call, Encoded, access
from faust_assigner.broker.api.call import Again
from faust_assigner.broker.api.produce import PRODUCE
from faust_assigner.broker.api.refusals import refuse
from faust_assigner.broker.api.versions import API_VERSIONS, unsupported_version
from faust_assigner.broker.frames import FRAME_SIZE
from faust_assigner.broker.limits import ANSWER_TIMEOUT_S, INLINE_BYTES, INLINE_ELEMENTS
from faust_assigner.broker.node import Node
from faust_assigner.broker.peer import Peer
from faust_assigner.broker.request_walk import LongRequest, MalformedFrame, NullArray
from faust_assigner.broker.security.gate import SASL_AUTHENTICATE, Gate, LogInFailed
from faust_assigner.broker.wire import RequestHeader, read_header, read_request
from faust_assigner.errors import FaustAssignerError

logger = logging.getLogger(__name__)
CORRELATION: Final = slice(4, 8)  # the only bytes that differ when a client repeats a request
RAW_TOKEN: Final = RequestHeader(SASL_AUTHENTICATE, 0, 0, "", 0)
REPEATED_BYTES: Final = 4_096  # longer requests are decoded each time
#: APIs whose answers wait for other clients: Fetch, JoinGroup, SyncGroup.
WAITING_FOR_OTHERS: Final = frozenset((1, 11, 14))


class FrameRefused(FaustAssignerError):
    """An invalid frame: the broker closes its connection and increments ``counter``."""

    def __init__(self, counter: str, why: str) -> None:
        super().__init__(why)
        self.counter = counter


class RepeatedRequest(NamedTuple):
    """A short request without its correlation id, and the function that answers its repetitions."""

    size: int
    head: bytes
    rest: bytes
    answer: Again

    @classmethod
    def of(cls, frame: bytes, answer: Again) -> RepeatedRequest:
        """Return the request in a frame."""
        return cls(len(frame), frame[: CORRELATION.start], frame[CORRELATION.stop :], answer)

    def answer_again(self, frame: bytes) -> bytes | None:
        """Answer a frame that repeats the request; return None for other frames or after an error."""
        if not (
            len(frame) == self.size and frame.endswith(self.rest) and frame.startswith(self.head)
        ):
            return None
        try:
            return self.answer().framed(frame[CORRELATION])
        except Exception as error:
            logger.debug(
                "a repeated frame failed with its earlier answer and is decoded again: %r", error
            )
            return None


class StartedRequest(NamedTuple):
    """A request whose handler has started: its outcome, or the future of the outcome.

    ``is_long``: the request waits for its decoding. ``repeated`` answers repetitions of the frame.
    """

    header: RequestHeader
    outcome: Any
    is_finished: bool = False
    is_long: bool = False
    repeated: RepeatedRequest | None = None


def start(
    node: Node, peer: Peer, frame: bytes, stops_waiting: Callable[[], None]
) -> StartedRequest:
    """Decode a request and begin to handle it; ``stops_waiting`` as in ``_answer_long``.

    Raises FrameRefused for a frame whose connection must be closed.
    """
    loop = asyncio.get_running_loop()
    if peer.gate is not None and peer.gate.is_raw:
        return StartedRequest(RAW_TOKEN, loop.create_task(_answer_token(peer.gate, frame)))
    header = _read_admitted(peer, frame)
    api = _served_api(header)
    if api is None:
        return StartedRequest(header, _unsupported_answer(header), is_finished=True)
    try:
        request = read_request(header, frame, limit=INLINE_ELEMENTS)
    except MalformedFrame as error:
        raise FrameRefused("frames_malformed", str(error)) from None
    except LongRequest:
        long = _answer_long(node, peer, api, header, frame, stops_waiting)
        return StartedRequest(header, loop.create_task(long), is_long=True)
    except NullArray as error:
        return StartedRequest(
            header, loop.create_task(_answer_error(node, peer, header, None, error))
        )
    is_finished, outcome = throttle.start(_answer(node, peer, api, header, request))
    repeated = None
    if api.again and len(frame) <= REPEATED_BYTES and node.authorizer is None:
        repeated = RepeatedRequest.of(frame, api.again(node, header.api_version, request))
    return StartedRequest(header, outcome, is_finished, repeated=repeated)


def _read_admitted(peer: Peer, frame: bytes) -> RequestHeader:
    """Read the header of a request.

    Raises FrameRefused for a malformed header, and for requests that need a log-in first.
    """
    try:
        header = read_header(frame)
    except MalformedFrame as error:
        raise FrameRefused("frames_malformed", str(error)) from None
    if peer.gate is not None and not peer.gate.admits(header.api_key):
        why = f"it sent a request with key {header.api_key} before its log-in"
        raise FrameRefused("requests_unauthenticated", why)
    return header


def _served_api(header: RequestHeader) -> Api | None:
    """Return the API of a request, or None for an ApiVersions request of an unknown version.

    Raises FrameRefused for any other API or version that the broker does not serve.
    """
    api = APIS.get(header.api_key)
    if api is not None and api.low <= header.api_version <= api.high:
        return api
    if header.api_key == API_VERSIONS:
        return None
    name = api.name if api else "unknown API"
    why = f"{name} (key {header.api_key}) version {header.api_version}"
    raise FrameRefused("requests_unsupported", why)


def _unsupported_answer(header: RequestHeader) -> list[bytes]:
    """Return the answer to an ApiVersions request of an unknown version: all served versions (KIP-511)."""
    values = unsupported_version()
    return answers.encode_pieces(API_VERSIONS, 0, header.correlation_id, values)


async def _answer_token(gate: Gate, token: bytes) -> list[bytes]:
    """Answer a bare SASL token, as clients send after SaslHandshake version 0."""
    try:
        answer = await gate.answer(token)
    except LogInFailed:
        return [b""]
    return [FRAME_SIZE.pack(len(answer)) + answer]


async def _answer_long(
    node: Node,
    peer: Peer,
    api: Api,
    header: RequestHeader,
    frame: bytes,
    stops_waiting: Callable[[], None],
) -> Any:
    """Decode a long request in a thread, then answer it.

    The semaphore ``node.line.decoded`` limits the memory of decoded requests. ``stops_waiting`` is called
    when the request has the semaphore, or after ANSWER_TIMEOUT_S without it. A request that waits for other
    clients releases the semaphore before its handler runs.
    """
    decoded = node.line.decoded
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            await decoded.acquire()
    except TimeoutError as late:
        if api.key == PRODUCE:  # a producer with acks=0 reads no answer
            return CLOSE
        return await _answer_error(node, peer, header, None, late)
    finally:
        stops_waiting()
    try:
        request = await node.crunch(lambda: read_request(header, frame))
        if api.key not in WAITING_FOR_OTHERS:
            return await _answer(node, peer, api, header, request)
    except NullArray as error:
        return await _answer_error(node, peer, header, None, error)
    finally:
        decoded.release()
    return await _answer(node, peer, api, header, request)


async def _answer(node: Node, peer: Peer, api: Api, header: RequestHeader, request: Any) -> Any:
    """Return the pieces of the answer's frame, NO_RESPONSE or CLOSE. Exceptions become error answers."""
    call = Call(
        node,
        header.api_version,
        header.client_id,
        f"/{peer.address}",
        throttle.Throttle(node.line),
        peer,
    )
    try:
        outcome = await access.handle(api, call, request)
        if outcome is NO_RESPONSE or outcome is CLOSE:
            return outcome
        if isinstance(outcome, Encoded):
            return [outcome.framed(struct.pack(">i", header.correlation_id))]
        return await _encode_response(node, header, outcome)
    except Exception as error:
        if header.api_key == PRODUCE and request.acks == 0:
            return CLOSE
        return await _answer_error(node, peer, header, request, error)
    finally:
        call.throttle.end()


async def _answer_error(
    node: Node, peer: Peer, header: RequestHeader, request: Any, error: Exception
) -> list[bytes]:
    """Return the error answer to a request that raised an exception; count and log the exception."""
    code, counter = REFUSALS.get(type(error), (ErrorCode.unknown_server_error, "requests_failed"))
    node.counters[counter] += 1
    level = logging.ERROR if code is ErrorCode.unknown_server_error else logging.INFO
    node.peer_log.log(
        counter,
        asyncio.get_running_loop().time(),
        "the request with key %d v%d of %s gets the error %s: %r",
        header.api_key,
        header.api_version,
        peer.address,
        code.name,
        error,
        level=level,
        trace=error if level == logging.ERROR else None,
    )
    values = await node.crunch(lambda: refuse(header.api_key, header.api_version, request, code))
    return await _encode_response(node, header, values)


async def _encode_response(node: Node, header: RequestHeader, values: Any) -> list[bytes]:
    def encode() -> list[bytes]:
        return answers.encode_pieces(
            header.api_key, header.api_version, header.correlation_id, values
        )

    if answers.is_long(values, INLINE_ELEMENTS, INLINE_BYTES):
        return await node.crunch(encode)
    return encode()


REFUSALS: Final = {
    NullArray: (ErrorCode.invalid_request, "requests_invalid"),
    throttle.AnswerTooLarge: (ErrorCode.policy_violation, "answers_too_large"),
    TimeoutError: (ErrorCode.request_timed_out, "answers_late"),
}
