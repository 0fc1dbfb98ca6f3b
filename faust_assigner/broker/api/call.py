"""The input and output types of request handlers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from faust_assigner.broker.node import Node
from faust_assigner.broker.peer import Peer
from faust_assigner.broker.throttle import Throttle

Values = Mapping[str, Any]  # kio's field names -> values; fields that a version lacks are ignored
NO_RESPONSE: Final = object()  # send no response: Produce with acks=0
CLOSE: Final = object()  # close the connection: Produce with acks=0 failed


@dataclass(frozen=True, slots=True)
class Call:
    """The context of one request."""

    node: Node
    version: int
    client_id: str
    client_host: str
    throttle: Throttle
    peer: Peer

    def may(self, operation: int, resource_type: int, name: str) -> bool:
        """Whether the peer may perform an operation on a resource; true without an authorizer."""
        authorizer = self.node.authorizer
        return authorizer is None or authorizer.may(
            self.peer.principal, self.peer.address, operation, resource_type, name
        )

    def may_on_some(self, operation: int, resource_type: int) -> bool:
        """Whether the peer may perform an operation on at least one name of a type."""
        authorizer = self.node.authorizer
        return authorizer is None or authorizer.may_on_some(
            self.peer.principal, self.peer.address, operation, resource_type
        )


@dataclass(frozen=True, slots=True)
class Encoded:
    """A prepared response frame, complete except for the correlation id."""

    frame: bytes

    def framed(self, correlation_id: bytes) -> bytes:
        """Return the frame with the four bytes of a request's correlation id."""
        return self.frame[:4] + correlation_id + self.frame[8:]


# A handler returns the response's values, an Encoded frame, NO_RESPONSE or CLOSE, or a coroutine or future of
# such a result. An exception from a handler becomes an error code, and the connection stays open.
Handler = Callable[[Call, Any], Any]

# A function that answers identical repetitions of a request, because clients repeat heartbeats for hours.
Again = Callable[[], Encoded]


@dataclass(frozen=True, slots=True)
class Api:
    """One API: its key and name, the versions served, the handler, and the oldest advertised version.

    ``again`` is for requests that clients repeat and that are answered at once. ``again`` takes (node,
    version, request), and returns a function that answers identical later requests.
    """

    key: int
    name: str
    low: int
    high: int
    handle: Handler
    advertised_low: int | None = None
    again: Callable[[Node, int, Any], Again] | None = None
