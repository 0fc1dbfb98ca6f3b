"""Which faults a round plays: drawn from a seed, pure, the same for the same seed."""

from __future__ import annotations

import math
import random
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: A fault's kind -> how often it is drawn beside the others.
WORKER_FAULTS: Mapping[str, int] = {"kill": 4, "freeze": 4, "leave": 2, "full disk": 2, "damage": 3}
GROUP_FAULTS: Mapping[str, int] = {"all": 1, "freeze broker": 2}
#: What only a broker whose process may die at any time gets.
BROKER_DEATHS: Mapping[str, int] = {"kill broker": 2, "stop broker": 1}

#: SIGSTOP lasts from 2 to 40 s, as often below 9 s as above: sessions and requests end in between.
FREEZE_S = (2.0, 40.0)
#: How long a worker is away, some within its session and some beyond it.
AWAY_S = (0.1, 12.0)
FULL_S = (3.0, 25.0)
BROKER_AWAY_S = (0.1, 6.0)
#: How many rounds of 100 have two faults; the second begins while the first lasts, or soon after.
TWO_OF_100 = 45
SOON_S = 4.0


@dataclass(frozen=True)
class Fault:
    """``kind`` from ``at_s`` on, seconds after the round began, for ``for_s``.

    ``worker`` is empty where it befalls the broker or all workers; ``number`` is the signal by which
    workers end; ``seed`` decides what is left open, as which files are damaged and how.
    """

    kind: str
    worker: str
    at_s: float
    for_s: float
    number: signal.Signals
    seed: int

    def __str__(self) -> str:
        how = {signal.SIGKILL: "KILL", signal.SIGTERM: "TERM"}[self.number]
        ends = f" {how}" if self.kind in ("all", "damage") else ""
        whom = f" {self.worker}" if self.worker else ""
        late = f" +{self.at_s:.0f}" if self.at_s else ""
        return f"{self.kind}{ends}{whom}{late} {self.for_s:.1f}s"


def faults_of(seed: int, number: int, workers: Sequence[str], *, broker_dies: bool) -> tuple[Fault, ...]:
    """One or two faults of round ``number``, by the time at which they begin."""
    rng = random.Random(f"{seed}/{number}")
    kinds = {**WORKER_FAULTS, **GROUP_FAULTS, **(BROKER_DEATHS if broker_dies else {})}
    first = _draw(rng, kinds, workers, 0.0)
    if rng.randrange(100) >= TWO_OF_100:
        return (first,)
    # Two faults of the whole group at once say nothing of either.
    others = {kind: weight for kind, weight in kinds.items() if first.worker or kind in WORKER_FAULTS}
    return first, _draw(rng, others, workers, rng.uniform(0.0, first.for_s + SOON_S))


def _draw(rng: random.Random, kinds: Mapping[str, int], workers: Sequence[str], at_s: float) -> Fault:
    [kind] = rng.choices(tuple(kinds), tuple(kinds.values()))
    worker = rng.choice(workers) if kind in WORKER_FAULTS else ""
    ends = {"kill": signal.SIGKILL, "leave": signal.SIGTERM}
    number = ends.get(kind) or rng.choice((signal.SIGKILL, signal.SIGTERM))
    return Fault(kind, worker, round(at_s, 1), round(_seconds(rng, kind), 1), number, rng.randrange(2**32))


def _seconds(rng: random.Random, kind: str) -> float:
    if kind.startswith("freeze"):
        return math.exp(rng.uniform(*map(math.log, FREEZE_S)))
    return rng.uniform(*{"full disk": FULL_S, "kill broker": BROKER_AWAY_S,
                         "stop broker": BROKER_AWAY_S}.get(kind, AWAY_S))
