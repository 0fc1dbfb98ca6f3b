"""The clocks that the service takes as an argument."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """The clocks of one process, in seconds."""

    def monotonic(self) -> float:
        """Monotonic time: never set back, and not comparable between processes."""

    def wall(self) -> float:
        """Unix time; an administrator may set this clock forward or back."""

    async def sleep(self, seconds: float) -> None:
        """Wait for ``seconds``."""


class SystemClock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        """``time.monotonic``."""
        return time.monotonic()

    def wall(self) -> float:
        """``time.time``."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """``asyncio.sleep``."""
        await asyncio.sleep(seconds)
