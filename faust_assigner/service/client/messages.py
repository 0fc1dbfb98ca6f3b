"""Conversions between the service's messages and the client's values."""

from __future__ import annotations

from collections.abc import Iterable

from faust_assigner.service.client.commands import AbortWarm, Grant, Release, Warm
from faust_assigner.service.handoff import TopicPartition
from faust_assigner.service.proto import kafka_assigner_pb2 as pb


def partition_of(message: pb.TopicPartition) -> TopicPartition:
    """Return the partition of a message."""
    return TopicPartition(message.topic, message.partition)


def to_message(partition: tuple[str, int]) -> pb.TopicPartition:
    """Return a partition as a message."""
    return pb.TopicPartition(topic=partition[0], partition=partition[1])


def by_topic(partitions: Iterable[tuple[str, int]]) -> list[pb.TopicPartitions]:
    """Group partitions by topic, so that a message contains each topic name once."""
    found: dict[str, list[int]] = {}
    for topic, number in partitions:
        found.setdefault(topic, []).append(number)
    return [pb.TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in found.items()]


def grants_of(update: pb.AssignmentUpdate) -> list[Grant]:
    """Return the assigned partitions as grants; without a grant message the epoch is 0."""
    said = {partition_of(grant.partition): grant for grant in update.grants}
    return [_grant(partition_of(one), said.get(partition_of(one))) for one in update.assigned]


def _grant(partition: TopicPartition, said: pb.Grant | None) -> Grant:
    if said is None:
        return Grant(partition)
    return Grant(
        partition,
        said.epoch,
        said.start_offset if said.HasField("start_offset") else None,
        said.keep,
    )


def other_command(message: pb.AssignmentCommand) -> Warm | Release | AbortWarm | None:
    """Return the message's warm, release or abort command, or None for any other message."""
    match message.WhichOneof("command"):
        case "warm":
            said = message.warm
            return Warm(
                partition_of(said.partition), said.current_owner, said.handoff_id, said.strict
            )
        case "release":
            asked = message.release
            return Release(
                partition_of(asked.partition), asked.new_owner, asked.handoff_id, asked.strict
            )
        case "abort_warm":
            ended = message.abort_warm
            return AbortWarm(partition_of(ended.partition), ended.handoff_id)
    return None
