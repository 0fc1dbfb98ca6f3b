"""Simulate a fleet in virtual time: events cause rebalances, and rebalances cause downtime of partitions.

The simulation is deterministic: it uses no clock, no randomness and no I/O. The model follows measurements
of Faust:

* An eager rebalance stops the whole group from the first JoinGroup until the last member has joined, and
  then for ``rebalance_pause_s``. The group waits for a dead member until its session timeout. A worker
  resumes all its partitions together, once all its actives have recovered (Faust's tables/recovery.py). So
  one cold partition also stops the worker's warm partitions.
* A cooperative rebalance stops only the moving partitions: for one pause if the old owner is gone, for two
  if the owner revokes first, and until the new owner's partitions have recovered. With the planner's
  warm-ups, a living owner keeps a task until the new owner has caught up; a follow-up round then moves it.
* A worker's replay takes records / ``replay_records_per_s`` seconds, actives first, then standbys.
* Files stay on disk. A copy that is not updated falls behind at the task's rate, by at most the size of its
  table.
* A static member (``group.instance.id``) that returns within its session timeout causes no rebalance. But
  it sends no LeaveGroup, so the group detects its scale-in only after the session timeout.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np

from faust_assigner.model import NOBODY, Bools, Ints
from faust_assigner.simulation.fleet import Arm, Costs, Event, Kind, Outcome, Policy, Scenario
from faust_assigner.simulation.question import Memo, PolicyError, Question
from faust_assigner.simulation.replicas import Replicas

__all__ = ["HORIZON_S", "Memo", "PolicyError", "Rebalance", "simulate"]

_DOWN_CLEAN, _DOWN_DEAD, _UP, _EXPIRE, _FOLLOW_UP = range(5)

#: A partition without an owner at the end counts as down for this many seconds after the last event.
HORIZON_S = 600.0


class Rebalance(NamedTuple):
    """One simulated rebalance: its time in seconds, its moved tasks, and its cold moves."""

    at_s: float
    moved: int
    cold_moves: int


def simulate(
    scenario: Scenario,
    arm: Arm,
    policy: Policy,
    *,
    costs: Costs | None = None,
    memo: Memo | None = None,
    trace: list[Rebalance] | None = None,
) -> Outcome:
    """Simulate ``scenario`` with ``policy`` and the settings of ``arm``; equal input gives equal figures.

    ``trace`` receives each rebalance after the initial assignment, in order of time. ``memo`` (one dict per
    scenario) saves the policy's results, so a policy must depend on its arguments only.

    Raises PolicyError unless each task has exactly one living owner. Cost: one call of the policy per
    rebalance, and O(workers x tasks) numpy work per event.
    """
    fleet = _Fleet(scenario, arm, policy, costs or Costs(), {} if memo is None else memo)
    outcome = fleet.run()
    if trace is not None:
        trace += fleet.trace
    return outcome


class _Downtime:
    """Per task: the start and the expected end of its last downtime, and the seconds counted so far."""

    def __init__(self, tasks: int) -> None:
        self.since = np.zeros(tasks)
        self.until = np.zeros(tasks)
        self.total = np.zeros(tasks)
        self.worst = 0.0

    def stop(self, tasks: Bools, now: float) -> None:
        """Stop ``tasks`` at ``now``; a task that is already stopped keeps its start."""
        fresh = tasks & (self.until <= now)
        self._count(fresh)
        self.since[fresh] = now
        self.until[tasks] = np.inf

    def resume(self, tasks: Bools, at: float) -> None:
        """Resume ``tasks`` at ``at``."""
        self.until[tasks] = at

    def finish(self, end: float) -> tuple[float, float]:
        """Return the downtime in seconds summed over tasks, and the longest downtime."""
        self.until = np.where(np.isinf(self.until), np.maximum(end, self.since), self.until)
        self._count(np.ones(len(self.total), bool))
        return float(self.total.sum()), self.worst

    def _count(self, tasks: Bools) -> None:
        seconds = self.until[tasks] - self.since[tasks]
        if seconds.size:
            self.total[tasks] += seconds
            self.worst = max(self.worst, float(seconds.max()))


class _Fleet:
    """The state of one simulation; each method is a step of the simulation."""

    def __init__(
        self, scenario: Scenario, arm: Arm, policy: Policy, costs: Costs, memo: Memo
    ) -> None:
        self.scenario, self.arm, self.costs = scenario, arm, costs
        self.question = Question(scenario, arm, policy, costs, memo)
        self.replicas = Replicas(scenario)
        workers = len(scenario.workers)
        self.index = {worker.member_id: row for row, worker in enumerate(scenario.workers)}
        self.capacity = np.array([worker.capacity for worker in scenario.workers])
        self.now = 0.0
        self.up = np.zeros(workers, bool)
        self.fresh = np.zeros(workers, bool)  # bool[W]: started after the last rebalance
        # Row of a dead worker -> the token of its session timeout.
        self.absent: dict[int, int] = {}
        self.pending = False
        self.follow_up = 0  # the token of the next follow-up round
        self.downtime = _Downtime(scenario.tasks)
        self.queue: list[tuple[float, int, int, int]] = []  # (at, token, operation, row)
        self.tokens = 0
        self.moved = self.cold = 0.0
        self.trace: list[Rebalance] = []
        self.heaviest: list[float] = []
        self.rebalances = self.idle = 0

    def run(self) -> Outcome:
        """Make the initial assignment, process the events, return the figures."""
        self._start_group()
        for event in self.scenario.events:
            self._schedule_event(event)
        while self.queue:
            at = self.queue[0][0]
            self._advance(at)
            while self.queue and self.queue[0][0] == at:
                _, token, operation, row = heapq.heappop(self.queue)
                self._apply(operation, row, token)
            if self.pending and not self.absent:
                self._rebalance()
        unavailable, worst_gap = self.downtime.finish(self.now + HORIZON_S)
        loads = self.heaviest or [1.0]
        return Outcome(
            self.moved,
            self.cold,
            float(np.mean(loads)),
            max(loads),
            unavailable,
            worst_gap,
            self.replicas.restored,
            self.rebalances,
            self.idle,
        )

    def _start_group(self) -> None:
        """Make the initial assignment with complete copies; it does not count in the figures."""
        for member_id in self.scenario.start:
            self.up[self.index[member_id]] = self.fresh[self.index[member_id]] = True
        self._rebalance()
        self.replicas.lag[self.replicas.owned() | self.replicas.standby] = 0.0
        self.downtime = _Downtime(self.scenario.tasks)
        self.moved = self.cold = 0.0
        self.rebalances = 0
        self.trace.clear()

    def _schedule_event(self, event: Event) -> None:
        row = self.index[event.member_id]
        if event.kind is Kind.JOIN:
            self._push(event.at_s, _UP, row)
            return
        clean = event.kind in (Kind.LEAVE, Kind.RESTART)
        self._push(event.at_s, _DOWN_CLEAN if clean else _DOWN_DEAD, row)
        if event.kind in (Kind.RESTART, Kind.BOUNCE):
            self._push(event.at_s + event.down_s, _UP, row)

    def _push(self, at: float, operation: int, row: int) -> int:
        self.tokens += 1
        heapq.heappush(self.queue, (at, self.tokens, operation, row))
        return self.tokens

    def _apply(self, operation: int, row: int, token: int) -> None:
        if operation == _EXPIRE:
            if self.absent.get(row) == token:
                del self.absent[row]
                self._request_rebalance()
        elif operation == _FOLLOW_UP:
            self.pending |= token == self.follow_up
        elif operation == _UP:
            if not self.up[row]:
                self._start(row)
        elif self.up[row]:
            self._end(row, leaves_group=operation == _DOWN_CLEAN and not self.arm.static)

    def _end(self, row: int, *, leaves_group: bool) -> None:
        """End a process and stop its partitions; the group rebalances now or after the session timeout."""
        self.up[row] = False
        self.downtime.stop(self.replicas.owner == row, self.now)
        if leaves_group:
            self._request_rebalance()
        else:
            self.absent[row] = self._push(self.now + self.costs.session_timeout_s, _EXPIRE, row)

    def _start(self, row: int) -> None:
        """Start a process: a static member within its session resumes its partitions, other members join."""
        self.up[row] = True
        if self.arm.static and row in self.absent:
            del self.absent[row]
            if not self.pending:
                mine = self.replicas.owner == row
                self.downtime.resume(mine, self._recovered_at(row, mine, takeover=True))
        else:
            self.fresh[row] = True
            self._request_rebalance()

    def _request_rebalance(self) -> None:
        self.pending = True
        if not self.arm.cooperative:
            self.downtime.stop(np.ones(self.scenario.tasks, bool), self.now)

    def _recovered_at(self, row: int, mine: Bools, *, takeover: bool) -> float:
        replay = float(self.replicas.lag[row, mine].sum()) / self.costs.replay_records_per_s
        return (
            self.now + self.costs.rebalance_pause_s + self.costs.warm_takeover_s * takeover + replay
        )

    def _rebalance(self) -> None:
        self.pending = False
        living = np.flatnonzero(self.up)
        before, awaited_before = self.replicas.owner, self.replicas.awaited
        if not living.size:
            self.replicas.owner[:] = NOBODY
            return
        owner, standby, awaited = self.question.ask(self.replicas, living, self.fresh)
        moved = (before != NOBODY) & (owner != before)
        self._count_moves(owner, moved)
        self.replicas.place(owner, standby, awaited)
        self._resume(living, before, moved)
        self.fresh[:] = False
        self._measure(living)
        self.follow_up = 0
        settled = (owner == before).all() and (awaited == awaited_before).all()
        if awaited.any() and not settled:
            self.follow_up = self._push(self._caught_up_at(), _FOLLOW_UP, 0)

    def _count_moves(self, owner: Ints, moved: Bools) -> None:
        cold = moved & self.replicas.are_cold(owner, self.costs.acceptable_recovery_lag)
        self.moved += float(moved.sum())
        self.cold += float(cold.sum())
        self.trace.append(Rebalance(self.now, int(moved.sum()), int(cold.sum())))

    def _resume(self, living: Ints, before: Ints, moved: Bools) -> None:
        """Resume the stopped tasks of each living worker at the time when its tasks have recovered."""
        owner = self.replicas.owner
        gained = (owner != before) & self.scenario.stateful
        for row in living.tolist():
            mine = owner == row
            if self.arm.cooperative:
                self._take_over(row, mine, moved, before)
            else:
                takeover = bool(self.fresh[row] or gained[mine].any())
                self.downtime.resume(mine, self._recovered_at(row, mine, takeover=takeover))

    def _take_over(self, row: int, mine: Bools, moved: Bools, before: Ints) -> None:
        """Start the gained or resumed partitions of ``row`` in a cooperative round."""
        gained = mine & (before != row)
        self.downtime.stop(gained & moved, self.now)
        begins = gained | (mine & np.isinf(self.downtime.until))
        if not begins.any():
            return
        released = bool(self.up[before[gained & moved]].any())
        takeover = bool((begins & self.scenario.stateful).any())
        at = self._recovered_at(row, begins, takeover=takeover)
        self.downtime.resume(begins, at + self.costs.rebalance_pause_s * released)

    def _caught_up_at(self) -> float:
        """Return when all awaited copies have caught up; a worker replays its actives before its copies."""
        replicas = self.replicas
        copies = np.where(replicas.owned() | replicas.standby, replicas.lag, 0.0)
        slowest = float(copies.sum(axis=1)[replicas.awaited.any(axis=1)].max())
        restored_s = slowest / self.costs.replay_records_per_s
        return self.now + max(self.costs.follow_up_s, restored_s)

    def _measure(self, living: Ints) -> None:
        self.rebalances += 1
        loads = np.bincount(self.replicas.owner, self.scenario.rates, len(self.up))[living]
        fair = self.scenario.rates.sum() / self.capacity[living].sum()
        self.heaviest.append(
            float((loads / self.capacity[living]).max() / fair) if fair > 0 else 1.0
        )
        self.idle = max(self.idle, len(living) - len(np.unique(self.replicas.owner)))

    def _advance(self, to: float) -> None:
        """Advance the virtual time to ``to``; the workers replay meanwhile."""
        seconds, self.now = to - self.now, to
        if seconds > 0:
            self.replicas.advance(seconds, self.up, self.costs)
