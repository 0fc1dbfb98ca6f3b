"""Waiting for what a test's other parts will do, at most so long; saying what was awaited."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

#: A busy machine is no defect of ours.
PATIENCE_S = 60.0


async def until(
    fact: Callable[[], bool], what: str = "it to come true", *, seconds: float = PATIENCE_S
) -> float:
    """Let others run until ``fact()`` is true; how many seconds it took."""
    began = time.monotonic()
    while not fact():
        assert time.monotonic() - began < seconds, f"waited {seconds:g} s for: {what}"
        await asyncio.sleep(0.01)
    return time.monotonic() - began


def wait_until(
    fact: Callable[[], bool],
    what: Callable[[], str] | str = "it to come true",
    *,
    seconds: float = PATIENCE_S,
) -> None:
    """The same without an event loop; ``what`` may be told at the end alone."""
    end = time.monotonic() + seconds
    while not fact():
        if time.monotonic() > end:
            raise AssertionError(
                f"waited {seconds:g} s for: {what if isinstance(what, str) else what()}"
            )
        time.sleep(0.005)
