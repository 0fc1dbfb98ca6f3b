"""Changes with hundreds of open seats."""

from __future__ import annotations

import numpy as np
import pytest

from faust_assigner.model import NOBODY
from faust_assigner.standbys.failover import in_order_of_promotion, measure
from tests.support.standby_boards import (
    RACKS,
    even_owners,
    fresh,
    place,
    problem,
    racks_of,
    with_answer,
)


@pytest.mark.parametrize("racks", RACKS)
@pytest.mark.parametrize("replicas", [1, 2])
def test_half_the_members_die_and_the_rest_stand_by_evenly(replicas: int, racks: str) -> None:
    """All seats are filled, racks are distinct, deaths stay within the bound + 1, plans settle."""
    members, tasks = 40, 2_000
    before = fresh(2 * members, tasks, replicas, RACKS[racks])
    placed = place(before)
    rows = [[int(m) // 2 for m in row if m % 2 == 0] for row in placed]
    owner = even_owners(members, tasks)
    after = problem(
        owner,
        members,
        replicas=replicas,
        rack=racks_of(members, RACKS[racks]),
        standbys={(t, m) for t, row in enumerate(rows) for m in row if m != owner[t]},
    )
    answer = place(after)
    figures = measure(after, answer)
    assert figures.same_rack_avoidable == 0
    assert figures.member_death.excess <= 1
    if racks == "no racks":
        assert figures.spread <= 1
    assert (place(with_answer(after, answer)) == answer).all()


def test_the_newcomers_half_is_all_that_is_restored_when_the_members_double() -> None:
    """50 members join 50: half of all standbys move."""
    before = fresh(50, 2_000, 1, None)
    placed = place(before)
    after = problem(
        even_owners(50, 2_000),
        100,
        standbys=list(enumerate(placed[:, 0].tolist())),
        load=np.full(100, 20.0),
    )
    figures = measure(after, place(after))
    assert figures.spread <= 1
    assert figures.fresh_copies == 1_000


def test_a_row_without_a_standby_to_promote_keeps_its_order() -> None:
    """An owner without a task to give has no standby to promote; the padding stays at the end."""
    rows = np.array([[NOBODY, 2], [1, 2]])
    ordered = in_order_of_promotion(np.array([NOBODY, 0]), rows, np.array([1.0, 0.0, 0.0]))
    assert ordered[0].tolist() == [2, NOBODY]


def test_promotion_order_keeps_rows_and_padding() -> None:
    """Each row keeps its members; the least loaded holder is first, and the padding last."""
    owner, load = np.array([0, 0, 0]), np.array([3.0, 1.0, 1.0])
    rows = np.array([[2, 1], [1, 2], [2, NOBODY]])
    ordered = in_order_of_promotion(owner, rows, load)
    assert [sorted(row) for row in ordered.tolist()] == [[1, 2], [1, 2], [-1, 2]]
    assert ordered[2].tolist() == [2, NOBODY]
    assert sorted(np.bincount(ordered[:, 0], minlength=3)[1:].tolist()) == [1, 2]
