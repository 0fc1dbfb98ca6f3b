"""Before a leader assigns: metadata of members is decoded with care, and new topics are waited for.

aiokafka decodes every member's metadata and asks the broker for every topic in it. Bytes that do not decode,
or a name that no topic can have, end the leader's coordination for good and leave the whole group without
partitions. Such a member gets no partitions instead.

A broker answers CreateTopics before it names the topic's partitions in its metadata. A leader that looks in
between leaves the topic out, until a later round. If it is a table's changelog, workers process records on a
table that was not restored. The leader asks again for up to ``PATIENCE_S``, as that of Kafka Streams does.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from mode import get_logger

from faust_assigner.wire.bounded import TOPICS

logger = get_logger(__name__)

#: Less than the shortest session that Kafka allows by default (6 s): a leader sends no heartbeats meanwhile.
PATIENCE_S = 3.0
#: Seconds between two requests for metadata.
LOOK_S = 0.1

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}\Z")


def guard_leader(consumer: Any) -> None:
    """Have ``consumer``, an AIOKafkaConsumer before its start, read other members' metadata with care."""
    consumer.start = partial(_start, consumer, consumer.start)


async def _start(consumer: Any, start: Callable[[], Awaitable[None]]) -> None:
    await start()
    # Faust subscribes later, so the coordinator has not joined a group yet.
    coordinator = consumer._coordinator
    perform = getattr(coordinator, "_perform_assignment", None)
    if perform is not None:
        coordinator._perform_assignment = partial(_perform, perform, consumer._client, set())


async def _perform(
    perform: Callable[[Any], Awaitable[Any]], client: Any, absent: set[str], response: Any
) -> Any:
    """aiokafka's own step, with members whose metadata it can read; ids and instance ids come before it."""
    response.members = [
        (*member[:-1], readable(member[0], member[-1])) for member in response.members
    ]
    await _find_topics(client, set(_topics(response.members)), absent)
    return await perform(response)


def _topics(members: list[Any]) -> Iterator[str]:
    for member in members:
        yield from ConsumerProtocolMemberMetadata.decode(member[-1]).subscription


async def _find_topics(client: Any, topics: set[str], absent: set[str]) -> None:
    """Wait until the broker names the partitions of ``topics``.

    ``absent``: topics that were waited for in vain. They are not waited for again until they are found.
    """

    def missing() -> set[str]:
        return {topic for topic in topics if not client.cluster.partitions_for_topic(topic)}

    absent &= missing()
    if missing() == absent:
        return
    client.set_topics(topics)
    try:
        async with asyncio.timeout(PATIENCE_S):
            await client.force_metadata_update()
            while not missing() <= absent:
                await asyncio.sleep(LOOK_S)
                await client.force_metadata_update()
    except TimeoutError:
        absent |= missing()
        logger.warning(
            "The broker has named no partitions of %s for %.1f s", sorted(absent), PATIENCE_S
        )


def readable(member_id: str, metadata: bytes) -> bytes:
    """The metadata, without names that no topic can have; a member without topics, if it does not decode."""
    try:
        said = ConsumerProtocolMemberMetadata.decode(metadata)
        topics = said.subscription
        legal = [t for t in topics if _LEGAL_NAME.match(t)][:TOPICS]
        if len(legal) == len(topics):
            return metadata
        logger.warning(
            "Member %s subscribes to %d names that are no topics",
            member_id,
            len(topics) - len(legal),
        )
        packed: bytes = ConsumerProtocolMemberMetadata(said.version, legal, said.user_data).encode()
    except Exception as exc:
        logger.warning(
            "Member %s gets no partitions, its metadata does not decode: %s", member_id, exc
        )
        packed = ConsumerProtocolMemberMetadata(0, [], b"").encode()
    return packed
