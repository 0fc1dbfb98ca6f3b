"""Generated scenarios: a fleet with Zipf load and racks, and a day of deploys, crashes and scaling.

A scenario depends on its own seed alone, so that any scenario of a large run can be simulated again
alone: ``generate(shape, scenario_id, seed)``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from faust_assigner.model import Floats, Ints
from faust_assigner.simulation.fleet import Event, Kind, Scenario, TaskGroup, Worker
from faust_assigner.weights.limits import clamp_to_median

#: The ``dt`` of generated scenarios in the table, because virtual time has no date.
GENERATED_DT = "2000-01-01"
GENERATED_GROUP = "generated"
NO_GROUP = -1


@dataclass(frozen=True)
class Shape:
    """The inclusive ranges from which fleets are drawn, and the odds of each kind of incident.

    ``records`` is the range (log-uniform) of changelog records of an average partition. ``zipf`` is the range
    of the load's exponent: with 0 all partitions have equal load, with 1 the load follows Zipf's law.
    """

    members: tuple[int, int] = (3, 6)
    partitions: tuple[int, int] = (12, 36)
    groups: tuple[int, int] = (1, 3)
    racks: tuple[int, ...] = (1, 3)
    incidents: tuple[int, int] = (2, 4)
    zipf: tuple[float, float] = (0.0, 1.2)
    records: tuple[float, float] = (1e3, 1e6)
    records_per_s: tuple[float, float] = (100.0, 5_000.0)
    incident_odds: Mapping[str, float] = field(
        default_factory=lambda: {
            "deploy": 0.15,
            "crash": 0.25,
            "bounce": 0.15,
            "join": 0.15,
            "leave": 0.15,
            "scale_out": 0.1,
            "lose_rack": 0.05,
        }
    )

    def scenario(self, scenario_id: int, seed: int) -> Scenario:
        """Return the scenario of ``seed`` (see :func:`scenario_seed`); ``scenario_id`` is only its label."""
        return generate(self, scenario_id, seed)

    def split_of(self, scenario_id: int) -> int | None:
        """Return 0 if the scenario chooses settings, 1 if it evaluates them."""
        return scenario_id % 2


def scenario_seed(seed: int, scenario_id: int) -> int:
    """Return the seed of one scenario of a run: 63 bits that depend on the two arguments alone."""
    return int(
        np.random.SeedSequence([seed, scenario_id]).generate_state(1, np.uint64)[0] >> np.uint64(1)
    )


def generate(shape: Shape, scenario_id: int, seed: int) -> Scenario:
    """Generate the scenario of ``seed`` (see :func:`scenario_seed`)."""
    draw = np.random.default_rng(seed)
    groups = _groups(shape, draw)
    rates, records = _load(shape, draw, groups)
    first = int(draw.integers(shape.members[0], shape.members[1] + 1))
    racks = int(draw.choice(shape.racks))
    day = _Day(first, racks, draw)
    for _ in range(int(draw.integers(shape.incidents[0], shape.incidents[1] + 1))):
        day.incident(shape.incident_odds)
    noisy = rates * draw.lognormal(0.0, 0.1, len(rates))
    return Scenario(
        scenario_id,
        seed,
        GENERATED_GROUP,
        GENERATED_DT,
        tuple(day.workers),
        tuple(worker.member_id for worker in day.workers[:first]),
        groups,
        rates,
        records,
        tuple(day.events),
        clamp_to_median(noisy),
    )


def zipf_shares(partitions: int, exponent: float, order: Ints) -> Floats:
    """Return float64[partitions] with the sum 1; partition ``order[k]`` is the (k+1)-th heaviest."""
    shares = np.empty(partitions)
    shares[order] = np.arange(1, partitions + 1) ** -exponent
    total: Floats = shares / shares.sum()
    return total


def _groups(shape: Shape, draw: np.random.Generator) -> tuple[TaskGroup, ...]:
    total = int(draw.integers(shape.partitions[0], shape.partitions[1] + 1))
    count = min(int(draw.integers(shape.groups[0], shape.groups[1] + 1)), total)
    cuts = np.sort(draw.choice(np.arange(1, total), count - 1, replace=False))
    sizes = np.diff([0, *cuts.tolist(), total]).tolist()
    stateless = int(draw.integers(0, count)) if count > 1 else NO_GROUP
    return tuple(
        TaskGroup(
            f"topic-{number}", size, None if number == stateless else f"topic-{number}-changelog"
        )
        for number, size in enumerate(sizes)
    )


def _load(
    shape: Shape, draw: np.random.Generator, groups: tuple[TaskGroup, ...]
) -> tuple[Floats, Floats]:
    """Return the records/s and changelog records of each task; partitions with more load have more state."""
    rates, records = [], []
    exponent = draw.uniform(*shape.zipf)
    for group in groups:
        shares = zipf_shares(group.partitions, exponent, draw.permutation(group.partitions))
        rates.append(shares * draw.uniform(*shape.records_per_s))
        size = np.exp(draw.uniform(*np.log(shape.records))) if group.changelog is not None else 0.0
        records.append(np.floor(shares * group.partitions * size))
    return np.concatenate(rates), np.concatenate(records)


class _Day:
    """The workers of a scenario and their events in virtual time (seconds)."""

    def __init__(self, first: int, racks: int, draw: np.random.Generator) -> None:
        self.racks, self.draw = racks, draw
        self.workers: list[Worker] = []
        self.running: list[str] = []
        self.events: list[Event] = []
        self.at = 0.0
        for _ in range(first):
            self.running.append(self._new_worker())

    def incident(self, odds: Mapping[str, float]) -> None:
        """Add some quiet time, then one incident; an impossible incident becomes a join."""
        self.at += float(np.exp(self.draw.uniform(np.log(120.0), np.log(3_600.0))))
        names = list(odds)
        chances = np.array([odds[name] for name in names])
        name = names[int(self.draw.choice(len(names), p=chances / chances.sum()))]
        enough = len(self.running) > 2
        possible = {"lose_rack": self.racks > 1, "crash": enough, "leave": enough}
        happen: dict[str, Callable[[], None]] = {
            "deploy": self._deploy,
            "crash": lambda: self._gone(Kind.CRASH),
            "bounce": self._bounce,
            "join": lambda: self._join(1),
            "leave": lambda: self._gone(Kind.LEAVE),
            "scale_out": lambda: self._join(int(self.draw.integers(2, 5))),
            "lose_rack": self._lose_rack,
        }
        happen[name if possible.get(name, True) else "join"]()

    def _new_worker(self) -> str:
        number = len(self.workers)
        rack = f"rack-{number % self.racks}" if self.racks > 1 else None
        self.workers.append(Worker(f"worker-{number:03d}", rack))
        return self.workers[-1].member_id

    def _happens(self, kind: Kind, member_id: str, down_s: float = 0.0) -> None:
        self.events.append(Event(self.at, kind, member_id, down_s))

    def _victim(self) -> str:
        return self.running[int(self.draw.integers(len(self.running)))]

    def _deploy(self) -> None:
        """Restart all workers in turn."""
        pause, down = float(self.draw.uniform(30.0, 90.0)), float(self.draw.uniform(4.0, 20.0))
        for member_id in list(self.running):
            self._happens(Kind.RESTART, member_id, down)
            self.at += down + pause

    def _bounce(self) -> None:
        self._happens(Kind.BOUNCE, self._victim(), float(self.draw.uniform(1.0, 15.0)))

    def _gone(self, kind: Kind) -> None:
        member_id = self._victim()
        self._happens(kind, member_id)
        self.running.remove(member_id)

    def _join(self, count: int) -> None:
        for _ in range(count):
            member_id = self._new_worker()
            self._happens(Kind.JOIN, member_id)
            self.running.append(member_id)

    def _lose_rack(self) -> None:
        """Let all running workers of one rack die at once and return after 2 to 15 minutes."""
        racks = {worker.member_id: worker.rack_id for worker in self.workers}
        rack = racks[self._victim()]
        lost = [member_id for member_id in self.running if racks[member_id] == rack]
        down = float(self.draw.uniform(120.0, 900.0))
        for member_id in lost:
            self._happens(Kind.BOUNCE, member_id, down)
        self.at += down
