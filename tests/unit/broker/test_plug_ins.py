"""Server-side assignors of further packages: how they are loaded and how wrong targets are refused."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.broker.groups.plug_ins import load_plug_ins, names_in, places_in
from faust_assigner.broker.settings import Settings
from faust_assigner.coordinator.assignors import (
    ASSIGNORS,
    GroupSpec,
    MemberSpec,
    Target,
    assign_uniformly,
    compute,
)
from faust_assigner.coordinator.catalogue import Topic, TopicId
from faust_assigner.errors import ConfigError
from tests.support.clients.raw_client import RawClient

ORDERS, OTHER = Topic("orders", b"o" * 16, 3), Topic("other", b"x" * 16, 1)
MINUTE = datetime.timedelta(minutes=1)
AFTER_BOTH_JOINS = 3  # a group's epoch begins with 1, and each of the two joins raises it
number = 7  # not a function


def all_to_first(spec: GroupSpec, topics: Mapping[TopicId, Topic]) -> Target:
    """Assign all partitions to the member with the first id."""
    first = min(spec.members)
    return {first: {t: tuple(range(topic.partitions)) for t, topic in topics.items()}}


def to_stranger(spec: GroupSpec, topics: Mapping[TopicId, Topic]) -> Target:
    """Assign a partition to an unknown member."""
    return {"stranger": {ORDERS.topic_id: (0,)}}


def not_subscribed(spec: GroupSpec, topics: Mapping[TopicId, Topic]) -> Target:
    """Assign a topic without the member's subscription."""
    return {"b": {ORDERS.topic_id: (0,)}}


def missing_partition(spec: GroupSpec, topics: Mapping[TopicId, Topic]) -> Target:
    """Assign a partition beyond the last one."""
    return {"a": {ORDERS.topic_id: (3,)}}


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """Forget the assignors of a test."""
    before = set(ASSIGNORS)
    yield
    for name in ASSIGNORS.keys() - before:
        del ASSIGNORS[name]


def spec(assignor: str) -> GroupSpec:
    """Return two members with different topics."""
    members = {
        "a": MemberSpec(frozenset({ORDERS.topic_id})),
        "b": MemberSpec(frozenset({OTHER.topic_id})),
    }
    return GroupSpec(assignor, members, {t.topic_id: t for t in (ORDERS, OTHER)})


def load(name: str, function: str) -> None:
    """Load a function of this module."""
    load_plug_ins({name: f"{__name__}:{function}"})


def of_some(spec: GroupSpec, topics: Mapping[TopicId, Topic]) -> Target:
    """Assign unsorted partitions, a topic without partitions, and no share for the second member."""
    return {"a": {ORDERS.topic_id: (2, 0), OTHER.topic_id: ()}}


def twice(spec: GroupSpec, topics: Mapping[TopicId, Topic]) -> Target:
    """Assign a partition twice."""
    return {"a": {ORDERS.topic_id: (1, 1)}}


def test_the_target_of_a_plug_in_has_every_member_and_no_empty_topic() -> None:
    """Its partitions are sorted like the partitions of the broker's own assignors."""
    load("mine", "of_some")
    both = frozenset({ORDERS.topic_id, OTHER.topic_id})
    topics = {one.topic_id: one for one in (ORDERS, OTHER)}
    asked = GroupSpec("mine", {name: MemberSpec(both) for name in "ab"}, topics)
    assert compute(asked) == {"a": {ORDERS.topic_id: (0, 2)}, "b": {}}


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("twice", r"assigns partitions \[1, 1\] of topic orders"),
        ("to_stranger", "is not a member"),
        ("not_subscribed", "does not subscribe"),
        ("missing_partition", "which has 3"),
        ("all_to_first", "does not subscribe"),
    ],
)
def test_a_target_against_the_rules_is_refused_with_a_reason(function: str, words: str) -> None:
    """The group keeps its previous target, and the log has the reason."""
    load("mine", function)
    with pytest.raises(ValueError, match=words):
        compute(spec("mine"))


def test_a_plug_in_is_named_beside_the_assignors_of_the_broker() -> None:
    """Groups without a member's choice use the first name."""
    text = f"mine={__name__}:all_to_first,uniform"
    given = Settings.parse({"group.consumer.assignors": text}).group_consumer_assignors
    assert names_in(given) == ("mine", "uniform")
    assert places_in(given) == {"mine": f"{__name__}:all_to_first"}
    assert places_in(Settings().group_consumer_assignors) == {}


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("no_such_module:assign", "cannot import"),
        (f"{__name__}:no_such", "cannot import"),
        (f"{__name__}:number", "not a function"),
    ],
)
def test_a_plug_in_that_cannot_be_loaded_ends_the_start(place: str, words: str) -> None:
    """The error has the name and the place."""
    with pytest.raises(ConfigError, match=words):
        load_plug_ins({"mine": place})


@pytest.mark.parametrize("text", ["sticky", "uniform,uniform", "mine=module", "=m:f", "range=m:f"])
def test_a_name_without_a_function_is_refused(text: str) -> None:
    """Reserved and repeated names are refused, too."""
    with pytest.raises(ConfigError, match=r"group\.consumer\.assignors"):
        Settings.parse({"group.consumer.assignors": text})


def test_one_name_stands_for_one_function_in_a_process() -> None:
    """A second broker may load the same function again."""
    load("mine", "all_to_first")
    load("mine", "all_to_first")
    with pytest.raises(ConfigError, match="already registered"):
        load("mine", "to_stranger")
    assert ASSIGNORS["uniform"] is assign_uniformly


def test_members_of_a_live_group_get_the_partitions_of_a_plug_in() -> None:
    """The first member has all partitions, the second none."""
    settings = {
        "group.consumer.assignors": f"uniform,mine={__name__}:all_to_first",
        "group.consumer.assignment.interval.ms": 0,
    }
    with EmbeddedBroker(settings=settings) as broker, RawClient(broker.bootstrap) as client:
        broker.call(lambda node: node.catalogue.create("t", 4, {}))
        held: dict[str, Any] = {}
        epochs = {"a": 0, "b": 0}
        deadline = time.monotonic() + 20
        # A member may be at epoch 1, without partitions, until the first target is computed.
        while set(epochs.values()) != {AFTER_BOTH_JOINS}:
            assert time.monotonic() < deadline, (epochs, held)
            for member_id, epoch in epochs.items():
                is_new = epoch == 0
                values: dict[str, Any] = {
                    "group_id": "g",
                    "member_id": member_id,
                    "member_epoch": epoch,
                    "rebalance_timeout": MINUTE,
                    "subscribed_topic_names": ("t",) if is_new else None,
                    "server_assignor": "mine" if is_new else None,
                    "topic_partitions": () if is_new else None,
                }
                answer = client.call(68, 0, **values)
                assert answer.error_code == 0
                epochs[member_id] = answer.member_epoch
                if answer.assignment is not None:
                    topics = answer.assignment.topic_partitions
                    held[member_id] = [n for topic in topics for n in sorted(topic.partitions)]
    assert held == {"a": [0, 1, 2, 3], "b": []}


def test_an_assignor_without_a_place_is_refused_with_its_name() -> None:
    """The sign announces an assignor of another package; a name without the sign is one of ours."""
    text = "uniform,mine=,other=package:function"
    assert names_in(text) == ("uniform", "mine", "other")
    assert places_in(text) == {"mine": "", "other": "package:function"}
    with pytest.raises(ConfigError, match="assignor mine: cannot import ''"):
        load_plug_ins(places_in(text))
