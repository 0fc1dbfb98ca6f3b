"""A day of load on a group of stateful workers in virtual time: a model with the real planner.

Times are seconds, loads records a second, state changelog records. A step is ``STEP_S``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

import numpy as np

from faust_assigner.assignment import Plan
from faust_assigner.model import Bools, Floats, Ints, Member
from faust_assigner.planner import plan
from faust_assigner.warmup import WarmupPolicy

STEP_S = 5.0
SOURCE, LOG = "orders", "shop-totals-changelog"


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Durations and rates of the group and its host. A rebalance has the simulation package's defaults.

    ``commit_s`` is the mean wait of a processed record for its commit: half of Faust's commit interval.
    """

    partitions: int = 24
    standbys: int = 1
    worker_rate: float = 1_000.0
    records: float = 200_000.0
    replay_records_per_s: float = 3_700.0
    pause_s: float = 0.7
    takeover_s: float = 1.0
    session_s: float = 60.0
    follow_up_s: float = 5.0
    pod_start_s: float = 30.0
    pod_restart_s: float = 90.0
    commit_s: float = 1.4


@dataclass(frozen=True, kw_only=True)
class Day:
    """``load`` float64[steps]: arrivals of all partitions together; ``deaths``: (time, worker's number)."""

    seed: int
    load: Floats
    deaths: tuple[tuple[float, int], ...]

    @classmethod
    def drawn(
        cls, seed: int, *, hours: float = 24.0, low: float = 700.0, high: float = 7_000.0
    ) -> Day:
        """Draw a curve from ``low`` to ``high`` and back: noise, a burst of 60 %, a death per 6 h."""
        random = np.random.default_rng(seed)
        steps = int(hours * 3600 / STEP_S)
        at = np.arange(steps) * STEP_S / 3600 / hours
        curve = low + (high - low) * (1 - np.cos(2 * np.pi * at)) / 2
        noise, level = np.zeros(steps), 0.0
        for step, kick in enumerate(random.normal(0.0, 1.0, steps)):
            # Noise with a time constant of five minutes and a tenth of the load as its deviation.
            level += (-level + kick * 0.1 * np.sqrt(2 * 300 / STEP_S)) * STEP_S / 300
            noise[step] = level
        burst = np.ones(steps)
        begin = int(steps * random.uniform(0.15, 0.75))
        burst[begin : begin + int(900 / STEP_S)] = 1.6
        deaths = sorted(
            (float(random.uniform(0.05, 0.95)) * hours * 3600, int(random.integers(100)))
            for _ in range(max(1, round(hours / 6)))
        )
        return cls(seed=seed, load=curve * np.exp(noise) * burst, deaths=tuple(deaths))


