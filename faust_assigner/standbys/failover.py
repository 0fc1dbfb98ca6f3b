"""Compute the effect of a member's death: the promoted members, the survivors' loads, and other figures.

Each task is promoted on the holder with the least load (greedy rule). The result depends on the order of
tasks. If the greedy rule exceeds the bound, the figures use the promotion with the smallest possible maximum
load, which augmenting paths find. The maximum is minimal if no such path leads from a fullest member to a
member whose load is at least 2 lower (Harvey, Ladner, Lovasz, Tamir: "Semi-matchings for bipartite graphs
and load balancing", 2006).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from faust_assigner.model import NOBODY, Floats, Ints
from faust_assigner.standbys.problem import StandbyProblem
from faust_assigner.standbys.shares import settled_racks

#: Up to this many tasks of a dead domain are promoted one by one; more tasks are promoted in blocks.
_CHOICES_IN_A_ROW = 2048
#: The maximum number of augmenting paths for all figures, and for the order of standbys.
_PATHS, _FEW_PATHS = 5_000, 200


@dataclass(frozen=True, kw_only=True)
class Deaths:
    """The results of the death of each domain; a domain is a member, or all members of a rack.

    ``promoted`` int64[T]: the member that takes over each task after the death of its owner's domain
    (its rack, or the member alone); ``NOBODY`` if no living member has a copy. ``peak`` float64[D]: the
    load of the heaviest survivor. ``bound`` float64[D]: the heaviest load before the death
    + ceil(tasks / peers); the peers are the members outside the rack, or all other members.
    """

    promoted: Ints
    peak: Floats
    bound: Floats

    @property
    def worst(self) -> float:
        """The load of the heaviest survivor over all deaths."""
        return float(self.peak.max(initial=0.0))

    @property
    def ideal(self) -> float:
        """The highest bound over all deaths."""
        return float(self.bound.max(initial=0.0))

    @property
    def excess(self) -> float:
        """The largest excess of a peak over its bound; 0 if all deaths stay within their bounds."""
        return float(np.maximum(self.peak - self.bound, 0.0).max(initial=0.0))


@dataclass(frozen=True, kw_only=True)
class StandbyFigures:
    """The figures of a placement; loads are numbers of tasks.

    ``spread``       the largest minus the smallest number of standbys on a member
    ``fresh_copies`` standbys without local state, which must be restored in full
    ``same_rack``    standbys in the rack of their active
    ``same_rack_avoidable``  the standbys of ``same_rack`` that fit on a member in another rack
    ``member_death``, ``rack_death``  the results of deaths; ``rack_death`` is None without racks
    """

    spread: int
    fresh_copies: int
    same_rack: int
    same_rack_avoidable: int
    member_death: Deaths
    rack_death: Deaths | None


def measure(problem: StandbyProblem, standbys: Ints) -> StandbyFigures:
    """Compute all figures of a result of ``StandbyAssignor.place``. Cost: O(T + M^2)."""
    rack, has_racks = settled_racks(problem.rack)
    same, avoidable = same_rack_standbys(problem, standbys)
    return StandbyFigures(
        spread=standby_spread(problem, standbys),
        fresh_copies=fresh_copies(problem, standbys),
        same_rack=same,
        same_rack_avoidable=avoidable,
        member_death=member_deaths(problem, standbys),
        rack_death=deaths(problem.owner, standbys, problem.load, rack, rack) if has_racks else None,
    )


def standby_spread(problem: StandbyProblem, standbys: Ints) -> int:
    """Return the largest minus the smallest number of standbys on a member that may hold standbys."""
    loads = np.bincount(standbys[standbys != NOBODY], minlength=problem.members)
    loads = loads[problem.eligible.any(axis=0)]
    return int(loads.max() - loads.min()) if len(loads) else 0


def fresh_copies(problem: StandbyProblem, standbys: Ints) -> int:
    """Return the number of standbys whose member has no local state of the task."""
    task, column = np.nonzero(standbys != NOBODY)
    placed = task * problem.members + standbys[task, column]
    held = problem.copy_task * problem.members + problem.copy_member
    return int((~np.isin(placed, held)).sum())


def same_rack_standbys(problem: StandbyProblem, standbys: Ints) -> tuple[int, int]:
    """Return the number of standbys in their active's rack, and how many of these fit in another rack."""
    rack, has_racks = settled_racks(problem.rack)
    task, column = np.nonzero(standbys != NOBODY)
    if not has_racks or not len(task):
        return 0, 0
    member = standbys[task, column]
    home = rack[problem.owner[task]]
    inside = rack[member] == home
    sizes = np.array([np.bincount(rack[row], minlength=rack.max() + 1) for row in problem.eligible])
    away = np.zeros(problem.tasks, dtype=np.int64)
    away[task] = sizes.sum(axis=1)[problem.group[task]] - sizes[problem.group[task], home]
    used = np.bincount(task[~inside], minlength=problem.tasks)
    left_over = np.maximum(away - used, 0)
    per_task = np.bincount(task[inside], minlength=problem.tasks)
    return int(inside.sum()), int(np.minimum(per_task, left_over).sum())


