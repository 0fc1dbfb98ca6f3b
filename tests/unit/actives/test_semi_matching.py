"""Placing orphans on their holders: each of the five terms is optimal given the earlier terms."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from faust_assigner.actives.semi_matching import Orphans, place_orphans
from faust_assigner.model import NOBODY
from tests.property.orphans_oracle import brute_force, min_cost, places, random_case, terms
from tests.support.examples import examples


@pytest.mark.parametrize("part", range(10))
def test_small_cases_equal_brute_force(part: int) -> None:
    """No answer is better for two to five members and up to six orphans."""
    for seed in range(60):
        case = random_case(
            Random(f"small {part} {seed}"), most_members=5, most_groups=3, most_orphans=6
        )
        found = place_orphans(case).tolist()
        assert all(m in held for m, held in zip(found, places(case), strict=True))
        assert terms(case, found) == brute_force(case), (part, seed)


@pytest.mark.parametrize("members", [3, 20, 60, 200])
def test_larger_cases_equal_min_cost_flow(members: int) -> None:
    """The cases have up to 200 members, with and without former owners."""
    for seed in range(8 if members < 200 else examples(8, 3)):
        case = random_case(
            Random(f"large {members} {seed}"),
            most_members=members,
            most_groups=6,
            most_orphans=4 * members,
        )
        assert terms(case, place_orphans(case).tolist()) == min_cost(case), (members, seed)


def test_everybody_back_moves_nothing() -> None:
    """Every orphan returns if each member holds its former tasks and the loads were even."""
    tasks, members = 60, 7
    former = np.arange(tasks) % members
    spare = (former + 1 + np.arange(tasks) // members % (members - 1)) % members
    case = Orphans(
        group=np.arange(tasks) // 20,
        former=former,
        target=np.full(tasks, NOBODY),
        orphan=np.repeat(np.arange(tasks), 2),
        holder=np.sort(np.stack([former, spare], axis=1)).ravel(),
        settled=np.zeros((3, members), dtype=np.int64),
        state=None,
        rate=np.ones(members, dtype=np.int64),
    )
    assert place_orphans(case).tolist() == former.tolist()


def test_no_orphans_no_answer() -> None:
    """An empty problem has an empty answer."""
    none = np.zeros(0, dtype=np.int64)
    case = Orphans(
        group=none,
        former=none,
        target=none,
        orphan=none,
        holder=none,
        settled=np.zeros((0, 3), dtype=np.int64),
        state=None,
        rate=np.ones(3, dtype=np.int64),
    )
    assert place_orphans(case).size == 0
