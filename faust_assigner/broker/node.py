"""The broker without its sockets: store, topics, groups, producer ids, housekeeping, cached metadata."""

from __future__ import annotations

import asyncio
import logging
import struct
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar
from weakref import WeakSet

from faust_assigner.broker import limits
from faust_assigner.broker.compaction import Compaction
from faust_assigner.broker.groups import GroupService
from faust_assigner.broker.groups.computing import TargetComputer
from faust_assigner.broker.groups.configs import GroupConfigs, classic_limits
from faust_assigner.broker.groups.plug_ins import load_plug_ins, places_in
from faust_assigner.broker.groups.timers import GroupTimers, Key
from faust_assigner.broker.groups.topic_notifier import TopicNotifier
from faust_assigner.broker.housekeeping import drop_topic_offsets, start_chores
from faust_assigner.broker.metadata_cache import MetadataCache
from faust_assigner.broker.rate_limited_log import RateLimitedLog
from faust_assigner.broker.security.acls import Acls
from faust_assigner.broker.security.authorizer import Authorizer, super_users
from faust_assigner.broker.security.credentials import Credentials, read_users
from faust_assigner.broker.security.gate import FailedLogIns
from faust_assigner.broker.security.listeners import PLAINTEXT, WILDCARDS, advertised
from faust_assigner.broker.settings import Settings
from faust_assigner.broker.storage import recovery
from faust_assigner.broker.storage.disk import DiskSpace, Flushing
from faust_assigner.broker.storage.records import RecordRules
from faust_assigner.broker.storage.rocks_store import RocksStore
from faust_assigner.broker.storage.store import MemoryStore, Store
from faust_assigner.broker.throttle import HandlerQueue, start
from faust_assigner.broker.topic_configs import default_configs
from faust_assigner.broker.topics import Catalogue, Topic
from faust_assigner.broker.transactions import TransactionService
from faust_assigner.coordinator.transactions import TransactionLimits

