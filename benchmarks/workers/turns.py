"""The turns of an event loop: the processor time of each callback, during which the loop does nothing else.

    python -m benchmarks.workers.turns serve ...

The command ``faust-assigner`` with these arguments; each turn above 50 ms is printed: ``turn of 63 ms: ...``.
"""

from __future__ import annotations

import asyncio
import time
from asyncio import events
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: Seconds of processor time above which the command prints a turn.
LONG_S = 0.05


@contextmanager
def measured(heard: Callable[[events.Handle, float], None]) -> Iterator[None]:
    """Tell ``heard`` the seconds of processor time of each callback that a loop of this thread runs."""
    run = events.Handle._run

    def timed(handle: events.Handle) -> None:
        began = time.thread_time()
        run(handle)
        heard(handle, time.thread_time() - began)

    events.Handle._run = timed  # type: ignore[method-assign]
    try:
        yield
    finally:
        events.Handle._run = run  # type: ignore[method-assign]


def _print(handle: events.Handle, took_s: float) -> None:
    if took_s > LONG_S:
        task = getattr(handle._callback, "__self__", None)
        frames = task.get_stack(limit=1) if isinstance(task, asyncio.Task) else ()
        at = "".join(f" before {f.f_code.co_qualname}:{f.f_lineno}" for f in frames)
        print(f"turn of {1000 * took_s:.0f} ms: {task or handle!r}{at}", flush=True)


if __name__ == "__main__":
    from faust_assigner.cli.commands import main

    with measured(_print):
        main()
