"""Warm-ups: a living owner keeps a stateful task until the target member has caught up (KIP-441).

The target is the final assignment; this stage limits the moves of this round. If the target member of a task
is too far behind, the task stays with its owner, and the target member gets a warm-up: a replica in addition
to the standbys. In a later round the task moves to the replica that has caught up. The number of concurrent
warm-ups is limited; replicas with the least lag come first.

The lag is a number of records, computed from the positions that members report. The owner's position is
the end of a changelog. A member without reported positions never delays a task.

Let D be the number of waiting tasks, and W = min(``max_per_member``, ``max_per_group``). Without further
events, and if each replica catches up within a round, the target is reached in at most ceil(D / W) + 1
rounds: docs/explanation/algorithms.md#warm-ups has the proof.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from faust_assigner.claims import claim_on, numbers, offsets_at
from faust_assigner.model import NOBODY, Bools, Ints, Layout, Member, Previous, WarmupPlan

#: The limit of positions: above any real offset, and small enough that sums fit in an int64.
_FURTHEST = 1 << 48
#: The maximum number of records that a log is assumed to grow after its owner's report. A larger position is
#: wrong, or belongs to another log (files of a recreated topic).
_PLAUSIBLE_GROWTH = 100_000


@dataclass(frozen=True, kw_only=True)
class WarmupPolicy:
    """The limits under which a task waits for its state.

    A member has caught up if it is at most ``acceptable_recovery_lag`` records behind. A member without any
    state of a changelog has caught up only if the changelog has at most ``acceptable_from_nothing`` records,
    because a new table takes longer to open and fill.

    At most ``max_per_member`` warm-ups run on a member and ``max_per_group`` in the group, so that
    restores do not slow down processing too much; both limits are at least 1. A worker replaces these
    defaults by its settings (``FAUST_ASSIGNER_MAX_WARMUPS`` in settings/table.py). This module has no
    clock: members report a wait that is too long (``Member.overdue``).
    """

    acceptable_recovery_lag: int = 10_000
    acceptable_from_nothing: int = 10_000
    max_per_member: int = 32
    max_per_group: int = 256

    def __post_init__(self) -> None:
        if (
            min(self.acceptable_recovery_lag, self.acceptable_from_nothing) < 0
            or min(self.max_per_member, self.max_per_group) < 1
        ):
            raise ValueError(f"the lag must be 0 or more and the limits 1 or more, got {self}")


class Progress:
    """The members' lags for one plan, and the moves and warm-ups that result from these lags."""

    def __init__(
        self, layout: Layout, members: Sequence[Member], previous: Previous, policy: WarmupPolicy
    ) -> None:
        self.layout, self.previous, self.policy = layout, previous, policy
        self._members = members
        #: bool[M + 1]: whether each member reports positions; the last entry is for ``NOBODY``.
        self.tells = np.array([*(m.positions is not None for m in members), False], dtype=np.bool_)

    # Lag -----------------------------------------------------------------------------------------

    def lag(self, g: int, number: Ints, member: Ints) -> Ints:
        """Return int64[K]: how many records of the state of ``number`` in group ``g`` each ``member`` lacks.

        The lag is 0 if the member or the task's owner reports no positions, so that it delays no task.
        """
        return self._lags(g, number, member)[0]

    def caught_up(self, g: int, number: Ints, member: Ints) -> Bools:
        """Return bool[K]: whether the lag is acceptable."""
        lag, from_nothing = self._lags(g, number, member)
        near: Bools = (lag <= self.policy.acceptable_recovery_lag) & (
            from_nothing <= self.policy.acceptable_from_nothing
        )
        return near

    def _lags(self, g: int, number: Ints, member: Ints) -> tuple[Ints, Ints]:
        """Return two int64[K]: the lag, and the end of the longest changelog without local state."""
        owner = self.layout.of(g, self.previous.owner)[number]
        lag, from_nothing = np.zeros((2, number.size), dtype=np.int64)
        for topic in self.layout.groups[g].changelogs:
            end, at = self._positions(topic, number, owner), self._positions(topic, number, member)
            at[_is_beyond_log_end(at, end)] = 0
            lag += np.maximum(end - at, 0)
            np.maximum(from_nothing, end, out=from_nothing, where=at == 0)
        measured = self.tells[member] & self.tells[owner]
        return lag * measured, from_nothing * measured

    def disbelieved(self) -> dict[str, int]:
        """Return changelog -> the number of copies with an ignored position beyond the log's end.

        Cost: O(copies).
        """
        found: dict[str, int] = {}
        for g, group in enumerate(self.layout.groups):
            first, last = np.searchsorted(
                self.previous.copy_task, self.layout.start[g : g + 2]
            ).tolist()
            number = self.previous.copy_task[first:last] - self.layout.start[g]
            owner = self.layout.of(g, self.previous.owner)[number]
            for topic in group.changelogs if last > first else ():
                end = self._positions(topic, number, owner)
                at = self._positions(topic, number, self.previous.copy_member[first:last])
                if beyond := int(np.count_nonzero(_is_beyond_log_end(at, end) & (end > 0))):
                    found[topic] = beyond
        return found

    def _positions(self, topic: str, number: Ints, member: Ints) -> Ints:
        """Return int64[K]: each member's position in a changelog; 0 if it is not reported."""
        found = np.zeros(number.size, dtype=np.int64)
        order = np.argsort(member, kind="stable")
        who, first = np.unique(member[order], return_index=True)
        for m, span in zip(who.tolist(), pairwise([*first.tolist(), member.size]), strict=True):
            rows = order[slice(*span)]
            if m != NOBODY and self.tells[m]:
                found[rows] = offsets_at(claim_on(self._members[m].positions, topic), number[rows])
        return np.clip(found, 0, _FURTHEST)

    # This round ----------------------------------------------------------------------------------

    def held(self, target: Ints) -> Bools:
        """Return bool[T]: the tasks that stay with their living owner, since their ``target`` is behind."""
        before = self.previous.owner
        waits = np.zeros(target.size, dtype=np.bool_)
        for g, group in enumerate(self.layout.groups):
            if group.is_stateful and group.adds_load:
                was, to = self.layout.of(g, before), self.layout.of(g, target)
                number = np.flatnonzero((was != to) & (was != NOBODY))
                waits[self.layout.start[g] + number] = ~self.caught_up(g, number, to[number])
        return waits

    def another(self, target: Ints) -> Ints:
        """Return ``target`` with each overdue task exchanged for another task of the same owner and group.

        The overdue task then stays with its owner, and the replacement waits instead. The replacement is
        a task that would have stayed, is not overdue on the target member, and has the least lag there.
        Without such a task, the overdue task keeps its target.
        """
        overdue = self._overdue
        if not overdue:
            return target
        target, before = target.copy(), self.previous.owner
        for task, m in sorted(overdue):
            owner = int(before[task])
            if target[task] != m or owner in (NOBODY, m):
                continue
            g = int(np.searchsorted(self.layout.start, task, side="right")) - 1
            if self.caught_up(g, np.array([task - self.layout.start[g]]), np.array([m]))[0]:
                continue
            start, end = self.layout.start[g : g + 2].tolist()
            mine = start + np.flatnonzero(
                (before[start:end] == owner) & (target[start:end] == owner)
            )
            mine = mine[[(t, m) not in overdue for t in mine.tolist()]]
            if mine.size:
                lag = self.lag(g, mine - start, np.full(mine.size, m))
                target[task], target[mine[np.lexsort((mine, lag))[0]]] = owner, m
        return target

    @cached_property
    def _overdue(self) -> set[tuple[int, int]]:
        """The (task, member) pairs that members report as overdue."""
        found = set()
        late = [
            (m, member)
            for m, member in enumerate(self._members)
            if type(member.overdue) is not dict or member.overdue
        ]
        for m, member in late:
            for g, group in enumerate(self.layout.groups):
                for topic in group.changelogs:
                    claimed = numbers(claim_on(member.overdue, topic), group.partitions)
                    found |= {(int(self.layout.start[g]) + p, m) for p in claimed.tolist()}
        return found

    def after(self, owner: Ints) -> Progress:
        """Return the progress after this round, when each member owns its tasks of ``owner`` int64[T]."""
        was, nobody = self.previous, np.full(owner.size, NOBODY, dtype=np.int64)
        left = np.flatnonzero(
            (was.owner != NOBODY)
            & (was.owner != owner)
            & self.layout.per_task(lambda group: group.is_stateful)
        )
        task, member = np.append(was.copy_task, left), np.append(was.copy_member, was.owner[left])
        rows = np.lexsort((member, task))
        rows = rows[member[rows] != owner[task[rows]]]
        logs = np.append(was.copy_logs, np.ones(left.size, dtype=np.int64))
        spare = np.append(was.copy_was_standby, np.zeros(left.size, dtype=np.bool_))
        settled = Previous(
            owner=owner,
            former=nobody,
            home=was.home,
            awaited=np.where(was.awaited == owner, NOBODY, was.awaited),
            copy_task=task[rows],
            copy_member=member[rows],
            copy_logs=logs[rows],
            copy_was_standby=spare[rows],
        )
        return Progress(self.layout, self._members, settled, self.policy)

    def far(self, owner: Ints, target: Ints) -> Bools:
        """Return bool[T]: the tasks that must leave ``owner`` but whose ``target`` has not caught up."""
        off = np.flatnonzero(_tasks_to_move(self.layout, owner, target))
        far = np.zeros(owner.size, dtype=np.bool_)
        far[off] = self._of_targets(self.caught_up, off, target) == 0
        return far

    def _of_targets(
        self, what: Callable[[int, Ints, Ints], Ints | Bools], tasks: Ints, target: Ints
    ) -> Ints:
        """Return int64[K]: ``what`` (a lag, or caught up) for each of ``tasks`` on its target member."""
        found = np.zeros(tasks.size, dtype=np.int64)
        group = np.searchsorted(self.layout.start, tasks, side="right") - 1
        for g in np.unique(group).tolist():
            mine = group == g
            found[mine] = what(g, tasks[mine] - self.layout.start[g], target[tasks[mine]])
        return found

    def plan_warmups(
        self, owner: Ints, target: Ints, standby: Ints, far: Bools, disbelieved: Mapping[str, int]
    ) -> WarmupPlan:
        """Plan the next rounds; a task of ``far`` gets a warm-up unless its target member has a standby.

        An overdue task gets no warm-up, but a standby on its target member is awaited in any case.
        """
        waits = _tasks_to_move(self.layout, owner, target)
        stands_by = (standby == target[:, None]).any(axis=1)
        for task, m in self._overdue:
            waits[task] &= stands_by[task] or target[task] != m
        off = np.flatnonzero(waits)
        stands_by = stands_by[off]
        warmup = self._replicas(off[far[off] & ~stands_by], target)
        awaited = np.full(owner.size, NOBODY, dtype=np.int64)
        off = off[stands_by | (warmup[off] != NOBODY)]
        awaited[off] = target[off]
        return WarmupPlan(target, warmup, awaited, disbelieved)

    def _replicas(self, off: Ints, target: Ints) -> Ints:
        """Return int64[T]: the members with warm-ups for the tasks ``off``, within the limits.

        Warm-ups that have begun come first, then warm-ups with the least lag.
        """
        warmup = np.full(target.size, NOBODY, dtype=np.int64)
        if not off.size:
            return warmup
        begun = self.previous.awaited[off] == target[off]
        order = np.lexsort((off, self._of_targets(self.lag, off, target), ~begun))
        chosen = order[_rank_among_equal(target[off][order]) < self.policy.max_per_member][
            : self.policy.max_per_group
        ]
        warmup[off[chosen]] = target[off[chosen]]
        return warmup


def _is_beyond_log_end(position: Ints, end: Ints) -> Bools:
    """Return bool[K]: whether a position is implausibly far beyond the log's reported end."""
    beyond: Bools = position > end + _PLAUSIBLE_GROWTH
    return beyond


def _tasks_to_move(layout: Layout, owner: Ints, target: Ints) -> Bools:
    """Return bool[T]: the stateful tasks whose ``owner`` and ``target`` are different members."""
    off: Bools = owner != target
    away = np.flatnonzero(off)
    group = np.searchsorted(layout.start, away, side="right") - 1
    ordinary = np.array([g.is_stateful and g.adds_load for g in layout.groups], dtype=np.bool_)
    off[away] = ordinary[group] & (owner[away] != NOBODY) & (target[away] != NOBODY)
    return off


def _rank_among_equal(member: Ints) -> Ints:
    """Return int64[K]: the number of earlier entries with the same member."""
    order = np.argsort(member, kind="stable")
    ordered = member[order]
    first = np.searchsorted(ordered, ordered)
    rank = np.empty(member.size, dtype=np.int64)
    rank[order] = np.arange(member.size) - first
    return rank
