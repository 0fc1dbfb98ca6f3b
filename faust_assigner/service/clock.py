"""The clocks that are passed to the service as an argument."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """The clocks of one process, in seconds."""

    def monotonic(self) -> float:
        """Return monotonic time, which never runs back and is not comparable between processes."""

    def wall(self) -> float:
        """Return unix time; an administrator may set this clock forward or back."""

    async def sleep(self, seconds: float) -> None:
        """Wait for ``seconds``."""


def seconds() -> float:
    """Return seconds of a clock that advances while the process or the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class SystemClock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        """Return :func:`seconds`: the store ends leases also while this machine sleeps."""
        return seconds()

    def wall(self) -> float:
        """Return ``time.time()``."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """Wait for ``seconds`` with ``asyncio.sleep``."""
        await asyncio.sleep(seconds)
