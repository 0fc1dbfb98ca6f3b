"""The broker without its sockets: store, topics, groups, producer ids, housekeeping, cached metadata."""

from __future__ import annotations

import asyncio
import base64
import logging
import math
import struct
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar
from weakref import WeakSet

from faust_assigner.broker import limits
from faust_assigner.broker.compaction import Compaction
from faust_assigner.broker.groups import GroupService, Outcome, compute_now
from faust_assigner.broker.groups.configs import GroupConfigs
from faust_assigner.broker.groups.plug_ins import load_plug_ins, names_in, places_in
from faust_assigner.broker.groups.timers import GroupTimers, Key
from faust_assigner.broker.groups.topic_notifier import TopicNotifier
from faust_assigner.broker.metadata_cache import MetadataCache
from faust_assigner.broker.security.acls import Acls
from faust_assigner.broker.security.authorizer import Authorizer, super_users
from faust_assigner.broker.security.credentials import Credentials, read_users
from faust_assigner.broker.security.gate import FailedLogIns
from faust_assigner.broker.security.listeners import PLAINTEXT, WILDCARDS, advertised
from faust_assigner.broker.settings import Settings
from faust_assigner.broker.storage import recovery
from faust_assigner.broker.storage.flushing import Flushing
from faust_assigner.broker.storage.rate_limited_log import RateLimitedLog
from faust_assigner.broker.storage.records import Rules
from faust_assigner.broker.storage.rocks_store import RocksStore
from faust_assigner.broker.storage.store import (
    FORMAT,
    FORMAT_VERSIONS,
    MemoryStore,
    Store,
    StoreFailed,
)
from faust_assigner.broker.throttle import HandlerQueue, Throttle
from faust_assigner.broker.topic_configs import default_configs
from faust_assigner.broker.topics import Catalogue, Topic
from faust_assigner.broker.transactions import TransactionService
from faust_assigner.coordinator.assignors import GroupSpec, Target
from faust_assigner.coordinator.classic import GroupLimits
from faust_assigner.coordinator.settings import ConsumerLimits, MigrationPolicy
from faust_assigner.coordinator.transactions import TransactionLimits

logger = logging.getLogger(__name__)
PRODUCER_ID_BLOCK = 1_000
READERS = 4
TELL_AFTER_S = 0.01  # changes of topics within this time reach the groups together
TRANSACTION = "transaction"  # the kind of alarm that a transaction sets
T = TypeVar("T")


def wall_ms() -> int:
    """Return the wall clock in ms since 1970: for the timestamps of records and offsets, and retention."""
    return int(time.time() * 1000)


def timer_ms() -> int:
    """Return a monotonic clock in ms: for the timers of sessions and rebalances."""
    return int(time.monotonic() * 1000)


