"""Measure an event loop's turns: the processor time of each callback, which blocks the loop.

    python -m benchmarks.workers.turns serve ...

Runs the command ``faust-assigner`` with the arguments; prints each turn above 50 ms: ``turn of 63 ms: ...``.
"""

from __future__ import annotations

import asyncio
import time
from asyncio import events
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: The command prints turns above this many seconds of processor time.
LONG_S = 0.05


@contextmanager
def measured(heard: Callable[[events.Handle, float], None]) -> Iterator[None]:
    """Call ``heard`` with the processor seconds of each callback that a loop of this thread runs."""
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
