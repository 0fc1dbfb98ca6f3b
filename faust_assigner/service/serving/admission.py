"""Limits the number of concurrent registrations and of waiting registrations.

After an instance stops, its consumers register at the other instances within a second. If
all registrations ran at once, each would take so long that heartbeats time out and the consumers
register again. With a few at a time, each registration is short.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from faust_assigner.service.errors import Busy

logger = logging.getLogger(__name__)

#: Maximum number of concurrent registrations; most of their time is a wait for the store.
AT_ONCE = 16
#: Maximum number of registrations that wait for a place.
MOST_WAITING = 4_096
#: Seconds that a registration waits at most: less than the client's 12 s for a first answer.
PATIENCE_S = 8.0


class Admission:
    """Places for registrations, given in the order of arrival."""

    def __init__(
        self,
        *,
        at_once: int = AT_ONCE,
        most_waiting: int = MOST_WAITING,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._places = asyncio.Semaphore(at_once)
        self._most_waiting = most_waiting
        self._patience_s = patience_s
        self._waiting = 0

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Hold a place in the block. Raises ``Busy`` after ``patience_s``, or if too many wait."""
        if self._waiting >= self._most_waiting:
            raise Busy(f"{self._waiting} registrations already wait at this instance: try again")
        self._waiting += 1
        try:
            async with asyncio.timeout(self._patience_s):
                await self._places.acquire()
        except TimeoutError:
            logger.warning(
                "a registration waited for %g s and is refused; its consumer tries again; %d "
                "registrations wait",
                self._patience_s,
                self._waiting,
            )
            raise Busy(
                f"this instance could not serve the registration within {self._patience_s:g} s: "
                "try again"
            ) from None
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._places.release()
