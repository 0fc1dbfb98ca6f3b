"""A fleet in virtual time: events -> rebalances -> downtime of each partition, with its cause.

Deterministic: no clock, no randomness, no I/O. The model follows measurements of Faust:

* An eager rebalance stops the whole group from the first JoinGroup until the last member answered, then
  for ``rebalance_pause_s``. The group waits for a dead member until its session ends. A worker resumes its
  partitions together, once all its actives have recovered (tables/recovery.py): one cold partition stops
  the warm ones beside it.
* A cooperative rebalance stops only the moving partitions: for one pause if the old owner is gone, for two
  if the owner revokes first, and until the new owner's partitions have recovered. The planner's warm-ups
  keep a task with its living owner until the new owner has caught up; a follow-up round then moves the task.
* Replay costs records / ``replay_records_per_s`` per worker, actives first, then standbys.
* Files stay on disk: a stale copy falls behind at the task's rate, by at most the size of its table.
* A static member (``group.instance.id``) that returns within its session changes nothing, but sends no
  LeaveGroup either: a scale-in costs a whole session.
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

#: Virtual seconds after the last event during which an unowned partition counts as down.
HORIZON_S = 600.0


class Rebalance(NamedTuple):
    """One simulated rebalance: its time in seconds, and the tasks that it moved, warm and cold."""

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
    """Run ``scenario`` under ``policy`` with the settings of ``arm``; equal input gives equal figures.

    ``trace`` receives each rebalance after the first in order of time.
    A policy must be a function of its arguments: with a ``memo`` (one dict per scenario) the policy runs
    once per input. Raises PolicyError if a task has not exactly one living owner.
    Cost: one call of the policy per rebalance, and O(workers x tasks) numpy work per event.
    """
    fleet = _Fleet(scenario, arm, policy, costs or Costs(), {} if memo is None else memo)
    outcome = fleet.run()
    if trace is not None:
        trace += fleet.trace
    return outcome


class _Downtime:
    """Per task: the start of its downtime, its expected end, and the seconds already counted."""

    def __init__(self, tasks: int) -> None:
        self.since = np.zeros(tasks)
        self.until = np.zeros(tasks)
        self.total = np.zeros(tasks)
        self.worst = 0.0

    def stop(self, tasks: Bools, now: float) -> None:
        """Stop ``tasks`` at ``now``; stopped tasks stay stopped."""
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
    """The state of one run; every method is a step of the run."""

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
        self.fresh = np.zeros(workers, bool)  # started since the last rebalance, without partitions
        self.absent: dict[int, int] = {}  # row -> token; the group still waits for its session
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
        """Settle the initial group, play the events, return the figures."""
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
        """Make the initial assignment: every replica is complete and no figure is counted."""
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
        """End the process: its partitions stop now; the group learns of the end now or a session later."""
        self.up[row] = False
        self.downtime.stop(self.replicas.owner == row, self.now)
        if leaves_group:
            self._request_rebalance()
        else:
            self.absent[row] = self._push(self.now + self.costs.session_timeout_s, _EXPIRE, row)

    def _start(self, row: int) -> None:
        """Restart the process: a static member resumes its partitions, any other member joins anew."""
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
        """Resume the stopped tasks of each living worker once its tasks have recovered."""
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
        """Cooperative: start the partitions that ``row`` gained or resumed; the rest keeps running."""
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
        """Return when all awaited copies have caught up: a worker reads actives first, then copies."""
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
        """Replay until ``to``."""
        seconds, self.now = to - self.now, to
        if seconds > 0:
            self.replicas.advance(seconds, self.up, self.costs)
