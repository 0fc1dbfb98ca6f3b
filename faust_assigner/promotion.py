"""This round: an orphaned stateful task goes where its state lives, even against the target."""

from __future__ import annotations

from collections import deque

import numpy as np

from faust_assigner.model import NOBODY, Bools, Floats, Ints, Layout, Previous


def promotable(layout: Layout, previous: Previous) -> Bools:
    """bool[T]: stateful tasks of ordinary groups whose owner is gone while a copy lives."""
    held = np.zeros(layout.tasks, dtype=np.bool_)
    held[previous.copy_task] = True
    ordinary = layout.per_task(lambda group: group.is_stateful and group.follows is None)
    able: Bools = held & ordinary & (previous.owner == NOBODY)
    return able


def promote(layout: Layout, target: Ints, previous: Previous, able: Bools, weight: Floats | None = None, *,
            even_state: bool = False) -> Ints:
    """This round's owners, int64[T]: the target, but each task of ``able`` on one of its best holders.

    Best are those with most of the task's changelogs. Among them the loads come out as even as they can
    be: least sum of load^2 / capacity, a semi-matching without a cost-reducing path (Harvey, Ladner,
    Lovasz, Tamir 2006). Ties go, with ``even_state``, to where the stateful tasks come out even, then to
    the target member, then to the lowest member id. With ``weight`` float64[T] the heaviest go first,
    each to its lightest holder.
    """
    if not able.any():
        return target
    now = target.copy()
    now[able] = NOBODY
    each = np.ones(now.size) if weight is None else weight
    settled = np.flatnonzero((now != NOBODY) & layout.per_task(lambda group: group.follows is None))
    load = np.bincount(now[settled], each[settled], minlength=len(layout.member_ids)).astype(np.float64)
    task, member = _best_holders(previous, able)
    alone = np.append(True, task[1:] != task[:-1]) & np.append(task[1:] != task[:-1], True)
    now[task[alone]] = member[alone]
    load += np.bincount(member[alone], each[task[alone]], minlength=load.size)
    state = None
    if even_state:
        stateful = layout.per_task(lambda group: group.is_stateful and group.follows is None)
        state = np.bincount(now[stateful & (now != NOBODY)], minlength=load.size)
    sharing = _Sharing(task=task[~alone], member=member[~alone], weight=each, load=load, state=state,
                       capacity=layout.capacity)
    sharing.start(target)
    if weight is None:
        sharing.level()
    for t, m in sharing.at.items():
        now[t] = m
    return now


def _best_holders(previous: Previous, able: Bools) -> tuple[Ints, Ints]:
    """(task, member), ordered, of the copies with the most changelogs of each task of ``able``."""
    rows = np.flatnonzero(able[previous.copy_task])
    task, member, logs = previous.copy_task[rows], previous.copy_member[rows], previous.copy_logs[rows]
    most = np.zeros(able.size, dtype=np.int64)
    np.maximum.at(most, task, logs)
    best = logs == most[task]
    return task[best], member[best]


#: Load first, then stateful tasks, where these count.
_Cost = tuple[float, int]


class _Sharing:
    """Tasks with several best holders each, over members with loads."""

    def __init__(self, *, task: Ints, member: Ints, weight: Floats, load: Floats, state: Ints | None,
                 capacity: Floats) -> None:
        self.weight = weight
        self.load = load.tolist()
        self.state = None if state is None else state.tolist()
        self.capacity = capacity.tolist()
        self.holders: dict[int, list[int]] = {}
        self.near: dict[int, list[int]] = {}  # member -> the tasks it holds a copy of
        for t, m in zip(task.tolist(), member.tolist(), strict=True):
            self.holders.setdefault(t, []).append(m)
            self.near.setdefault(m, []).append(t)
        self.at: dict[int, int] = {}

    def one_more(self, m: int) -> _Cost:
        """What the next task costs member ``m``."""
        return (2 * self.load[m] + 1) / self.capacity[m], 2 * self.state[m] + 1 if self.state else 0

    def one_less(self, m: int) -> _Cost:
        """What member ``m`` saves by giving one task away."""
        return (2 * self.load[m] - 1) / self.capacity[m], 2 * self.state[m] - 1 if self.state else 0

    def take(self, m: int, weight: float, tasks: int) -> None:
        """Add ``tasks`` of this weight in all to member ``m``; negative ones leave it."""
        self.load[m] += weight
        if self.state:
            self.state[m] += tasks

    def start(self, target: Ints) -> None:
        """Greedy: the heaviest first, then those with the fewest holders, to where one more costs least."""
        for t in sorted(self.holders, key=lambda t: (-self.weight[t], len(self.holders[t]), t)):
            wanted = int(target[t])
            m = min(self.holders[t], key=lambda m: (self.one_more(m), m != wanted, m))
            self.at[t] = m
            self.take(m, float(self.weight[t]), 1)

    def level(self) -> None:
        """Shift along paths that even the loads until none is left."""
        while self._shift():
            pass

    def _shift(self) -> bool:
        """One pass from the cheapest member up; True when a path was found and used.

        A member once reached stays reached: it found no better place among the cheaper ones before.
        """
        reached: dict[int, tuple[int, int] | None] = {}
        for goal in sorted(self.near, key=lambda m: (self.one_more(m), m)):
            if goal in reached:
                continue
            reached[goal] = None
            queue = deque([goal])
            while queue:
                m = queue.popleft()
                for t in self.near[m]:
                    giver = self.at[t]
                    if giver in reached:
                        continue
                    reached[giver] = (t, m)  # giver would pass task t on to m
                    if self.one_less(giver) > self.one_more(goal):
                        self._pass_on(giver, reached)
                        return True
                    queue.append(giver)
        return False

    def _pass_on(self, giver: int, reached: dict[int, tuple[int, int] | None]) -> None:
        self.take(giver, -1, -1)
        step = reached[giver]
        while step is not None:
            t, m = step
            self.at[t] = m
            step = reached[m]
            giver = m
        self.take(giver, 1, 1)
