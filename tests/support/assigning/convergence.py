"""The time a group takes to converge, on a machine that may be busy.

The delay due to a busy machine is measured. It has two parts: the time that threads of the story's
processes stood in the kernel's queue for a processor, and the time by which the test's own loop
woke too late. On an idle machine the delay is close to zero. A process that is stopped, sleeps or
waits for another process stands in no queue, so a fault of the service does not count as the
machine's.

A process that cannot run for longer than its lease can spare loses the lease. That is a further
fault, caused by the machine, and the bound starts anew after it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

TICK_S = 0.01
#: A loop that wakes this much too late counts as on time.
PUNCTUAL_S = 0.002


@dataclass
class Taken:
    """The machine's delays so far, in seconds."""

    by_queue_s: float = 0.0
    by_loop_s: float = 0.0

    @property
    def seconds(self) -> float:
        """The sum of both: one process may wait for another, so that their delays add up."""
        return self.by_queue_s + self.by_loop_s


def queued_s(process_ids: Iterable[int]) -> dict[Path, float]:
    """Return thread -> seconds in the queue for a processor since the thread's start (``schedstat``)."""
    found = {}
    for process_id in process_ids:
        for thread in Path(f"/proc/{process_id}/task").glob("*"):
            with contextlib.suppress(OSError):  # the thread has ended
                found[thread] = int((thread / "schedstat").read_text().split()[1]) / 1e9
    return found


def gone_by(before: Mapping[Path, float], after: Mapping[Path, float]) -> float:
    """Return the seconds between two looks, for the threads of the second look."""
    return sum(seconds - before.get(thread, 0.0) for thread, seconds in after.items())


@contextlib.asynccontextmanager
async def machine(process_ids: Iterable[int]) -> AsyncIterator[Taken]:
    """Measure the delays of these processes, of this process and of its loop during the block."""
    ids, taken = (*process_ids, os.getpid()), Taken()
    before = queued_s(ids)

    async def tick() -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(TICK_S)
            taken.by_loop_s += max(time.monotonic() - began - TICK_S - PUNCTUAL_S, 0.0)

    ticking = asyncio.create_task(tick())
    try:
        yield taken
    finally:
        ticking.cancel()
        taken.by_queue_s = gone_by(before, queued_s(ids))


@contextlib.asynccontextmanager
async def within(
    bound_s: float, what: str, process_ids: Iterable[int], *, spare_s: float
) -> AsyncIterator[Taken]:
    """Assert that the block takes at most ``bound_s`` and the machine's delays; print its time.

    ``spare_s``: the delay that a lease can spare; each such delay adds another ``bound_s``.
    """
    began = time.monotonic()
    async with machine(process_ids) as taken:
        yield taken
        took = time.monotonic() - began
    allowed = bound_s * (1 + taken.seconds // spare_s) + taken.seconds
    print(f"\n{what}: {took:.2f} s of {bound_s:.1f}, of which the machine took {taken.seconds:.2f}")
    assert took < allowed, f"{what}: {took:.2f} s, {allowed:.2f} are allowed, {taken}"