class Node:
    """The state that request handlers share. Used on one event loop, without locks."""

    def __init__(
        self,
        settings: Settings,
        folder: Path | None = None,
        *,
        clock: Callable[[], int] | None = None,
        progress: Callable[[], None] = lambda: None,
    ) -> None:
        """Open the store; ``progress`` is called repeatedly meanwhile, and aborts the start by raising.

        A ``clock`` (ms) replaces both the wall clock and the clock of the timers.
        """
        self.settings = settings
        self.clock, self.timer = clock or wall_ms, clock or timer_ms
        self.counters: Counter[str] = Counter()
        self.folder = folder
        self.store: Store = MemoryStore() if folder is None else RocksStore(folder)
        self.host, self.port = "127.0.0.1", 0
        self._addresses: dict[str, tuple[str, int]] = {}
        self.peer_log = RateLimitedLog()
        self.line = HandlerQueue()
        self._crunching = ThreadPoolExecutor(
            1, "broker-crunch"
        )  # one thread: pure Python, so a second one would only compete with the loop for the GIL
        self._reading = ThreadPoolExecutor(READERS, "broker-disk")
        self._assigning = ThreadPoolExecutor(1, "broker-assign")
        self.flushing = Flushing(self.store, self.aside)
        self.fetch_sessions: WeakSet[object] = WeakSet()  # each session's connection keeps it alive
        self.unsent_bytes = 0  # of answers that the peers have not read yet
        self.waiting_partitions = 0  # of all fetches that wait for records
        self.metadata_cache = MetadataCache(lambda: self.catalogue.version)
        self.group_timers = GroupTimers(self.timer, self._fire)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._chores: list[asyncio.Task[None]] = []
        self._next_producer_id, self._producer_ids_end = 0, 0
        self._reclaiming: asyncio.Future[None] | None = None
        self._owes_space = False
        self._telling: asyncio.Task[None] | None = None
        try:
            self._restore(progress)
        except BaseException:
            self.store.close()
            raise

    def _restore(self, progress: Callable[[], None]) -> None:
        settings = self.settings
        load_plug_ins(places_in(settings.group_consumer_assignors))
        self.cluster_id = self._open_cluster()
        self.defaults = default_configs(settings)
        self.catalogue = Catalogue(self.store, settings, uuid.uuid4, progress=progress)
        self.credentials = Credentials(self.store)
        self.authorizer = _authorizer(self.store, settings)
        self.failed_log_ins = FailedLogIns(
            settings.connection_failed_authentication_delay_ms, time.monotonic
        )
        if settings.sasl_users_file:
            for user, password in read_users(Path(settings.sasl_users_file)):
                self.credentials.set_password(user, password)
        recovery.examine(self.store, self.catalogue, settings, progress)
        self._topic_notifier = TopicNotifier(self.catalogue, self.authorizer)
        self.group_configs = GroupConfigs(self.store, settings)
        self.groups = GroupService(
            self.store,
            _group_limits(settings),
            self.clock,
            timer=self.timer,
            max_record_bytes=settings.message_max_bytes,
            set_timer=self.group_timers.set,
            counters=self.counters,
            consumer_limits=self.consumer_limits,
            catalogue=self._topic_notifier.now,
            compute_target=self._compute_target,
            peer_log=self.peer_log,
        )
        self.transactions = TransactionService(
            self.store,
            self.catalogue,
            self.groups,
            TransactionLimits(settings.transaction_max_timeout_ms),
            self.clock,
            timer=self.timer,
            set_timer=lambda name, when_ms: self.group_timers.set((TRANSACTION, name), when_ms),
            counters=self.counters,
        )
        self.catalogue.on_change = self._topics_changed
        if self.authorizer is not None:
            self.authorizer.acls.on_topic_change = self._rights_changed
        self.compaction = Compaction(self, settings.log_cleaner_dedupe_buffer_size)

    def _fire(self, alarm: Key) -> None:
        if isinstance(alarm, str):
            self.groups.tick(alarm)
        else:
            self.transactions.tick(alarm[1])

    def _open_cluster(self) -> str:
        recovery.refuse_empty_after_loss(self.store, self.settings)
        version = self.store.get(FORMAT)
        if version not in (None, *FORMAT_VERSIONS):
            raise StoreFailed(
                f"data format {version!r} is not one of {FORMAT_VERSIONS!r}; another version of "
                "the broker wrote the data"
            )
        saved = self.store.get(b"cluster")
        if saved is not None:
            return saved.decode()
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self.store.write([(b"cluster", cluster_id.encode()), (FORMAT, FORMAT_VERSIONS[0])])
        return cluster_id

    # -- time ------------------------------------------------------------------------------------

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the timers on ``loop``, and all threads that the node will need."""
        self._loop = loop
        together = threading.Barrier(READERS)
        for _ in range(READERS):
            self._reading.submit(together.wait)
        self._crunching.submit(int)
        self._assigning.submit(int)
        self.group_timers.start(loop)
        s = self.settings
        self._chores = [
            loop.create_task(self.compaction.run(s.log_cleaner_backoff_ms)),
            loop.create_task(self._repeat(s.log_retention_check_interval_ms, self._retain)),
            loop.create_task(self._repeat(s.offsets_retention_check_interval_ms, self._expire)),
        ]

    # -- configs and topics for the groups -------------------------------------------------------

    def consumer_limits(self, group_id: str) -> ConsumerLimits:
        """Return the limits of a consumer group: its own configs, else the broker's settings."""
        settings, configs = self.settings, self.group_configs
        return ConsumerLimits(
            configs.number(group_id, "consumer.session.timeout.ms"),
            configs.number(group_id, "consumer.heartbeat.interval.ms"),
            settings.group_consumer_max_size,
            names_in(settings.group_consumer_assignors),
            MigrationPolicy(settings.group_consumer_migration_policy),
            configs.number(group_id, "consumer.assignment.interval.ms"),
        )

    def _topics_changed(self, name: str) -> None:
        """Schedule the update of the groups; close changes share one update."""
        self._topic_notifier.changed(name)
        self._tell_soon()

    def _rights_changed(self) -> None:
        """Schedule the same update: an expression matches the topics that its client may describe."""
        self._topic_notifier.rights_changed()
        self._tell_soon()

    def _tell_soon(self) -> None:
        if self._loop is not None and self._telling is None:
            self._telling = self._loop.create_task(self._tell_groups())

    async def _tell_groups(self) -> None:
        throttle = Throttle(self.line, timeout_s=math.inf)
        try:
            await asyncio.sleep(TELL_AFTER_S)
            self._telling = None  # later changes are for the next update
            for _ in self.groups.catalogue_changed():
                await throttle.turn()
        finally:
            throttle.end()

    def _compute_target(self, spec: GroupSpec, done: Outcome) -> None:
        """Compute in a thread if the event loop runs; one computation at a time."""
        if self._loop is None:
            compute_now(spec, done)
            return

        def work() -> tuple[Target | None, str]:
            outcome: list[tuple[Target | None, str]] = []
            compute_now(spec, lambda target, why: outcome.append((target, why)))
            return outcome[0]

        def finished(future: asyncio.Future[tuple[Target | None, str]]) -> None:
            if not future.cancelled():
                done(*future.result())

        self._loop.run_in_executor(self._assigning, work).add_done_callback(finished)

    def listen_on(self, host: str, port: int, protocol: str = PLAINTEXT) -> None:
        """Add an address at which this broker listens; the first one becomes the node's own."""
        if not self._addresses:
            self.host, self.port = host, port
        self._addresses[protocol] = (host, port)

    def address_for(self, local_host: str, protocol: str = PLAINTEXT) -> tuple[str, int]:
        """Return the address to advertise to a client of ``protocol`` that connected to ``local_host``."""
        given = advertised(self.settings, protocol)
        if given is not None:
            return given
        host, port = self._addresses.get(protocol, (self.host, self.port))
        return (local_host if host in WILDCARDS else host), port

    # -- threads ---------------------------------------------------------------------------------

    def crunch(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run long pure Python in its own thread; it must not use state that the loop changes."""
        return asyncio.get_running_loop().run_in_executor(self._crunching, work)

    def aside(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run disk reads, decompression and checksums in one of a few threads."""
        return asyncio.get_running_loop().run_in_executor(self._reading, work)

    async def _repeat(self, interval_ms: int, chore: Callable[[], Iterator[int]]) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            try:
                throttle = Throttle(self.line, timeout_s=math.inf)
                for _ in chore():
                    await throttle.turn()
            except StoreFailed as error:
                logger.error("housekeeping failed; it is tried again later: %s", error)
            except Exception:
                logger.exception(
                    "a bug in this broker stopped the housekeeping; it is tried again later"
                )
            finally:
                throttle.end()

    def apply_retention(self) -> int:
        """Delete batches past retention.ms or over retention.bytes if cleanup.policy has 'delete'."""
        return sum(self._retain())

    def _retain(self) -> Iterator[int]:
        """Apply retention; yield the number of deleted records, partition by partition."""
        now = self.clock()
        for topic in list(self.catalogue):
            deletes = "delete" in self.config(topic, "cleanup.policy")
            retention_ms = int(self.config(topic, "retention.ms"))
            retention_bytes = int(self.config(topic, "retention.bytes"))
            for log in topic.partitions:
                log.expire_producers(now - self.settings.producer_id_expiration_ms)
                if deletes and not log.deleted:
                    gone = log.retain(
                        now, retention_ms=retention_ms, retention_bytes=retention_bytes
                    )
                    self.counters["records_deleted"] += gone
                    yield gone
        self.freed()

    def expire_offsets(self) -> int:
        """Apply offsets.retention.minutes."""
        return sum(self._expire())

    def _expire(self) -> Iterator[int]:
        yield from self.groups.expire_offsets(self.settings.offsets_retention_minutes * 60_000)
        for _ in self.transactions.expire(self.settings.transactional_id_expiration_ms):
            yield 0

    def close(self) -> None:
        """Stop timers and chores, release the store."""
        for chore in self._chores:
            chore.cancel()
        self.group_timers.close()
        self._loop = None
        if self._telling is not None:
            self._telling.cancel()
        for pool in (self._crunching, self._reading, self._assigning):
            pool.shutdown(cancel_futures=True)
        self.store.close()

    def freed(self) -> None:
        """Record that deleted data still takes disk space."""
        self._owes_space = True
        self.give_back()

    def give_back(self) -> None:
        """Reclaim the disk space of deleted data in a thread, if free space is short."""
        store = self.store
        if not isinstance(store, RocksStore) or self._reclaiming is not None or self._loop is None:
            return
        if self._owes_space and store.is_low:
            self._owes_space = False
            self._reclaiming = self.aside(store.reclaim)
            self._reclaiming.add_done_callback(self._reclaimed)

    def _reclaimed(self, done: asyncio.Future[None]) -> None:
        self._reclaiming = None
        if not done.cancelled() and done.exception() is not None:
            logger.error("could not free disk space: %s", done.exception())
        self.give_back()

    # -- shared by the handlers ------------------------------------------------------------------

    def config(self, topic: Topic, name: str) -> str:
        """Return the effective value of a topic's config."""
        return topic.configs.get(name, self.defaults[name])

    def room_for_answer(self) -> int:
        """Return the bytes of records that the next answer may have: fewer while peers do not read."""
        return max((limits.MAX_UNSENT_BYTES - self.unsent_bytes) // 4, limits.SMALLEST_ANSWER_BYTES)

    def rules(self, topic: Topic, now_ms: int) -> Rules:
        """Return the topic's rules for records that arrive now."""
        stamps = self.config(topic, "message.timestamp.type") == "LogAppendTime"
        return Rules(
            now_ms,
            stamps,
            "compact" in self.config(topic, "cleanup.policy"),
            int(self.config(topic, "message.timestamp.before.max.ms")),
            int(self.config(topic, "message.timestamp.after.max.ms")),
        )

    def new_producer_id(self) -> int:
        """Return a producer id that this broker never assigned before; ids are reserved in blocks."""
        if self._next_producer_id >= self._producer_ids_end:
            saved = self.store.get(b"producer")
            first = struct.unpack(">q", saved)[0] if saved else 0
            self.store.write([(b"producer", struct.pack(">q", first + PRODUCER_ID_BLOCK))])
            self._next_producer_id, self._producer_ids_end = first, first + PRODUCER_ID_BLOCK
        self._next_producer_id += 1
        return self._next_producer_id - 1


def _authorizer(store: Store, settings: Settings) -> Authorizer | None:
    if not settings.authorizer_class_name:
        return None
    allows = settings.allow_everyone_if_no_acl_found
    return Authorizer(Acls(store), super_users(settings.super_users), allows_without_acl=allows)


def _group_limits(settings: Settings) -> GroupLimits:
    return GroupLimits(
        settings.group_min_session_timeout_ms,
        settings.group_max_session_timeout_ms,
        settings.group_initial_rebalance_delay_ms,
        settings.group_max_size,
    )
