"""Warm-ups: a living owner keeps a stateful task until the member it belongs to has caught up (KIP-441).

The target is where the group is going; this stage says how far it goes in this round. A task whose target is
too far behind stays where it is, and its target gets a replica, beyond the standbys, that catches up: a
warm-up. The round after that, the task moves onto it. At most so many warm-ups at a time, the nearest to
done first.

How far behind a member is, is counted in records, from what members say of their own state: a changelog
ends where its owner says. What others claim makes nobody wait.

With no further events the target is reached in at most ceil(D / W) + 1 rounds, D being the tasks that wait
and W = min(``max_per_member``, ``max_per_group``), if each replica is caught up a round after it was begun:
docs/explanation/algorithms.md#warm-ups has the proof.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from faust_assigner.claims import claim_on, numbers, offsets_at
from faust_assigner.model import NOBODY, Bools, Ints, Layout, Member, Onward, Previous

#: No log is longer; sums of a task's changelogs stay within an int64.
_FURTHEST = 1 << 48
#: So many records may an owner have written since it told where its log ends; a claim further on is of
#: another log (a file of a topic that was created anew), or made up.
_SINCE_TOLD = 100_000


@dataclass(frozen=True, kw_only=True)
class WarmupPolicy:
    """How work waits for state.

    A member no more than ``acceptable_recovery_lag`` records behind has caught up, unless it holds nothing of
    a log of more than ``acceptable_from_nothing``: to open and fill a table anew takes longer than to read on
    in one. At most ``max_per_member`` warm-ups on one member and ``max_per_group`` in all, so that
    restoring does not take the brokers' time from processing; both at least 1. There is no clock here: for
    how long one waits, is for the members to say (``Member.overdue``).
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
            raise ValueError(f"a lag of 0 or more, limits of 1 or more, got {self}")


