"""Which faults a seed plays: rounds of one to three at a time, on different parts of the system. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

#: What may be done to a consumer. ``twin``: a second process of its name starts while the first one lives on.
#: ``twin-paused``: the first one was stopped between ``may_work()`` and its write, and goes on later.
#: ``twin-cut``: the first one is cut off from the service, and works as long as its session lives.
CONSUMERS = ("twin", "twin-paused", "twin-cut", "pause", "stop", "kill", "leave")
INSTANCES = ("kill-instance", "stop-instance", "term-instance", "cut-consumers", "cut-etcd")
ETCD = ("cut-peer", "kill-etcd", "stop-etcd")
#: Seconds that a fault lasts, below and above the time to live of a consumer (9 s).
LASTS_S = (0.5, 2.0, 5.0, 8.0, 12.0, 20.0)
#: Seconds that a process stands between ``may_work()`` and its write: most are above the time to live.
PAUSES_S = (5.0, 12.0, 15.0, 20.0)
PAUSES = ("pause", "twin-paused")


@dataclass(frozen=True)
class Fault:
    """``kind`` on the consumer, instance or member of etcd with that number, for so many seconds."""

    kind: str
    number: int
    for_s: float

    def __str__(self) -> str:
        return f"{self.kind} {self.number} for {self.for_s:g} s"


def rounds(seed: int, consumers: int) -> Iterator[tuple[Fault, ...]]:
    """For ever. A round has one or two consumers' faults, and often one of an instance and one of etcd."""
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