@dataclass
class Fleet:
    """The workers, their tasks and copies of state. ``lag`` float64[T] counts waiting records."""

    costs: Costs
    now: float = 0.0
    lag: Floats = field(init=False)
    arrived: Floats = field(init=False)
    owner: list[str] = field(init=False)
    ready_at: Floats = field(init=False)
    #: Living worker -> records of each task's state in its copy, -1 without a copy.
    copies: dict[str, Floats] = field(default_factory=dict)
    standby: dict[str, Bools] = field(default_factory=dict)
    awaited: dict[str, Bools] = field(default_factory=dict)
    #: Dead worker -> end of its session.
    dead: dict[str, float] = field(default_factory=dict)
    due_at: float | None = None
    moves: int = 0
    cold_moves: int = 0
    rounds: int = 0

    def __post_init__(self) -> None:
        tasks = self.costs.partitions
        self.lag, self.arrived, self.ready_at = np.zeros(tasks), np.zeros(tasks), np.zeros(tasks)
        self.owner = [""] * tasks

    # -- events

    def join(self, names: Collection[str]) -> None:
        """Add new workers without files."""
        for name in names:
            self.copies[name] = np.full(self.costs.partitions, -1.0)
            self.standby[name] = np.zeros(self.costs.partitions, bool)
            self.awaited[name] = np.zeros(self.costs.partitions, bool)
        self.round()

    def start(self, names: Collection[str]) -> None:
        """Add the day's first workers with complete state: the day starts without a restore."""
        self.join(names)
        for name in names:
            held = self.copies[name] >= 0
            self.copies[name][held] = self.costs.records
        self.ready_at[:] = 0.0
        self.due_at = None
        self.moves = self.cold_moves = 0

    def leave(self, names: Collection[str]) -> None:
        """Stop workers, which leave the group."""
        for name in names:
            self._forget(name)
        self.round()

    def die(self, name: str) -> None:
        """Kill a worker: its tasks stand still until its session ends."""
        self.dead[name] = self.now + self.costs.session_s
        for task in self._owned(name):
            self.ready_at[task] = np.inf
        self._forget(name)

    def _forget(self, name: str) -> None:
        del self.copies[name], self.standby[name], self.awaited[name]

    # -- time

    def step(self, load: float) -> None:
        """Advance ``STEP_S`` seconds: restore, end sessions, run a follow-up round, process records."""
        self._restore()
        self.now += STEP_S
        over = [name for name, at in self.dead.items() if at <= self.now]
        for name in over:
            del self.dead[name]
        is_due = self.due_at is not None and self.now >= self.due_at and self._has_caught_up()
        if over or is_due:
            self.round()
        self.arrived += load * STEP_S / self.costs.partitions
        self.lag += load * STEP_S / self.costs.partitions
        self._process()

    def _process(self) -> None:
        """Share each worker's time among its ready tasks in proportion to their lag."""
        ready = np.clip((self.now - self.ready_at) / STEP_S, 0.0, 1.0)
        budget = self.costs.worker_rate * STEP_S
        for name in self.copies:
            mine = self._owned(name)
            wanted = self.lag[mine] * (ready[mine] > 0)
            total = wanted.sum()
            if total > 0:
                share = min(1.0, budget / total)
                self.lag[mine] -= wanted * share * ready[mine]

    def _restore(self) -> None:
        budget = self.costs.replay_records_per_s * STEP_S
        for name, has in self.copies.items():
            left = budget
            mine = np.zeros(len(has), bool)
            mine[self._owned(name)] = True
            for wanted in (mine, self.standby[name] & ~mine):
                for task in np.flatnonzero(wanted & (has < self.costs.records)):
                    done = min(left, self.costs.records - has[task])
                    has[task] += done
                    left -= done

    # -- one round

    def round(self) -> None:
        """Plan for the living workers and apply the assignment."""
        self.rounds += 1
        self.due_at = None
        if not self.copies:
            return
        names = sorted(self.copies)
        found = plan(
            [self._member(name) for name in names],
            {SOURCE: self.costs.partitions, LOG: self.costs.partitions},
            replicas=self.costs.standbys,
            changelogs=[LOG],
            warmups=WarmupPolicy(),
        )
        before, living = list(self.owner), set(names)
        for name in names:
            for task in found.actives(name).get(SOURCE, ()):
                self.owner[task] = name
        for name in names:
            self._take(name, found, before, living)
        if any(awaited.any() for awaited in self.awaited.values()):
            self.due_at = self.now + self.costs.follow_up_s

    def _take(self, name: str, found: Plan, before: list[str], living: set[str]) -> None:
        """Apply a worker's share: new and dropped copies, and tasks that it takes over."""
        has, log = self.copies[name], self.costs.records
        gained = [t for t in self._owned(name) if before[t] != name]
        missing = 0.0
        for task in gained:
            if before[task]:
                self.moves += 1
                self.cold_moves += bool(log - max(0.0, has[task]) > 10_000)
            missing += log - max(0.0, has[task])
        pauses = 2 if any(before[t] in living for t in gained) else 1
        restored_at = self.now + self.costs.pause_s * pauses + self.costs.takeover_s
        restored_at += missing / self.costs.replay_records_per_s
        self.ready_at[gained] = restored_at
        self.standby[name] = _flags(found.standbys(name).get(LOG, ()), len(has))
        self.awaited[name] = _flags(found.awaited(name).get(LOG, ()), len(has))
        held = self.standby[name].copy()
        held[self._owned(name)] = True
        has[held & (has < 0)] = 0.0
        has[~held] = -1.0

    def _member(self, name: str) -> Member:
        has, owned = self.copies[name], self._owned(name)
        copies = np.flatnonzero(self.standby[name])
        known = np.flatnonzero(has >= 0)
        return Member(
            name,
            (SOURCE, LOG),
            actives={SOURCE: owned, LOG: owned} if len(owned) else {},
            standbys={LOG: copies},
            generation=self.rounds - 1 if len(owned) or len(copies) else -1,
            positions={LOG: (known, has[known].astype(np.int64))},
            awaited={LOG: np.flatnonzero(self.awaited[name])},
        )

    # -- facts

    def _owned(self, name: str) -> Ints:
        return np.array([t for t, owner in enumerate(self.owner) if owner == name], dtype=np.int64)

    def _has_caught_up(self) -> bool:
        return all(
            (self.costs.records - self.copies[name][awaited] <= 10_000).all()
            for name, awaited in self.awaited.items()
        )

    def busy(self) -> Iterator[str]:
        """Yield the reasons why the group is not at rest."""
        yield from (f"worker {name} does not answer" for name in self.dead)
        for name, has in self.copies.items():
            if self.awaited[name].any():
                yield f"worker {name} warms up"
            if ((has >= 0) & (has < self.costs.records)).any():
                yield f"worker {name} restores"
        if (self.ready_at > self.now).any():
            yield "tasks stand still"


def _flags(numbers: Collection[int], count: int) -> Bools:
    found = np.zeros(count, bool)
    found[np.asarray(list(numbers), dtype=np.int64)] = True
    return found
