"""The owners of tasks, the copies of the tasks' state, and the number of records that each copy lacks."""

from __future__ import annotations

import numpy as np

from faust_assigner.model import NOBODY, Bools, Ints
from faust_assigner.simulation.fleet import Costs, Scenario


class Replicas:
    """The owners and copies in a fleet, as arrays over workers W and tasks T."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        shape = (len(scenario.workers), scenario.tasks)
        #: int64[T], the owner of each task.
        self.owner: Ints = np.full(scenario.tasks, NOBODY)
        #: bool[W, T]: the standbys, the files on disk, and the copies that a follow-up round waits for.
        self.standby, self.holds, self.awaited = (np.zeros(shape, bool) for _ in range(3))
        #: float64[W, T], the records that a copy lacks.
        self.lag = np.tile(scenario.records, (len(scenario.workers), 1))
        #: The number of records replayed so far.
        self.restored = 0.0

    def owned(self) -> Bools:
        """Return bool[W, T]: the owned tasks of each worker."""
        owned: Bools = np.arange(len(self.holds))[:, None] == self.owner
        return owned

    def positions(self) -> Ints:
        """Return int64[W, T]: each worker's offset in each task's changelog; an owner is at the end."""
        ends = np.ceil(self.scenario.records)
        lag = np.where(self.owned(), 0.0, np.where(self.holds, np.round(self.lag), ends))
        positions: Ints = np.maximum(ends - lag, 0).astype(np.int64)
        return positions

    def are_cold(self, owner: Ints, acceptable_lag: float) -> Bools:
        """Return bool[T]: tasks with state whose ``owner`` has no copy within ``acceptable_lag`` records."""
        tasks = np.arange(len(owner))
        cold: Bools = ~self.holds[owner, tasks] | (self.lag[owner, tasks] > acceptable_lag)
        return cold & self.scenario.stateful

    def place(self, owner: Ints, standby: Bools, awaited: Bools) -> None:
        """Apply the result of a policy; from now on, owners and standbys have files."""
        self.owner, self.standby, self.awaited = owner, standby, awaited
        self.holds |= (self.owned() | standby) & self.scenario.stateful

    def advance(self, seconds: float, up: Bools, costs: Costs) -> None:
        """Replay for ``seconds``, actives first, then standbys; all other copies fall behind."""
        budget = np.where(up, seconds * costs.replay_records_per_s, 0.0)
        owned = self.owned()
        for fed in (owned & up[:, None], self.standby & up[:, None]):
            wanted = np.where(fed, self.lag, 0.0)
            total = wanted.sum(axis=1)
            spent = np.minimum(budget, total)
            done = np.divide(spent, total, out=np.zeros_like(total), where=total > 0)
            self.lag -= wanted * done[:, None]
            self.restored += float(spent.sum())
            budget = budget - spent
        stale = self.holds & ~((owned | self.standby) & up[:, None])
        behind = np.minimum(self.lag + self.scenario.rates * seconds, self.scenario.records)
        self.lag = np.where(stale, behind, self.lag)
