"""What every request handler gets and gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from faust_assigner.broker.founders import Founder
from faust_assigner.broker.node import Node
from faust_assigner.broker.pace import Pace
from faust_assigner.broker.security.gate import Gate

if TYPE_CHECKING:
    from faust_assigner.broker.api.fetch_sessions import FetchSession

Values = Mapping[str, Any]  # a response by kio's field names; fields a version lacks are left out
NO_RESPONSE: Final = object()  # Produce with acks=0
CLOSE: Final = object()  # ... that went wrong


class Peer(Founder, Protocol):
    """What a handler may know of the connection.

    ``protocol`` is that of its listener; ``gate`` its log-in, None where there is none; ``fetch_session`` the
    session of its fetches.
    """

    protocol: str
    gate: Gate | None
    fetch_session: FetchSession | None

    def local_host(self) -> str:
        """The address at which it reached this broker."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request's surroundings."""

    node: Node
    version: int
    client_id: str
    client_host: str
    pace: Pace
    peer: Peer


@dataclass(frozen=True, slots=True)
class Encoded:
    """A whole response frame made earlier; only its correlation id is still to be set."""

    frame: bytes

    def framed(self, correlation_id: bytes) -> bytes:
        """The frame as the answer to one request, named by the four bytes of its correlation id."""
        return self.frame[:4] + correlation_id + self.frame[8:]


# A handler returns the response's values, an Encoded frame, NO_RESPONSE or CLOSE, or a coroutine or future of
# one of them. What it raises becomes an error code, and the connection stays.
Handler = Callable[[Call, Any], Any]

# What answers a request when it comes again, word for word: clients repeat their heartbeats for hours.
Again = Callable[[], Encoded]


@dataclass(frozen=True, slots=True)
class Api:
    """One API: its key and name, the versions served, who serves it, and the oldest one advertised.

    ``again`` is for requests that clients repeat and that are answered at once: (node, version, request) in,
    what answers the same bytes the next time out.
    """

    key: int
    name: str
    low: int
    high: int
    handle: Handler
    advertised_low: int | None = None
    again: Callable[[Node, int, Any], Again] | None = None
