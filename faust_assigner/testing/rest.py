"""Waits until a group is at rest.

At rest each partition has an owner, and no rebalance or restore is in progress.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.testing import log
from faust_assigner.testing.moves import Member, Owners, owners
from faust_assigner.testing.waiting import wait_until


def wait_for_rest(
    workers: Mapping[str, Member],
    broker: EmbeddedBroker,
    quiet_s: float,
    timeout_s: float,
    let_time_pass: Callable[[], None],
) -> None:
    """Return when the group has been at rest, with the same owners, for ``quiet_s`` seconds.

    Each check first calls ``let_time_pass()``.

    Raises a worker's error, or AssertionError with the state of each worker.
    """
    since = 0.0
    seen: tuple[int, Owners] | None = None

    def rests() -> bool:
        nonlocal since, seen
        let_time_pass()
        now = owners_at_rest(living(workers), broker)
        if now is None or now != seen:
            seen, since = now, time.monotonic()
        return now is not None and time.monotonic() - since >= quiet_s

    def states() -> str:
        lines = (f"{name}: {worker.why_not()}" for name, worker in workers.items())
        return "\n".join(("the group to be at rest", *lines))

    wait_until(rests, states, seconds=timeout_s)


def living(workers: Mapping[str, Member]) -> list[Member]:
    """Return the workers that are alive and not frozen. Raises the error of any worker."""
    for worker in workers.values():
        worker.check()
    return [worker for worker in workers.values() if worker.alive and not worker.is_frozen]


def owners_at_rest(living: Sequence[Member], broker: EmbeddedBroker) -> tuple[int, Owners] | None:
    """Return (generation, owners) if each partition has an owner and no worker waits; else None."""
    if len({worker.state.generation for worker in living}) != 1:
        return None
    if any(worker.state.ready != worker.state.generation for worker in living):
        return None
    if any(worker.state.awaited for worker in living):
        return None
    owned = [(part.topic, part.number) for worker in living for part in worker.state.actives]
    topics = {topic for topic, _ in owned}
    every = {(topic, n) for topic in topics for n in range(len(log.ends(broker, topic)))}
    if not owned or len(owned) != len(every) or set(owned) != every:
        return None
    return living[0].state.generation, owners(living)
