"""Messages of the service field by field, the lengths of parts, and the limits of requests."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.service.commands import AbortWarm, Assignment, Owned, Pulse, Release, Warm
from faust_assigner.service.errors import BadRequest, TooManyClaims
from faust_assigner.service.handoff import Handoff, Phase, TopicPartition
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from faust_assigner.service.records import (
    HEARTBEATS,
    KEEPS_REPLICAS,
    Assigned,
    Consumer,
    OpenHandoff,
    Pause,
    Pin,
    PlannedMove,
    TopicConfig,
)
from faust_assigner.service.server import convert, limits, requests
from faust_assigner.service.server.convert import messages_of, plans, routed, states
from faust_assigner.service.server.requests import consumer_of, partition_of
from faust_assigner.service.serving.routes import Route, RouteUpdate

AT, NEXT = TopicPartition("t", 3), TopicPartition("u", 4)
PLACE, PLACE_2 = {"topic": "t", "partition": 3}, {"topic": "u", "partition": 4}


def test_a_registration_is_read_field_by_field() -> None:
    """Each field has its own value; a missing capacity is 1, and a missing rack is None."""
    request = pb.RegisterRequest(
        consumer_name="c",
        topic="z",
        topics=["b", "a", "z"],
        copartitioned=[{"topics": ["b", "a"]}, {"topics": ["z"]}],
        rack="r",
        capacity=2.5,
        weights=[{"partition": PLACE, "weight": 7.0}],
        weights_by_topic=[{"topic": "u", "partitions": [4, 5], "weights": [1.0, 2.0]}],
        replicas=[PLACE],
        replicas_by_topic=[{"topic": "t", "partitions": [9, 1]}],
        former=[{"topic": "u", "partitions": [4]}],
        incarnation="i",
        returns=True,
        endpoint="e",
        epoch=11,
    )
    assert asyncio.run(consumer_of(request, "id")) == Consumer(
        name="c",
        topics=("a", "b", "z"),
        capacity=2.5,
        rack="r",
        identity="id",
        weights={"t": {3: 7.0}, "u": {4: 1.0, 5: 2.0}},
        capabilities=(),
        incarnation="i",
        returns=True,
        epoch=11,
        endpoint="e",
        co_partitioned=(("a", "b"), ("z",)),
        holds={"t": (1, 3, 9)},
        former={"u": (4,)},
    )
    plain = asyncio.run(consumer_of(pb.RegisterRequest(consumer_name="c")))
    assert plain == Consumer(name="c", topics=(), capacity=1.0, rack=None)


@pytest.mark.parametrize(
    ("said", "capabilities"),
    [
        ({"heartbeats": True}, (HEARTBEATS,)),
        ({"keeps_replicas": True}, (KEEPS_REPLICAS,)),
        ({"heartbeats": True, "keeps_replicas": True}, (KEEPS_REPLICAS, HEARTBEATS)),
    ],
)
def test_a_capability_is_the_one_that_is_said(
    said: dict[str, bool], capabilities: tuple[str, ...]
) -> None:
    """The flags are tested alone and together."""
    request = pb.RegisterRequest(consumer_name="c", **said)
    assert asyncio.run(consumer_of(request)).capabilities == capabilities


@pytest.mark.parametrize(("said", "capacity"), [(0.0, 1.0), (0.5, 0.5), (2.5, 2.5), (-1.0, -1.0)])
def test_only_a_missing_capacity_is_1(said: float, capacity: float) -> None:
    """A negative capacity is refused later, with its value."""
    request = pb.RegisterRequest(consumer_name="c", capacity=said)
    assert asyncio.run(consumer_of(request)).capacity == capacity


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            Warm(AT, "a", 5, strict=True),
            {"warm": {"partition": PLACE, "current_owner": "a", "handoff_id": 5, "strict": True}},
        ),
        (
            Release(AT, "b", 6, strict=True),
            {"release": {"partition": PLACE, "new_owner": "b", "handoff_id": 6, "strict": True}},
        ),
        (AbortWarm(AT, 7), {"abort_warm": {"partition": PLACE, "handoff_id": 7}}),
        (Pulse(), {"pulse": {}}),
        (
            Assignment(
                (Owned(AT, 8, 9), Owned(NEXT, 2, keep=True)),
                (TopicPartition("v", 0),),
                full=True,
                releasing=(NEXT,),
            ),
            {
                "assignment": {
                    "assigned": [PLACE, PLACE_2],
                    "unassigned": [{"topic": "v"}],
                    "snapshot": True,
                    "grants": [
                        {"partition": PLACE, "epoch": 8, "start_offset": 9},
                        {"partition": PLACE_2, "epoch": 2, "keep": True},
                    ],
                    "releasing": [PLACE_2],
                }
            },
        ),
        (
            Assignment((Owned(AT, 8, 0),)),
            {
                "assignment": {
                    "assigned": [PLACE],
                    "grants": [{"partition": PLACE, "epoch": 8, "start_offset": 0}],
                }
            },
        ),
    ],
)
def test_a_command_is_told_field_by_field(command: Any, message: dict[str, Any]) -> None:
    """An offset of 0 is sent; a change is no snapshot."""
    assert list(messages_of(command)) == [pb.AssignmentCommand(**message)]


def test_a_state_is_told_field_by_field() -> None:
    """Consumers list only replicas of existing partitions; a hand-off has both owners."""
    handoff = Handoff(
        AT, "a", "b", Phase.READY, 0.0, strict=True, released=True, unreleased="w", progress=0.5
    )
    consumer = Consumer(
        name="a",
        topics=("t",),
        rack="r",
        capacity=2.0,
        registered_at=12.5,
        holds={"t": (0, 3, 4), "gone": (1,)},
        incarnation="i",
        endpoint="e",
    )
    found = list(
        states(
            "n",
            77,
            [TopicConfig("t", 4)],
            [consumer],
            [Assigned(AT, "a", 8, 9, "i", absent=True)],
            [OpenHandoff(handoff, 6, 2.5)],
            [Pin(AT, "a"), Pin(NEXT, "b", once=True)],
            Pause("why", 3.5),
            group="g",
        )
    )
    assert found == [
        pb.State(
            leader="n",
            revision=77,
            group="g",
            topics=[{"topic": "t", "partition_count": 4}],
            consumers=[
                {
                    "consumer_name": "a",
                    "status": pb.CONSUMER_STATUS_READY,
                    "topics": ["t"],
                    "rack": "r",
                    "capacity": 2.0,
                    "registered_at": 12.5,
                    "replicas": [{"topic": "t", "partitions": [0, 3]}],
                    "incarnation": "i",
                    "endpoint": "e",
                }
            ],
            assignments=[
                {
                    "partition": PLACE,
                    "owner": "a",
                    "epoch": 8,
                    "start_offset": 9,
                    "incarnation": "i",
                    "absent": True,
                }
            ],
            handoffs=[
                {
                    "partition": PLACE,
                    "old_owner": "a",
                    "new_owner": "b",
                    "phase": pb.HANDOFF_PHASE_READY,
                    "handoff_id": 6,
                    "age_s": 2.5,
                    "progress": 0.5,
                    "strict": True,
                    "released": True,
                    "unreleased": "w",
                }
            ],
            pins=[
                {"partition": PLACE, "consumer_name": "a"},
                {"partition": PLACE_2, "consumer_name": "b", "once": True},
            ],
            paused={"reason": "why", "since": 3.5},
        )
    ]
    [bare] = states("n", 1, [], [], [], [])
    assert not bare.HasField("paused")
    [paused] = states("", 1, [], [], [], [], pause=Pause("", 0.0), age_s=4.5)
    assert paused == pb.State(revision=1, paused=pb.Paused(), age_s=4.5)


PAIRS = (("u", 5), ("t", 9), ("u", 2), ("u", 5))


@pytest.mark.parametrize("size", [1, 2, 3, 2_000])
async def test_both_lists_of_partitions_are_joined_and_sorted(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """A topic and a number may come several times, and in any order; slices leave none out."""
    monkeypatch.setattr(requests, "SLICE", size)
    flat = [pb.TopicPartition(topic=topic, partition=n) for topic, n in PAIRS]
    grouped = [
        pb.TopicPartitions(topic="t", partitions=[10, 2]),
        pb.TopicPartitions(topic="s", partitions=[7]),
        pb.TopicPartitions(topic="t", partitions=[3, 2]),
    ]
    found = await requests.by_topic(flat, grouped)
    assert list(found.items()) == [("s", (7,)), ("t", (2, 3, 9, 10)), ("u", (2, 5))]
    assert await requests.by_topic((), ()) == {}


def test_a_request_without_a_partition_names_none() -> None:
    """The number alone is no partition."""
    with pytest.raises(BadRequest, match=r"^the request names no partition$"):
        partition_of(pb.TopicPartition(partition=3))
    with pytest.raises(BadRequest, match="a topic's name is"):
        partition_of(pb.TopicPartition(topic="t/u", partition=3))
    assert partition_of(pb.TopicPartition(topic="t", partition=3)) == AT


def test_a_move_of_a_dry_run_has_both_owners_and_the_revision() -> None:
    """A partition without an owner moves from no consumer."""
    moves = [PlannedMove(AT, "a", "b"), PlannedMove(NEXT, None, "b")]
    assert list(plans(moves, 5)) == [
        pb.PlanResponse(
            revision=5,
            moves=[
                {"partition": PLACE, "from_owner": "a", "to_owner": "b"},
                {"partition": PLACE_2, "to_owner": "b"},
            ],
        )
    ]


ROUTE = Route(AT, "a", 8, "e")
ROUTED = {"partition": PLACE, "owner": "a", "epoch": 8, "endpoint": "e"}


@pytest.mark.parametrize(
    ("update", "messages"),
    [
        (RouteUpdate(5), [{}]),
        (RouteUpdate(5, full=True), [{"snapshot": True}]),
        (RouteUpdate(5, (ROUTE,), full=True), [{"snapshot": True, "routes": [ROUTED]}]),
        (RouteUpdate(5, unowned=(NEXT,)), [{"unowned": [PLACE_2]}]),
        (RouteUpdate(5, (ROUTE,), more=True), [{"routes": [ROUTED], "more": True}]),
        (
            RouteUpdate(5, (ROUTE,), (NEXT,), full=True),
            [{"snapshot": True, "routes": [ROUTED], "more": True}, {"unowned": [PLACE_2]}],
        ),
    ],
)
def test_an_update_of_owners_comes_in_parts_that_belong_together(
    update: RouteUpdate, messages: list[dict[str, Any]]
) -> None:
    """Only the first part starts a table, and only the last part ends it."""
    wanted = [pb.AssignmentsUpdate(revision=5, pulse_ms=250, **one) for one in messages]
    assert list(routed(update, 250)) == wanted


def test_a_part_of_a_list_is_as_long_as_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each entry counts with its framing bytes."""
    [one] = [convert.message_of(AT)]
    each = one.ByteSize() + convert.FRAME_BYTES
    monkeypatch.setattr(convert, "PART_BYTES", 2 * each)
    assert [(len(part), more) for part, more in convert._split_messages([one] * 4)] == [
        (2, True),
        (2, False),
    ]
    monkeypatch.setattr(convert, "PART_BYTES", 2 * each - 1)
    assert [len(part) for part, _ in convert._split_messages([one] * 3)] == [1, 1, 1]
    assert list(convert._split_messages([])) == [([], False)]


