"""Global tables: each subscriber has all partitions of the changelog, as actives and copies."""

from __future__ import annotations

import pytest

from faust_assigner.app.rebalance.placement import Placement, with_globals

PLACED = Placement(
    ("a", "b"), {"a": {"log": [0], "in": [0]}, "b": {"log": [1]}}, {"a": {}, "b": {}}, {}, {}
)
SUBSCRIBED = {"a": ("in", "log"), "b": ("in", "log"), "c": ("in",)}


@pytest.mark.parametrize(
    ("all_followed", "copies"), [(True, ([0, 1, 2], [0, 1, 2])), (False, ([1, 2], [0, 2]))]
)
def test_subscribers_of_a_global_table_own_and_follow_its_partitions(
    all_followed: bool, copies: tuple[list[int], list[int]]
) -> None:
    """A member follows all partitions if the table is set so, else only foreign partitions."""
    made = with_globals(PLACED, SUBSCRIBED, {"in": 3, "log": 3}, {"log": all_followed})
    assert made.actives == {"a": {"log": [0, 1, 2], "in": [0]}, "b": {"log": [0, 1, 2]}}
    assert (made.standbys["a"], made.standbys["b"]) == ({"log": copies[0]}, {"log": copies[1]})


def test_a_global_table_whose_changelog_does_not_exist_yet_changes_nothing() -> None:
    """A changelog with 0 partitions changes nothing either."""
    for partitions in ({"in": 3}, {"in": 3, "log": 0}):
        made = with_globals(PLACED, SUBSCRIBED, partitions, {"log": True})
        assert (made.actives, made.standbys) == (PLACED.actives, PLACED.standbys)
    assert with_globals(PLACED, SUBSCRIBED, {"log": 3}, {}) is PLACED
