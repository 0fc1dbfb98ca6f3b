"""Moves onto copies: the maximum of all choices, within the counts."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from faust_assigner.actives.numbers import assign_numbers
from faust_assigner.actives.warm_matching import match_warm
from faust_assigner.model import NOBODY, Bools, Ints

Copies = list[tuple[int, int]]


def allowed(before: list[int], spare: list[int], room: list[int], moves: Copies) -> bool:
    """Whether each number moves once, within each member's room and surplus."""
    shed = Counter(before[number] for number, _ in moves)
    got = Counter(member for _, member in moves)
    return (
        len({number for number, _ in moves}) == len(moves)
        and all(got[member] <= room[member] for member in got)
        and all(shed[owner] <= spare[owner] for owner in shed if owner != NOBODY)
    )


def matched(before: list[int], spare: list[int], room: list[int], copies: Copies) -> Copies:
    """Return the moves found by the search."""
    number, member = np.array(copies, dtype=np.int64).reshape(-1, 2).T
    found = match_warm(np.array(before), np.array(spare), np.array(room), number, member)
    return list(zip(*(part.tolist() for part in found), strict=True))


def test_the_only_copy_is_used_by_a_member_that_gets_one_number() -> None:
    """No move goes to a member without room or from an owner without a surplus."""
    assert matched([0], [1, 0], [0, 1], [(0, 1)]) == [(0, 1)]
    assert matched([NOBODY], [0, 0], [0, 1], [(0, 1)]) == [(0, 1)]
    assert matched([0], [1, 0], [0, 0], [(0, 1)]) == []
    assert matched([0], [0, 0], [0, 1], [(0, 1)]) == []


@pytest.mark.parametrize("seed", range(300))
def test_no_choice_of_copies_allows_more_moves(seed: int) -> None:
    """The search is compared with all subsets of the copies on small cases with tight counts."""
    rng = np.random.default_rng(seed)
    members, numbers = int(rng.integers(2, 5)), int(rng.integers(1, 7))
    before = rng.integers(NOBODY, members, numbers).tolist()
    spare, room = rng.integers(0, 3, (2, members)).tolist()
    everywhere = [
        (p, m) for p in range(numbers) for m in range(members) if before[p] != m and spare[m] == 0
    ]
    chosen = rng.permutation(len(everywhere))[: int(rng.integers(0, 9))]
    copies = sorted(everywhere[one] for one in chosen)
    found = matched(before, spare, room, copies)
    assert set(found) <= set(copies)
    assert allowed(before, spare, room, found)
    most = max(
        size
        for size in range(len(copies) + 1)
        for moves in itertools.combinations(copies, size)
        if allowed(before, spare, room, list(moves))
    )
    assert len(found) == most


@pytest.mark.parametrize(
    ("near", "owners"),
    [([(0, 2), (1, 1)], [2, 1, 0]), ([(0, 1), (1, 2)], [1, 2, 0]), ([], [1, 2, 0])],
)
def test_numbers_without_an_owner_go_to_copies_that_have_caught_up(
    near: Copies, owners: list[int]
) -> None:
    """Both members hold copies of both numbers; the search uses only the useful copies."""
    number, member = np.array([0, 0, 1, 1]), np.array([1, 2, 1, 2])
    asked: list[Copies] = []

    def caught_up(numbers: Ints, members: Ints) -> Bools:
        pairs = list(zip(numbers.tolist(), members.tolist(), strict=True))
        asked.append(pairs)
        return np.array([pair in near for pair in pairs], dtype=np.bool_)

    found = assign_numbers(
        np.array([NOBODY, NOBODY, 0]),
        np.array([1, 1, 1]),
        np.array([1, 0, 0]),
        number,
        member,
        None,
        caught_up,
    )
    assert found.tolist() == owners
    assert asked == [[(0, 1), (0, 2), (1, 1), (1, 2)]]
