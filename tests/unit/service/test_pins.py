"""Pins and moves in the leader's plan and in its clean-up, with views built by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product

import pytest

from faust_assigner.service import values as codec
from faust_assigner.service.handoff import Handoff, Phase, TopicPartition
from faust_assigner.service.leading import targets
from faust_assigner.service.leading.copartitioned import bound_topics
from faust_assigner.service.leading.moves import rebalance
from faust_assigner.service.leading.targets import Targets, choose
from faust_assigner.service.leading.tidying import tidy
from faust_assigner.service.records import Consumer, Pause, Pin, Status
from faust_assigner.service.store.base import Delete, Event, KeyValue
from faust_assigner.service.view import View
from tests.unit.service.stories import ALL, AT, SETTINGS, view_of

MATE = TopicPartition("u", 0)
BOTH = [Consumer(name="a"), Consumer(name="b")]
CONSUMERS = [Consumer(name=name, co_partitioned=(("t", "u"),)) for name in "ab"]


def at(number: int, topic: str = "t") -> TopicPartition:
    """A partition of a topic."""
    return TopicPartition(topic, number)


def put(view: View, key: str, value: bytes) -> None:
    """Add a key to the view."""
    view.apply(Event(key, 900, KeyValue(key, value, 900, 900)))


def pinned(view: View, *pins: Pin) -> View:
    """Add these pins to the view."""
    for pin in pins:
        put(view, ALL.pin(pin.at), codec.dump_pin(pin))
    return view


def cool(view: View, where: TopicPartition, name: str) -> None:
    """Add a cooldown: the consumer recently failed to warm the partition."""
    put(view, ALL.cooldown(where, name), codec.dump_until(1.0))


@pytest.mark.parametrize("hindrance", ["", "cools down", "does not subscribe"])
def test_a_pin_waits_while_its_consumer_cannot_take_a_partition_that_travels_along(
    hindrance: str,
) -> None:
    """Co-partitioned topics always have the same owner."""
    copartitioned = CONSUMERS
    if hindrance == "does not subscribe":
        copartitioned = [CONSUMERS[0], Consumer(name="b", topics=("t",))]
    view = view_of(*copartitioned, topics={"t": 1, "u": 1}, owners={AT: "a", MATE: "a"})
    if hindrance == "cools down":
        cool(view, MATE, "b")
    by_name = {consumer.name: consumer for consumer in copartitioned}
    found = targets.pinned(pinned(view, Pin(AT, "b")), by_name, bound_topics(view))
    assert found == ({} if hindrance else {AT: "b", MATE: "b"})


@pytest.mark.parametrize("pins", [[Pin(AT, "b"), Pin(MATE, "a")], [Pin(MATE, "a"), Pin(AT, "b")]])
def test_of_two_pins_for_partitions_that_travel_together_the_first_topics_counts(
    pins: list[Pin],
) -> None:
    """All partitions of the pair follow this pin, whichever pin is older."""
    view = view_of(*CONSUMERS, topics={"t": 1, "u": 1}, owners={AT: "a", MATE: "a"})
    both = pinned(view, *pins)
    assert choose(both, CONSUMERS, replicas=0).owner == {AT: "b", MATE: "b"}


def test_a_partition_that_goes_back_for_a_pinned_one_is_one_that_its_consumer_can_take() -> None:
    """A partition with a cooldown for "a" does not return in place of the pinned one."""
    owners = {at(n): "b" for n in range(4)}
    view = pinned(view_of(*BOTH, topics={"t": 4}, owners=owners), Pin(at(3), "b"))
    for going in (at(0), at(1)):
        assert choose(view, BOTH, replicas=0).owner == {**owners, at(2): "a", going: "a"}
        cool(view, going, "a")
    assert choose(view, BOTH, replicas=0).owner == {**owners, at(2): "a"}


def test_no_partition_of_a_topic_that_the_consumer_does_not_want_goes_back() -> None:
    """The loads stay uneven."""
    picky = [Consumer(name="a", topics=("t",)), Consumer(name="b")]
    view = view_of(*picky, topics={"t": 1, "u": 1}, owners={AT: "a", MATE: "b"})
    owner = choose(pinned(view, Pin(AT, "b")), picky, replicas=0).owner
    assert owner == {AT: "b", MATE: "b"}


def test_a_pin_costs_no_more_moves_than_even_loads_need() -> None:
    """All placements of four partitions, with and without owners, and all pins: brute force agrees."""
    for owners in product(("a", "b", None), repeat=4):
        held = {at(n): name for n, name in enumerate(owners) if name is not None}
        for number, name in product(range(4), "ab"):
            view = pinned(view_of(*BOTH, topics={"t": 4}, owners=held), Pin(at(number), name))
            found = choose(view, BOTH, replicas=0).owner
            moves = sum(found[where] != owner for where, owner in held.items())
            least = min(
                sum(
                    where is not None and where != new
                    for where, new in zip(owners, one, strict=True)
                )
                for one in product("ab", repeat=4)
                if one[number] == name and Counter(one) == {"a": 2, "b": 2}
            )
            assert (Counter(found.values()), moves) == ({"a": 2, "b": 2}, least), (owners, number)


def test_the_plan_counts_a_pinned_partition_as_its_consumers() -> None:
    """Otherwise the plan would move a second partition away from the old owner."""
    three = [*BOTH, Consumer(name="c")]
    view = view_of(*three, topics={"t": 1, "u": 1}, owners={AT: "b", MATE: "b"})
    assert choose(pinned(view, Pin(MATE, "c")), three, replicas=0).owner == {AT: "b", MATE: "c"}


def test_a_partition_of_the_pinned_ones_topic_goes_back() -> None:
    """The loads of each topic stay even too."""
    view = view_of(*BOTH, topics={"t": 1, "u": 2}, owners={AT: "b", MATE: "b"})
    owner = choose(pinned(view, Pin(at(1, "u"), "b")), BOTH, replicas=0).owner
    assert owner == {AT: "b", MATE: "a", at(1, "u"): "b"}


def test_a_partition_without_an_owner_goes_back_before_one_that_would_move() -> None:
    """The pinned partition and "t/0" have no owner yet; "u/0" stays."""
    view = view_of(*BOTH, topics={"t": 1, "u": 2}, owners={MATE: "a"})
    owner = choose(pinned(view, Pin(at(1, "u"), "a")), BOTH, replicas=0).owner
    assert owner == {AT: "b", MATE: "a", at(1, "u"): "a"}


def test_a_partition_returns_to_its_owner_before_one_that_would_move_goes_back() -> None:
    """The plan gave "t/0" to "a", and "t/0" returns to "b" in place of the pinned "u/1"."""
    topics = {"t": 3, "u": 2, "v": 1}
    owners = {at(0): "b", at(2): "b", MATE: "a", at(1, "u"): "b", at(0, "v"): "b"}
    bound = [Consumer(name=name, co_partitioned=(("t", "u"),)) for name in "ab"]
    view = pinned(view_of(*bound, topics=topics, owners=owners), Pin(at(1, "u"), "a"))
    owner = choose(view, bound, replicas=0).owner
    assert owner == {**owners, at(1): "a", at(1, "u"): "a"}


def test_as_many_partitions_go_back_as_travel_with_the_pinned_one() -> None:
    """A pair returns for a pair, not the single "v/0"."""
    topics = {"t": 2, "u": 2, "v": 1}
    owners = {AT: "a", at(1): "a", at(1, "u"): "a"}
    view = pinned(view_of(*CONSUMERS, topics=topics, owners=owners), Pin(at(1, "u"), "a"))
    assert Counter(choose(view, CONSUMERS, replicas=0).owner.values()) == {"a": 3, "b": 2}


MOVE = Pin(AT, "b", once=True)
GOING = Handoff(AT, "a", "b", Phase.WARMING, 1_000.0)


@pytest.mark.parametrize(
    ("pin", "owner", "more", "ends"),
    [
        (MOVE, "a", "", False),
        (MOVE, "b", "", True),
        (MOVE, "b", "hand-off", False),
        (MOVE, "a", "cool-down", True),
        (Pin(AT, "c", once=True), "a", "", True),
        (Pin(at(7), "b", once=True), "a", "", True),
        (Pin(AT, "b"), "b", "", False),
        (Pin(AT, "c"), "a", "", False),
    ],
)
def test_a_move_ends_when_it_is_made_or_cannot_be_and_a_pin_does_not(
    pin: Pin, owner: str, more: str, ends: bool
) -> None:
    """A move is complete if its consumer owns the partition and no hand-off is open."""
    handoffs = [GOING] if more == "hand-off" else []
    view = pinned(view_of(*BOTH, topics={"t": 2}, owners={AT: owner}, handoffs=handoffs), pin)
    if more == "cool-down":
        cool(view, AT, "b")
    written = [write for bundle in tidy(view, Targets({}, {})) for write in bundle.writes]
    assert (Delete(ALL.pin(pin.at)) in written) is ends


@pytest.mark.parametrize("hindrance", ["", "does not subscribe", "pinned elsewhere", "drains"])
def test_a_move_that_a_partition_that_travels_along_forbids_is_cancelled(hindrance: str) -> None:
    """Earlier, the move stayed, and happened whenever the hindrance was gone."""
    moved = replace(CONSUMERS[1], topics=("u",) if hindrance == "does not subscribe" else ())
    if hindrance == "drains":
        moved = replace(moved, status=Status.DRAINING)
    view = view_of(CONSUMERS[0], moved, topics={"t": 1, "u": 1}, owners={AT: "a", MATE: "a"})
    pins = [Pin(AT, "a")] if hindrance == "pinned elsewhere" else []
    view = pinned(view, *pins, Pin(MATE, "b", once=True))
    written = [write for bundle in tidy(view, Targets({}, {})) for write in bundle.writes]
    assert (Delete(ALL.pin(MATE)) in written) is bool(hindrance)
    assert Delete(ALL.pin(AT)) not in written


@pytest.mark.parametrize(
    ("state", "begun"),
    [
        ("", {at(0), at(1), at(0, "u"), at(1, "u")}),
        ("paused", {at(0), at(0, "u")}),
        ("outage", set()),
    ],
)
def test_while_paused_only_ordered_moves_begin_and_after_an_outage_none(
    state: str, begun: set[TopicPartition]
) -> None:
    """Co-partitioned partitions move along. After an outage, missing owners may still return."""
    everything = {at(n, topic): "a" for n in range(3) for topic in "tu"}
    owners = everything | ({at(2): "gone", at(2, "u"): "gone"} if state == "outage" else {})
    view = pinned(view_of(*CONSUMERS, topics={"t": 3, "u": 3}, owners=owners), Pin(AT, "b"))
    if state == "paused":
        put(view, ALL.paused, codec.dump_pause(Pause("", 0.0)))
    if state == "outage":
        put(view, ALL.awaiting, b"1")
    wanted = {where: "b" if where.partition < 2 else "a" for where in everything}
    bundles = list(rebalance(view, Targets(wanted, {}), SETTINGS, 1_000.0))
    written = {write.key for bundle in bundles for write in bundle.writes}
    assert {where for where in everything if ALL.handoff(where) in written} == begun
