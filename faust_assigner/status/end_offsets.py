"""The end offsets of a group's topics, which the brokers return."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError

from faust_assigner.clients.group_views import as_ranges
from faust_assigner.clients.groups import end_offsets
from faust_assigner.status.evidence import Place


class EndOffsets:
    """Requests end offsets repeatedly over one connection; ``connection`` has aiokafka's keywords."""

    def __init__(self, connection: Mapping[str, object], *, deadline_s: float) -> None:
        self._connection, self._deadline_s = connection, deadline_s
        self._consumer: AIOKafkaConsumer | None = None
        #: The partitions without a leader at the last request.
        self.leaderless: frozenset[Place] = frozenset()

    async def close(self) -> None:
        """Close the connection."""
        if self._consumer is not None:
            await self._consumer.stop()
            self._consumer = None

    async def of(self, topics: frozenset[str]) -> tuple[dict[Place, int], tuple[str, ...]]:
        """Return the end offsets, and a sentence with the reason why some or all are unknown."""
        self.leaderless = frozenset()
        try:
            async with asyncio.timeout(self._deadline_s):
                ends = await self._end_offsets(topics)
        except (TimeoutError, KafkaError) as error:
            reason = f"no answer within {self._deadline_s:g} s" if not str(error) else str(error)
            said = f"Lags are unknown: the brokers did not return end offsets ({reason})"
            return {}, (said,)
        if not self.leaderless:
            return ends, ()
        places = "; ".join(as_ranges(self.leaderless))
        return ends, (f"Lags are unknown of partitions without a leader: {places}",)

    async def _end_offsets(self, topics: frozenset[str]) -> dict[Place, int]:
        if not topics:
            return {}
        if self._consumer is None:
            self._consumer = await _start(AIOKafkaConsumer(**self._connection))
        ends = await end_offsets(self._consumer, topics)
        self.leaderless = frozenset((*tp,) for tp, end in ends.items() if end is None)
        return {(*tp,): end for tp, end in ends.items() if end is not None}


async def _start(consumer: AIOKafkaConsumer) -> AIOKafkaConsumer:
    try:
        await consumer.start()
    except BaseException:
        await consumer.stop()
        raise
    return consumer
