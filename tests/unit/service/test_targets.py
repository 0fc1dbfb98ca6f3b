"""The rebalancer's inputs and corrections: claims to partitions, weights, and replaced targets."""

from __future__ import annotations

import pytest

from faust_assigner.service.handoff import Handoff, Phase, TopicPartition
from faust_assigner.service.leading.corrections import avoid
from faust_assigner.service.leading.targets import KEEPS_REPLICAS, _weights, choose, claimants
from faust_assigner.service.records import Consumer
from tests.unit.service.stories import view_of

AT = TopicPartition("t", 0)


def on_its_way(phase: Phase, failed: str | None = None) -> str:
    """The claimant of a partition during a hand-off from a to b."""
    a, b = Consumer(name="a"), Consumer(name="b")
    handoff = Handoff(AT, "a", "b", phase, 1.0, failed=failed)
    view = view_of(a, b, topics={"t": 1}, owners={AT: "a"}, handoffs=[handoff])
    return claimants(view, ["a", "b"])[AT]


def test_a_partition_on_its_way_is_its_new_owners_unless_that_gave_up() -> None:
    """A plan that relied on a failed hand-off would begin it again at once."""
    assert on_its_way(Phase.WARMING) == "b"
    assert on_its_way(Phase.WARMING, failed="the disk is full") == "a"


def test_where_consumers_know_different_weights_the_highest_counts() -> None:
    """The order of consumers does not matter; invalid weights are ignored."""
    light = Consumer(name="a", weights={"t": {0: 1.0, 1: 9.0, 2: 5.0, -1: 5.0}})
    heavy = Consumer(name="b", weights={"t": {0: 8.0, 1: float("nan")}, "nosuch": {0: 3.0}})
    for consumers in ([light, heavy], [heavy, light]):
        assert _weights(consumers, {"t": 2}) == {("t", 0): 8.0, ("t", 1): 9.0}


def test_where_the_target_cools_down_the_one_with_the_most_room_gets_it() -> None:
    """Capacity counts: two partitions on four times the capacity are less load than one on one."""
    named = {
        "cools": Consumer(name="cools"),
        "large": Consumer(name="large", capacity=4.0),
        "small": Consumer(name="small"),
    }
    owner = {
        TopicPartition("t", 0): "cools",
        TopicPartition("t", 1): "large",
        TopicPartition("t", 2): "large",
        TopicPartition("t", 3): "small",
    }
    avoid(owner, {(AT, "cools")}, named, {}, {})
    assert owner[AT] == "large"
    assert [owner[TopicPartition("t", p)] for p in (1, 2, 3)] == ["large", "large", "small"]


def test_what_is_on_its_way_to_somebody_who_may_have_it_goes_on() -> None:
    """A target with less load must not win, as each plan would begin the hand-off again."""
    named = {name: Consumer(name=name) for name in ("cools", "holder", "idle")}
    others = {TopicPartition("t", n): "holder" for n in (1, 2, 3)}
    for moving, chosen in ((set(), "idle"), ({AT}, "holder")):
        owner = {AT: "cools", **others}
        avoid(owner, {(AT, "cools")}, named, {AT: "holder"}, {}, moving)
        assert owner[AT] == chosen


@pytest.mark.parametrize(("capacity", "chosen"), [(4.0, "holder"), (1.0, "idle")])
def test_a_holder_with_room_for_its_capacity_keeps_what_its_target_cannot_take(
    capacity: float, chosen: str
) -> None:
    """Three partitions on four times the capacity are less load than one on a single capacity."""
    named = {name: Consumer(name=name) for name in ("cools", "idle")}
    named["holder"] = Consumer(name="holder", capacity=capacity)
    owner = {AT: "cools"} | {TopicPartition("t", n): "holder" for n in (1, 2, 3)}
    avoid(owner, {(AT, "cools")}, named, {AT: "holder"}, {})
    assert owner[AT] == chosen


def test_a_target_with_room_for_its_capacity_takes_it_from_a_small_holder() -> None:
    """Four partitions on four times the capacity are less load than two on a single capacity."""
    named = {name: Consumer(name=name) for name in ("cools", "holder")}
    named["large"] = Consumer(name="large", capacity=4.0)
    owner = {AT: "cools"} | {TopicPartition("t", n): "large" for n in (1, 2, 3)}
    owner |= {TopicPartition("t", n): "holder" for n in (4, 5)}
    avoid(owner, {(AT, "cools")}, named, {AT: "holder"}, {})
    assert owner[AT] == "large"


@pytest.mark.parametrize(("held", "chosen"), [(1, "holder"), (2, "idle"), (3, "idle")])
def test_a_holder_keeps_a_partition_only_if_its_load_is_lower_afterwards(
    held: int, chosen: str
) -> None:
    """The other consumer has one partition and would have two, which are an equal load of two."""
    named = {name: Consumer(name=name) for name in ("cools", "holder", "idle")}
    owner = {AT: "cools", TopicPartition("u", 0): "idle"}
    owner |= {TopicPartition("t", n + 1): "holder" for n in range(held)}
    avoid(owner, {(AT, "cools")}, named, {AT: "holder"}, {})
    assert owner[AT] == chosen


def test_partitions_that_travel_together_are_replaced_once() -> None:
    """The second one's holder does not take both away from the new target of the first one."""
    mate = TopicPartition("u", 0)
    named = {name: Consumer(name=name) for name in ("cools", "holder", "idle", "third")}
    owner = {AT: "cools", mate: "cools", TopicPartition("t", 1): "holder"}
    bound = {"t": ("t", "u"), "u": ("t", "u")}
    avoid(owner, {(AT, "cools"), (mate, "cools")}, named, {mate: "third"}, bound, {mate})
    assert owner == {AT: "idle", mate: "idle", TopicPartition("t", 1): "holder"}


def test_only_consumers_that_keep_replicas_are_given_some() -> None:
    """A consumer without this capability would not warm its replicas."""
    consumers = [
        Consumer(name="a", capabilities=(KEEPS_REPLICAS,)),
        Consumer(name="b", capabilities=()),
    ]
    found = choose(view_of(*consumers, topics={"t": 4}), consumers, replicas=1)
    assert set(found.owner.values()) == {"a", "b"}
    assert set(found.replicas) == {"a"}
