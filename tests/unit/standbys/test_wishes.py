"""Standbys on the targets of promoted tasks: a wish must not break a promise."""

from __future__ import annotations

import numpy as np

from faust_assigner.model import NOBODY
from faust_assigner.standby import StandbyAssignor, _place
from faust_assigner.standbys.derive import _may_have_target_standby
from tests.support.standby_boards import problem


def afforded(
    owner: list[int],
    target: list[int],
    *,
    members: int,
    replicas: int = 1,
    rack: list[int] | None = None,
) -> list[bool]:
    """Return, for each task away from its target, whether its wish is granted."""
    racks = np.array([NOBODY] * members if rack is None else rack)
    owners, targets = np.array(owner), np.array(target)
    away = np.flatnonzero(owners != targets)
    group = np.zeros(len(owner), dtype=np.int64)
    eligible = np.ones((1, members), dtype=np.bool_)
    return _may_have_target_standby(
        racks, eligible, group, away, owners, targets, replicas
    ).tolist()


def test_no_member_is_wished_more_than_its_even_share() -> None:
    """Six standbys on three members are two each: a member's third wish is dropped."""
    found = afforded([0, 0, 0, 1, 1, 1], [2, 2, 2, 1, 1, 1], members=3)
    assert found == [True, True, False]


def test_no_wish_goes_into_the_actives_rack_while_others_have_room() -> None:
    """Members 0 and 1 share a rack; member 2 in the other rack takes the only standby."""
    assert afforded([0, 1, 2], [1, 1, 2], members=3, rack=[0, 0, 1]) == [False]
    assert afforded([0, 1, 2], [2, 1, 2], members=3, rack=[0, 0, 1]) == [True]


def test_a_wish_goes_into_the_actives_rack_where_the_others_are_full() -> None:
    """Of two standbys only one fits outside the rack; the other is inside in any case."""
    assert afforded([0, 1, 2], [1, 1, 2], members=3, replicas=2, rack=[0, 0, 1]) == [True]


def test_half_of_the_wishes_are_kept_where_all_of_them_make_loads_uneven() -> None:
    """Of four wishes for member 3 the first two fit into its even share of two."""
    wanted = [(0, 3), (2, 3), (4, 3), (5, 3)]
    given = problem([0, 0, 1, 1, 2, 2, 3, 3], 4, wanted=wanted)
    assert np.bincount(StandbyAssignor().place(given).ravel()).max() == 4
    placed = _place(given).ravel()
    assert placed[[0, 2]].tolist() == [3, 3]
    assert np.bincount(placed).tolist() == [2, 2, 2, 2]


def test_all_wishes_are_dropped_where_half_of_them_make_loads_uneven() -> None:
    """Half of eight wishes is still twice the even share of the member."""
    given = problem([0, 0, 0, 0, 1, 1, 1, 1], 4, wanted=[(task, 3) for task in range(8)])
    plain = StandbyAssignor().place(problem([0, 0, 0, 0, 1, 1, 1, 1], 4))
    assert _place(given).tolist() == plain.tolist()
