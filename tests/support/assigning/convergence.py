"""How long a group takes to converge, on a machine that may have other things to do.

What a busy machine takes is measured, not guessed: the seconds for which threads of the story's processes
stood in the kernel's queue for a processor, and those by which the test's own loop woke too late. On an idle
machine that is next to nothing; a process that is stopped, sleeps or waits for another one stands in no
queue, so that a fault of the service is not taken for the machine's.

Whoever is kept from running for longer than its lease can spare loses it: that is one more fault, of the
machine's making, and the bound begins anew after it.
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
#: A loop that is woken by so much too late is on time.
PUNCTUAL_S = 0.002


@dataclass
class Taken:
    """What the machine took so far, seconds."""

    by_queue_s: float = 0.0
    by_loop_s: float = 0.0

    @property
    def seconds(self) -> float:
        """In all: one process may wait for another, so that their waits add up."""
        return self.by_queue_s + self.by_loop_s


def queued_s(process_ids: Iterable[int]) -> dict[Path, float]:
    """Thread -> seconds for which it wanted to run and had no processor, since it began (``schedstat``)."""
    found = {}
    for process_id in process_ids:
        for thread in Path(f"/proc/{process_id}/task").glob("*"):
            with contextlib.suppress(OSError):  # it has ended
                found[thread] = int((thread / "schedstat").read_text().split()[1]) / 1e9
    return found


def gone_by(before: Mapping[Path, float], after: Mapping[Path, float]) -> float:
    """Seconds between two looks, of the threads that are there at the second."""
    return sum(seconds - before.get(thread, 0.0) for thread, seconds in after.items())


@contextlib.asynccontextmanager
async def machine(process_ids: Iterable[int]) -> AsyncIterator[Taken]:
    """What it takes from these processes, from this one and from its loop, during the block."""
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
    bound_s: float,
    what: str,
    process_ids: Iterable[int],
    *,
    spare_s: float,
) -> AsyncIterator[Taken]:
    """The block takes no longer than ``bound_s`` and what the machine took; it says what it took.

    ``spare_s``: what a lease can spare; once more ``bound_s`` for each time that the machine took so much.
    """
    began = time.monotonic()
    async with machine(process_ids) as taken:
        yield taken
        took = time.monotonic() - began
    allowed = bound_s * (1 + taken.seconds // spare_s) + taken.seconds
    print(f"\n{what}: {took:.2f} s of {bound_s:.1f}, of which the machine took {taken.seconds:.2f}")
    assert took < allowed, f"{what}: {took:.2f} s, {allowed:.2f} are allowed, {taken}"
