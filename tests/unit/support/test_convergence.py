"""Time spent in the processor's queue is blamed on the machine; waiting time is not excused."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.assigning.convergence import gone_by, machine, queued_s, within

pytestmark = pytest.mark.processes
_BUSY = "import os; os.sched_setaffinity(0, {%d})\nwhile True: pass"
WATCHED_S = 0.5


@pytest.fixture
def rivals() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two processes that each use the same processor fully."""
    place = min(os.sched_getaffinity(0))
    running = [subprocess.Popen([sys.executable, "-c", _BUSY % place]) for _ in range(2)]
    yield running
    for one in running:
        one.kill()
        one.wait()


async def test_rivals_for_a_processor_stand_in_its_queue_and_stopped_ones_do_not(
    rivals: list[subprocess.Popen[bytes]],
) -> None:
    """Two busy processes on one processor queue all the time; stopped processes do not queue."""
    ids = [one.pid for one in rivals]
    await asyncio.sleep(0.5)
    async with machine(ids) as taken:
        await asyncio.sleep(WATCHED_S)
    assert taken.by_queue_s > WATCHED_S / 2
    for one in rivals:
        one.send_signal(signal.SIGSTOP)
    await asyncio.sleep(0.1)
    before = queued_s(ids)
    await asyncio.sleep(WATCHED_S)
    assert gone_by(before, queued_s(ids)) == 0.0


async def test_what_takes_too_long_by_itself_is_too_long() -> None:
    """Sleeping is not queueing."""
    with pytest.raises(AssertionError, match="are allowed"):
        async with within(0.05, "a wait", [], spare_s=30.0):
            await asyncio.sleep(1.0)
