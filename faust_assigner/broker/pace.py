"""Long work on the event loop, in slices: nobody's heartbeat waits for anybody's long list.

A handler is a coroutine. It runs at once, without a task, as long as it does not wait (:func:`start`). It
calls :meth:`Pace.turn` for every element of a list, which gives the loop to others every few milliseconds
and ends an answer that grows beyond its bytes or its time. Few long handlers are under way at a time, the
others wait in line.
"""

from __future__ import annotations

import asyncio
import functools
import time
import types
from collections.abc import Coroutine, Generator
from typing import Any, Final

from faust_assigner.broker.limits import ANSWER_TIMEOUT_S, MAX_ANSWER_BYTES
from faust_assigner.errors import FaustAssignerError

SLICE_S: Final = 0.002
LONG_AT_A_TIME: Final = 4


class AnswerTooLarge(FaustAssignerError):
    """An answer would need more bytes than one answer may have."""


class Line:
    """Where long handlers of one broker wait for each other."""

    def __init__(self) -> None:
        self.places = asyncio.Semaphore(LONG_AT_A_TIME)


class Pace:
    """The slices, bytes and time of one request."""

    def __init__(self, line: Line, *, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        self._line = line
        self._timeout_s = timeout_s
        self._in_line = False
        self._bytes = 0
        self._slice_since = self._since = time.monotonic()

    async def turn(self, size: int = 0) -> None:
        """One more element, of about so many bytes. Raises AnswerTooLarge, TimeoutError."""
        self._bytes += size
        if self._bytes > MAX_ANSWER_BYTES:
            raise AnswerTooLarge(f"the answer has more than {MAX_ANSWER_BYTES} bytes")
        self.check_time()
        await self.give_way()

    def check_time(self) -> None:
        """Raise TimeoutError where the request has had its time."""
        if time.monotonic() - self._since > self._timeout_s:
            raise TimeoutError(f"the answer took more than {self._timeout_s} s")

    async def give_way(self) -> None:
        """Let others run where a slice is over; for work that is done and must be answered, however late."""
        if time.monotonic() - self._slice_since < SLICE_S:
            return
        if not self._in_line:
            await self._line.places.acquire()
            self._in_line = True
        await asyncio.sleep(0)
        self._slice_since = time.monotonic()

    def end(self) -> None:
        """The answer is there, or never will be."""
        if self._in_line:
            self._in_line = False
            self._line.places.release()


def start(handler: Coroutine[Any, Any, Any]) -> tuple[bool, Any]:
    """Run a handler up to where it waits: (True, its result), or (False, a task that goes on from there)."""
    try:
        waits_for = handler.send(None)
    except StopIteration as done:
        return True, done.value
    return False, asyncio.get_running_loop().create_task(_go_on(handler, waits_for))


@types.coroutine
def _go_on(handler: Coroutine[Any, Any, Any], waits_for: Any) -> Generator[Any, Any, Any]:
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
