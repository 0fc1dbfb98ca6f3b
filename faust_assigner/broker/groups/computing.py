"""Compute the target of a group with its assignor: at once, or in a thread beside the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

from faust_assigner.coordinator.assignors import GroupSpec, Target, compute

logger = logging.getLogger(__name__)
Outcome = Callable[[Target | None, str], None]  # the target, or None and the reason
Compute = Callable[[GroupSpec, Outcome], None]


def compute_now(spec: GroupSpec, done: Outcome) -> None:
    """Compute a target synchronously. If the assignor raises, ``done`` gets None and the reason."""
    done(*_compute_or_error(spec))


def _compute_or_error(spec: GroupSpec) -> tuple[Target | None, str]:
    try:
        return compute(spec), ""
    except (Exception, asyncio.CancelledError, SystemExit) as error:  # a plug-in may raise anything
        logger.exception("assignor %r failed", spec.assignor)
        return None, repr(error)


class TargetComputer:
    """Computes targets synchronously before :meth:`start`, then one at a time in a thread."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[tuple[GroupSpec, Outcome] | None] = SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the thread; from now on outcomes are passed to ``done`` on ``loop``."""
        self._loop = loop
        # A daemon thread, so that the end of the process does not wait for an assignor that never ends.
        threading.Thread(target=self._run, args=[loop], name="broker-assign", daemon=True).start()

    def compute(self, spec: GroupSpec, done: Outcome) -> None:
        """Compute a target, then call ``done`` with the outcome, unless the computer was closed."""
        if self._loop is None:
            compute_now(spec, done)
        else:
            self._waiting.put((spec, done))

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        while (work := self._waiting.get()) is not None and self._loop is loop:
            spec, done = work
            outcome = _compute_or_error(spec)
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._pass_on, done, outcome)

    def _pass_on(self, done: Outcome, outcome: tuple[Target | None, str]) -> None:
        if self._loop is not None:
            done(*outcome)

    def close(self) -> None:
        """Drop all computations without a wait; the thread ends after the computation that is running."""
        self._loop = None
        self._waiting.put(None)
