"""The effect of a death: the promoted members, the survivors' loads, and the other figures.

Promotion goes to the least loaded holder. The order of the tasks decides the result, so if
the greedy rule misses the bound, the figures use the best possible promotion: the smallest
possible maximum, found by augmenting paths. A maximum is minimal if no path from a fullest member to a
member at least 2 below lowers the maximum (Harvey, Ladner, Lovasz, Tamir:
"Semi-matchings for bipartite graphs and load balancing", 2006).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from faust_assigner.model import NOBODY, Floats, Ints
from faust_assigner.standbys.problem import StandbyProblem
from faust_assigner.standbys.shares import settled_racks

#: Up to this many tasks of a dead domain choose one after the other; above, they choose in blocks.
_CHOICES_IN_A_ROW = 2048
#: The number of augmenting paths for all figures, and for an order of preference.
_PATHS, _FEW_PATHS = 5_000, 200


@dataclass(frozen=True, kw_only=True)
class Deaths:
    """The death of every domain (a member, or a rack) in turn.

    ``promoted`` int64[T]: the member that takes over a task after its owner's domain dies, ``NOBODY``
    without a living holder; ``peak`` float64[D]: the heaviest survivor; ``bound`` float64[D]: the heaviest
    load before the death + ceil(tasks / peers); peers are the members outside, or all other members.
    """

    promoted: Ints
    peak: Floats
    bound: Floats

    @property
    def worst(self) -> float:
        """The heaviest survivor over all deaths."""
        return float(self.peak.max(initial=0.0))

    @property
    def ideal(self) -> float:
        """The bound of the death with the highest bound."""
        return float(self.bound.max(initial=0.0))

    @property
    def excess(self) -> float:
        """The worst excess of a death above its bound; 0 if all deaths are within."""
        return float(np.maximum(self.peak - self.bound, 0.0).max(initial=0.0))


@dataclass(frozen=True, kw_only=True)
class StandbyFigures:
    """Figures for comparison; loads are in tasks.

    ``spread``       most minus fewest standbys of a member, over the possible holders
    ``fresh_copies`` standbys without a local copy of the state: restored in full
    ``same_rack``    standbys in the rack of their active; ``same_rack_avoidable``: the part of them
                     that has an eligible member in a different rack
    ``member_death``, ``rack_death``  the survivors' loads; ``rack_death`` only with racks
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
    """Return most minus fewest standbys per member, among the possible holders."""
    loads = np.bincount(standbys[standbys != NOBODY], minlength=problem.members)
    loads = loads[problem.eligible.any(axis=0)]
    return int(loads.max() - loads.min()) if len(loads) else 0


def fresh_copies(problem: StandbyProblem, standbys: Ints) -> int:
    """Return the number of standbys without a previous standby, vacated active or file on their member."""
    task, column = np.nonzero(standbys != NOBODY)
    placed = task * problem.members + standbys[task, column]
    held = problem.copy_task * problem.members + problem.copy_member
    return int((~np.isin(placed, held)).sum())


def same_rack_standbys(problem: StandbyProblem, standbys: Ints) -> tuple[int, int]:
    """Return the standbys in their active's rack, and how many of them fit in a different rack."""
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
    """Play the death of every member in turn, each with its bound."""
    rack, _ = settled_racks(problem.rack)
    return deaths(problem.owner, standbys, problem.load, np.arange(problem.members), rack)


def deaths(
    owner: Ints, standbys: Ints, load: Floats, domain: Ints, rack: Ints, *, paths: int = _PATHS
) -> Deaths:
    """Let each domain die in turn and promote.

    ``domain`` int64[M]: members with equal values die together; ``rack`` int64[M]: members with equal
    values hold no standbys of each other. Cost: O(T R) vectorised, and O(T R) of plain Python for each
    path in a domain that the greedy rule leaves above its bound; at most ``paths`` paths in all.
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
    """The tasks of each domain and their possible new owners."""

    def __init__(self, owner: Ints, standbys: Ints, domain: Ints) -> None:
        self.task = np.flatnonzero(owner != NOBODY)
        self.dead = domain[owner[self.task]]
        self.holder = standbys[self.task]
        gone = (self.holder == NOBODY) | (domain[self.holder] == self.dead[:, None])
        self.holder = np.where(gone, NOBODY, self.holder)
        self.total = len(owner)

    def greedy(self, after: Floats) -> Ints:
        """Promote to the least loaded holder, the tasks with the fewest holders first."""
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
        """Split the tasks so that each step holds one task (or one block) of each domain."""
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
        """Lower the heaviest survivor of one domain's death; return the paths searched."""
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
            path = _path_down(load.index(peak), peak, load, taken, holders)
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


def _path_down(
    start: int, peak: float, load: list[float], taken: dict[int, set[int]], holders: list[list[int]]
) -> list[tuple[int, int, int]] | None:
    """Search breadth-first from a fullest member to a member at least 2 below: (row, from, to) steps."""
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
    """Move the first standby to promote to the front of each row; the rest follow by member index."""
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
