"""The offsets of a granted partition in Kafka; the metadata of each commit contains the grant's epoch."""

from __future__ import annotations

import re
from typing import Final

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as KafkaPartition
from aiokafka.structs import OffsetAndMetadata

from faust_assigner.service.client.commands import Grant
from faust_assigner.service.client.worker import GrantOutdated
from faust_assigner.service.handoff import TopicPartition

_EPOCH: Final = re.compile(r"epoch=(\d+)")


def kafka_partition(partition: TopicPartition) -> KafkaPartition:
    """Return aiokafka's name of a partition."""
    return KafkaPartition(partition.topic, partition.partition)


def with_epoch(offset: int, epoch: int) -> OffsetAndMetadata:
    """Return ``offset`` for a commit, with the grant's ``epoch`` as metadata."""
    return OffsetAndMetadata(offset, f"epoch={epoch}")


async def first_offset(consumer: AIOKafkaConsumer, grant: Grant) -> int:
    """Return the offset of the first record to process, if the app names none."""
    found = await left_at(consumer, grant)
    if found is not None:
        return found
    partition = kafka_partition(grant.partition)
    return int((await consumer.beginning_offsets([partition]))[partition])


async def left_at(consumer: AIOKafkaConsumer, grant: Grant) -> int | None:
    """Return this grant's last commit, else the previous owner's final or committed offset.

    A grant outlives the process and the session that first received it: later commits of the
    same grant are ahead of ``start_offset``. Raises GrantOutdated.
    """
    partition = kafka_partition(grant.partition)
    said = (await consumer._coordinator.fetch_committed_offsets([partition])).get(partition)
    if said is None or said.offset < 0:
        return grant.start_offset
    epoch = _EPOCH.search(said.metadata or "")
    if epoch is not None and int(epoch[1]) > grant.epoch:
        raise GrantOutdated(
            f"{grant.partition}: epoch {epoch[1]} has committed, this is {grant.epoch}"
        )
    is_own = epoch is not None and int(epoch[1]) == grant.epoch
    return int(said.offset) if is_own or grant.start_offset is None else grant.start_offset
