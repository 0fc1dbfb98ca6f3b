"""Waits with a deadline and a message that names the awaited fact."""

from __future__ import annotations

import time
from collections.abc import Callable

#: Seconds: a busy machine is not a defect of the code under test.
PATIENCE_S = 60.0


def wait_until(
    fact: Callable[[], bool],
    what: Callable[[], str] | str = "the condition to become true",
    *,
    seconds: float = PATIENCE_S,
) -> None:
    """Return as soon as ``fact()`` is true. Raises AssertionError with ``what`` after ``seconds``."""
    end = time.monotonic() + seconds
    while not fact():
        if time.monotonic() > end:
            raise AssertionError(
                f"waited {seconds:g} s for: {what if isinstance(what, str) else what()}"
            )
        time.sleep(0.005)
