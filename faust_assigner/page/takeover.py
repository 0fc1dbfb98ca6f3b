"""Accepts connections on the page's thread while the worker's event loop is blocked.

A worker's web server runs on the worker's event loop. While the processing of a record blocks that
loop, the kernel keeps new connections in the socket's queue. The page's thread then accepts the
connections and peeks at the first line of each request. It answers requests for the page. It hands
all other connections to the worker's loop, where they wait until the loop runs again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Iterable
from logging import getLogger
from typing import Any, Final

logger = getLogger(__name__)

#: Seconds without a turn after which the worker's loop counts as blocked; the interval of checks.
HELD_UP_S, TICK_S = 1.0, 0.2
#: The limits for reading a request's first line: seconds, and bytes.
FIRST_LINE_S, FIRST_LINE_BYTES = 5.0, 4096
#: The most connections whose first line is awaited at the same time.
MOST_WAITING: Final = 100

Protocol = Callable[[], asyncio.BaseProtocol]


class Takeover:
    """Accepts connections on the page's loop while the worker's loop is blocked.

    ``sockets`` returns the listening sockets. ``turned_at`` returns the time at which the worker's
    loop last ran our task. ``is_ours`` returns whether a path belongs to the page. ``ours`` makes
    the protocol for a connection on the page's loop, ``theirs`` for a connection on the worker's
    loop.
    """

    def __init__(
        self,
        *,
        sockets: Callable[[], Iterable[object]],
        turned_at: Callable[[], float],
        clock: Callable[[], float],
        is_ours: Callable[[str], bool],
        ours: Protocol,
        theirs: Protocol,
        their_loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._sockets, self._turned_at, self._clock = sockets, turned_at, clock
        self._is_ours, self._ours, self._theirs = is_ours, ours, theirs
        self._their_loop = their_loop
        self._waiting: set[asyncio.Task[None]] = set()
        #: The tasks that attach connections on the worker's loop. Only that loop uses this set.
        self._given: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Check every ``TICK_S`` seconds whether the loop is blocked, until cancelled."""
        try:
            while True:
                await asyncio.sleep(TICK_S)
                if self._clock() - self._turned_at() >= HELD_UP_S:
                    self._accept_all()
        finally:
            for task in self._waiting:
                task.cancel()
            await asyncio.gather(*self._waiting, return_exceptions=True)

    def _accept_all(self) -> None:
        for listening in self._sockets():
            while len(self._waiting) < MOST_WAITING and (found := _accepted(listening)):
                task = asyncio.create_task(self._route_connection(found))
                self._waiting.add(task)
                task.add_done_callback(self._waiting.discard)

    async def _route_connection(self, connection: socket.socket) -> None:
        """Give a connection to the loop that answers its request."""
        path = None
        try:
            async with asyncio.timeout(FIRST_LINE_S):
                path = await _path_of(connection)
        except (TimeoutError, OSError):
            pass
        except asyncio.CancelledError:
            connection.close()
            raise
        try:
            if path is not None and self._is_ours(path):
                loop = asyncio.get_running_loop()
                await loop.connect_accepted_socket(self._ours, connection)
            else:
                self._their_loop.call_soon_threadsafe(self._attach_to_worker_loop, connection)
        except (OSError, RuntimeError) as error:
            # the client has gone, or the worker's loop is closed
            logger.debug("A connection to the page was closed before its answer: %r", error)
            connection.close()

    def _attach_to_worker_loop(self, connection: socket.socket) -> None:
        """Attach a connection on the worker's loop."""

        async def connect() -> None:
            try:
                await self._their_loop.connect_accepted_socket(self._theirs, connection)
            except OSError:
                connection.close()

        task = self._their_loop.create_task(connect())
        self._given.add(task)
        task.add_done_callback(self._given.discard)


def _accepted(listening: Any) -> socket.socket | None:
    """Return the next connection in the socket's queue, or None."""
    try:
        # A socket object of our own, because the listening object belongs to the worker's loop.
        own = socket.socket(fileno=os.dup(listening.fileno()))
    except OSError:
        return None
    with contextlib.closing(own):
        try:
            found, _ = own.accept()
        except OSError:
            return None
    found.setblocking(False)
    return found


async def _path_of(connection: socket.socket) -> str | None:
    """Return the path of a GET or HEAD request without consuming the request's bytes.

    Returns None for any other request, and if the first line is too long.
    """
    loop, seen = asyncio.get_running_loop(), -1
    while True:
        ready = asyncio.Event()
        loop.add_reader(connection, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(connection)
        first = connection.recv(FIRST_LINE_BYTES, socket.MSG_PEEK)
        line, found, _ = first.partition(b"\r\n")
        words = line.split(b" ")
        if found:
            return (
                words[1].decode("latin-1")
                if words[0] in (b"GET", b"HEAD") and len(words) == 3
                else None
            )
        if not first or len(first) == FIRST_LINE_BYTES:
            return None
        if len(first) == seen:  # the peeked bytes stay readable, so wait here for further bytes
            await asyncio.sleep(0.05)
        seen = len(first)
