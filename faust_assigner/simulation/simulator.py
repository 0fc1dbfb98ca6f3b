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
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from faust_assigner.errors import FaustAssignerError
from faust_assigner.model import NOBODY, Bools, Ints, Member
from faust_assigner.simulation.fleet import (
    Arm,
    Costs,
    Event,
    Kind,
    Outcome,
    PlanLike,
    Policy,
    Scenario,
    claims_of,
)
from faust_assigner.warmup import WarmupPolicy

_DOWN_CLEAN, _DOWN_DEAD, _UP, _EXPIRE, _FOLLOW_UP = range(5)

#: Virtual seconds after the last event during which an unowned partition counts as down.
HORIZON_S = 600.0


class PolicyError(FaustAssignerError, ValueError):
    """A policy returned an invalid assignment; the text names the scenario, policy and task."""


#: Results of policies in one scenario by their input; arms with equal input share a result.
Memo: TypeAlias = dict[tuple[str | int | bytes | bool, ...], tuple[Ints, Bools, Bools]]


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
        self.scenario, self.arm, self.policy, self.costs, self.memo = (
            scenario,
            arm,
            policy,
            costs,
            memo,
        )
        workers, tasks = len(scenario.workers), scenario.tasks
        self.index = {worker.member_id: row for row, worker in enumerate(scenario.workers)}
        self.capacity = np.array([worker.capacity for worker in scenario.workers])
        self.topics = tuple(scenario.partitions)
        self.now = 0.0
        self.up = np.zeros(workers, bool)
        self.fresh = np.zeros(workers, bool)  # started since the last rebalance, without partitions
        self.absent: dict[int, int] = {}  # row -> token; the group still waits for its session
        self.pending = False
        self.owner = np.full(tasks, NOBODY)
        self.standby = np.zeros((workers, tasks), bool)
        self.holds = np.zeros((workers, tasks), bool)
        self.awaited = np.zeros((workers, tasks), bool)  # copies awaited by a follow-up round
        self.follow_up = 0  # the token of the next follow-up round
        self.lag = np.tile(scenario.records, (workers, 1))
        self.downtime = _Downtime(tasks)
        self.queue: list[tuple[float, int, int, int]] = []  # (at, token, operation, row)
        self.tokens = 0
        self.moved = self.cold = self.restored = 0.0
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
            self.restored,
            self.rebalances,
            self.idle,
        )

    def _start_group(self) -> None:
        """Make the initial assignment: every replica is complete and no figure is counted."""
        for member_id in self.scenario.start:
            self.up[self.index[member_id]] = self.fresh[self.index[member_id]] = True
        self._rebalance()
        kept = self._owned() | self.standby
        self.lag[kept] = 0.0
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
        self.downtime.stop(self.owner == row, self.now)
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
                mine = self.owner == row
                self.downtime.resume(mine, self._recovered_at(row, mine, takeover=True))
        else:
            self.fresh[row] = True
            self._request_rebalance()

    def _request_rebalance(self) -> None:
        self.pending = True
        if not self.arm.cooperative:
            self.downtime.stop(np.ones(self.scenario.tasks, bool), self.now)

    def _recovered_at(self, row: int, mine: Bools, *, takeover: bool) -> float:
        replay = float(self.lag[row, mine].sum()) / self.costs.replay_records_per_s
        return (
            self.now + self.costs.rebalance_pause_s + self.costs.warm_takeover_s * takeover + replay
        )

    def _rebalance(self) -> None:
        self.pending = False
        living = np.flatnonzero(self.up)
        if not living.size:
            self.owner[:] = NOBODY
            return
        owner, standby, awaited = self._ask(living)
        before = self.owner
        moved = (self.owner != NOBODY) & (owner != self.owner)
        copies = self.lag[owner, np.arange(len(owner))]
        behind = ~self.holds[owner, np.arange(len(owner))] | (
            copies > self.costs.acceptable_recovery_lag
        )
        cold = moved & behind & self.scenario.stateful
        self.moved += float(moved.sum())
        self.cold += float(cold.sum())
        self.trace.append(Rebalance(self.now, int(moved.sum()), int(cold.sum())))
        gained = (owner != self.owner) & self.scenario.stateful
        settled = (owner == before).all() and (awaited == self.awaited).all()
        self.owner, self.standby, self.awaited = owner, standby, awaited
        self.holds |= (self._owned() | standby) & self.scenario.stateful
        for row in living.tolist():
            mine = owner == row
            if self.arm.cooperative:
                self._take_over(row, mine, moved, before)
            else:
                takeover = bool(self.fresh[row] or gained[mine].any())
                self.downtime.resume(mine, self._recovered_at(row, mine, takeover=takeover))
        self.fresh[:] = False
        self._measure(living)
        self.follow_up = 0
        if awaited.any() and not settled:
            self.follow_up = self._push(self._caught_up_at(), _FOLLOW_UP, 0)

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
        behind = np.where(self._owned() | self.standby, self.lag, 0.0).sum(axis=1)
        slowest = float(behind[self.awaited.any(axis=1)].max())
        restored_s = slowest / self.costs.replay_records_per_s
        return self.now + max(self.costs.follow_up_s, restored_s)

    def _measure(self, living: Ints) -> None:
        self.rebalances += 1
        loads = np.bincount(self.owner, self.scenario.rates, len(self.up))[living]
        fair = self.scenario.rates.sum() / self.capacity[living].sum()
        self.heaviest.append(
            float((loads / self.capacity[living]).max() / fair) if fair > 0 else 1.0
        )
        self.idle = max(self.idle, len(living) - len(np.unique(self.owner)))

    def _ask(self, living: Ints) -> tuple[Ints, Bools, Bools]:
        """Run the policy: owners int64[T], standbys bool[W,T] and the awaited standbys."""
        files = self.holds & self.fresh[:, None]
        asked = (
            self.arm.policy,
            self.arm.replicas,
            self.arm.weighted,
            living.tobytes(),
            self.fresh.tobytes(),
            self.owner.tobytes(),
            np.packbits(self.standby).tobytes(),
            np.packbits(files).tobytes(),
            self.arm.cooperative and self._positions().tobytes() + self.awaited.tobytes(),
        )
        if asked not in self.memo:
            self.memo[asked] = self._ask_anew(living)
        owner, standby, awaited = self.memo[asked]
        return owner.copy(), standby.copy(), awaited.copy()

    def _positions(self) -> Ints:
        """Return int64[W,T]: each worker's position in each task's state; an owner is at the log's end."""
        ends = np.ceil(self.scenario.records)
        lag = np.where(self._owned(), 0.0, np.where(self.holds, np.round(self.lag), ends))
        positions: Ints = np.maximum(ends - lag, 0).astype(np.int64)
        return positions

    def _ask_anew(self, living: Ints) -> tuple[Ints, Bools, Bools]:
        positions = self._positions()
        members = [self._member(row, positions[row]) for row in living.tolist()]
        costs = self.costs
        warm: dict[str, object] = {}
        if self.arm.cooperative:
            warm["warmups"] = WarmupPolicy(
                acceptable_recovery_lag=int(costs.acceptable_recovery_lag),
                acceptable_from_nothing=int(costs.acceptable_from_nothing),
            )
        plan = self.policy(
            members,
            self.scenario.partitions,
            replicas=self.arm.replicas,
            changelogs=self.scenario.changelogs,
            weights=self.scenario.weights if self.arm.weighted else None,
            **warm,
        )
        return self._read(plan, living, members)

    def _member(self, row: int, positions: Ints) -> Member:
        worker, scenario = self.scenario.workers[row], self.scenario
        owned, copies = self.owner == row, self.standby[row]
        if self.fresh[row]:
            owned, copies = np.zeros_like(owned), self.holds[row] & self.arm.claims_files
        return Member(
            worker.member_id,
            self.topics,
            actives=claims_of(scenario.groups, scenario.offsets, owned),
            standbys=claims_of(scenario.groups, scenario.offsets, copies & scenario.stateful),
            generation=-1 if self.fresh[row] else 1,
            rack_id=worker.rack_id,
            capacity=worker.capacity,
            positions=self._told(positions) if self.arm.cooperative else None,
            awaited=claims_of(scenario.groups, scenario.offsets, self.awaited[row]),
        )

    def _told(self, positions: Ints) -> dict[str, tuple[Ints, Ints]]:
        """Return changelog -> (partition numbers, positions), as a member reports them."""
        scenario = self.scenario
        return {
            group.changelog: (
                np.arange(group.partitions, dtype=np.int64),
                positions[start : start + group.partitions],
            )
            for group, start in zip(scenario.groups, scenario.offsets.tolist(), strict=False)
            if group.changelog is not None
        }

    def _read(
        self, plan: PlanLike, living: Ints, members: Sequence[Member]
    ) -> tuple[Ints, Bools, Bools]:
        """Convert the plan to arrays over tasks; refuses an invalid assignment."""
        owner, standby = np.full(self.scenario.tasks, NOBODY), np.zeros_like(self.standby)
        awaited = np.zeros_like(self.standby)
        times = np.zeros(self.scenario.tasks, int)
        for row, member in zip(living.tolist(), members, strict=True):
            actives, standbys = plan.actives(member.member_id), plan.standbys(member.member_id)
            for group, start in zip(
                self.scenario.groups, self.scenario.offsets.tolist(), strict=False
            ):
                mine = np.asarray(actives.get(group.topic, ()), int) + start
                owner[mine] = row
                times[mine] += 1
                if group.changelog is not None:
                    standby[row, np.asarray(standbys.get(group.changelog, ()), int) + start] = True
                    waits = plan.awaited(member.member_id) if self.arm.cooperative else {}
                    awaited[row, np.asarray(waits.get(group.changelog, ()), int) + start] = True
        if (times != 1).any():
            task = int(np.flatnonzero(times != 1)[0])
            raise PolicyError(
                f"scenario {self.scenario.scenario_id}, policy {self.arm.label}: "
                f"task {task} has {int(times[task])} owners, expected 1"
            )
        return owner, standby, awaited

    def _owned(self) -> Bools:
        """Return bool[W,T]: the owned tasks of each worker."""
        owned: Bools = np.arange(len(self.up))[:, None] == self.owner
        return owned

    def _advance(self, to: float) -> None:
        """Replay until ``to``: actives first, then standbys; stale copies fall behind."""
        seconds, self.now = to - self.now, to
        if seconds <= 0:
            return
        budget = np.where(self.up, seconds * self.costs.replay_records_per_s, 0.0)
        owned = self._owned()
        for fed in (owned & self.up[:, None], self.standby & self.up[:, None]):
            wanted = np.where(fed, self.lag, 0.0)
            total = wanted.sum(axis=1)
            spent = np.minimum(budget, total)
            done = np.divide(spent, total, out=np.zeros_like(total), where=total > 0)
            self.lag -= wanted * done[:, None]
            self.restored += float(spent.sum())
            budget = budget - spent
        stale = self.holds & ~((owned | self.standby) & self.up[:, None])
        behind = np.minimum(self.lag + self.scenario.rates * seconds, self.scenario.records)
        self.lag = np.where(stale, behind, self.lag)
