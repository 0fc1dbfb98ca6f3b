"""Converts requests to the node's values, in slices between which other tasks run."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

from faust_assigner.service.errors import BadRequest
from faust_assigner.service.handoff import TopicPartition
from faust_assigner.service.keys import checked_topic
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from faust_assigner.service.records import HEARTBEATS, KEEPS_REPLICAS, Consumer
from faust_assigner.service.server.limits import check_registrations

#: The number of entries of a list that are read before other tasks run.
SLICE: Final = 2_000
T = TypeVar("T")


def partition_of(message: pb.TopicPartition) -> TopicPartition:
    """Return a message's partition. Raises BadRequest if the message names no topic."""
    if not message.topic:
        raise BadRequest("the request names no partition")
    return TopicPartition(checked_topic(message.topic), message.partition)


async def by_topic(
    partitions: Sequence[pb.TopicPartition], topics: Sequence[pb.TopicPartitions] = ()
) -> dict[str, tuple[int, ...]]:
    """Return topic -> ascending partition numbers, merged from both lists."""
    found: defaultdict[str, set[int]] = defaultdict(set)
    for some in _slice_list(partitions):
        for one in some:
            found[one.topic].add(one.partition)
        await asyncio.sleep(0)
    for many in _slice_list(topics):
        for numbers in many:
            found[numbers.topic].update(numbers.partitions)
        await asyncio.sleep(0)
    return {topic: tuple(sorted(numbers)) for topic, numbers in sorted(found.items())}


async def _weights_by_partition(request: pb.RegisterRequest) -> dict[str, dict[int, float]]:
    """Return topic -> partition -> weight.

    Raises BadRequest if a topic has unequal numbers of partitions and weights.
    """
    found: defaultdict[str, dict[int, float]] = defaultdict(dict)
    for some in _slice_list(request.weights):
        for one in some:
            found[one.partition.topic][one.partition.partition] = one.weight
        await asyncio.sleep(0)
    for many in _slice_list(request.weights_by_topic):
        for said in many:
            if len(said.partitions) != len(said.weights):
                raise BadRequest(
                    f"{said.topic[:249]}: {len(said.partitions)} partitions have "
                    f"{len(said.weights)} weights"
                )
            found[said.topic].update(zip(said.partitions, said.weights, strict=True))
        await asyncio.sleep(0)
    return dict(sorted(found.items()))


def _slice_list(said: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield a long list in slices; the caller lets other tasks run after each slice."""
    for start in range(0, len(said), SLICE):
        yield said[start : start + SLICE]


async def consumer_of(request: pb.RegisterRequest, identity: str = "") -> Consumer:
    """Return the consumer of a registration request.

    An empty ``topic`` and no ``topics`` mean all topics of the service. Raises BadRequest, and
    TooManyClaims before the lists are read.
    """
    check_registrations(request.consumer_name, [request])
    topics = {*request.topics, *([request.topic] if request.topic else [])}
    return Consumer(
        name=request.consumer_name,
        topics=tuple(sorted(topics)),
        capacity=request.capacity or 1.0,
        rack=request.rack or None,
        identity=identity,
        weights=await _weights_by_partition(request),
        capabilities=(
            *((KEEPS_REPLICAS,) if request.keeps_replicas else ()),
            *((HEARTBEATS,) if request.heartbeats else ()),
        ),
        incarnation=request.incarnation,
        returns=request.returns,
        epoch=request.epoch,
        endpoint=request.endpoint,
        co_partitioned=tuple(tuple(sorted(group.topics)) for group in request.copartitioned),
        holds=await by_topic(request.replicas, request.replicas_by_topic),
        former=await by_topic((), request.former),
    )
