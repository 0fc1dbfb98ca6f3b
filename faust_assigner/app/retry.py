"""A broker that is silent for a while: a step is taken again, and is said to wait once a minute.

Stock gives each step of a recovery one request timeout, takes its end for a stop of the service, and
ends the recovery without a word: the worker stays in the group, leads it perhaps, and never works again.
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

#: Seconds between two lines about the same trouble.
SAY_EVERY_S = 60.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 8.0


class RateLimitedLog:
    """What was said last, and when: each kind of trouble is said at once, then every minute."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._at: dict[object, float] = {}
        self.unsaid: dict[object, int] = {}

    def due(self, trouble: object) -> bool:
        """Whether to say it now; the asking counts, and ``unsaid`` counts those refused since."""
        now = self._clock()
        if now - self._at.get(trouble, -SAY_EVERY_S) < SAY_EVERY_S:
            self.unsaid[trouble] = self.unsaid.get(trouble, 0) + 1
            return False
        self._at[trouble] = now
        return True


def pause_s(attempt: int) -> float:
    """Seconds before attempt ``attempt + 1``, the first being 0: twice as long each time, up to 8 s."""
    return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(attempt, 10))


def is_silence(error: BaseException) -> bool:
    """Whether ``error`` says that a broker did not answer, or not yet; the same request may succeed later."""
    return isinstance(error, (TimeoutError, ConnectionError, KafkaTimeoutError)) or (
        isinstance(error, KafkaError) and bool(error.retriable)
    )


async def retry(service: Any, what: str, step: Callable[[], Awaitable[T]]) -> T:
    """``step()``, taken again with growing pauses for as long as the broker is silent.

    Returns its result, raises any other error of it, and asyncio.CancelledError once ``service`` stops.
    """
    began = monotonic()
    said = RateLimitedLog()
    for attempt in itertools.count():
        try:
            return await step()
        except Exception as error:
            if not is_silence(error):
                raise
            if said.due(what):
                logger.warning(
                    "%s: no answer from the broker for %.0f s, going on trying: %r",
                    what,
                    monotonic() - began,
                    error,
                )
        await service.sleep(pause_s(attempt))
        if service.should_stop:
            raise asyncio.CancelledError(what)
    raise AssertionError("count() has no end")
