"""Retries while a broker does not answer: a step is repeated, and its wait is logged once a minute.

Stock Faust does not repeat a step of a recovery. After one request timeout it ends the recovery, as
if the service were stopping, without a log line. The worker stays in the group, may lead the group
and never processes records again.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, TypeVar

from aiokafka.errors import KafkaError, KafkaTimeoutError
from mode import get_logger

logger = get_logger(__name__)

T = TypeVar("T")

#: Seconds between two log lines about the same problem.
SAY_EVERY_S = 60.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 8.0


class RateLimitedLog:
    """A limit for log lines: each kind of problem is logged at once, then at most once a minute."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._at: dict[object, float] = {}
        self.suppressed: dict[object, int] = {}

    def due(self, trouble: object) -> bool:
        """Return whether to log ``trouble`` now; ``suppressed`` counts the omitted log lines."""
        now = self._clock()
        if now - self._at.get(trouble, -SAY_EVERY_S) < SAY_EVERY_S:
            self.suppressed[trouble] = self.suppressed.get(trouble, 0) + 1
            return False
        self._at[trouble] = now
        return True


def pause_s(attempt: int) -> float:
    """Return the seconds to wait after attempt ``attempt`` (from 0): 0.5 s, doubled up to 8 s."""
    return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(attempt, 10))


def is_temporary(error: BaseException) -> bool:
    """Return whether ``error`` is temporary: a broker did not answer, so a retry may succeed."""
    return isinstance(error, (TimeoutError, ConnectionError, KafkaTimeoutError)) or (
        isinstance(error, KafkaError) and bool(error.retriable)
    )


async def retry(service: Any, what: str, step: Callable[[], Awaitable[T]]) -> T:
    """Repeat ``step()`` with growing pauses as long as the broker does not answer.

    Returns the step's result. Raises any other error of the step, and asyncio.CancelledError once
    ``service`` stops.
    """
    began = monotonic()
    said = RateLimitedLog()
    for attempt in itertools.count():
        try:
            return await step()
        except Exception as error:
            if not is_temporary(error):
                raise
            if said.due(what):
                logger.warning(
                    "%s: the broker has not answered for %.0f s; this worker keeps trying: %r",
                    what,
                    monotonic() - began,
                    error,
                )
        await service.sleep(pause_s(attempt))
        if service.should_stop:
            raise asyncio.CancelledError(what)
    raise AssertionError("count() has no end")
