"""The topics of the service: written at the start, found in Kafka when asked for, grown when Kafka's grow."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping

from faust_assigner.service import keys as codec
from faust_assigner.service.clock import Clock
from faust_assigner.service.errors import BadRequest, NotFound, StoreError, StoreUnavailable
from faust_assigner.service.keys import MAX_PARTITIONS, Keys
from faust_assigner.service.leading.election import Deposed, Leadership
from faust_assigner.service.mirror import Mirror
from faust_assigner.service.records import TopicConfig
from faust_assigner.service.settings import ServiceSettings
from faust_assigner.service.store.base import KeyValue, Put, Store, unchanged
from faust_assigner.service.store.rewrite import rewritten

logger = logging.getLogger(__name__)

#: Topic -> its partition count in Kafka, ``None`` where there is no such topic. May raise anything.
CountPartitions = Callable[[str], Awaitable["int | None"]]


class Catalogue:
    """Topic -> partition count, in the store."""

    def __init__(
        self,
        store: Store,
        keys: Keys,
        settings: ServiceSettings,
        clock: Clock,
        mirror: Mirror,
        topics: Mapping[str, int],
        count_partitions: CountPartitions | None,
    ) -> None:
        self._store = store
        self._keys = keys
        self._settings = settings
        self._clock = clock
        self._mirror = mirror
        self._topics = {
            codec.checked_topic(topic): _count(topic, count) for topic, count in topics.items()
        }
        self._count_partitions = count_partitions

    async def write(self) -> None:
        """The topics this instance was started with; a count that is there and higher stays."""
        for topic, count in sorted(self._topics.items()):
            await self._put(topic, count, only_grow=True)

    async def set(self, topic: str, count: int) -> None:
        """An operator's word."""
        await self._put(topic, _count(topic, count))

    async def need(self, topic: str) -> None:
        """Somebody wants the topic: ask Kafka where it is unknown. Raises NotFound, and
        StoreUnavailable where Kafka does not say: whoever asks may try again."""
        if topic in self._mirror.view.topics or _known(
            await self._store.get(self._keys.topic(topic))
        ):
            return
        count = (
            None
            if self._count_partitions is None
            else await self._count(topic, self._count_partitions)
        )
        if count is None:
            raise NotFound(f"no topic {topic}")
        await self._put(topic, count, only_grow=True)

    async def refresh(self, term: Leadership) -> None:
        """The leader's: ask Kafka for all topics now and then. For ever, or until deposed."""
        while self._count_partitions is not None:
            await self._clock.sleep(self._settings.topic_refresh_s)
            for topic, entry in sorted(self._mirror.view.topics.items()):
                count = await self._asked(topic)
                if count is None or count <= entry.value.partition_count:
                    continue
                logger.info("%s has grown from %d to %d", topic, entry.value.partition_count, count)
                put = Put(entry.kv.key, codec.dump_topic(TopicConfig(topic, count)))
                try:
                    await term.commit([unchanged(entry.kv)], [put])
                except Deposed:
                    return
                except StoreError as error:
                    logger.info("%s: not written: %s", topic, error)

    async def _asked(self, topic: str) -> int | None:
        if self._count_partitions is None:
            return None
        try:
            return await self._count(topic, self._count_partitions)
        except StoreUnavailable as error:
            logger.warning("%s", error)  # there is another time
            return None

    async def _count(self, topic: str, count_partitions: CountPartitions) -> int | None:
        try:
            return await count_partitions(topic)
        except Exception as error:  # whatever a Kafka client raises
            raise StoreUnavailable(
                f"{topic}: Kafka does not say how many partitions: {error}"
            ) from error

    async def _put(self, topic: str, count: int, *, only_grow: bool = False) -> None:
        put = Put(self._keys.topic(topic), codec.dump_topic(TopicConfig(topic, count)))

        async def counted(kv: KeyValue | None) -> Put | None:
            known = _known(kv)
            return None if known and (count == known or (only_grow and count < known)) else put

        await rewritten(self._store, put.key, counted)


def _known(kv: KeyValue | None) -> int:
    """A topic's count as it is written; 0 where none is, or none that can be read."""
    config = None if kv is None else codec.readable(codec.load_topic, kv.value)
    return 0 if config is None else config.partition_count


def _count(topic: str, count: int) -> int:
    if not 0 < count <= MAX_PARTITIONS:
        raise BadRequest(f"{topic}: 1 to {MAX_PARTITIONS} partitions, got {count!r}")
    return count
