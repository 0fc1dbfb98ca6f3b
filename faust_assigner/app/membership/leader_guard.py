"""The leader's checks before an assignment: tolerate invalid member metadata, and wait for new topics.

aiokafka's leader decodes each member's metadata and requests the topic metadata of each subscribed topic.
Bytes that cannot be decoded, or an invalid topic name, end the leader's coordination task for good. The whole
group then gets no partitions. With this guard, a member whose metadata cannot be decoded gets no partitions,
and the leader ignores invalid topic names.

A broker answers CreateTopics before the topic's partitions are in its metadata. If the leader reads the
metadata before then, it does not assign the topic until a later rebalance. If the topic is a changelog,
workers process records without the table's restored state. So the leader repeats its request for up to
``PATIENCE_S`` seconds, as Kafka Streams' leader does.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from mode import get_logger

from faust_assigner.wire.bounded import TOPICS

if TYPE_CHECKING:
    from aiokafka.client import AIOKafkaClient
    from aiokafka.protocol.group import JoinGroupResponse
    from faust.types.transports import ConsumerT

logger = get_logger(__name__)

#: The longest wait for new topics, in seconds. The leader sends no heartbeats during the wait, so it must be
#: shorter than the session timeout. Kafka's default allows no timeout below 6 s.
PATIENCE_S = 3.0
#: Seconds between two requests for metadata.
LOOK_S = 0.1

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}\Z")


def guard_leader(consumer: ConsumerT) -> None:
    """Make ``consumer``, as a leader, tolerate invalid metadata of members and wait for new topics.

    The consumer has been started and has no subscription yet.
    """
    coordinator = consumer._coordinator
    perform = getattr(coordinator, "_perform_assignment", None)
    if perform is not None:
        coordinator._perform_assignment = partial(_perform, perform, consumer._client, set())


async def _perform(
    perform: Callable[[object], Awaitable[object]],
    client: AIOKafkaClient,
    absent: set[str],
    response: JoinGroupResponse,
) -> object:
    """Replace invalid metadata (a member's last field), wait for new topics, and assign as aiokafka does."""
    response.members = [
        (*member[:-1], readable(member[0], member[-1])) for member in response.members
    ]
    await _find_topics(client, set(_topics(response.members)), absent)
    return await perform(response)


def _topics(members: Iterable[tuple[object, ...]]) -> Iterator[str]:
    for member in members:
        yield from ConsumerProtocolMemberMetadata.decode(member[-1]).subscription


async def _find_topics(client: AIOKafkaClient, topics: set[str], absent: set[str]) -> None:
    """Wait until the broker's metadata has the partitions of ``topics``.

    ``absent`` contains topics for which an earlier wait has timed out; the function updates the set. The
    leader does not wait for such a topic again until the topic has been found once.
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
            "The broker has returned no partitions of %s for %.1f s; these topics are left out",
            sorted(absent),
            PATIENCE_S,
        )


def readable(member_id: str, metadata: bytes) -> bytes:
    """Return ``metadata`` without invalid topic names; if it cannot be decoded, without any topic."""
    try:
        said = ConsumerProtocolMemberMetadata.decode(metadata)
        topics = said.subscription
        legal = [t for t in topics if _LEGAL_NAME.match(t)][:TOPICS]
        if len(legal) == len(topics):
            return metadata
        logger.warning(
            "Left out %d topics of member %s: their names are invalid, or there are too many topics",
            len(topics) - len(legal),
            member_id,
        )
        packed: bytes = ConsumerProtocolMemberMetadata(said.version, legal, said.user_data).encode()
    except Exception as exc:
        logger.warning(
            "Member %s gets no partitions: its metadata does not decode: %s", member_id, exc
        )
        packed = ConsumerProtocolMemberMetadata(0, [], b"").encode()
    return packed