def member_deaths(problem: StandbyProblem, standbys: Ints) -> Deaths:
    """Return the results of the death of each single member, with the bounds."""
    rack, _ = settled_racks(problem.rack)
    return deaths(problem.owner, standbys, problem.load, np.arange(problem.members), rack)


def deaths(
    owner: Ints, standbys: Ints, load: Floats, domain: Ints, rack: Ints, *, paths: int = _PATHS
) -> Deaths:
    """Compute the promotions after the death of each domain.

    ``domain`` int64[M]: members with equal values die together. ``rack`` int64[M]: members with equal values
    hold no standbys of each other. Cost: O(T R) in numpy. If the greedy rule exceeds a domain's bound, each
    path costs O(T R) in plain Python, for at most ``paths`` paths in total.
    """
    members, domains = len(load), int(domain.max(initial=-1)) + 1
    if not members:
        return Deaths(promoted=np.full(len(owner), NOBODY), peak=np.zeros(0), bound=np.zeros(0))
    orphans = _Orphans(owner, standbys, domain)
    after = np.repeat(load[None, :], domains, axis=0)
    after[domain, np.arange(members)] = -np.inf
    promoted = orphans.greedy(after)
    tasks = np.bincount(domain[owner[owner != NOBODY]], minlength=domains)
    alive = np.isfinite(after).sum(axis=1)
    home = np.zeros(domains, dtype=np.int64)
    home[domain] = rack
    outside = members - np.bincount(rack, minlength=int(rack.max()) + 1)[home]
    peers = np.maximum(outside, 1)
    bound = load.max() + np.ceil(tasks / peers)
    for dead in np.flatnonzero(after.max(axis=1) > bound).tolist():
        if paths <= 0:
            break
        paths -= orphans.improve(promoted, after, dead, float(bound[dead]), paths)
    peak = np.where(alive > 0, after.max(axis=1), 0.0)
    return Deaths(promoted=promoted, peak=peak, bound=bound)