@pytest.mark.parametrize(
    "lists",
    [
        {"flat": [[1, 2], [3]]},
        {"numbered": [[SimpleNamespace(partitions=[1])], [SimpleNamespace(partitions=[])]]},
        {"grouped": [[SimpleNamespace(topics=["a"])], [SimpleNamespace(topics=[])]]},
        {"flat": [[1]], "numbered": [[SimpleNamespace(partitions=[1])]]},
    ],
)
@pytest.mark.parametrize("most", [2, 3])
def test_every_entry_of_every_list_counts_once(
    monkeypatch: pytest.MonkeyPatch, lists: dict[str, Any], most: int
) -> None:
    """Each case has three claims, and the limit itself is allowed."""
    monkeypatch.setattr(limits, "MAX_CLAIMS", most)
    if most == 3:
        limits.check_counts("c", **lists)
    else:
        with pytest.raises(TooManyClaims):
            limits.check_counts("c", **lists)


@pytest.mark.parametrize(
    "said",
    [
        {"topics": ["a", "b"]},
        {"weights": [{}, {}]},
        {"replicas": [{}, {}]},
        {"former": [{}, {}]},
        {"replicas_by_topic": [{"partitions": [1]}]},
        {"weights_by_topic": [{"partitions": [1]}]},
        {"copartitioned": [{"topics": ["a"]}]},
    ],
)
def test_no_list_of_a_registration_is_left_uncounted(
    monkeypatch: pytest.MonkeyPatch, said: dict[str, Any]
) -> None:
    """The limit covers all registrations of a request."""
    monkeypatch.setattr(limits, "MAX_CLAIMS", 1)
    requests = [pb.RegisterRequest(), pb.RegisterRequest(**said)]
    with pytest.raises(TooManyClaims):
        limits.check_registrations("c", requests)


async def test_a_weight_of_nothing_is_a_weight_in_both_lists() -> None:
    """The later list goes before the earlier one."""
    request = pb.RegisterRequest(
        consumer_name="a",
        weights=[
            pb.PartitionWeight(partition=PLACE, weight=0.0),
            pb.PartitionWeight(partition=PLACE_2, weight=2.5),
        ],
        weights_by_topic=[pb.TopicWeights(topic="u", partitions=[4, 5], weights=[0.0, 7.0])],
    )
    assert (await consumer_of(request)).weights == {"t": {3: 0.0}, "u": {4: 0.0, 5: 7.0}}