logger = logging.getLogger(__name__)
PRODUCER_ID_BLOCK = 1_000
READERS = 4
TRANSACTION = "transaction"  # the kind of timer that a transaction sets
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
        """Open the store. ``progress`` is called repeatedly; if it raises, the start is aborted.

        A ``clock`` (ms) replaces both the wall clock and the clock of the timers.
        """
        self.settings = settings
        self.clock, self.timer = clock or wall_ms, clock or timer_ms
        self.counters: Counter[str] = Counter()
        self.folder = folder
        self.store: Store = (
            MemoryStore()
            if folder is None
            else RocksStore(
                folder, accepts_loss=settings.log_recovery_accept_loss, progress=progress
            )
        )
        self.host, self.port = "127.0.0.1", 0
        self._addresses: dict[str, tuple[str, int]] = {}
        self.peer_log = RateLimitedLog()
        self.line = HandlerQueue()
        # One thread, because a second thread of pure Python would only compete for the GIL.
        self._crunching = ThreadPoolExecutor(1, "broker-crunch")
        self._reading = ThreadPoolExecutor(READERS, "broker-disk")
        self._readers_started = threading.Barrier(READERS)
        self._targets = TargetComputer()
        self.flushing = Flushing(self.store, self.aside)
        self.fetch_sessions: WeakSet[object] = WeakSet()  # a connection keeps its session alive
        self.unsent_bytes = 0  # in all answers that the peers have not read yet
        self.waiting_partitions = 0  # in all fetches that wait for records
        self.metadata_cache = MetadataCache(lambda: self.catalogue.version)
        self.group_timers = GroupTimers(self.timer, self._fire)
        self.space = DiskSpace(self.store, self.aside)
        self._chores: list[asyncio.Task[None]] = []
        self._next_producer_id, self._producer_ids_end = 0, 0
        try:
            self._restore(progress)
        except BaseException:
            self.store.close()
            raise

    def _restore(self, progress: Callable[[], None]) -> None:
        settings = self.settings
        load_plug_ins(places_in(settings.group_consumer_assignors))
        self.cluster_id = recovery.open_cluster(self.store, settings)
        self.defaults = default_configs(settings)
        self.catalogue = Catalogue(self.store, settings, uuid.uuid4, progress=progress)
        self._restore_security()
        recovery.examine(self.store, self.catalogue, settings, progress)
        self._restore_groups()
        self._restore_transactions()
        self.catalogue.on_change = self._topic_notifier.changed
        if self.authorizer is not None:
            self.authorizer.acls.on_topic_change = self._topic_notifier.rights_changed
        self.compaction = Compaction(self, settings.log_cleaner_dedupe_buffer_size)

    def _restore_security(self) -> None:
        settings = self.settings
        self.credentials = Credentials(self.store)
        self.authorizer = _new_authorizer(self.store, settings)
        self.failed_log_ins = FailedLogIns(
            settings.connection_failed_authentication_delay_ms, time.monotonic
        )
        if settings.sasl_users_file:
            for user, password in read_users(Path(settings.sasl_users_file)):
                self.credentials.set_password(user, password)

    def _restore_groups(self) -> None:
        self._topic_notifier = TopicNotifier(self.catalogue, self.authorizer)
        self.group_configs = GroupConfigs(self.store, self.settings)
        self.groups = GroupService(
            self.store,
            classic_limits(self.settings),
            self.clock,
            timer=self.timer,
            max_record_bytes=self.settings.message_max_bytes,
            set_timer=self.group_timers.set,
            counters=self.counters,
            consumer_limits=self.group_configs.consumer_limits,
            catalogue=self._topic_notifier.now,
            compute_target=self._targets.compute,
            peer_log=self.peer_log,
        )
        books = self.groups.books
        for topic in books.topics():  # a kill may interrupt the deletion of a topic's offsets
            if self.catalogue.get(topic) is None:
                list(books.topic_deleted(topic))
        self.catalogue.stale_keys = books.stale_keys

    def _restore_transactions(self) -> None:
        self.transactions = TransactionService(
            self.store,
            self.catalogue,
            self.groups.books,
            TransactionLimits(self.settings.transaction_max_timeout_ms),
            self.clock,
            timer=self.timer,
            set_timer=lambda name, when_ms: self.group_timers.set((TRANSACTION, name), when_ms),
            counters=self.counters,
        )

    def _fire(self, alarm: Key) -> None:
        if isinstance(alarm, str):
            self.groups.tick(alarm)
        else:
            self.transactions.tick(alarm[1])

    # -- time ------------------------------------------------------------------------------------

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the timers on ``loop``, and all threads that the node will need."""
        for _ in range(READERS):
            self._reading.submit(self._readers_started.wait)
        self._crunching.submit(int)
        self._targets.start(loop)
        self._topic_notifier.start(loop, self.line, lambda: self.groups.catalogue_changed())
        self.space.is_open = True
        self.group_timers.start(loop)
        self._chores = start_chores(self, loop)

    # -- addresses -------------------------------------------------------------------------------

    def listen_on(self, host: str, port: int, protocol: str = PLAINTEXT) -> None:
        """Add an address at which this broker listens; the first address becomes the node's own."""
        if not self._addresses:
            self.host, self.port = host, port
        self._addresses[protocol] = (host, port)

    def address_for(self, local_host: str, protocol: str = PLAINTEXT) -> tuple[str, int]:
        """Return the address to advertise to a client of ``protocol`` that connected to ``local_host``."""
        given = advertised(self.settings.advertised_listeners, protocol)
        if given is not None:
            return given
        host, port = self._addresses.get(protocol, (self.host, self.port))
        return (local_host if host in WILDCARDS else host), port

    # -- threads ---------------------------------------------------------------------------------

    def crunch(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run long pure Python work in a thread. The work must not use state that the loop changes."""
        return asyncio.get_running_loop().run_in_executor(self._crunching, work)

    def aside(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run disk reads, decompression and checksums in one of a few threads."""
        return asyncio.get_running_loop().run_in_executor(self._reading, work)

    async def drop_topic_offsets(self, topic: str) -> None:
        """Delete the offsets of a deleted topic. The deletion goes on if the caller is cancelled."""
        is_finished, outcome = start(drop_topic_offsets(self, topic))
        if not is_finished:
            self._chores.append(outcome)
            outcome.add_done_callback(self._chores.remove)
            await asyncio.shield(outcome)

    def close(self) -> None:
        """Stop timers, chores and threads; close the store."""
        for chore in self._chores:
            chore.cancel()
        self.group_timers.close()
        self.space.is_open = False
        self._topic_notifier.close()
        self._targets.close()
        self._readers_started.abort()  # a reader that has not started yet no longer comes
        for pool in (self._crunching, self._reading):
            pool.shutdown(cancel_futures=True)
        self.store.close()

    # -- shared by the handlers ------------------------------------------------------------------

    def config(self, topic: Topic, name: str) -> str:
        """Return the effective value of a topic's config."""
        return topic.configs.get(name, self.defaults[name])

    def room_for_answer(self) -> int:
        """Return the limit of record bytes in the next answer, which is lower while peers read slowly."""
        return max((limits.MAX_UNSENT_BYTES - self.unsent_bytes) // 4, limits.SMALLEST_ANSWER_BYTES)

    def rules(self, topic: Topic, now_ms: int) -> RecordRules:
        """Return the topic's rules for records that arrive now."""
        stamps = self.config(topic, "message.timestamp.type") == "LogAppendTime"
        return RecordRules(
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


def _new_authorizer(store: Store, settings: Settings) -> Authorizer | None:
    if not settings.authorizer_class_name:
        return None
    allows = settings.allow_everyone_if_no_acl_found
    return Authorizer(Acls(store), super_users(settings.super_users), allows_without_acl=allows)
