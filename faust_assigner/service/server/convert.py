"""The node's values as messages, and requests as the node's values."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from faust_assigner.service.commands import (
    AbortWarm,
    Assignment,
    Command,
    Pulse,
    Release,
    Replicas,
    Warm,
)
from faust_assigner.service.errors import MAX_CLAIMS, BadRequest, TooManyClaims
from faust_assigner.service.handoff import TopicPartition
from faust_assigner.service.keys import checked_topic
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from faust_assigner.service.records import (
    HEARTBEATS,
    KEEPS_REPLICAS,
    Assigned,
    Consumer,
    OpenHandoff,
    PlannedMove,
    TopicConfig,
)

#: Partitions in one message; a larger assignment, or state, comes in parts.
PART: Final = 10_000
#: Of a request's long list, what is looked at before others have their turn.
SLICE: Final = 2_000
T = TypeVar("T")


def message_of(at: TopicPartition) -> pb.TopicPartition:
    """A partition as a message."""
    return pb.TopicPartition(topic=at.topic, partition=at.partition)


def partition_of(message: pb.TopicPartition) -> TopicPartition:
    """A message's partition. Raises BadRequest where it names none."""
    if not message.topic:
        raise BadRequest("the request names no partition")
    return TopicPartition(checked_topic(message.topic), message.partition)


async def by_topic(partitions: Sequence[pb.TopicPartition]) -> dict[str, tuple[int, ...]]:
    """Topic -> partition numbers, ascending."""
    found: defaultdict[str, set[int]] = defaultdict(set)
    async for some in _slices(partitions):
        for one in some:
            found[one.topic].add(one.partition)
    return {topic: tuple(sorted(numbers)) for topic, numbers in sorted(found.items())}


async def _weights(said: Sequence[pb.PartitionWeight]) -> dict[str, dict[int, float]]:
    """Topic -> partition -> weight."""
    found: defaultdict[str, dict[int, float]] = defaultdict(dict)
    async for some in _slices(said):
        for one in some:
            found[one.partition.topic][one.partition.partition] = one.weight
    return dict(sorted(found.items()))


async def _slices(said: Sequence[T]) -> AsyncIterator[Sequence[T]]:
    """A long list in parts; between two of them it is the others' turn."""
    for start in range(0, len(said), SLICE):
        yield said[start : start + SLICE]
        await asyncio.sleep(0)


async def consumer_of(request: pb.RegisterRequest, identity: str = "") -> Consumer:
    """What a consumer asks for; an empty ``topic`` and no ``topics`` mean all topics of the service.

    Raises BadRequest for more than is kept of one, before any of it is looked at.
    """
    claims = sum(
        map(len, (request.topics, request.weights, request.copartitioned, request.replicas))
    )
    if claims <= MAX_CLAIMS:
        claims += sum(len(group.topics) for group in request.copartitioned)
    claims += sum(len(one.partitions) for one in request.former)
    if claims > MAX_CLAIMS:
        raise TooManyClaims(request.consumer_name, claims)
    topics = {*request.topics, *([request.topic] if request.topic else [])}
    return Consumer(
        name=request.consumer_name,
        topics=tuple(sorted(topics)),
        capacity=request.capacity or 1.0,
        rack=request.rack or None,
        identity=identity,
        weights=await _weights(request.weights),
        capabilities=(
            *((KEEPS_REPLICAS,) if request.keeps_replicas else ()),
            *((HEARTBEATS,) if request.heartbeats else ()),
        ),
        incarnation=request.incarnation,
        returns=request.returns,
        co_partitioned=tuple(tuple(sorted(group.topics)) for group in request.copartitioned),
        holds=await by_topic(request.replicas),
        former={one.topic: tuple(sorted(set(one.partitions))) for one in request.former},
    )


