"""Preferred partitions: each consumer's part of a division, by its reported labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from aiokafka.cluster import ClusterMetadata

from faust_assigner.clients import MetadataAssignor, RackAwareAssignor, RedundantAssignor
from faust_assigner.clients.assignors import Joined
from faust_assigner.clients.preferred import (
    _claiming_home,
    _claiming_preferred,
    _count_liked,
    _labels_key,
    _only_preferred,
)
from faust_assigner.clients.redundant import _even_out_spares
from faust_assigner.clients.user_data import UserData
from faust_assigner.model import Member
from tests.unit.clients.test_assignors import cluster


def joined(name: str, *topics: str, labels: Mapping[str, str], **active: Sequence[int]) -> Joined:
    """Return a consumer with its labels and its partitions of the last round."""
    data = UserData(round=3, active=active, labels=labels, capacity=1.0)
    return Joined(member_id=name, topics=topics, data=data)


class Liking(MetadataAssignor):
    """An assignor that prefers the partitions listed in the label named after the topic."""

    def __init__(self) -> None:
        super().__init__({})
        self.asked: list[tuple[dict[str, str], str]] = []

    def liked(
        self, labels: Mapping[str, str], topic: str, cluster: ClusterMetadata
    ) -> Sequence[int]:
        """Return the numbers of the label, and note the call."""
        self.asked.append((dict(labels), topic))
        return [int(n) for n in labels.get(topic, "").split()]


def test_each_consumer_gets_the_partitions_that_it_prefers_of_every_topic() -> None:
    """Each topic stays even; a preference for an unsubscribed topic is ignored."""
    assignor = Liking()
    members = [
        joined("a", "t", "u", labels={"t": "0 1", "u": "2"}),
        joined("b", "t", "u", labels={"u": "0 1"}, t=[0, 1]),
        joined("c", "t", labels={"t": "4 5", "u": "2"}),
        joined("d", "t", labels={"t": "4 5", "u": "2"}),
    ]
    found = assignor.place(members, {"t": 6, "u": 3}, cluster({"t": 6, "u": 3}))
    assert {m: {t: list(n) for t, n in one.active.items()} for m, one in found.items()} == {
        "a": {"t": [0], "u": [2]},
        "b": {"t": [1], "u": [0, 1]},
        "c": {"t": [2, 4]},
        "d": {"t": [3, 5]},
    }
    assert {one.spare == {} for one in found.values()} == {True}
    assert len(assignor.asked) == 6, "three kinds of labels, two topics"


@pytest.mark.parametrize(
    ("place", "rack", "liked"),
    [("t", "a", [0, 3]), ("t", "b", [1]), ("t", "x", []), ("unknown", "a", [])],
)
def test_a_rack_prefers_the_partitions_that_it_leads(
    place: str, rack: str, liked: list[int]
) -> None:
    """A partition without a known leader is in no rack; a consumer without a rack prefers none."""
    seen = cluster({"t": 4})
    assignor = RackAwareAssignor(rack)
    known: Any = seen
    leader = known.leader_for_partition
    known.leader_for_partition = lambda tp: 99 if tp.partition == 2 else leader(tp)
    assert list(assignor.liked({"rack": rack}, place, seen)) == liked
    assert list(assignor.liked({}, place, seen)) == []


def test_the_claims_of_a_consumer_are_what_it_or_no_consumer_prefers() -> None:
    """Topics without partitions are left out; the planner gets preferred partitions as copies."""
    one = joined("a", "t", "u", labels={"x": "1"}, t=[0, 1, 2], u=[5], gone=[1])
    liked = {"t": frozenset({1, 9}), "u": frozenset[int](), "z": frozenset({3})}
    wanted = {"t": frozenset({0, 1, 9}), "u": frozenset({5}), "z": frozenset({3})}
    found = _claiming_preferred(one, liked, wanted)
    assert (found.actives, found.standbys) == ({"t": [1, 2], "u": []}, {"t": [1, 9], "u": []})
    assert (found.member_id, found.generation) == ("a", 3)
    assert _only_preferred(found).actives == {"t": [1], "u": []}
    assert _only_preferred(found).standbys == found.standbys


def test_the_claims_at_home_are_the_preferred_ones_and_as_many_others_as_there_is_room() -> None:
    """The room is the number of partitions in the home's share."""
    member = Member(
        "a", ("t", "u"), actives={"t": [7, 1, 8, 6], "u": [4]}, standbys={"t": [1, 2, 3]}
    )
    found = _claiming_home(member, {"t": [0, 1, 2, 5], "u": [9], "v": [1]})
    assert found.actives == {"t": [1, 2, 7, 8], "u": [4], "v": []}
    assert _claiming_home(member, {"t": [1, 2]}).actives == {"t": [1, 2]}
    assert _claiming_home(member, {}).actives == {}


