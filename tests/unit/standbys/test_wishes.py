"""Which promoted tasks may have a standby on their target member: the wish yields to what is promised."""

from __future__ import annotations

import numpy as np

from faust_assigner.model import NOBODY
from faust_assigner.standbys.derive import _affordable


def afforded(
    owner: list[int],
    target: list[int],
    *,
    members: int,
    replicas: int = 1,
    rack: list[int] | None = None,
) -> list[bool]:
    """Of the tasks whose target is not their owner, in order, whose wish is granted."""
    racks = np.array([NOBODY] * members if rack is None else rack)
    owners, targets = np.array(owner), np.array(target)
    away = np.flatnonzero(owners != targets)
    group = np.zeros(len(owner), dtype=np.int64)
    eligible = np.ones((1, members), dtype=np.bool_)
    return _affordable(racks, eligible, group, away, owners, targets, replicas).tolist()


def test_no_member_is_wished_more_than_its_even_share() -> None:
    """Six standbys on three members are two each: the third wish for one member is dropped."""
    found = afforded([0, 0, 0, 1, 1, 1], [2, 2, 2, 1, 1, 1], members=3)
    assert found == [True, True, False]


def test_no_wish_goes_into_the_actives_rack_while_others_have_room() -> None:
    """Member 1 stands where member 0 does; member 2 outside of it takes the one standby."""
    assert afforded([0, 1, 2], [1, 1, 2], members=3, rack=[0, 0, 1]) == [False]
    assert afforded([0, 1, 2], [2, 1, 2], members=3, rack=[0, 0, 1]) == [True]


def test_a_wish_goes_into_the_actives_rack_where_the_others_are_full() -> None:
    """Two standbys, one member outside: one of them is inside in any case."""
    assert afforded([0, 1, 2], [1, 1, 2], members=3, replicas=2, rack=[0, 0, 1]) == [True]
