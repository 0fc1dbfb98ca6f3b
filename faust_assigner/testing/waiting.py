"""Waits until a condition is true; the error after the deadline names the condition."""

from __future__ import annotations

import time
from collections.abc import Callable

#: Seconds; long, because a busy machine is not a fault of the code under test.
PATIENCE_S = 60.0


def wait_until(
    fact: Callable[[], bool],
    what: Callable[[], str] | str = "the condition to become true",
    *,
    seconds: float = PATIENCE_S,
) -> None:
    """Return when ``fact()`` is true. Raises AssertionError with ``what`` after ``seconds``."""
    end = time.monotonic() + seconds
    while not fact():
        if time.monotonic() > end:
            raise AssertionError(
                f"waited {seconds:g} s for: {what if isinstance(what, str) else what()}"
            )
        time.sleep(0.005)