class Progress:
    """How far behind members are, looked up where it is asked for; one plan's."""

    def __init__(
        self, layout: Layout, members: Sequence[Member], previous: Previous, policy: WarmupPolicy
    ) -> None:
        self.layout, self.previous, self.policy = layout, previous, policy
        self._members = members
        #: bool[M + 1]: who tells positions; the last answers for ``NOBODY``.
        self.tells = np.array([*(m.positions is not None for m in members), False], dtype=np.bool_)

    # How far behind ------------------------------------------------------------------------------

    def lag(self, g: int, number: Ints, member: Ints) -> Ints:
        """int64[K]: how many records ``member`` is behind in the state of each ``number`` of group ``g``.

        0 where it or the task's owner tells no positions: what cannot be measured is not waited for.
        """
        return self._behind(g, number, member)[0]

    def caught_up(self, g: int, number: Ints, member: Ints) -> Bools:
        """bool[K]: no further behind than is acceptable."""
        lag, from_nothing = self._behind(g, number, member)
        near: Bools = (lag <= self.policy.acceptable_recovery_lag) & (
            from_nothing <= self.policy.acceptable_from_nothing
        )
        return near

    def _behind(self, g: int, number: Ints, member: Ints) -> tuple[Ints, Ints]:
        """int64[K] twice: the records to read, and the longest log of which the member holds nothing."""
        owner = self.layout.of(g, self.previous.owner)[number]
        lag, from_nothing = np.zeros((2, number.size), dtype=np.int64)
        for topic in self.layout.groups[g].changelogs:
            end, at = self._at(topic, number, owner), self._at(topic, number, member)
            at[_is_beyond(at, end)] = 0
            lag += np.maximum(end - at, 0)
            np.maximum(from_nothing, end, out=from_nothing, where=at == 0)
        measured = self.tells[member] & self.tells[owner]
        return lag * measured, from_nothing * measured

    def disbelieved(self) -> dict[str, int]:
        """Changelog -> how many positions of copies are beyond its end, and so count for nothing.

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
                end = self._at(topic, number, owner)
                at = self._at(topic, number, self.previous.copy_member[first:last])
                if beyond := int(np.count_nonzero(_is_beyond(at, end) & (end > 0))):
                    found[topic] = found.get(topic, 0) + beyond
        return found

    def _at(self, topic: str, number: Ints, member: Ints) -> Ints:
        """int64[K]: how far each member has come, 0 where it says nothing of that partition."""
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
        """bool[T]: the tasks that stay with their living owner, since their ``target`` int64[T] is behind."""
        before = self.previous.owner
        waits = np.zeros(target.size, dtype=np.bool_)
        for g, group in enumerate(self.layout.groups):
            if group.is_stateful and group.adds_load:
                was, to = self.layout.of(g, before), self.layout.of(g, target)
                number = np.flatnonzero(was != to)
                number = number[was[number] != NOBODY]
                waits[self.layout.start[g] + number] = ~self.caught_up(g, number, to[number])
        return waits

    def another(self, target: Ints) -> Ints:
        """``target`` with each task that waited too long for a member exchanged for another of its owner's.

        Any that stays as well, is not overdue there and is nearest to done; where there is none it stays.
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
        """(task, member) that members say were waited for too long."""
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
        """The same once everybody has what ``owner`` int64[T] gives it."""
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
        """bool[T]: the tasks that are to leave ``owner`` and whose ``target`` has not caught up."""
        off = np.flatnonzero(_to_go(self.layout, owner, target))
        far = np.zeros(owner.size, dtype=np.bool_)
        far[off] = self._of_targets(self.caught_up, off, target) == 0
        return far

    def _of_targets(
        self, what: Callable[[int, Ints, Ints], Ints | Bools], tasks: Ints, target: Ints
    ) -> Ints:
        """int64[K]: ``what`` of each of ``tasks`` on the member that is its ``target``."""
        found = np.zeros(tasks.size, dtype=np.int64)
        group = np.searchsorted(self.layout.start, tasks, side="right") - 1
        for g in np.unique(group).tolist():
            mine = group == g
            found[mine] = what(g, tasks[mine] - self.layout.start[g], target[tasks[mine]])
        return found

    def onward(
        self, owner: Ints, target: Ints, standby: Ints, far: Bools, disbelieved: Mapping[str, int]
    ) -> Onward:
        """What comes after this round; a warm-up is for ``far`` tasks whose ``target`` does not stand by."""
        waits = _to_go(self.layout, owner, target)
        for task, m in self._overdue:
            waits[task] &= target[task] != m
        off = np.flatnonzero(waits)
        stands_by = (standby[off] == target[off, None]).any(axis=1)
        warmup = self._replicas(off[far[off] & ~stands_by], target)
        awaited = np.full(owner.size, NOBODY, dtype=np.int64)
        off = off[stands_by | (warmup[off] != NOBODY)]
        awaited[off] = target[off]
        return Onward(target, warmup, awaited, disbelieved)

    def _replicas(self, off: Ints, target: Ints) -> Ints:
        """int64[T]: of the tasks ``off``, first the warm-ups under way, then those the least behind."""
        warmup = np.full(target.size, NOBODY, dtype=np.int64)
        if not off.size:
            return warmup
        begun = self.previous.awaited[off] == target[off]
        order = np.lexsort((off, self._of_targets(self.lag, off, target), ~begun))
        chosen = order[_rank(target[off][order]) < self.policy.max_per_member][
            : self.policy.max_per_group
        ]
        warmup[off[chosen]] = target[off[chosen]]
        return warmup


def _is_beyond(position: Ints, end: Ints) -> Bools:
    """bool[K]: further than a log that was told to end there can have come since."""
    beyond: Bools = position > end + _SINCE_TOLD
    return beyond


def _to_go(layout: Layout, owner: Ints, target: Ints) -> Bools:
    """bool[T]: stateful tasks that are to go from ``owner`` to ``target``."""
    off: Bools = owner != target
    away = np.flatnonzero(off)
    group = np.searchsorted(layout.start, away, side="right") - 1
    ordinary = np.array([g.is_stateful and g.adds_load for g in layout.groups], dtype=np.bool_)
    off[away] = ordinary[group] & (owner[away] != NOBODY) & (target[away] != NOBODY)
    return off


def _rank(member: Ints) -> Ints:
    """int64[K]: how many of the same member come before each."""
    order = np.argsort(member, kind="stable")
    ordered = member[order]
    first = np.searchsorted(ordered, ordered)
    rank = np.empty(member.size, dtype=np.int64)
    rank[order] = np.arange(member.size) - first
    return rank
