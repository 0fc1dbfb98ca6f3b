"""The faults of a round: drawn from a seed, pure, and equal for equal seeds."""

from __future__ import annotations

import math
import random
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: A fault's kind -> its relative frequency.
WORKER_FAULTS: Mapping[str, int] = {"kill": 4, "freeze": 4, "leave": 2, "full disk": 2, "damage": 3}
GROUP_FAULTS: Mapping[str, int] = {"all": 1, "freeze broker": 2}
#: Faults for a broker whose process may be killed at any time.
BROKER_DEATHS: Mapping[str, int] = {"kill broker": 2, "stop broker": 1}

#: SIGSTOP lasts from 2 to 40 s, as often below 9 s as above: timeouts of sessions and requests lie
#: between.
FREEZE_S = (2.0, 40.0)
#: The seconds of a worker's absence, partly within its session and partly beyond.
AWAY_S = (0.1, 12.0)
FULL_S = (3.0, 25.0)
BROKER_AWAY_S = (0.1, 6.0)
#: The rounds of 100 with two faults; the second starts during the first or soon after.
TWO_OF_100 = 45
SOON_S = 4.0

#: A journal's overlapping faults: frequency, duration (s), and start after the previous fault (s).
OVERLAPPING: Mapping[str, int] = {
    "kill": 5,
    "freeze": 5,
    "leave": 4,
    "join": 4,
    "freeze broker": 1,
    "kill broker": 1,
    "stop broker": 1,
}
LASTS_S: Mapping[str, tuple[float, float]] = {
    "kill": (0.1, 5.0),
    "freeze": (0.5, 14.0),
    "leave": (0.1, 5.0),
    "join": (3.0, 15.0),
    "freeze broker": (0.5, 9.0),
    "kill broker": (0.1, 4.0),
    "stop broker": (0.1, 4.0),
}
NEXT_S = (0.1, 3.5)
#: In turn: the workers restart with another agent, topic and table, and later without these.
DEPLOYS = ("deploy", "roll back")
#: The fewest events of a journal with deploys, and the events per deploy; at least two deploys.
LEAST_WITH_DEPLOYS, EVENTS_PER_DEPLOY = 20, 25
#: The maximum number of hindered workers in a journal.
MOST_HINDERED = 2


@dataclass(frozen=True)
class Fault:
    """A fault ``kind`` from ``at_s`` seconds into the round, for ``for_s`` seconds.

    A deploy ends by itself. ``worker`` is empty for faults of the broker or of all workers.
    ``number`` is the signal that ends workers. ``seed`` decides the open details, such as the
    damaged files.
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


def faults_of(
    seed: int, number: int, workers: Sequence[str], *, broker_dies: bool
) -> tuple[Fault, ...]:
    """Return one or two faults of round ``number``, by start time."""
    rng = random.Random(f"{seed}/{number}")
    kinds = {**WORKER_FAULTS, **GROUP_FAULTS, **(BROKER_DEATHS if broker_dies else {})}
    first = _draw(rng, kinds, workers, 0.0)
    if rng.randrange(100) >= TWO_OF_100:
        return (first,)
    # Two simultaneous faults of the whole group would not show the effect of either.
    others = {
        kind: weight for kind, weight in kinds.items() if first.worker or kind in WORKER_FAULTS
    }
    return first, _draw(rng, others, workers, rng.uniform(0.0, first.for_s + SOON_S))


def _draw(
    rng: random.Random, kinds: Mapping[str, int], workers: Sequence[str], at_s: float
) -> Fault:
    [kind] = rng.choices(tuple(kinds), tuple(kinds.values()))
    worker = rng.choice(workers) if kind in WORKER_FAULTS else ""
    ends = {"kill": signal.SIGKILL, "leave": signal.SIGTERM}
    number = ends.get(kind) or rng.choice((signal.SIGKILL, signal.SIGTERM))
    return Fault(
        kind, worker, round(at_s, 1), round(_seconds(rng, kind), 1), number, rng.randrange(2**32)
    )


def _seconds(rng: random.Random, kind: str) -> float:
    if kind.startswith("freeze"):
        return math.exp(rng.uniform(*map(math.log, FREEZE_S)))
    return rng.uniform(
        *{"full disk": FULL_S, "kill broker": BROKER_AWAY_S, "stop broker": BROKER_AWAY_S}.get(
            kind, AWAY_S
        )
    )


def overlapping(
    seed: int, events: int, workers: Sequence[str], spares: Sequence[str]
) -> tuple[Fault, ...]:
    """Return ``events`` faults by time; each begins while the group handles earlier faults.

    Spares join and leave: their fault is ``join``, which ends with a leave. A worker has one fault
    at a time. Deploys begin among them, even while workers are hindered.
    """
    deploys = iter(DEPLOYS[n % 2] for n in range(events))
    deploys_at = _deploys_at(random.Random(f"deploys/{seed}"), events)
    rng = random.Random(f"journal/{seed}")
    busy = dict.fromkeys((*workers, *spares, ""), 0.0)  # until when; "" is the broker
    faults: list[Fault] = []
    at_s = 0.0
    while len(faults) < events:
        if len(faults) in deploys_at:
            number = signal.SIGTERM
            faults.append(Fault(next(deploys), "", round(at_s, 1), 0.0, number, 0))
            at_s += rng.uniform(*NEXT_S)
            continue
        free = [name for name in busy if busy[name] <= at_s]
        hindered = sum(name not in free for name in workers)
        targets = {
            kind: [name for name in free if name in _targets(kind, workers, spares)]
            for kind in OVERLAPPING
            if kind not in WORKER_FAULTS or hindered < MOST_HINDERED
        }
        kinds = {kind: OVERLAPPING[kind] for kind, names in targets.items() if names}
        if kinds:
            [kind] = rng.choices(tuple(kinds), tuple(kinds.values()))
            name, lasts_s = (
                rng.choice(targets[kind]),
                math.exp(rng.uniform(*map(math.log, LASTS_S[kind]))),
            )
            number = signal.SIGKILL if kind == "kill" or rng.random() < 0.3 else signal.SIGTERM
            busy[name] = at_s + lasts_s
            faults.append(
                Fault(
                    kind,
                    name,
                    round(at_s, 1),
                    round(lasts_s, 1),
                    signal.SIGTERM if kind == "leave" else number,
                    rng.randrange(2**32),
                )
            )
        at_s += rng.uniform(*NEXT_S)
    return tuple(faults)


def _deploys_at(rng: random.Random, events: int) -> frozenset[int]:
    """Return the deploy events of a journal: one in the first half of each equal section."""
    if events < LEAST_WITH_DEPLOYS:
        return frozenset()
    count = max(2, events // EVENTS_PER_DEPLOY)
    each = events // count
    return frozenset(n * each + rng.randrange(1, each // 2) for n in range(count))


def _targets(kind: str, workers: Sequence[str], spares: Sequence[str]) -> Sequence[str]:
    return spares if kind == "join" else workers if kind in WORKER_FAULTS else ("",)
