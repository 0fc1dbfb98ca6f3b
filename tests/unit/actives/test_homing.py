"""Homing of a group's numbers, compared with every permitted distribution."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import NamedTuple

import numpy as np
import pytest

from faust_assigner.actives.cycles import cycles_of
from faust_assigner.actives.homing import bring_home
from faust_assigner.actives.numbers import _keep_and_place_warm, count_by_member
from faust_assigner.model import NOBODY, Ints


class Case(NamedTuple):
    """Numbers with their owners before and now, copies with priorities, and homes."""

    before: Ints
    owner: Ints
    members: int
    copies: list[tuple[int, int]]
    first: list[bool]
    home: Ints

    def value(self, owner: Ints) -> tuple[int, int, int]:
        """Return (moves to caught-up copies, moves to copies, numbers at home)."""
        pairs = list(zip(self.copies, self.first, strict=True))
        warm = [is_first for (n, m), is_first in pairs if owner[n] == m and self.before[n] != m]
        return sum(warm), len(warm), int(((owner == self.home) & (self.home != NOBODY)).sum())

    def brought(self) -> Ints:
        """Return the owners after homing."""
        number = np.array([n for n, _ in self.copies], dtype=np.int64)
        member = np.array([m for _, m in self.copies], dtype=np.int64)
        first = np.array(self.first, dtype=bool)
        return bring_home(self.before, self.owner, self.members, number, member, self.home, first)

    def best(self) -> tuple[int, int, int]:
        """Return the best value of all distributions: givers only give, receivers only receive."""
        moved = self.owner != self.before
        gives, receives = set(self.before[moved].tolist()), set(self.owner[moved].tolist())
        places = [
            sorted(({was} | receives) - {NOBODY}) if was in gives or was == NOBODY else [was]
            for was in self.before.tolist()
        ]
        counts = count_by_member(self.owner, self.members).tolist()
        found = (np.array(owner) for owner in product(*places))
        return max(
            self.value(owner)
            for owner in found
            if count_by_member(owner, self.members).tolist() == counts
        )


def made(seed: int) -> Case:
    """Return six numbers of four members with old and new counts, copies and homes."""
    rng = Random(seed)
    before = np.array([rng.randrange(-(seed % 2), 4) for _ in range(6)])
    held = count_by_member(before, 4)
    counts = np.bincount([rng.randrange(4) for _ in range(6)], minlength=4)
    copies = [(n, m) for n in range(6) for m in range(4) if m != before[n] and rng.random() < 0.4]
    may = [
        counts[m] > held[m] and (before[n] == NOBODY or held[before[n]] > counts[before[n]])
        for n, m in copies
    ]
    first = [bool(useful) and rng.random() < 0.15 for useful in may]
    number = np.array([n for n, _ in copies], dtype=np.int64)
    member = np.array([m for _, m in copies], dtype=np.int64)
    owner = _keep_and_place_warm(before, counts, held, number, member, np.array(first, dtype=bool))
    home = np.array([rng.randrange(-1, 4) for _ in range(6)])
    return Case(before, owner, 4, copies, first, home)


@pytest.mark.parametrize("seed", [*range(100), 449, 487, 600, 1015])
def test_most_caught_up_moves_then_warm_moves_then_homes_are_reached(seed: int) -> None:
    """The counts stay, and no member both gives and receives."""
    case = made(seed)
    found = case.brought()
    counts = count_by_member(case.owner, case.members).tolist()
    assert count_by_member(found, case.members).tolist() == counts
    assert case.value(found) == case.best()
    assert case.value(found) >= case.value(case.owner)


@pytest.mark.parametrize("seed", [24, 681, 799])
def test_caught_up_copies_alone_are_a_reason_to_search(seed: int) -> None:
    """No number has a home; a third number lands on a copy, and the caught-up moves stay as many."""
    case = made(seed)
    case = case._replace(home=np.full(case.before.size, NOBODY))
    found = case.value(case.brought())
    assert found == case.best()
    assert (found[0], found[1]) == (case.value(case.owner)[0], 3)
    assert case.value(case.owner)[1] == 2


def test_a_number_without_a_home_is_not_brought_anywhere() -> None:
    """The owners are returned unchanged."""
    before, owner = np.array([0, 0, 1]), np.array([0, 1, 1])
    none = np.full(3, NOBODY)
    empty = np.zeros(0, dtype=np.int64)
    assert bring_home(before, owner, 2, empty, empty, none) is owner


@pytest.mark.parametrize(
    ("up", "circles"),
    [
        ([NOBODY, 0, 1], []),
        ([1, 2, 0], [[2, 1, 0]]),
        ([1, 0, 1, NOBODY, 4], [[1, 0], [4]]),
        ([1, 2, 1, 0], [[2, 1]]),
    ],
)
def test_each_circle_is_found_once_in_the_order_of_its_arcs(
    up: list[int], circles: list[list[int]]
) -> None:
    """A path into a cycle is not part of the cycle."""
    assert list(cycles_of(up)) == circles
