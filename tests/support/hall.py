"""A broker with connections that are no sockets: its answers, in order, on its own clock."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

from faust_assigner.broker.connection import Connection
from faust_assigner.broker.node import Node
from faust_assigner.broker.scheduler import SLICE_S, Scheduler
from faust_assigner.broker.security.listeners import PLAINTEXT, Listener
from faust_assigner.broker.server import BrokerServer
from faust_assigner.broker.settings import Settings
from tests.support.clients.raw_client import request_frame
from tests.support.waiting import PATIENCE_S

STEP_S = SLICE_S / 10  # a clock that ticks ten times in a slice, at any speed of the machine
T = TypeVar("T")


def ticking() -> Callable[[], float]:
    """Return a clock that advances by a tenth of a slice with each read."""
    count = itertools.count()
    return lambda: next(count) * STEP_S


class Wire(asyncio.Transport):
    """Keep the written data by name, in the order of all connections."""

    def __init__(self, name: str, written: list[tuple[str, bytes]]) -> None:
        super().__init__()
        self.name, self.written = name, written
        self.closed = self.aborted = self.paused = False
        self.unsent = 0  # the number of bytes that the peer has not read, set by tests

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Every peer is on this machine and has no certificate."""
        return ("127.0.0.1", 1) if name in ("peername", "sockname") else default

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Keep the data."""
        self.written.append((self.name, bytes(data)))

    def get_write_buffer_size(self) -> int:
        """The bytes that the peer has not read."""
        return self.unsent

    def pause_reading(self) -> None:
        """Stop reading."""
        self.paused = True

    def resume_reading(self) -> None:
        """Resume reading."""
        self.paused = False

    def close(self) -> None:
        """Close the connection."""
        self.closed = True

    def abort(self) -> None:
        """Close at once; unread data is lost."""
        self.closed = self.aborted = True


class Hall:
    """A broker in memory with connections that are no sockets."""

    def __init__(self) -> None:
        self.node = Node(Settings.parse({"group.initial.rebalance.delay.ms": 0}))
        self.server = BrokerServer(self.node)
        self.server.scheduler = Scheduler(ticking())
        self.written: list[tuple[str, bytes]] = []

    def connect(self, name: str, protocol: str = PLAINTEXT) -> tuple[Connection, Wire]:
        """Add a peer."""
        listener = Listener(protocol, "127.0.0.1", 0)
        connection, wire = Connection(self.server, listener), Wire(name, self.written)
        connection.connection_made(wire)
        return connection, wire

    async def answers(self, count: int) -> list[str]:
        """Wait for ``count`` answers; return their peers in order."""
        while len(self.written) < count:
            await asyncio.sleep(0)
        return [name for name, _ in self.written]


def in_hall(story: Callable[[Hall], Awaitable[T]]) -> T:
    """Run a story on a new event loop."""

    async def told() -> T:
        hall = Hall()
        try:
            return await story(hall)
        finally:
            hall.node.close()

    return asyncio.run(asyncio.wait_for(told(), PATIENCE_S))


def frames(api_key: int, count: int, version: int = 0, **values: Any) -> Iterator[bytes]:
    """Return the same request with consecutive correlation ids."""
    return (request_frame(api_key, version, n, values) for n in range(count))
