"""Waits until a condition is true; the error after the deadline names the condition."""

from __future__ import annotations

import time
from collections.abc import Callable

#: Seconds; long, because a busy machine is not a fault of the code under test.
PATIENCE_S = 60.0
#: Seconds between two looks. After a look that took long the pause is twice as long as the look,
#: up to the limit, so that the wait leaves the processor to the processes that are waited for.
PAUSE_S, MOST_PAUSE_S = 0.005, 1.0


def wait_until(
    fact: Callable[[], bool],
    what: Callable[[], str] | str = "the condition to become true",
    *,
    seconds: float = PATIENCE_S,
) -> None:
    """Return when ``fact()`` is true. Raises AssertionError with ``what`` after ``seconds``."""
    began = time.monotonic()
    end = began + seconds
    while not fact():
        looked = time.monotonic()
        if looked > end:
            raise AssertionError(
                f"waited {seconds:g} s for: {what if isinstance(what, str) else what()}"
            )
        time.sleep(min(MOST_PAUSE_S, max(PAUSE_S, 2 * (looked - began))))
        began = time.monotonic()
