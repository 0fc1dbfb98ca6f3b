"""Compute the target of a group with its assignor: at once, or in a thread beside the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from faust_assigner.coordinator.assignors import GroupSpec, Target, compute

logger = logging.getLogger(__name__)
Outcome = Callable[[Target | None, str], None]  # the target, or None and the reason
Compute = Callable[[GroupSpec, Outcome], None]


def compute_now(spec: GroupSpec, done: Outcome) -> None:
    """Compute a target synchronously. If the assignor raises, ``done`` gets no target, but the reason."""
    done(*_compute_or_error(spec))


def _compute_or_error(spec: GroupSpec) -> tuple[Target | None, str]:
    try:
        return compute(spec), ""
    except Exception as error:
        logger.exception("assignor %r failed", spec.assignor)
        return None, repr(error)


class TargetComputer:
    """Computes targets synchronously before :meth:`start`, then one at a time in a thread."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "broker-assign")
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the thread; from now on outcomes are passed to ``done`` on ``loop``."""
        self._loop = loop
        self._thread.submit(int)

    def compute(self, spec: GroupSpec, done: Outcome) -> None:
        """Compute a target, then call ``done`` with the outcome, unless the computer was closed."""
        if self._loop is None:
            compute_now(spec, done)
            return

        def finished(future: asyncio.Future[tuple[Target | None, str]]) -> None:
            if not future.cancelled():
                done(*future.result())

        work = self._loop.run_in_executor(self._thread, _compute_or_error, spec)
        work.add_done_callback(finished)

    def close(self) -> None:
        """Cancel the waiting computations and wait for the running computation."""
        self._loop = None
        self._thread.shutdown(cancel_futures=True)
