"""Run long handlers in slices on the event loop, so that heartbeats do not wait for long lists.

A handler is a coroutine. The handler runs at once, without a task, until it waits (:func:`start`). It calls
:meth:`Throttle.turn` for every element of a list. ``turn`` yields to the loop every few milliseconds, and
raises an error if the answer exceeds its limit of bytes or of time. At most LONG_AT_A_TIME long handlers
run concurrently; further long handlers wait in line.
"""

from __future__ import annotations

import asyncio
import functools
import time
import types
from collections.abc import Awaitable, Coroutine, Generator
from typing import Any, Final, TypeVar

from faust_assigner.broker.limits import ANSWER_TIMEOUT_S, MAX_ANSWER_BYTES
from faust_assigner.errors import FaustAssignerError

SLICE_S: Final = 0.002
LONG_AT_A_TIME: Final = 4
DECODED_AT_A_TIME: Final = 4  # long requests; each takes up to 80 MB, with its answer
T = TypeVar("T")


class AnswerTooLarge(FaustAssignerError):
    """An answer has more than MAX_ANSWER_BYTES bytes."""


class HandlerQueue:
    """The semaphores of one broker: ``places`` for long handlers, ``decoded`` for long requests."""

    def __init__(self) -> None:
        self.places = asyncio.Semaphore(LONG_AT_A_TIME)
        self.decoded = asyncio.Semaphore(DECODED_AT_A_TIME)


class Throttle:
    """The slices, bytes and time of one request."""

    def __init__(self, line: HandlerQueue, *, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        self._line = line
        self._timeout_s = timeout_s
        self._in_line = False
        self._bytes = 0
        self._slice_since = self._since = time.monotonic()

    async def checkpoint(self, size: int = 0) -> None:
        """Count one element of about ``size`` bytes; yield if the slice is over.

        Raises AnswerTooLarge, TimeoutError.
        """
        self._bytes += size
        if self._bytes > MAX_ANSWER_BYTES:
            raise AnswerTooLarge(f"the answer has more than {MAX_ANSWER_BYTES} bytes")
        self.check_time()
        await self.give_way()

    def check_time(self) -> None:
        """Raise TimeoutError if the request has used up its time."""
        if time.monotonic() - self._since > self._timeout_s:
            raise TimeoutError(f"the answer took more than {self._timeout_s} s")

    async def give_way(self) -> None:
        """Yield to the loop if the slice is over, without a time limit. For work that must complete."""
        if time.monotonic() - self._slice_since < SLICE_S:
            return
        if not self._in_line:
            await self._line.places.acquire()
            self._in_line = True
        await asyncio.sleep(0)
        self._slice_since = time.monotonic()

    async def wait_outside(self, others: Awaitable[T]) -> T:
        """Release the place, wait for other clients, then restart the slice and the time of the request."""
        self.end()
        try:
            return await others
        finally:
            self._slice_since = self._since = time.monotonic()

    def end(self) -> None:
        """Release the place of a long handler at the end of the request."""
        if self._in_line:
            self._in_line = False
            self._line.places.release()


def start(handler: Coroutine[Any, Any, Any]) -> tuple[bool, Any]:
    """Run a handler until it first waits; return (True, result), or (False, a task that continues it).

    The handler gets no cancellation of the task before the task's first step, in the loop's next turn.
    """
    try:
        waits_for = handler.send(None)
    except StopIteration as done:
        return True, done.value
    return False, asyncio.get_running_loop().create_task(_continue_handler(handler, waits_for))


@types.coroutine
def _continue_handler(
    handler: Coroutine[Any, Any, Any], waits_for: object
) -> Generator[Any, Any, Any]:
    while True:
        try:
            sent = yield waits_for
        except BaseException as error:
            step = functools.partial(handler.throw, error)
        else:
            step = functools.partial(handler.send, sent)
        try:
            waits_for = step()
        except StopIteration as done:
            return done.value
        finally:
            del step  # refers to an error, whose traceback refers to this frame: a cycle
