"""Boards for the standby tests: short problems, and their successors after a change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from faust_assigner.model import NOBODY, Ints
from faust_assigner.standby import StandbyAssignor, StandbyProblem

#: The sizes (members, tasks) for which the failover bound is promised.
SIZES = ((10, 100), (20, 200), (10, 1_000), (16, 100), (7, 64), (100, 10_000))
#: Shares of three racks; None: no member has a rack.
RACKS: dict[str, Sequence[int] | None] = {
    "no racks": None,
    "equal": (1, 1, 1),
    "unequal": (5, 3, 2),
}


def problem(
    owner: Iterable[int],
    members: int,
    *,
    replicas: int = 1,
    rack: Iterable[int] | None = None,
    group: Iterable[int] | None = None,
    eligible: object = None,
    standbys: Iterable[tuple[int, int]] = (),
    copies: Iterable[tuple[int, int]] = (),
    wanted: Iterable[tuple[int, int]] = (),
    load: Iterable[float] | None = None,
    capacity: Iterable[float] | None = None,
) -> StandbyProblem:
    """Return a problem from plain lists; ``standbys`` and ``copies`` are (task, member) pairs."""
    actives = np.array(list(owner), dtype=np.int64)
    held = sorted([(*pair, True) for pair in standbys] + [(*pair, False) for pair in copies])
    wishes = list(wanted)
    counts = np.bincount(actives[actives >= 0], minlength=members).astype(float)
    return StandbyProblem(
        owner=actives,
        group=np.zeros(len(actives), np.int64)
        if group is None
        else np.array(list(group), np.int64),
        eligible=np.ones((1, members), bool)
        if eligible is None
        else np.array(eligible, dtype=bool),
        copy_task=np.array([task for task, _, _ in held], dtype=np.int64),
        copy_member=np.array([member for _, member, _ in held], dtype=np.int64),
        copy_was_standby=np.array([was for _, _, was in held], dtype=bool),
        wanted_task=np.array([task for task, _ in wishes], dtype=np.int64),
        wanted_member=np.array([member for _, member in wishes], dtype=np.int64),
        rack=np.full(members, NOBODY) if rack is None else np.array(list(rack), dtype=np.int64),
        capacity=np.ones(members) if capacity is None else np.array(list(capacity), dtype=float),
        load=counts if load is None else np.array(list(load), dtype=float),
        replicas=replicas,
    )


def racks_of(members: int, shares: Sequence[int] | None) -> Ints:
    """Return rack indexes in proportion to the shares, interleaved as in a deployment."""
    if shares is None:
        return np.full(members, NOBODY)
    whole = sum(shares)
    bounds = np.cumsum(shares)
    return np.searchsorted(bounds, (np.arange(members) * 7 % whole), side="right").astype(np.int64)


def even_owners(members: int, tasks: int) -> Ints:
    """Return owners in contiguous runs that are as even as possible."""
    return np.sort(np.arange(tasks) % members)


def fresh(members: int, tasks: int, replicas: int, shares: Sequence[int] | None) -> StandbyProblem:
    """Return a first start with even actives."""
    return problem(
        even_owners(members, tasks), members, replicas=replicas, rack=racks_of(members, shares)
    )


def place(given: StandbyProblem) -> Ints:
    """Return the answer after the checks that hold for every answer."""
    placed = StandbyAssignor().place(given)
    assert placed.shape == (given.tasks, given.replicas)
    assert placed.dtype == np.int64
    for task, row in enumerate(placed.tolist()):
        holders = [member for member in row if member != NOBODY]
        assert row[: len(holders)] == holders, "padding comes last"
        others = given.eligible[given.group[task]].copy()
        if given.owner[task] == NOBODY:
            assert not holders
            continue
        others[given.owner[task]] = False
        assert len(set(holders)) == len(holders) == min(given.replicas, int(others.sum()))
        assert all(others[holder] for holder in holders)
    return placed


def with_answer(given: StandbyProblem, placed: Ints) -> StandbyProblem:
    """Return the next round: equal actives, the answer as the earlier standbys, no wishes."""
    task, column = np.nonzero(placed != NOBODY)
    none = np.zeros(0, dtype=np.int64)
    return replace(
        given,
        copy_task=task,
        copy_member=placed[task, column],
        copy_was_standby=np.ones(len(task), dtype=bool),
        wanted_task=none,
        wanted_member=none,
    )


def after_join(given: StandbyProblem, placed: Ints, rack: int) -> StandbyProblem:
    """Add a member, last in the order, with its fair share of actives from all members."""
    members, owner = given.members, given.owner.copy()
    share = given.tasks // (members + 1)
    count = np.bincount(owner, minlength=members)
    for _ in range(share):
        giver = int(np.argmax(count))
        owner[np.flatnonzero(owner == giver)[-1]] = members
        count[giver] -= 1
    return _changed(given, placed, owner, np.append(given.rack, rack))


def after_death(given: StandbyProblem, placed: Ints, dead: int) -> StandbyProblem:
    """Remove a member; each of its tasks goes to the least loaded standby."""
    owner, load = given.owner.copy(), given.load.copy()
    for task in np.flatnonzero(owner == dead).tolist():
        holders = [m for m in placed[task].tolist() if m not in (NOBODY, dead)]
        taker = min(
            holders or [m for m in range(given.members) if m != dead], key=lambda m: load[m]
        )
        owner[task] = taker
        load[taker] += 1
    shifted = _changed(given, placed, owner, given.rack)
    alive = shifted.copy_member != dead
    return replace(
        shifted,
        owner=owner - (owner > dead),
        eligible=np.delete(shifted.eligible, dead, axis=1),
        copy_task=shifted.copy_task[alive],
        copy_member=shifted.copy_member[alive] - (shifted.copy_member[alive] > dead),
        copy_was_standby=shifted.copy_was_standby[alive],
        rack=np.delete(given.rack, dead),
        capacity=np.delete(given.capacity, dead),
        load=np.delete(shifted.load, dead),
    )


def _changed(given: StandbyProblem, placed: Ints, owner: Ints, rack: Ints) -> StandbyProblem:
    """New actives over old standbys; the former owner of a moved active keeps a warm copy."""
    members = len(rack)
    task, column = np.nonzero(placed != NOBODY)
    standbys = set(zip(task.tolist(), placed[task, column].tolist(), strict=True))
    vacated = {(int(t), int(given.owner[t])) for t in np.flatnonzero(owner != given.owner)}
    return problem(
        owner,
        members,
        replicas=given.replicas,
        rack=rack,
        standbys=[(t, m) for t, m in standbys if owner[t] != m],
        copies=vacated - standbys,
    )
