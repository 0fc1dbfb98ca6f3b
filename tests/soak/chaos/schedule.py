"""The faults of a seed: rounds of one to three faults on different parts of the system. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

#: The faults of a consumer. ``twin``: a second process of its name starts while the first is alive.
#: ``twin-paused``: the first was stopped between ``may_work()`` and its write, and continues later.
#: ``twin-cut``: the first is cut off from the service, and works until its session ends.
CONSUMERS = ("twin", "twin-paused", "twin-cut", "pause", "stop", "kill", "leave")
INSTANCES = ("kill-instance", "stop-instance", "term-instance", "cut-consumers", "cut-etcd")
ETCD = ("cut-peer", "kill-etcd", "stop-etcd")
#: The duration of a fault in seconds, below and above a consumer's time to live (9 s).
LASTS_S = (0.5, 2.0, 5.0, 8.0, 12.0, 20.0)
#: The pause between ``may_work()`` and the write in seconds: most exceed the time to live.
PAUSES_S = (5.0, 12.0, 15.0, 20.0)
PAUSES = ("pause", "twin-paused")


@dataclass(frozen=True)
class Fault:
    """A fault: ``kind`` on the consumer, instance or etcd member ``number`` for ``for_s``."""

    kind: str
    number: int
    for_s: float

    def __str__(self) -> str:
        return f"{self.kind} {self.number} for {self.for_s:g} s"


def rounds(seed: int, consumers: int) -> Iterator[tuple[Fault, ...]]:
    """Yield rounds forever: one or two consumer faults, often an instance and an etcd fault too."""
    rng = random.Random(seed)
    while True:
        chosen = rng.sample(range(consumers), rng.choice((1, 1, 2)))
        faults = [_of_consumer(rng, number) for number in chosen]
        for kinds in (INSTANCES, ETCD):
            if rng.random() < 0.4:
                faults.append(Fault(rng.choice(kinds), rng.randrange(3), rng.choice(LASTS_S)))
        yield tuple(faults)


def _of_consumer(rng: random.Random, number: int) -> Fault:
    kind = rng.choice(CONSUMERS)
    return Fault(kind, number, rng.choice(PAUSES_S if kind in PAUSES else LASTS_S))
