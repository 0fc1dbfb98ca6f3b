"""Wait for a condition with a deadline; the error names the condition."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from faust_assigner.testing.waiting import PATIENCE_S, wait_until

__all__ = ["PATIENCE_S", "until", "wait_until"]


async def until(
    fact: Callable[[], bool],
    what: str = "the condition to become true",
    *,
    seconds: float = PATIENCE_S,
) -> float:
    """Let other tasks run until ``fact()`` is true; return the seconds."""
    began = time.monotonic()
    while not fact():
        assert time.monotonic() - began < seconds, f"waited {seconds:g} s for: {what}"
        await asyncio.sleep(0.01)
    return time.monotonic() - began
