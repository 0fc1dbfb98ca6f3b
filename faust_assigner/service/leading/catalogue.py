"""The topics of the service, from the configuration or from Kafka.

A topic's partition count grows with Kafka's, and a topic that is deleted in Kafka is removed. An
instance writes a topic of its configuration again if the store has lost the topic. If an operator
removes a topic, or Kafka deletes a topic, the service writes a mark for the topic. A marked topic
returns if an operator adds it again; a topic deleted in Kafka also returns when Kafka has it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from faust_assigner.service import values as codec
from faust_assigner.service.clock import Clock
from faust_assigner.service.errors import BadRequest, NotFound, StoreError, StoreUnavailable
from faust_assigner.service.keys import MAX_PARTITIONS, Keys, checked_topic
from faust_assigner.service.leading.election import Deposed, Leadership
from faust_assigner.service.mirror import Mirror
from faust_assigner.service.records import BY_OPERATOR, IN_KAFKA, TopicConfig
from faust_assigner.service.store.base import (
    Compare,
    Delete,
    KeyValue,
    Put,
    Store,
    Write,
    unchanged,
)
from faust_assigner.service.store.rewrite import rewritten
from faust_assigner.service.tasks import first
from faust_assigner.service.view import Change, View
from faust_assigner.settings.service import ServiceSettings

logger = logging.getLogger(__name__)

#: Topic -> its partition count in Kafka, ``None`` if there is no such topic. May raise any
#: exception.
CountPartitions = Callable[[str], Awaitable["int | None"]]
#: A topic counts as deleted if this many consecutive checks do not find it: a broker that has just
#: started may not know all topics yet.
MISSED = 2


@dataclass(eq=False, repr=False)
class Catalogue:
    """The partition counts of the topics in the store."""

    store: Store
    keys: Keys
    settings: ServiceSettings
    clock: Clock
    mirror: Mirror
    topics: Mapping[str, int]
    count_partitions: CountPartitions | None
    _missed: dict[str, int] = field(default_factory=dict, init=False)
    _lost: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def __post_init__(self) -> None:
        """Check the configuration. Raises BadRequest."""
        self.topics = {checked_topic(topic): _count(topic, n) for topic, n in self.topics.items()}

    # -- the configuration ---------------------------------------------------------------------------

    async def write(self) -> None:
        """Write the topics of this instance's configuration.

        A higher count in the store stays, and a removed topic stays removed.
        """
        for topic, count in sorted(self.topics.items()):
            with contextlib.suppress(NotFound):
                await self._put(TopicConfig(topic, count), only_grow=True, is_removable=True)

    def on_changes(self, changes: Sequence[Change]) -> None:
        """Note that the store has lost a topic; the mirror calls this method after changes."""
        if any(change.kind == "topics" and change.after is None for change in changes):
            self._lost.set()

    async def keep(self) -> None:
        """Check forever whether the store has lost a configured topic, and write it again."""
        while True:
            await first(self._lost.wait(), self.clock.sleep(self.settings.topic_refresh_s))
            self._lost.clear()
            view = self.mirror.view
            lost = sorted(self.topics.keys() - view.topics.keys() - view.removed.keys())
            if not lost:
                continue
            logger.warning(
                "%s: the topic was missing in the store and is written again from --topic; "
                "RemoveTopic removes a topic for good",
                ", ".join(lost),
            )
            try:
                await self.write()
            except StoreError as error:
                logger.info(
                    "Could not write the topics %s, trying again: %s", ", ".join(lost), error
                )

    # -- an operator ---------------------------------------------------------------------------------

    async def set(self, topic: str, count: int) -> int:
        """Add a topic, even if it was removed before, or set its partition count.

        Like :meth:`remove`, return a revision of the store that has the change.
        """
        config = TopicConfig(topic, _count(topic, count))
        return await self._put(config, beside=[Delete(self.keys.removed(topic))])

    async def remove(self, topic: str) -> int:
        """Remove a topic: its partitions lose their owners. Raises NotFound."""
        mark = Put(self.keys.removed(topic), BY_OPERATOR)

        async def gone(kv: KeyValue | None) -> list[Write]:
            if kv is None:
                raise NotFound(f"no topic {topic}")
            return [Delete(kv.key), mark]

        return await rewritten(self.store, self.keys.topic(topic), gone)

    # -- Kafka ---------------------------------------------------------------------------------------

    async def need(self, topic: str) -> None:
        """Add a topic that a consumer subscribes to and the store does not have, by asking Kafka.

        Raises NotFound if there is no such topic. Raises StoreUnavailable if Kafka does not answer;
        the caller may try again.
        """
        if topic in self.mirror.view.topics or _stored_count(
            await self.store.get(self.keys.topic(topic))
        ):
            return
        mark = await self.store.get(self.keys.removed(topic))
        if mark is not None and mark.value == BY_OPERATOR:
            raise _removed_error(topic)
        count = (
            None
            if self.count_partitions is None
            else await self._count(topic, self.count_partitions)
        )
        if count is None:
            raise NotFound(f"no topic {topic}")
        beside = [] if mark is None else [Delete(mark.key)]
        await self._put(
            TopicConfig(topic, count, True),
            only_grow=True,
            is_removable=mark is None,
            beside=beside,
        )

    async def refresh(self, term: Leadership) -> None:
        """As the leader, ask Kafka for all topics every ``topic_refresh_s``, until deposed."""
        self._missed.clear()  # another leader may have found the topics since the last term
        while self.count_partitions is not None:
            await self.clock.sleep(self.settings.topic_refresh_s)
            for topic in self._asked_for():
                try:
                    count = await self._count(topic, self.count_partitions)
                    compared, writes = self._changes_for(topic, count)
                    if writes:
                        await term.commit(compared, writes)
                except Deposed:
                    return
                except StoreError as error:
                    logger.warning("%s", error)  # the next refresh tries again

    def _asked_for(self) -> list[str]:
        """List the topics to ask Kafka for, without topics that an operator removed.

        These are the service's topics, the consumers' subscriptions, and topics deleted in Kafka.
        """
        view = self.mirror.view
        wanted = {topic for entry in view.consumers.values() for topic in entry.value.topics}
        known = view.topics.keys() | view.removed.keys() | wanted
        return sorted(topic for topic in known if not _is_removed_by_operator(view, topic))

    def _changes_for(self, topic: str, count: int | None) -> tuple[list[Compare], list[Write]]:
        """Return the compares and writes for Kafka's answer; None means an unknown topic."""
        view, mark = self.mirror.view, self.keys.removed(topic)
        if _is_removed_by_operator(view, topic):
            return [], []  # since the question to Kafka
        entry = view.topics.get(topic)
        if count is not None:
            self._missed.pop(topic, None)
            known = TopicConfig(topic, 0) if entry is None else entry.value
            after = TopicConfig(topic, max(count, known.partition_count), True)
            if after == known:
                return [], []
            if count > known.partition_count:
                logger.info(
                    "%s has %d partitions in Kafka; the service had %d and now uses Kafka's number",
                    topic,
                    count,
                    known.partition_count,
                )
            writes: list[Write] = [Put(self.keys.topic(topic), codec.dump_topic(after))]
            writes += [Delete(mark)] if topic in view.removed else []
            return [view.same(self.keys.topic(topic)), view.same(mark)], writes
        if entry is None or not entry.value.in_kafka:
            return [], []  # Kafka has never had this topic
        self._missed[topic] = self._missed.get(topic, 0) + 1
        if self._missed[topic] < MISSED:
            return [], []
        logger.warning(
            "%s was deleted in Kafka: its %d partitions are removed from their owners; the "
            "topic returns when it exists in Kafka again",
            topic,
            entry.value.partition_count,
        )
        return [unchanged(entry.kv)], [Delete(entry.kv.key), Put(mark, IN_KAFKA)]

    async def _count(self, topic: str, count_partitions: CountPartitions) -> int | None:
        try:
            return await count_partitions(topic)
        except Exception as error:  # a Kafka client may raise any exception
            raise StoreUnavailable(
                f"{topic}: could not read the number of partitions from Kafka: {error}"
            ) from error

    async def _put(
        self,
        config: TopicConfig,
        *,
        only_grow: bool = False,
        is_removable: bool = False,
        beside: Sequence[Write] = (),
    ) -> int:
        """Write a topic. Raises NotFound if ``is_removable`` and the topic is marked as removed."""
        mark = self.keys.removed(config.topic)
        put = Put(self.keys.topic(config.topic), codec.dump_topic(config))

        async def counted(kv: KeyValue | None) -> list[Write] | None:
            known, count = _stored_count(kv), config.partition_count
            return (
                None
                if known and (count == known or (only_grow and count < known))
                else [put, *beside]
            )

        # The write's transaction checks the mark: an operator may remove the topic after a read.
        unless = {mark: _removed_error(config.topic)} if is_removable else {}
        return await rewritten(self.store, put.key, counted, unless=unless)


def _is_removed_by_operator(view: View, topic: str) -> bool:
    mark = view.removed.get(topic)
    return mark is not None and mark.value != IN_KAFKA


def _removed_error(topic: str) -> NotFound:
    return NotFound(f"no topic {topic}: an operator removed it")


def _stored_count(kv: KeyValue | None) -> int:
    """Return a topic's stored count; 0 if the key is absent or unreadable."""
    config = codec.readable(codec.load_topic, kv)
    return 0 if config is None else config.partition_count


def _count(topic: str, count: int) -> int:
    if not 0 < count <= MAX_PARTITIONS:
        raise BadRequest(f"{topic}: 1 to {MAX_PARTITIONS} partitions, got {count!r}")
    return count
