"""Every message is within gRPC's limit of 4 MiB, for groups of any size and names of any length.

Each case converts the service's values to messages, and our client or operator converts them back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from google.protobuf.message import Message

from faust_assigner.service.client import Assigned as Told
from faust_assigner.service.client import AssignerClient, Registration, Standbys
from faust_assigner.service.client import TopicPartition as Spoken
from faust_assigner.service.client.requests import Requests
from faust_assigner.service.commands import Assignment, Command, Owned, Replicas
from faust_assigner.service.errors import BadRequest
from faust_assigner.service.handoff import Handoff, Phase, TopicPartition
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from faust_assigner.service.records import (
    Assigned,
    Consumer,
    OpenHandoff,
    PlannedMove,
    Status,
    TopicConfig,
)
from faust_assigner.service.server.convert import messages_of, plans, states
from faust_assigner.service.server.requests import by_topic, consumer_of

LIMIT = 4 * 2**20
COUNT = 10_000
LONG = "t" * 249
NAME = "c" * 128
ATS = tuple(TopicPartition(LONG, number) for number in range(COUNT))
SPOKEN = tuple(Spoken(LONG, number) for number in range(COUNT))


def bounded(messages: Iterable[Message]) -> list[Any]:
    """The messages: several, each within the limit."""
    found = list(messages)
    assert len(found) > 1
    assert max(one.ByteSize() for one in found) < LIMIT
    return found


def heard(*commands: Command) -> list[Any]:
    """The commands that our client reads from a stream of these after an empty snapshot."""
    client = AssignerClient("nowhere:1", "a")
    messages = [pb.AssignmentCommand(assignment=pb.AssignmentUpdate(snapshot=True))]
    messages += [message for command in commands for message in messages_of(command)]
    for number, message in enumerate(messages):
        client._inbox.take(message, is_first=number == 0)
    found = []
    while not client._inbox._queue.empty():
        found.append(client._inbox._queue.get_nowait())
    return found[1:]


def test_a_long_assignment_is_told_in_parts_and_taken_as_one() -> None:
    """10,000 partitions with names of 249 characters made 5 MB."""
    command = Assignment(tuple(Owned(at, 2**40, 2**40) for at in ATS), full=True)
    bounded(messages_of(command))
    [told] = heard(command)
    assert set(told.owned) == set(SPOKEN)


def test_many_partitions_about_to_be_released_are_told_in_parts_and_kept() -> None:
    """A leaving consumer may release all its partitions at once."""
    given = Assignment(tuple(Owned(at, 7) for at in ATS), full=True)
    again = Assignment(full=True, releasing=ATS)
    bounded(messages_of(again))
    assert [len(one.owned) for one in heard(given, again)] == [COUNT]


def test_many_partitions_that_are_taken_away_are_told_in_parts() -> None:
    """An operator removes a topic."""
    given = Assignment(tuple(Owned(at, 7) for at in ATS))
    taken = Assignment(unassigned=ATS)
    bounded(messages_of(taken))
    changes = [one for one in heard(given, taken) if isinstance(one, Told)]
    assert changes[-1].owned == {}


def test_many_replicas_are_told_in_parts_and_taken_as_one() -> None:
    """An incomplete list would make a consumer drop standbys."""
    command = Replicas(ATS)
    bounded(messages_of(command))
    assert heard(command, Replicas(ATS[:1])) == [Standbys(SPOKEN), Standbys(SPOKEN[:1])]


def test_replicas_that_a_broken_stream_began_to_tell_are_not_mixed_with_the_next() -> None:
    """A new registration discards the incomplete list."""
    client = AssignerClient("nowhere:1", "a")
    first, *_ = messages_of(Replicas(ATS))
    client._inbox.take(first, is_first=False)
    client._session.begin(pb.AssignmentUpdate(snapshot=True), 0.0)
    [whole] = messages_of(Replicas(ATS[-1:]))
    client._inbox.take(whole, is_first=False)
    assert client._inbox._queue.get_nowait() == Standbys(SPOKEN[-1:])


def _state(consumers: Sequence[Consumer] = ()) -> tuple[pb.State, int]:
    handoff = Handoff(ATS[0], NAME, NAME, Phase.READY, 0.0)
    parts = bounded(
        states(
            "n",
            77,
            [TopicConfig(f"{number:0249}", 1) for number in range(COUNT)]
            + [TopicConfig(LONG, COUNT)],
            consumers,
            [Assigned(at, NAME, 2**40) for at in ATS],
            [OpenHandoff(handoff, number, 1.0) for number in range(COUNT)],
        )
    )
    whole = pb.State()
    for part in parts:
        whole.MergeFrom(part)
        assert part.more == (part is not parts[-1])
        assert part.revision == 77
    return whole, len(parts)


def test_every_list_of_the_state_comes_in_parts() -> None:
    """All lists are split: topics, consumers, hand-offs and assignments."""
    many = [Consumer(name=f"{n:0128}", rack="r" * 200, holds={LONG: (1, 2)}) for n in range(COUNT)]
    whole, _ = _state(many)
    assert (len(whole.topics), len(whole.consumers)) == (COUNT + 1, COUNT)
    assert (len(whole.handoffs), len(whole.assignments)) == (COUNT, COUNT)


def test_a_consumer_with_very_many_replicas_fits() -> None:
    """Each topic is named once."""
    whole, _ = _state([Consumer(name="a", holds={LONG: tuple(range(COUNT))})])
    assert len(whole.consumers[0].replicas[0].partitions) == COUNT


def test_a_dry_run_comes_in_parts() -> None:
    """A thousand joining consumers move all partitions."""
    parts = bounded(plans([PlannedMove(at, None, NAME) for at in ATS], 5))
    assert sum(len(part.moves) for part in parts) == COUNT


async def test_a_registration_names_each_topic_once() -> None:
    """Weights, replicas and former partitions of many partitions fit into one request."""
    registration = Registration(
        weights=dict.fromkeys(SPOKEN, 2.5), replicas=lambda: SPOKEN, former=lambda: SPOKEN
    )
    request = Requests("a", "").register(registration, returns=False, former=(), epoch=0)
    assert request.ByteSize() < LIMIT
    consumer = await consumer_of(request)
    numbers = tuple(range(COUNT))
    assert consumer.weights == {LONG: dict.fromkeys(numbers, 2.5)}
    assert (consumer.holds, consumer.former) == ({LONG: numbers}, {LONG: numbers})


async def test_a_report_of_replicas_names_each_topic_once() -> None:
    """The list of older clients, with a topic per partition, is still accepted."""
    request = Requests("a", "i").replicas(SPOKEN)
    assert request.ByteSize() < LIMIT
    request.replicas.append(pb.TopicPartition(topic="u", partition=3))
    held = await by_topic(request.replicas, request.replicas_by_topic)
    assert held == {LONG: tuple(range(COUNT)), "u": (3,)}


async def test_a_topic_with_more_partitions_than_weights_is_refused() -> None:
    """The error names the topic."""
    said = pb.TopicWeights(topic="orders", partitions=[1, 2], weights=[1.0])
    with pytest.raises(BadRequest, match="orders: 2 partitions have 1 weights"):
        await consumer_of(pb.RegisterRequest(consumer_name="a", weights_by_topic=[said]))


@pytest.mark.parametrize("status", Status)
def test_a_status_is_an_enum_and_never_its_zero(status: Status) -> None:
    """A reader of an older message sees zero."""
    [state] = states("", 1, [], [Consumer(name="a", status=status)], [], [])
    assert pb.ConsumerStatus.Name(state.consumers[0].status) == f"CONSUMER_STATUS_{status.name}"


@pytest.mark.parametrize("phase", Phase)
def test_a_phase_is_an_enum_and_never_its_zero(phase: Phase) -> None:
    """A reader of an older message sees zero."""
    handoff = OpenHandoff(Handoff(ATS[0], "a", "b", phase, 0.0), 1, 0.0)
    [state] = states("", 1, [], [], [], [handoff])
    assert pb.HandoffPhase.Name(state.handoffs[0].phase) == f"HANDOFF_PHASE_{phase.name}"
