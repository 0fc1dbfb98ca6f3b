"""The thread that follows a source of weights, with an event loop of its own."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import weakref
from typing import Protocol

from faust_assigner.app.weights.sources import Found, Source
from faust_assigner.concurrency.cancellation import is_cancelled
from faust_assigner.errors import FaustAssignerError

#: Seconds that a source has to close its resources.
CLOSE_S = 2.5


class Taker(Protocol):
    """The receiver of a source's results."""

    def take(self, found: Found) -> None:
        """Take a new document, the reason for its absence, or None if neither has changed."""


class Follower:
    """A thread that delivers the results of ``source`` to a taker, as long as the taker exists."""

    def __init__(self, taker: weakref.ref[Taker], source: Source, poll_s: float) -> None:
        self._taker, self._source, self._poll_s = taker, source, poll_s
        self._closing = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="assignor-weights", daemon=True)

    def start(self) -> None:
        """Start the thread; return at once."""
        self._thread.start()

    @property
    def runs(self) -> bool:
        """Return whether the thread is alive."""
        return self._thread.is_alive()

    def close(self, wait_s: float = 0.0) -> bool:
        """End the tasks, the sockets and the thread; return whether the thread ended within ``wait_s``."""
        with contextlib.suppress(RuntimeError):  # the loop is already closed
            self._loop.call_soon_threadsafe(self._closing.set)
        if wait_s and self._thread is not threading.current_thread():
            self._thread.join(wait_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        # The runner cancels all remaining tasks and closes the loop, which closes the sockets.
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._until_closed())
        # aiokafka drops a connection that is cancelled during its setup; only the finaliser closes
        # its socket.
        gc.collect()

    async def _until_closed(self) -> None:
        work, closed = (
            asyncio.ensure_future(self._follow()),
            asyncio.ensure_future(self._closing.wait()),
        )
        await asyncio.wait({work, closed}, return_when=asyncio.FIRST_COMPLETED)
        for task in (work, closed):
            task.cancel()
        await asyncio.wait({work, closed}, timeout=CLOSE_S)
        # a transport closes its socket one iteration of the loop after close()
        await asyncio.sleep(0.01)

    async def _follow(self) -> None:
        while not self._closing.is_set():
            try:
                async with contextlib.aclosing(self._source.follow(self._poll_s)) as changes:
                    async for found in changes:
                        if not self._hand_over(found):
                            return
            # The thread must survive every error of a source. When a consumer stops, aiokafka's own
            # cancelled tasks raise here as well. Only the cancellation of this task must end it.
            except (Exception, asyncio.CancelledError) as error:
                if is_cancelled():
                    raise
                if not self._hand_over(WeightsUnreachable(f"{type(error).__name__}: {error}")):
                    return
                await asyncio.sleep(self._poll_s)

    def _hand_over(self, found: Found) -> bool:
        """Deliver a result; return whether the taker still exists."""
        taker = self._taker()
        if taker is not None and not self._closing.is_set():
            taker.take(found)
        return taker is not None


class WeightsUnreachable(FaustAssignerError):
    """A source could not be read; the follower tries again."""