def messages_of(command: Command) -> Iterator[pb.AssignmentCommand]:
    """A command as the messages it takes: one, or several for a large assignment."""
    match command:
        case Assignment():
            yield from _assignment(command)
        case Warm():
            yield pb.AssignmentCommand(
                warm=pb.WarmPartition(
                    partition=message_of(command.at),
                    current_owner=command.current_owner,
                    handoff_id=command.handoff_id,
                    strict=command.strict,
                )
            )
        case Release():
            yield pb.AssignmentCommand(
                release=pb.ReleasePartition(
                    partition=message_of(command.at),
                    new_owner=command.new_owner,
                    handoff_id=command.handoff_id,
                    strict=command.strict,
                )
            )
        case AbortWarm():
            yield pb.AssignmentCommand(
                abort_warm=pb.AbortWarm(
                    partition=message_of(command.at), handoff_id=command.handoff_id
                )
            )
        case Replicas():
            yield pb.AssignmentCommand(
                standby=pb.StandbyUpdate(standbys=map(message_of, command.partitions))
            )
        case Pulse():
            yield pb.AssignmentCommand(pulse=pb.Pulse())


def _assignment(command: Assignment) -> Iterator[pb.AssignmentCommand]:
    given = command.assigned
    for start in range(0, len(given), PART) or (0,):
        part = given[start : start + PART]
        yield pb.AssignmentCommand(
            assignment=pb.AssignmentUpdate(
                assigned=[message_of(owned.at) for owned in part],
                unassigned=map(message_of, command.unassigned) if start == 0 else (),
                snapshot=command.full and start == 0,
                more=command.full and start + PART < len(given),
                grants=[
                    pb.Grant(
                        partition=message_of(owned.at),
                        epoch=owned.epoch,
                        start_offset=owned.offset,
                        keep=owned.keep,
                    )
                    for owned in part
                ],
            )
        )


def move_of(move: PlannedMove) -> pb.Move:
    """A move of a dry run."""
    return pb.Move(
        partition=message_of(move.at), from_owner=move.old_owner or "", to_owner=move.new_owner
    )


def states(
    leader: str,
    topics: Sequence[TopicConfig],
    consumers: Sequence[Consumer],
    assignments: Sequence[Assigned],
    handoffs: Sequence[OpenHandoff],
) -> Iterator[pb.State]:
    """The whole state, in parts."""
    counts = {one.topic: one.partition_count for one in topics}
    first = pb.State(
        leader=leader,
        topics=[pb.Topic(topic=one.topic, partition_count=one.partition_count) for one in topics],
        consumers=[_consumer(one, counts) for one in consumers],
        handoffs=map(_handoff, handoffs),
    )
    for start in range(0, len(assignments), PART) or (0,):
        state = first if start == 0 else pb.State(leader=leader)
        state.assignments.extend(map(_assigned, assignments[start : start + PART]))
        state.more = start + PART < len(assignments)
        yield state


def _consumer(one: Consumer, counts: Mapping[str, int]) -> pb.Consumer:
    """What it says of partitions that there are not is left out: it may say very much."""
    holds = {
        topic: [number for number in numbers if number < counts[topic]]
        for topic, numbers in one.holds.items()
        if topic in counts
    }
    return pb.Consumer(
        consumer_name=one.name,
        status=one.status.value,
        topics=one.topics,
        rack=one.rack or "",
        capacity=one.capacity,
        registered_at=one.registered_at,
        replicas=_flat(holds),
        incarnation=one.incarnation,
    )


def _flat(partitions: Mapping[str, Sequence[int]]) -> list[pb.TopicPartition]:
    return [
        pb.TopicPartition(topic=topic, partition=number)
        for topic, numbers in sorted(partitions.items())
        for number in numbers
    ]


def _assigned(one: Assigned) -> pb.Assignment:
    return pb.Assignment(
        partition=message_of(one.at),
        owner=one.owner,
        epoch=one.epoch,
        start_offset=one.offset,
        incarnation=one.incarnation,
        absent=one.absent,
    )


def _handoff(one: OpenHandoff) -> pb.Handoff:
    said = one.handoff
    return pb.Handoff(
        partition=message_of(said.at),
        old_owner=said.old_owner,
        new_owner=said.new_owner,
        phase=said.phase.value,
        handoff_id=one.handoff_id,
        age_s=one.age_s,
        progress=said.progress,
        strict=said.strict,
        released=said.released,
        unreleased=said.unreleased or "",
    )
