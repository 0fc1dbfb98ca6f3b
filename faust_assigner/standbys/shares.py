"""Compute fair shares: how many standbys of one member's actives each of its peers should hold.

The number of standbys on member j of tasks that member i owns is the count of the pair (i, j). If member i
dies, its tasks are promoted on members with their standbys. Let c be ``ceil(tasks of i / peers of i)``, and R
the number of standbys per task. If each peer holds at most R x c standbys of i, then any set J of peers holds
all standbys of at most ``|J| * c`` tasks. This is Hall's condition: the tasks can be promoted so that no
member ends above the heaviest load plus c. So a cap on pair counts, which are cheap to maintain, bounds the
loads after a death.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from faust_assigner.model import NOBODY, Bools, Floats, Ints
from faust_assigner.standbys.problem import StandbyProblem

#: Counts of pairs: int32 instead of int64, because the matrix has M^2 entries.
Counts: TypeAlias = npt.NDArray[np.int32]

#: Shares are sums of fractions; a share this close to a whole number counts as the whole number.
_ROUNDING = 1e-9
#: If the even shares give loads that differ by more than this, they are lopsided, and loads are considered
#: first when standbys are dealt.
_LOPSIDED = 2.0


@dataclass(frozen=True, kw_only=True)
class Shares:
    """The target counts, for T tasks, M members and C classes of tasks with the same eligible members.

    ``kind``      int64[T]   the class of each task: a row of ``eligible``
    ``eligible``  bool[C,M]  the members that may hold standbys of a class
    ``rack``      int64[M]   a rack for each member: a member without a rack gets a separate rack
    ``has_racks`` bool       whether there are two racks, and two members share a rack
    ``need``      int64[T]   R', the number of standbys of each task
    ``outside``   int64[T]   how many of the R' standbys fit outside the active's rack
    ``distinct``  int64[T]   how many other racks the standbys of the task can use
    ``ratio``     float64[C,A,M] standbys on m per task whose active is in rack a (A = 1 without racks)
    ``even``      int32[M,M] the fair share of each pair, rounded up
    ``lopsided``  bool       whether even shares give uneven loads, as with racks of unequal size
    ``cap``       int32[M,M] the largest count of each pair that keeps the bound after a death
    ``limit``     int32[M,M] the cap; cap + 1 for a pair that already has more copies than the cap
    """

    kind: Ints
    eligible: Bools
    rack: Ints
    has_racks: bool
    need: Ints
    outside: Ints
    distinct: Ints
    ratio: Floats
    even: Counts
    lopsided: bool
    cap: Counts
    limit: Counts


def fair_shares(problem: StandbyProblem) -> Shares:
    """Compute the shares. Cost: O(T + C * M^2)."""
    rack, has_racks = settled_racks(problem.rack)
    eligible, row_to_kind = np.unique(problem.eligible, axis=0, return_inverse=True)
    kind = row_to_kind.ravel()[problem.group] if problem.tasks else problem.group
    need, outside, distinct = _needed_standbys(problem, kind, eligible, rack)
    ratio = _standby_ratios(eligible, rack, has_racks, problem.replicas)
    even, lopsided, cap = _pair_counts(problem, kind, eligible, rack, has_racks, ratio, need)
    held = np.zeros_like(cap)
    np.add.at(held, (problem.owner[problem.copy_task], problem.copy_member), 1)
    limit = np.maximum(cap, np.minimum(cap + 1, held))
    return Shares(
        kind=kind,
        eligible=eligible,
        rack=rack,
        has_racks=has_racks,
        need=need,
        outside=outside,
        distinct=distinct,
        ratio=ratio,
        even=even,
        lopsided=lopsided,
        cap=cap,
        limit=limit,
    )


def settled_racks(rack: Ints) -> tuple[Ints, bool]:
    """Return a rack index for each member, and whether racks have an effect.

    A member without a rack gets a separate rack, because no common failure is known. So loads stay
    even while a roll-out adds rack names one member at a time.
    """
    members = len(rack)
    settled = np.where(rack == NOBODY, rack.max(initial=0) + 1 + np.arange(members), rack)
    _, settled = np.unique(settled, return_inverse=True)
    racks = int(settled.max(initial=-1)) + 1
    if racks in (1, members):
        return np.arange(members, dtype=np.int64), False
    return settled.ravel().astype(np.int64), True


def _needed_standbys(
    problem: StandbyProblem, kind: Ints, eligible: Bools, rack: Ints
) -> tuple[Ints, Ints, Ints]:
    """Return the arrays ``need``, ``outside`` and ``distinct`` of :class:`Shares`."""
    owner = np.maximum(problem.owner, 0)
    if not len(owner) or not eligible.size:
        nothing = np.zeros(len(owner), dtype=np.int64)
        return nothing, nothing, nothing
    racks = int(rack.max()) + 1
    in_rack = np.zeros((len(eligible), racks), dtype=np.int64)
    for row, members in enumerate(eligible):
        in_rack[row] = np.bincount(rack[members], minlength=racks)
    total = eligible.sum(axis=1)
    others = total[kind] - eligible[kind, owner]
    need = np.where(problem.owner == NOBODY, 0, np.minimum(max(problem.replicas, 0), others))
    home = in_rack[kind, rack[owner]]
    outside = np.minimum(need, total[kind] - home)
    distinct = np.minimum(need, (in_rack > 0).sum(axis=1)[kind] - (home > 0))
    return need, outside, distinct


def _standby_ratios(eligible: Bools, rack: Ints, has_racks: bool, replicas: int) -> Floats:
    """Return float64[C, A, M]: the standbys on each member per task, by class and rack of the active."""
    members = eligible.shape[1]
    racks = int(rack.max(initial=0)) + 1 if has_racks else 1
    ratio = np.zeros((len(eligible), racks, members))
    for row, allowed in enumerate(eligible):
        count = int(allowed.sum())
        wanted = max(0, min(replicas, count - 1))
        if not wanted:
            continue
        if not has_racks:
            ratio[row, 0, allowed] = wanted / (count - 1)
            continue
        sizes = np.bincount(rack[allowed], minlength=racks)
        for home in range(racks):
            per_member = _rack_ratios(sizes, home, wanted)
            ratio[row, home] = np.where(allowed, per_member[rack], 0.0)
    return ratio


def _rack_ratios(sizes: Ints, home: int, wanted: int) -> Floats:
    """Return float64[A]: the standbys per task for each member of each rack; the active is in rack ``home``.

    The standbys of a rack are in proportion to its size. If there are enough racks, a rack has at most one
    standby of a task; otherwise at least one.
    """
    away = sizes.copy()
    away[home] = 0
    outside = min(wanted, int(away.sum()))
    per_rack = np.zeros(len(sizes))
    if outside:
        used = away > 0
        racks = int(used.sum())
        low = used.astype(float) if outside >= racks else np.zeros(len(sizes))
        high = used.astype(float) if outside <= racks else away.astype(float)
        per_rack = _apportion(away.astype(float), low, high, float(outside))
    per_member = np.divide(per_rack, away, out=np.zeros(len(sizes)), where=away > 0)
    if sizes[home] > 1:
        per_member[home] = (wanted - outside) / (sizes[home] - 1)
    return per_member


def _apportion(sizes: Floats, low: Floats, high: Floats, total: float) -> Floats:
    """Return ``clip(L * sizes, low, high)`` for the L at which its sum is ``total`` (bisection)."""
    if (sizes * (total / sizes.sum()) <= high).all() and (
        sizes * (total / sizes.sum()) >= low
    ).all():
        return np.asarray(sizes * (total / sizes.sum()))
    below, above = 0.0, total + 1.0
    for _ in range(60):
        level = (below + above) / 2
        if np.clip(level * sizes, low, high).sum() < total:
            below = level
        else:
            above = level
    return np.asarray(np.clip(above * sizes, low, high))


def _pair_counts(
    problem: StandbyProblem,
    kind: Ints,
    eligible: Bools,
    rack: Ints,
    has_racks: bool,
    ratio: Floats,
    need: Ints,
) -> tuple[Counts, bool, Counts]:
    """Return the even share of each pair, whether the shares are lopsided, and the cap of each pair."""
    members = problem.members
    share = np.zeros((members, members))
    after_death = np.zeros((members, members))
    owned = problem.owner != NOBODY
    for row, allowed in enumerate(eligible):
        of_kind = owned & (kind == row)
        tasks = np.bincount(problem.owner[of_kind], minlength=members)
        rows = ratio[row][rack] if has_racks else ratio[row]
        share += tasks[:, None] * rows
        after_death += (tasks / _peer_counts(allowed, rack))[:, None] * allowed
    even = np.ceil(share - _ROUNDING).astype(np.int32)
    takes_over = np.ceil(after_death - _ROUNDING).astype(np.int32) + _room_below_heaviest(problem)
    replicas = np.zeros(members, dtype=np.int32)
    np.maximum.at(replicas, problem.owner[owned], need[owned].astype(np.int32))
    cap = replicas[:, None] * takes_over
    # If racks force a pair of an owner above its cap, all pairs of this owner get their even share as cap.
    forced = (even > cap).any(axis=1)
    cap[forced] = even[forced]
    lopsided = bool(np.ptp(share.sum(axis=0)) > _LOPSIDED) if members else False
    return even, lopsided, cap


def _peer_counts(allowed: Bools, rack: Ints) -> Ints:
    """Return int64[M]: the number of each member's peers.

    The peers are the eligible members outside its rack, or all other eligible members if there are none.
    """
    in_rack = np.bincount(rack[allowed], minlength=int(rack.max(initial=0)) + 1)
    total = int(allowed.sum())
    outside = total - in_rack[rack]
    return np.maximum(np.where(outside > 0, outside, total - allowed), 1)


def _room_below_heaviest(problem: StandbyProblem) -> Counts:
    """Return int32[M]: how many tasks each member is below the heaviest load / capacity, at most all tasks.

    If a member's capacity is near 0, the heaviest load is nearly infinite; then the limit of all tasks
    applies.
    """
    if not problem.members:
        return np.zeros(0, dtype=np.int32)
    heaviest = (problem.load / problem.capacity).max()
    below: Floats = heaviest * problem.capacity - problem.load
    return np.floor(np.minimum(below, problem.tasks) + _ROUNDING).astype(np.int32)
