"""Moves the time of a fleet's workers in the test's process.

Timers fire in order, and agents run until they are idle.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.testing import log
from faust_assigner.testing.clock import Alarm, Clock
from faust_assigner.testing.in_process import InProcess, Progress
from faust_assigner.testing.moves import Member

#: Real seconds; long, because a busy machine is not a fault of the app under test.
PATIENCE_S = 120.0
#: Timers that are due within ``STEP_S`` fire together; after ``FIRST_S``, within ``LATER_STEP_S``.
STEP_S, FIRST_S, LATER_STEP_S = 0.25, 60.0, 1.0
#: The number of consecutive checks without progress after which the workers count as idle.
IDLE_TURNS = 5
#: Seconds by which each check for idle workers advances their time.
IDLE_STEP_S = 0.001
#: The most real seconds that a step waits for workers that poll for external events.
LOOKING_S = 0.5


def advance(
    workers: Mapping[str, Member], broker: EmbeddedBroker, clock: Clock, seconds: float
) -> None:
    """Advance the clock by ``seconds``; run all work that becomes due. Raises a worker's error."""
    run_until_idle(workers, broker, clock)
    end = clock.monotonic() + seconds
    looked_s = 0.0
    while (left := end - clock.monotonic()) > 0:
        alarms = [worker.turn() for worker in running(workers)]
        soonest = min(alarms, default=Alarm(left, False, left))
        if soonest.is_short and looked_s < LOOKING_S:
            looked_s += soonest.in_s
            time.sleep(min(left, soonest.in_s))
            clock.move(min(left, soonest.in_s))
        else:
            looked_s = 0.0
            step_s = STEP_S if seconds - left < FIRST_S else LATER_STEP_S
            long_s = min((alarm.long_in_s for alarm in alarms), default=left)
            clock.move(min(left, long_s, max(soonest.in_s, step_s)))
    run_until_idle(workers, broker, clock)


def run_until_idle(workers: Mapping[str, Member], broker: EmbeddedBroker, clock: Clock) -> None:
    """Run the workers until they make no more progress without a move of time.

    Raises a worker's error, or AssertionError after ``PATIENCE_S``.
    """
    seen, calm, deadline = None, 0, time.monotonic() + PATIENCE_S
    while calm < IDLE_TURNS:
        assert time.monotonic() < deadline, (
            f"waited {PATIENCE_S:g} s for: the agents to be done with what was sent"
        )
        now_running = running(workers)
        for worker in now_running:
            worker.turn()
        now = [worker.progress() for worker in now_running]
        is_read = not any(_is_worker_behind(one, broker) for one in now)
        calm = calm + 1 if now == seen and is_read else 0
        seen = now
        time.sleep(IDLE_STEP_S)
        clock.move(IDLE_STEP_S)


def running(workers: Mapping[str, Member]) -> list[InProcess]:
    """Return the workers in this process that are alive and not frozen. Raises the error of any worker."""
    found = [worker for worker in workers.values() if isinstance(worker, InProcess)]
    for worker in found:
        worker.check()
    return [worker for worker in found if worker.alive and not worker.is_frozen]


def _is_worker_behind(worker: Progress, broker: EmbeddedBroker) -> bool:
    ends = {tp.topic: log.ends(broker, tp.topic) for tp in worker.positions}
    return any(at < ends[tp.topic][tp.partition] for tp, at in worker.positions.items())
