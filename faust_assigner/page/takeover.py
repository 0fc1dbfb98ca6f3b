"""Connections that a stopped event loop does not accept: the page's own thread accepts them meanwhile.

A worker's web server runs on the worker's event loop. While a record's work holds up that loop, the kernel
keeps new connections in the socket's queue. The page's thread then takes them out, looks at the first line
of each request without reading it, answers requests for the page, and hands all others to the worker's loop,
where they wait as they would have in the queue.
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

#: The loop counts as held up when it has not turned for so many seconds; so often that is looked at.
HELD_UP_S, TICK_S = 1.0, 0.2
#: A connection has so many seconds to send its first line, of at most so many bytes.
FIRST_LINE_S, FIRST_LINE_BYTES = 5.0, 4096
#: Connections whose first line is awaited at a time.
MOST_WAITING: Final = 100

Protocol = Callable[[], asyncio.BaseProtocol]


class Takeover:
    """Accepts for a loop that is held up; runs on another one.

    ``sockets`` gives the listening sockets, ``turned_at`` when their loop turned last, ``is_ours`` whether
    a path is the page's. ``ours`` and ``theirs`` make the protocol of an accepted connection here and there.
    """

    def __init__(
        self,
        *,
        sockets: Callable[[], Iterable[Any]],
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
        #: On their loop.
        self._given: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Until cancelled."""
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
                task = asyncio.create_task(self._place(found))
                self._waiting.add(task)
                task.add_done_callback(self._waiting.discard)

    async def _place(self, connection: socket.socket) -> None:
        """Give one connection to the loop that answers it."""
        path = None
        try:
            path = await asyncio.wait_for(_path_of(connection), FIRST_LINE_S)
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
                self._their_loop.call_soon_threadsafe(self._give, connection)
        except (OSError, RuntimeError) as error:  # it is gone, or their loop has been closed
            logger.debug("A connection was closed: %r", error)
            connection.close()

    def _give(self, connection: socket.socket) -> None:
        """On the other loop."""

        async def connect() -> None:
            try:
                await self._their_loop.connect_accepted_socket(self._theirs, connection)
            except OSError:
                connection.close()

        task = self._their_loop.create_task(connect())
        self._given.add(task)
        task.add_done_callback(self._given.discard)


def _accepted(listening: Any) -> socket.socket | None:
    """The next connection in the queue; None where there is none."""
    try:
        # A socket object of its own: the listening one belongs to the other loop.
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
    """The path of the request to come, which stays unread; None where that is not to be seen."""
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
        if len(first) == seen:  # what is there stays readable: wait for more
            await asyncio.sleep(0.05)
        seen = len(first)
