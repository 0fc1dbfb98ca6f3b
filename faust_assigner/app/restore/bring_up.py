"""The restore job: bring table partitions up to date outside of Faust's loop, in a thread.

    what is on disk stays -> an empty database takes a snapshot -> the rest of the changelog in batches

Nothing here raises for one partition's sake: what could not be restored is logged and left to Faust's
own replay, which starts at whatever offset the database then holds.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aiokafka import TopicPartition
from mode import get_logger

from faust_assigner.app.restore.batched_replay import run_until_stopped, write_in_batches
from faust_assigner.app.restore.unreadable import Reason, Unreadable
from faust_assigner.snapshots.asking import Connection
from faust_assigner.snapshots.catalog import Catalog
from faust_assigner.snapshots.changelog import Extent, changelogs, extents_of
from faust_assigner.snapshots.manifest import Manifest, SnapshotError
from faust_assigner.snapshots.sst import ingest, is_empty
from faust_assigner.snapshots.storage import open_storage
from faust_assigner.snapshots.trust import Judge

logger = get_logger(__name__)

#: From how many records on a standby is worth exchanging.
MIN_STANDBY_GAP = 2_000
PARALLEL_RESTORES = 4
SCRATCH_PREFIX = ".faust-assigner-restore-"
#: Scratch folders this old belong to processes that were killed.
SCRATCH_MAX_AGE_S = 86_400

LOCAL, SNAPSHOT, REPLAY = "local", "snapshot", "replay"


@dataclass(frozen=True)
class Settings:
    """What the app says: where snapshots are, how to reach Kafka, what may be used."""

    snapshots: str | None
    batched: bool
    connection: Connection
    isolation_level: str
    #: Scratch space on the tables' own disk, so that files move instead of being copied.
    folder: Path
    #: Told of records that do not decode.
    unreadable: Callable[[Any, Sequence[Unreadable]], None] = lambda tp, records: None


@dataclass(frozen=True)
class Cold:
    """One partition to bring up: its database, the offset in it (-1: none), whether it takes SST files.

    ``highwater`` is the last offset to reach, as far as Faust knows.
    """

    tp: TopicPartition
    database: Any
    offset: int
    highwater: int
    takes_files: bool
    #: Why a record of its changelog may not be in the table.
    reason: Reason = lambda record: None


@dataclass(frozen=True)
class Restored:
    """How one partition got its state. Offsets are the last ones applied; times are epoch seconds."""

    tp: TopicPartition
    source: str
    started: float
    ended: float
    start_offset: int
    end_offset: int
    #: Bytes of snapshot files taken, 0 otherwise.
    bytes: int
    #: Changelog offsets passed in batches, after the snapshot or the local files.
    replayed: int = 0
    #: Bytes of keys and values read for that.
    replayed_bytes: int = 0


class Stop:
    """Tells a thread to end: at once, or when the time a rebalance-free worker may be silent is over."""

    def __init__(self, seconds: float | None = None) -> None:
        self._event = threading.Event()
        self._deadline = None if seconds is None else time.monotonic() + seconds

    def set(self) -> None:
        """From now on the answer is yes."""
        self._event.set()

    def __call__(self) -> bool:
        """Whether to end now."""
        late = self._deadline is not None and time.monotonic() > self._deadline
        return late or self._event.is_set()


def bring_up(settings: Settings, partitions: Sequence[Cold], stop: Stop) -> dict[TopicPartition, Restored]:
    """Restore and replay ``partitions``; returns how far each came. Runs in a thread, never raises."""
    started = time.time()
    partitions = _with_committed_ends(settings, partitions, stop)
    done = {cold.tp: Restored(cold.tp, REPLAY if is_empty(cold.database) else LOCAL, started, started,
                              cold.offset, cold.offset, 0) for cold in partitions}
    empty = [cold for cold in partitions if done[cold.tp].source == REPLAY and cold.takes_files]
    # A thread is never cancelled: a CancelledError that arrives here is some client's own.
    if settings.snapshots and empty:
        try:
            done |= from_snapshots(settings, empty, stop)
        except (Exception, asyncio.CancelledError) as error:
            logger.warning("No snapshots, tables are replayed: %r", error)
    if settings.batched and not stop():
        try:
            done |= _replay(settings, partitions, done, stop)
        except (Exception, asyncio.CancelledError) as error:
            logger.log(logging.INFO if stop() else logging.WARNING,
                       "Batched replay gave up, Faust's own continues: %r", error)
    return done


def _with_committed_ends(
    settings: Settings, partitions: Sequence[Cold], stop: Stop,
) -> Sequence[Cold]:
    """Under transactions ask for the ends: Faust knows them only once a fetch has told, often too late."""
    if settings.isolation_level != "read_committed":
        return partitions
    try:
        ends = run_until_stopped(extents_of(settings.connection, [cold.tp for cold in partitions]), stop)
    except (Exception, asyncio.CancelledError) as error:
        logger.warning("The committed ends of changelogs are unknown: %r", error)
        return partitions
    if ends is None:
        return partitions
    return [replace(cold, highwater=ends[cold.tp].end - 1) for cold in partitions]


def from_snapshots(
    settings: Settings, partitions: Sequence[Cold], stop: Stop,
) -> dict[TopicPartition, Restored]:
    """Ingest the newest acceptable snapshot of each empty database; those that got none are absent."""
    finder = Finder(settings, [cold.tp for cold in partitions], stop)

    def restore(cold: Cold) -> Restored | None:
        started = time.time()
        with scratch_folder(settings) as folder:
            found = None if stop() else finder.fetch(cold.tp, Path(folder))
            if found is None or stop():
                return None
            manifest, paths, ours = found
            if not is_empty(cold.database):  # a check made late is a check that holds
                return None
            ingest(cold.database, paths, move=ours)
        logger.info("Restored %s-%d from snapshot %s: %d keys, %d bytes in %.2f s", cold.tp.topic,
                    cold.tp.partition, manifest.snapshot_id, manifest.keys, manifest.bytes,
                    time.time() - started)
        return Restored(cold.tp, SNAPSHOT, started, time.time(), -1, manifest.next_offset - 1,
                        manifest.bytes)

    def attempt(cold: Cold) -> Restored | None:
        try:
            return restore(cold)
        except Exception as error:
            logger.warning("%s-%d is replayed, its snapshot failed: %s", cold.tp.topic,
                           cold.tp.partition, error)
            return None

    with ThreadPoolExecutor(PARALLEL_RESTORES, "faust-assigner-restore") as pool:
        return {restored.tp: restored for restored in pool.map(attempt, partitions) if restored}


class Finder:
    """Finds and fetches snapshots that may be trusted, for a set of partitions looked at once."""

    def __init__(self, settings: Settings, tps: Sequence[TopicPartition], stop: Callable[[], bool]) -> None:
        if settings.snapshots is None:
            raise ValueError("no snapshots are configured")
        self._catalog = Catalog(open_storage(settings.snapshots))
        topics = sorted({tp.topic for tp in tps})
        logs = run_until_stopped(changelogs(settings.connection, topics), stop)
        if logs is None:
            raise SnapshotError("told to stop while the changelogs were looked at")
        now_ms = round(time.time() * 1000)
        self._judges = {topic: Judge(self._catalog, log, now_ms) for topic, log in logs.items()}

    def fetch(self, tp: TopicPartition, folder: Path) -> tuple[Manifest, list[Path], bool] | None:
        """(manifest, checked files, whether the files are copies of ours) or None, the reason logged.

        Raises SnapshotError or OSError when the chosen snapshot cannot be read or is damaged.
        """
        for manifest, reason in self._judges[tp.topic].verdicts(tp.partition):
            if reason is None:
                paths = self._catalog.fetch(manifest, folder)
                return manifest, paths, all(path.parent == folder for path in paths)
            logger.warning("%s-%d: snapshot %s is refused: %s", tp.topic, tp.partition,
                           manifest.snapshot_id, reason)
        logger.info("%s-%d: no snapshot to restore from", tp.topic, tp.partition)
        return None


def _replay(
    settings: Settings, partitions: Sequence[Cold], done: Mapping[TopicPartition, Restored],
    stop: Callable[[], bool],
) -> dict[TopicPartition, Restored]:
    """Read what is left in batches; worth it even for one record, Faust's loop takes a second or two."""
    left = {cold.tp: cold for cold in partitions if cold.highwater > done[cold.tp].end_offset}
    records = sum(cold.highwater - done[tp].end_offset for tp, cold in left.items())
    if not records:
        return {}
    spans = {tp: Extent(done[tp].end_offset + 1, cold.highwater + 1) for tp, cold in left.items()}
    began = time.time()
    reached = write_in_batches(
        settings.connection, {tp: cold.database for tp, cold in left.items()}, spans, stopped=stop,
        isolation_level=settings.isolation_level, reasons={tp: cold.reason for tp, cold in left.items()},
        unreadable=settings.unreadable)
    logger.info("Replayed %d changelog offsets in %.2f s", records, time.time() - began)
    return {
        tp: replace(done[tp], ended=time.time(), end_offset=offset,
                    replayed=offset - done[tp].end_offset, replayed_bytes=read_bytes)
        for tp, (offset, read_bytes) in reached.items()}


def scratch_folder(settings: Settings) -> tempfile.TemporaryDirectory[str]:
    """A folder beside the tables, gone at the end of its ``with``."""
    settings.folder.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(prefix=SCRATCH_PREFIX, dir=settings.folder, ignore_cleanup_errors=True)


def sweep_scratch(folder: Path) -> None:
    """Remove scratch folders that killed processes left a day ago or earlier."""
    for path in sorted(folder.glob(f"{SCRATCH_PREFIX}*")):
        try:
            if time.time() - path.stat().st_mtime > SCRATCH_MAX_AGE_S:
                shutil.rmtree(path, ignore_errors=True)
        except OSError as error:
            logger.info("%s: %s", path, error)
