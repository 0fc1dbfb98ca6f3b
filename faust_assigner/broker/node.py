"""The broker without its sockets: store, topics, groups, producer ids, housekeeping, cached metadata."""

from __future__ import annotations

import asyncio
import base64
import logging
import struct
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from faust_assigner.broker import limits, recovery
from faust_assigner.broker.groups import GroupService
from faust_assigner.broker.settings import Settings
from faust_assigner.broker.store import StoreFailed, open_store
from faust_assigner.broker.topic_configs import default_configs
from faust_assigner.broker.topics import Catalogue, Topic
from faust_assigner.coordinator.classic import GroupLimits

logger = logging.getLogger(__name__)
PRODUCER_ID_BLOCK = 1_000
METADATA_CACHE_ENTRIES = 256
FORMAT_VERSION = b"1"


def steady_clock() -> Callable[[], int]:
    """Milliseconds since 1970 that never step back while the process lives."""
    offset = time.time() - time.monotonic()
    return lambda: int((time.monotonic() + offset) * 1000)


class Node:
    """Everything a request handler may touch. One event loop, no locks."""

    def __init__(
        self,
        settings: Settings,
        folder: Path | None = None,
        *,
        clock: Callable[[], int] | None = None,
        progress: Callable[[], None] = lambda: None,
    ) -> None:
        """Open the store; ``progress`` is called all the while and ends it by raising."""
        self.settings = settings
        self.clock = clock or steady_clock()
        self.counters: Counter[str] = Counter()
        self.store = open_store(folder)
        self.host, self.port = "127.0.0.1", 0
        self._metadata_cache: dict[object, bytes] = {}
        self._cached_version = -1
        self._alarms: dict[str, tuple[int, asyncio.TimerHandle]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting_alarms: dict[str, int] = {}
        self._chores: list[asyncio.Task[None]] = []
        try:
            self.cluster_id = self._open_cluster()
            self.defaults = default_configs(settings)
            self.catalogue = Catalogue(self.store, settings, uuid.uuid4, progress=progress)
            recovery.examine(self.store, self.catalogue, settings, progress)
            self.groups = GroupService(
                self.store,
                _group_limits(settings),
                self.clock,
                max_record_bytes=settings.message_max_bytes,
                alarm=self._set_alarm,
                counters=self.counters,
            )
        except BaseException:
            self.store.close()
            raise
        self._next_producer_id, self._producer_ids_end = 0, 0

    def _open_cluster(self) -> str:
        recovery.refuse_empty_after_loss(self.store, self.settings)
        version = self.store.get(b"format")
        if version not in (None, FORMAT_VERSION):
            raise StoreFailed(f"data format {version!r} is not {FORMAT_VERSION!r}; another version wrote it")
        saved = self.store.get(b"cluster")
        if saved is not None:
            return saved.decode()
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self.store.write([(b"cluster", cluster_id.encode()), (b"format", FORMAT_VERSION)])
        return cluster_id

    # -- time ------------------------------------------------------------------------------------

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to serve timers on ``loop``."""
        self._loop = loop
        for group_id, when in self._waiting_alarms.items():
            self._set_alarm(group_id, when)
        s = self.settings
        self._chores = [
            loop.create_task(self._repeat(s.log_retention_check_interval_ms, self.apply_retention)),
            loop.create_task(self._repeat(s.offsets_retention_check_interval_ms, self.expire_offsets)),
        ]

    def _set_alarm(self, group_id: str, when: int) -> None:
        if self._loop is None:
            self._waiting_alarms[group_id] = when
            return
        armed = self._alarms.get(group_id)
        if armed is not None:
            if armed[0] <= when:
                return  # it rings early, finds nothing due and is set anew
            armed[1].cancel()
        delay = max(when - self.clock(), 0) / 1000
        self._alarms[group_id] = (when, self._loop.call_later(delay, self._ring, group_id))

    def _ring(self, group_id: str) -> None:
        self._alarms.pop(group_id, None)
        self.groups.tick(group_id)

    async def _repeat(self, interval_ms: int, chore: Callable[[], object]) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            try:
                chore()
            except StoreFailed as error:
                logger.error("housekeeping failed, tried again later: %s", error)

    def apply_retention(self) -> int:
        """Delete batches past retention.ms or over retention.bytes where cleanup.policy has 'delete'."""
        gone = 0
        now = self.clock()
        for topic in self.catalogue:
            for log in topic.partitions:
                log.producers.expire(now - self.settings.producer_id_expiration_ms)
            if "delete" not in self.config(topic, "cleanup.policy"):
                continue
            retention_ms = int(self.config(topic, "retention.ms"))
            retention_bytes = int(self.config(topic, "retention.bytes"))
            for log in topic.partitions:
                gone += log.retain(now, retention_ms=retention_ms, retention_bytes=retention_bytes)
        self.counters["records_deleted"] += gone
        return gone

    def expire_offsets(self) -> int:
        """Apply offsets.retention.minutes."""
        return self.groups.expire_offsets(self.settings.offsets_retention_minutes * 60_000)

    def close(self) -> None:
        """Stop timers and chores, release the store."""
        for chore in self._chores:
            chore.cancel()
        for _, handle in self._alarms.values():
            handle.cancel()
        self._loop = None
        self.store.close()

    # -- what handlers share ---------------------------------------------------------------------

    def config(self, topic: Topic, name: str) -> str:
        """A topic's effective setting."""
        return topic.configs.get(name, self.defaults[name])

    def cached_metadata(self, key: object, make: Callable[[], bytes]) -> bytes:
        """Encoded metadata, made once per version of the catalogue and kept for the latest version only."""
        if (
            self._cached_version != self.catalogue.version
            or len(self._metadata_cache) >= METADATA_CACHE_ENTRIES
        ):
            self._metadata_cache.clear()
            self._cached_version = self.catalogue.version
        if key not in self._metadata_cache:
            self._metadata_cache[key] = make()
        return self._metadata_cache[key]

    def new_producer_id(self) -> int:
        """An id no producer ever had here; reserved on disk in blocks."""
        if self._next_producer_id >= self._producer_ids_end:
            saved = self.store.get(b"producer")
            first = struct.unpack(">q", saved)[0] if saved else 0
            self.store.write([(b"producer", struct.pack(">q", first + PRODUCER_ID_BLOCK))])
            self._next_producer_id, self._producer_ids_end = first, first + PRODUCER_ID_BLOCK
        self._next_producer_id += 1
        return self._next_producer_id - 1


def _group_limits(settings: Settings) -> GroupLimits:
    return GroupLimits(
        settings.group_min_session_timeout_ms,
        settings.group_max_session_timeout_ms,
        settings.group_initial_rebalance_delay_ms,
        settings.group_max_size,
        limits.MAX_PENDING_MEMBERS,
    )
