"""The source partitions whose records change a windowed table, and whether they are at their end."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING

from mode import get_logger

if TYPE_CHECKING:
    from faust.app import App
    from faust.tables.table import Table
    from faust.types.tuples import TP

    from faust_assigner.app.tables.window_times import Times

logger = get_logger(__name__)

#: Seconds that the fetcher has to hand over its records after a partition's end is reached.
HANDED_OVER_S = 2.0
LOOK_S = 0.02


class WindowSources:
    """The sources of one table; ``times.topics`` are the topics whose records have changed it."""

    def __init__(self, app: App, table: Table, times: Times) -> None:
        self._app, self._table, self._times = app, table, times

    def of(self, partition: int) -> list[TP]:
        """Return the processed source partitions of this number whose topics changed the table.

        If no record has changed the table yet, return all source partitions with this number.
        """
        consumer, topics = self._app.consumer, self._app.tables.changelog_topics
        count = consumer.topic_partitions(self._table.changelog_topic.get_topic_name())
        found = sorted(
            tp
            for tp in consumer._active_partitions | consumer._buffered_partitions
            if tp.partition == partition
            and tp.topic not in topics
            and consumer.topic_partitions(tp.topic) == count
        )
        return [tp for tp in found if tp.topic in self._times.topics] or found

    async def are_at_their_end(self, partition: int) -> bool:
        """Whether all existing records of the sources have been processed and committed."""
        consumer = self._app.consumer
        sources = self.of(partition)
        try:
            if not sources or not await self._is_read(sources):
                return False
            rounds, waited = consumer.fetch_rounds, 0.0
            while consumer.fetch_rounds <= rounds:
                if waited >= HANDED_OVER_S:
                    return False
                await asyncio.sleep(LOOK_S)
                waited += LOOK_S
            return await self._is_read(sources) and self._is_committed(sources)
        except Exception as error:  # the partition is revoked, or the broker does not answer
            logger.debug(
                "%s-%d: could not read its end offset: %r", self._table.name, partition, error
            )
            return False

    async def _is_read(self, sources: Collection[TP]) -> bool:
        consumer = self._app.consumer
        ends = await consumer.highwaters(*sources)
        for tp in sources:
            position = await consumer.position(tp)
            if position is None or position < ends[tp]:
                return False
        return True

    def _is_committed(self, sources: Collection[TP]) -> bool:
        consumer = self._app.consumer
        under_way = {m.tp for m in list(consumer._unacked_messages) if not m.acked}
        return all(
            tp not in under_way and not consumer._acked.get(tp) and self._times.is_committed(tp)
            for tp in sources
        )
