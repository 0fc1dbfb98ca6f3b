"""Bytes of one member that aiokafka cannot decode cost that member its part, not the group its leader.

Before it calls ``assign()``, aiokafka decodes every member's metadata and asks the broker for every topic
in it; what does not decode, or a name that is none, ends the leader's coordination for good and leaves
the whole group without partitions. The consumer, created and not yet started, is told to look first.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from mode import get_logger

from faust_assigner.wire.bounded import TOPICS

logger = get_logger(__name__)

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
        coordinator._perform_assignment = partial(_perform, perform)


async def _perform(perform: Callable[[Any], Awaitable[Any]], response: Any) -> Any:
    """aiokafka's own step, with members whose metadata it can read; ids and instance ids come before it."""
    response.members = [
        (*member[:-1], readable(member[0], member[-1])) for member in response.members
    ]
    return await perform(response)


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