class _Orphans:
    """All tasks, the domain whose death orphans each task, and the possible new owners of each task."""

    def __init__(self, owner: Ints, standbys: Ints, domain: Ints) -> None:
        self.task = np.flatnonzero(owner != NOBODY)
        self.dead = domain[owner[self.task]]
        self.holder = standbys[self.task]
        gone = (self.holder == NOBODY) | (domain[self.holder] == self.dead[:, None])
        self.holder = np.where(gone, NOBODY, self.holder)
        self.total = len(owner)

    def greedy(self, after: Floats) -> Ints:
        """Promote each task on its least loaded holder, tasks with the fewest holders first.

        Returns int64[T], the new owners, and adds their tasks to ``after`` float64[D, M].
        """
        promoted = np.full(self.total, NOBODY, dtype=np.int64)
        choices = (self.holder != NOBODY).sum(axis=1)
        if not choices.any():
            return promoted
        single = choices == 1
        if single.any():
            only = self.holder[single].max(axis=1)
            np.add.at(after, (self.dead[single], only), 1)
            promoted[self.task[single]] = only
        for at in self._steps(np.flatnonzero(choices > 1), choices):
            level = np.where(
                self.holder[at] == NOBODY, np.inf, after[self.dead[at, None], self.holder[at]]
            )
            taker = self.holder[at, np.argmin(level, axis=1)]
            np.add.at(after, (self.dead[at], taker), 1)
            promoted[self.task[at]] = taker
        return promoted

    def _steps(self, at: Ints, choices: Ints) -> list[Ints]:
        """Split the tasks into steps; a step has one task (or one block of tasks) of each domain."""
        if not len(at):
            return []
        at = at[np.lexsort((at, choices[at], self.dead[at]))]
        dead = self.dead[at]
        turn = np.arange(len(at)) - np.searchsorted(dead, dead)
        count = np.bincount(dead)[dead]
        turn //= -(-count // _CHOICES_IN_A_ROW)
        order = np.argsort(turn, kind="stable")
        return np.split(at[order], np.flatnonzero(np.diff(turn[order])) + 1)

    def improve(self, promoted: Ints, after: Floats, dead: int, enough: float, paths: int) -> int:
        """Lower the heaviest survivor's load after one domain's death; return the number of searches."""
        rows = np.flatnonzero((self.dead == dead) & ((self.holder != NOBODY).sum(axis=1) > 1))
        tasks = self.task[rows].tolist()
        holders = [[h for h in row if h != NOBODY] for row in self.holder[rows].tolist()]
        taken: dict[int, set[int]] = {}
        for row, member in enumerate(promoted[tasks].tolist()):
            taken.setdefault(member, set()).add(row)
        load = after[dead].tolist()
        searched = 0
        while (peak := max(load)) > enough and searched < paths:
            searched += 1
            path = _find_relief_path(load.index(peak), peak, load, taken, holders)
            if path is None:
                break
            for row, source, target in path:
                taken[source].discard(row)
                taken.setdefault(target, set()).add(row)
                promoted[tasks[row]] = target
            load[path[0][1]] -= 1
            load[path[-1][2]] += 1
        after[dead] = load
        return searched


def _find_relief_path(
    start: int, peak: float, load: list[float], taken: dict[int, set[int]], holders: list[list[int]]
) -> list[tuple[int, int, int]] | None:
    """Return a shortest path from ``start`` to a member with a load at least 2 below ``peak``, or None.

    The path consists of steps (row, from, to); each step moves the promotion of one row.
    """
    came: dict[int, tuple[int, int] | None] = {start: None}
    queue = deque([start])
    while queue:
        member = queue.popleft()
        if load[member] <= peak - 2:
            path = []
            while (step := came[member]) is not None:
                row, source = step
                path.append((row, source, member))
                member = source
            return path[::-1]
        for row in sorted(taken.get(member, ())):
            for target in holders[row]:
                if target not in came:
                    came[target] = (row, member)
                    queue.append(target)
    return None


def in_order_of_promotion(owner: Ints, standbys: Ints, load: Floats) -> Ints:
    """Order each row: first the standby to promote after the owner's death, then all others by member."""
    if standbys.shape[1] < 2 or not len(standbys):
        return standbys
    last = np.iinfo(np.int64).max
    ordered = np.sort(np.where(standbys == NOBODY, last, standbys), axis=1)
    ordered = np.where(ordered == last, NOBODY, ordered)
    alone = np.arange(len(load))
    first = deaths(owner, ordered, load, alone, alone, paths=_FEW_PATHS).promoted
    front = (ordered == first[:, None]) & (ordered != NOBODY)
    rank = np.where(front, -1, np.arange(ordered.shape[1]))
    return np.take_along_axis(ordered, np.argsort(rank, axis=1, kind="stable"), axis=1)
