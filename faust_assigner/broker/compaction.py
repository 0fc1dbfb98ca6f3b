"""Compact topics in the background: find the due partitions, and clean these in a thread."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, Protocol, TypeVar

from faust_assigner.broker.storage import clean_writes
from faust_assigner.broker.storage.cleaning import KEY_COST, Cleanable, CleaningRules, cleanable
from faust_assigner.broker.storage.disk import DiskSpace
from faust_assigner.broker.storage.log import PartitionLog
from faust_assigner.broker.storage.store import StoreFailed
from faust_assigner.broker.topics import Catalogue, Topic

logger = logging.getLogger(__name__)
T = TypeVar("T")
LOOKED_AT_ONCE: Final = 500  # partitions checked between two turns of the event loop


class Host(Protocol):
    """The part of the broker that compaction uses."""

    catalogue: Catalogue
    clock: Callable[[], int]
    counters: Counter[str]
    space: DiskSpace

    def config(self, topic: Topic, name: str) -> str:
        """Return the effective value of a topic's config."""

    def aside(self, work: Callable[[], T]) -> Awaitable[T]:
        """Run work in a thread."""


class Compaction:
    """The cleaner of one broker: one pass at a time, the dirtiest partition first."""

    def __init__(self, host: Host, buffer_bytes: int) -> None:
        self._host = host
        self._max_keys = max(buffer_bytes // KEY_COST, 1)

    async def run(self, backoff_ms: int) -> None:
        """Compact due partitions every ``backoff_ms``; log a failure and retry in the next pass."""
        while True:
            await asyncio.sleep(backoff_ms / 1000)
            try:
                await self.clean_all()
            except StoreFailed as error:
                logger.error(
                    "compaction failed; the next attempt is in %d ms: %s", backoff_ms, error
                )
            except Exception:
                logger.exception(
                    "a bug in this broker stopped a compaction; the next attempt is in %d ms",
                    backoff_ms,
                )

    async def clean_all(self) -> int:
        """Compact the partitions that are due now, the dirtiest first; return the bytes freed.

        After a failure, the other partitions are still compacted. Then the first failure is raised.
        """
        due: list[tuple[float, int, Topic, PartitionLog]] = []
        for number, (topic, log) in enumerate(self._compacted_logs()):
            found = self._part_to_clean(topic, log)
            if found is not None:
                due.append((-found.ratio, number, topic, log))
            if number % LOOKED_AT_ONCE == LOOKED_AT_ONCE - 1:
                await asyncio.sleep(0)
        due.sort(key=lambda one: one[:2])
        freed = 0
        failed: list[tuple[str, Exception]] = []
        for _, _, topic, log in due:
            try:
                freed += await self._clean(topic, log)
            except Exception as error:
                failed.append((f"{topic.name}-{log.number}", error))
        if freed:
            self._host.space.freed()
        if failed:
            name, first = failed[0]
            if isinstance(first, StoreFailed):
                raise StoreFailed(
                    f"{len(failed)} partitions are not compacted; {name}: {first}"
                ) from first
            first.add_note(f"while compacting {name}, and {len(failed) - 1} others failed")
            raise first
        return freed

    def _compacted_logs(self) -> Iterator[tuple[Topic, PartitionLog]]:
        for topic in list(self._host.catalogue):
            if self._is_compacted(topic):
                for log in topic.partitions:
                    yield topic, log

    def _is_compacted(self, topic: Topic) -> bool:
        return "compact" in self._host.config(topic, "cleanup.policy")

    def rules(self, topic: Topic) -> CleaningRules:
        """Return the compaction rules of a topic, from its configs."""
        config = self._host.config
        return CleaningRules(
            float(config(topic, "min.cleanable.dirty.ratio")),
            int(config(topic, "delete.retention.ms")),
            int(config(topic, "min.compaction.lag.ms")),
            int(config(topic, "max.compaction.lag.ms")),
        )

    def _part_to_clean(self, topic: Topic, log: PartitionLog) -> Cleanable | None:
        if log.deleted or not log.size:
            return None
        rules = self.rules(topic)
        found = cleanable(log, rules, self._host.clock())
        if found is None or not (found.is_overdue or found.ratio > rules.min_dirty_ratio):
            return None
        return found

    async def _clean(self, topic: Topic, log: PartitionLog) -> int:
        """Run passes over one partition until it is no longer due; return the bytes freed."""
        freed = 0
        while self._is_compacted(topic):
            found = self._part_to_clean(topic, log)
            if found is None:
                break
            freed += await self._pass(topic, log, found)
        return freed

    async def _pass(self, topic: Topic, log: PartitionLog, found: Cleanable) -> int:
        host, before, freed = self._host, log.size, 0
        work = clean_writes.begin(log, found, self.rules(topic), host.clock(), self._max_keys)
        while await host.aside(work.map_some):
            pass
        while (chunk := await host.aside(work.clean_some)) is not None:
            if log.deleted or not self._is_compacted(topic):
                return freed
            freed += clean_writes.apply(log, chunk)
        clean_writes.end(log, work)
        host.counters["log_compactions"] += 1
        host.counters["bytes_compacted"] += freed
        logger.info(
            "compacted %s-%d up to offset %d: %d of %d bytes were removed",
            topic.name,
            log.number,
            log.cleaned_to,
            freed,
            before,
        )
        return freed
