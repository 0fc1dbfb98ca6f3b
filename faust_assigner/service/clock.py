"""Time as an argument: what the service knows of it."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """One process's clocks, in seconds."""

    def monotonic(self) -> float:
        """Never set back; means nothing to another process."""

    def wall(self) -> float:
        """Unix time; may be set."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""


class SystemClock:
    """The machine's own."""

    def monotonic(self) -> float:
        """``time.monotonic``."""
        return time.monotonic()

    def wall(self) -> float:
        """``time.time``."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """``asyncio.sleep``."""
        await asyncio.sleep(seconds)
