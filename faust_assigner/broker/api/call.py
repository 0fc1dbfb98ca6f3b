"""What every request handler gets and gives."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from faust_assigner.broker.node import Node
from faust_assigner.broker.pace import Pace

Values = Mapping[str, Any]  # a response by kio's field names; fields a version lacks are left out
NO_RESPONSE: Final = object()  # Produce with acks=0
CLOSE: Final = object()  # ... that went wrong


class Peer(Protocol):
    """What a handler may know of the connection."""

    founded: int  # groups that were made by its requests
    heard_at: float  # when its last bytes came, by time.monotonic()

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

    def frame_for(self, correlation_id: int) -> bytes:
        """The frame as the answer to one request."""
        return self.frame[:4] + struct.pack(">i", correlation_id) + self.frame[8:]


# A handler returns the response's values, an Encoded frame, NO_RESPONSE or CLOSE, or a coroutine or future of
# one of them. What it raises becomes an error code, and the connection stays.
Handler = Callable[[Call, Any], Any]


@dataclass(frozen=True, slots=True)
class Api:
    """One API: its key and name, the versions served, who serves it, and the oldest one advertised."""

    key: int
    name: str
    low: int
    high: int
    handle: Handler
    advertised_low: int | None = None
