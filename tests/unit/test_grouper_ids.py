"""Ids and followers of groups at their edges: the id 0, sets that meet, leaders without more members."""

from __future__ import annotations

from typing import Any

import pytest

from faust_assigner.grouper import PartitionGrouper, bonds


def ids(
    subscriptions: list[Any], partitions: dict[str, int], previous: dict[str, Any], **more: Any
) -> dict[str, int]:
    """Return topic -> the id of its group."""
    groups = PartitionGrouper().group(subscriptions, partitions, previous_ids=previous, **more)
    return {topic: group.group_id for group in groups for topic in group.topics}


@pytest.mark.parametrize(
    ("previous", "found"),
    [
        ({"a": 0}, {"a": 0, "b": 3}),
        ({"a": 9, "b": 3}, {"a": 9, "b": 3}),
        ({"a": 3}, {"a": 3, "b": None}),
        ({"a": -1, "b": True}, {"a": None, "b": 3}),
        ({"a": 7, "b": 7}, {"a": 7, "b": 3}),
        ({"gone": 3}, {"a": None, "b": None}),
    ],
)
def test_an_id_is_remembered_if_it_is_one(
    previous: dict[str, Any], found: dict[str, int | None]
) -> None:
    """0 is an id; a negative number and a truth value are none. ``None`` stands for a hash.

    Group b has more members, so that the count is its id; an id that a topic had is given to no
    other topic.
    """
    now = ids([["a", "b"], ["b"], ["b"]], {"a": 3, "b": 3}, previous)
    for topic, wanted in found.items():
        if wanted is None:
            assert now[topic] > 1_000_000, (topic, now)
        else:
            assert now[topic] == wanted
    assert len(set(now.values())) == 2


def test_sets_that_meet_are_one_whichever_comes_first() -> None:
    """Each topic is bound to the smallest topic of all sets that are connected."""
    sets = [["d", "e"], ["b", "c"], ["c", "d"], ["x"], []]
    wanted = {**dict.fromkeys("bcde", "b"), "x": "x"}
    assert bonds(sets) == wanted
    assert bonds(sets[::-1]) == wanted
    assert bonds([]) == {}


def test_topics_that_nobody_binds_are_apart() -> None:
    """Even two of them with equal counts and subscribers."""
    bound = {"co_partitioned": [["a", "b"]]}
    groups = PartitionGrouper().group([["a", "b", "c", "d"]], dict.fromkeys("abcd", 2), **bound)  # type: ignore[arg-type]
    assert [group.topics for group in groups] == [("a", "b"), ("c",), ("d",)]
    assert [group.follows for group in groups] == [None] * 3


@pytest.mark.parametrize(
    ("sources", "logs", "follows"),
    [
        ([0, 1, 2], [0, 1], True),
        ([0, 1], [0, 1], True),
        ([0], [0, 1], False),
        ([2, 3], [0, 1], False),
    ],
)
def test_changelogs_follow_sources_of_at_least_as_many_members(
    sources: list[int], logs: list[int], *, follows: bool
) -> None:
    """At least one member must read both; weightless sources lead nobody."""
    subscriptions = [
        [topic for topic, members in (("t", sources), ("log", logs)) if m in members]
        for m in range(4)
    ]
    options: Any = {"changelogs": ["log"], "weightless": []}
    for weightless in (False, True):
        groups = PartitionGrouper().group(
            subscriptions, {"t": 2, "log": 2}, **options | {"weightless": ["t"] * weightless}
        )
        found = {group.topics: group.follows for group in groups}
        together = sources == logs and not weightless
        if together:
            assert found == {("t", "log"): None}
        else:
            at = [group.topics for group in groups].index(("t",))
            assert found == {("t",): None, ("log",): at if follows and not weightless else None}


@pytest.mark.parametrize(("near", "far"), [("a", "z"), ("z", "a")])
def test_changelogs_follow_the_sources_with_which_they_share_most_members(
    near: str, far: str
) -> None:
    """Before more members count, and before the order of names."""
    members = {near: [0, 1, 4], far: [1, 2, 3, 4], "log": [0, 1]}
    subscriptions = [[topic for topic, who in members.items() if m in who] for m in range(5)]
    groups = PartitionGrouper().group(subscriptions, dict.fromkeys(members, 2), changelogs=["log"])
    found = {group.topics: group.follows for group in groups}
    at = [group.topics for group in groups].index((near,))
    assert found == {(near,): None, (far,): None, ("log",): at}