def test_preferred_partitions_are_counted_over_all_members_and_topics() -> None:
    """Each member's own preferences count."""
    shares = {"a": {"t": [0, 1], "u": [2]}, "b": {"t": [2, 3]}}
    liked = {
        "a": {"t": frozenset({1, 2}), "u": frozenset({2})},
        "b": {"t": frozenset({1, 2, 3}), "u": frozenset[int]()},
    }
    assert _count_liked(shares, liked) == 4
    assert _count_liked({}, liked) == 0


def test_equal_labels_are_one_key_whatever_their_order() -> None:
    """Members with equal labels share a single call for preferred partitions."""
    one = joined("a", labels={"x": "1", "y": "2"})
    other = joined("b", labels={"y": "2", "x": "1"})
    assert _labels_key(one) == _labels_key(other) == (("x", "1"), ("y", "2"))


def holder(name: str, topics: tuple[str, ...], **data: Any) -> Joined:
    """Return a consumer of the topics."""
    return Joined(member_id=name, topics=topics, data=UserData(**data))


def test_the_heaviest_member_gives_its_spares_to_the_lightest() -> None:
    """The third member, whose load is between the two, keeps its copies; ids do not decide."""
    heavy, light, middle = (holder(name, ("t",)) for name in ("a", "b", "c"))
    active = {"a": {("t", 0), ("t", 1)}, "b": {("t", 9)}, "c": {("t", 8)}}
    spare = {"a": {("t", n) for n in (2, 3, 4, 5)}, "b": set(), "c": {("t", 6), ("t", 7)}}
    _even_out_spares([heavy, light, middle], active, spare)
    assert spare == {
        "a": {("t", 4), ("t", 5)},
        "b": {("t", 2), ("t", 3)},
        "c": {("t", 6), ("t", 7)},
    }


def test_if_the_heaviest_member_has_no_movable_spare_the_next_heaviest_gives_its_own() -> None:
    """The heaviest member's only spare is of a topic that the lightest member does not read.

    After two moves from the third member, that member has room for the heaviest member's spare.
    """
    members = [holder("a", ("t",)), holder("b", ("t", "u")), holder("c", ("t", "u"))]
    active = {"a": set[tuple[str, int]](), "b": {("t", n) for n in range(4)}, "c": {("t", 4)}}
    spare = {"a": set[tuple[str, int]](), "b": {("u", 0)}, "c": {("t", 0), ("t", 1), ("u", 1)}}
    _even_out_spares(members, active, spare)
    assert spare == {"a": {("t", 0), ("t", 1)}, "b": set(), "c": {("u", 0), ("u", 1)}}


def test_a_redundant_assignor_keeps_at_least_one_copy() -> None:
    """One copy is a plain assignment; the name contains the number, zero copies are refused."""
    single, triple = RedundantAssignor(1), RedundantAssignor(3, capacity=2.0)
    assert (single.name, single.copies) == ("redundant-1", 1)
    assert (triple.name, triple.copies) == ("redundant-3", 3)
    assert b'"capacity":2.0' in triple.metadata(["t"]).user_data
    with pytest.raises(ValueError, match="copies must be 1 or more, got 0"):
        RedundantAssignor(0)
    members = [holder("a", ("t", "u")), holder("b", ("t",), active={"t": [1]}, round=1)]
    found = single.place(members, {"t": 3, "u": 1}, cluster({"t": 3, "u": 1}))
    assert {m: (dict(one.active), dict(one.spare)) for m, one in found.items()} == {
        "a": ({"t": [0], "u": [0]}, {}),
        "b": ({"t": [1, 2]}, {}),
    }
