"""Placements by names: dealt out without a planner, with global tables, and as a directory."""

from __future__ import annotations

import numpy as np
import pytest

from faust_assigner import Member
from faust_assigner.app.rebalance.placement import Placement, dealt, directory_of, with_globals
from faust_assigner.model import NOBODY


def members(**topics: str) -> list[Member]:
    """Return members by name, each with its topics' letters."""
    return [Member(name, list(letters)) for name, letters in topics.items()]


def test_what_is_dealt_is_even_and_no_owner_is_its_own_standby() -> None:
    """The next subscribers by id are standbys; a stateless topic has no standby."""
    found = dealt(
        members(c="xyz", a="xy", b="xy"),
        {"x": 3, "y": 3, "z": 2, "w": 4},
        replicas=5,
        changelogs={"y", "z"},
        previous_ids={},
    )
    assert found.member_ids == ("a", "b", "c")
    assert found.actives == {
        "a": {"x": [0], "y": [0]},
        "b": {"x": [1], "y": [1]},
        "c": {"x": [2], "y": [2], "z": [0, 1]},
    }
    assert found.standbys == {"a": {"y": [1, 2]}, "b": {"y": [0, 2]}, "c": {"y": [0, 1]}}
    assert list(found.owners["x"]) == [0, 1, 2]
    assert found.owners.keys() == {"x", "y", "z"}, "no member subscribes to w"


def test_fewer_standbys_than_members_are_those_that_come_next() -> None:
    """The order of ids wraps around."""
    found = dealt(
        members(a="y", b="y", c="y"), {"y": 4}, replicas=1, changelogs={"y"}, previous_ids={}
    )
    assert {m: topics["y"] for m, topics in found.standbys.items()} == {
        "a": [2],
        "b": [0, 3],
        "c": [1],
    }


def test_groups_that_are_dealt_keep_their_ids_unless_two_would_share_one() -> None:
    """Topics with equal counts and subscribers form a group; no id is used twice."""
    found = dealt(
        members(a="wxyz"),
        {"w": 2, "x": 2, "y": 3, "z": 4},
        replicas=0,
        changelogs=(),
        previous_ids={"w": 7, "x": 9, "y": 7},
    )
    assert found.group_ids == {"w": 7, "x": 7, "y": 10, "z": 11}


@pytest.mark.parametrize(("is_full", "copies"), [(True, [0, 1, 2]), (False, [1])])
def test_every_subscriber_has_all_of_a_global_table(is_full: bool, copies: list[int]) -> None:
    """A subscriber follows the other writers' partitions, and with the flag its own as well."""
    placement = Placement(
        ("a", "b", "c"),
        {"a": {"g": [0, 2], "x": [0]}, "b": {"g": [1]}, "c": {}},
        {"a": {"x": [1]}, "b": {}, "c": {}},
        {"g": np.array([0, 1, 0]), "x": np.array([0])},
        {"g": 0, "x": 1},
    )
    subscriptions = {"a": ["g", "x"], "b": ["g"], "c": ["x"]}
    assert with_globals(placement, subscriptions, {"g": 3, "x": 1}, {}) is placement
    found = with_globals(placement, subscriptions, {"g": 3, "x": 1}, {"g": is_full, "gone": True})
    assert found.actives == {"a": {"g": [0, 1, 2], "x": [0]}, "b": {"g": [0, 1, 2]}, "c": {}}
    assert found.standbys["a"] == {"g": copies, "x": [1]}
    assert found.standbys["c"] == {}
    assert placement.actives["a"]["g"] == [0, 2], "the planner's own result stays"


def test_a_directory_ranks_members_by_their_first_partition() -> None:
    """Members without partitions are included; a dynamic member has no instance id."""
    owner = np.array([2, 0, 2, NOBODY])
    placement = Placement(
        ("a", "b", "c"),
        {m: {} for m in "abc"},
        {"a": {"log": [0]}, "b": {"log": [0, 1]}, "c": {}},
        {"log": owner, "orders": owner},
        {"log": 0, "orders": 0},
    )
    urls = {m: f"http://{m}" for m in "abc"}
    found = directory_of(
        placement, urls, {"b": "two"}, frozenset({"log", "gone"}), {"g"}, with_standbys=True
    )
    assert found.urls == ("http://c", "http://a", "http://b")
    assert found.instances == ("", "", "two")
    assert list(found.owners["orders"]) == [0, 1, 0, NOBODY]
    assert (found.changelogs, found.globals_) == ({"log"}, frozenset())
    assert [list(column) for column in found.standbys["log"]] == [
        [1, 2, NOBODY, NOBODY],
        [2, NOBODY, NOBODY, NOBODY],
    ]
    plain = directory_of(placement, urls, {}, frozenset({"log"}), ())
    assert (plain.instances, plain.standbys) == ((), {})
