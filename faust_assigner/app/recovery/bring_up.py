"""The restore job: brings table partitions up to date outside of Faust's loop, in a thread.

    local files stay -> an empty database takes a snapshot -> the rest of the changelog in batches

The failure of one partition raises no error here. It is logged, and Faust's replay restores the
partition from the offset that the database then holds.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from aiokafka import TopicPartition
from mode import get_logger

from faust_assigner.app.recovery.batched_replay import replay, run_until_stopped, to_batch, whole
from faust_assigner.app.recovery.decoding import ANYTHING, Decoding, refusal_of_rows
from faust_assigner.app.recovery.progress import Progress
from faust_assigner.app.recovery.restore_throttle import RestoreThrottle
from faust_assigner.app.recovery.unreadable import Unreadable
from faust_assigner.snapshots.asking import Connection
from faust_assigner.snapshots.catalog import Catalog
from faust_assigner.snapshots.changelog import Extent, changelogs, extents_of
from faust_assigner.snapshots.manifest import Manifest, SnapshotError
from faust_assigner.snapshots.sst import ingest, is_empty
from faust_assigner.snapshots.storage import open_storage
from faust_assigner.snapshots.trust import Judge

if TYPE_CHECKING:
    from aiokafka.record.default_records import DefaultRecord as Parsed
    from faust.types.tuples import TP
    from rocksdict import Rdict

logger = get_logger(__name__)

#: A standby that lacks at least this many records takes a snapshot or is read in batches.
MIN_STANDBY_GAP = 2_000
PARALLEL_RESTORES = 4
SCRATCH_PREFIX = ".faust-assigner-restore-"
#: Age at which scratch folders count as left by killed processes.
SCRATCH_MAX_AGE_S = 86_400

LOCAL, SNAPSHOT, REPLAY = "local", "snapshot", "replay"


@dataclass(frozen=True)
class Settings:
    """The app's settings: where snapshots are, how to reach Kafka, which restores are allowed."""

    snapshots: str | None
    batched: bool
    connection: Connection
    isolation_level: str
    #: Scratch space on the tables' own disk, so that files are moved instead of copied.
    folder: Path
    #: Called with the records that do not decode.
    unreadable: Callable[[TP, Sequence[Unreadable]], None] = lambda tp, records: None
    #: The restore's share of a core beside running streams, and its progress.
    pace: RestoreThrottle = field(default_factory=RestoreThrottle)
    progress: Progress = field(default_factory=Progress)


@dataclass(frozen=True)
class Cold:
    """One partition to restore: its database, the stored offset (-1: none), whether SST files fit.

    ``highwater`` is the last offset to reach, as far as Faust knows.
    """

    tp: TopicPartition
    database: Rdict
    offset: int
    highwater: int
    takes_files: bool
    #: How records of its changelog decode: undecodable records are left out.
    decoding: Decoding = ANYTHING


@dataclass(frozen=True)
class Restored:
    """How one partition got its state. Offsets are the last applied; times are epoch seconds."""

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
    #: Bytes of keys and values of the replayed records.
    replayed_bytes: int = 0


class Stop:
    """Tells a thread to end: at once, or when the allowed silence of the worker is over."""

    def __init__(self, seconds: float | None = None) -> None:
        self._event = threading.Event()
        self._seconds, self._deadline = (
            seconds,
            None if seconds is None else time.monotonic() + seconds,
        )

    def set(self) -> None:
        """Tell the thread to end now."""
        self._event.set()

    def renew(self) -> None:
        """Restart the time limit: the worker was not silent."""
        if self._seconds is not None:
            self._deadline = time.monotonic() + self._seconds

    def __call__(self) -> bool:
        """Whether to end now."""
        late = self._deadline is not None and time.monotonic() > self._deadline
        return late or self._event.is_set()


def bring_up(
    settings: Settings,
    partitions: Sequence[Cold],
    stop: Stop,
    told: Callable[[Restored], None] = lambda restored: None,
) -> dict[TopicPartition, Restored]:
    """Restore and replay ``partitions`` in this order, a few at a time; returns each one's result.

    ``told`` is called with each result as soon as the partition's work ends, complete or not. Runs
    in a thread, never raises.
    """
    partitions = _with_committed_ends(settings, partitions, stop)
    job = _Job(settings, partitions, stop, told)
    # A thread is never cancelled: a CancelledError here comes from a client library.
    with ThreadPoolExecutor(PARALLEL_RESTORES, "faust-assigner-restore") as pool:
        try:
            job.begin_snapshots(pool)
        except (Exception, asyncio.CancelledError) as error:
            logger.warning("Could not read the snapshots; tables are replayed: %r", error)
        try:
            run_until_stopped(
                replay(
                    settings.connection,
                    job,
                    stopped=stop,
                    pace=settings.pace,
                    isolation_level=settings.isolation_level,
                ),
                stop,
            )
        except (Exception, asyncio.CancelledError) as error:
            logger.log(
                logging.INFO if stop() else logging.WARNING,
                "Batched replay failed; Faust's own replay continues: %r",
                error,
            )
    return job.end()


class _Job:
    """The work of one thread: each partition takes its snapshot, if any, and then is replayed."""

    def __init__(
        self,
        settings: Settings,
        partitions: Sequence[Cold],
        stop: Stop,
        told: Callable[[Restored], None],
    ) -> None:
        self._settings, self._stop, self._told = settings, stop, told
        started = time.time()
        self._colds = {cold.tp: cold for cold in partitions}
        self._waiting = list(partitions)
        self._snapshots: dict[TopicPartition, Future[Restored | None]] = {}
        self._done = {
            cold.tp: Restored(
                cold.tp,
                REPLAY if is_empty(cold.database) else LOCAL,
                started,
                started,
                cold.offset,
                cold.offset,
                0,
            )
            for cold in partitions
        }
        settings.progress.begin(
            {cold.tp: (cold.offset + 1, cold.highwater + 1) for cold in partitions}
        )

    def begin_snapshots(self, pool: ThreadPoolExecutor) -> None:
        """Begin the snapshots of empty databases, four at a time and in their order."""
        empty = [
            cold
            for cold in self._waiting
            if self._done[cold.tp].source == REPLAY and cold.takes_files
        ]
        if self._settings.snapshots and empty:
            finder = Finder(self._settings, [cold.tp for cold in empty], self._stop)
            for cold in empty:
                self._snapshots[cold.tp] = pool.submit(
                    from_snapshot, self._settings, finder, cold, self._stop
                )

    @property
    def tps(self) -> Collection[TopicPartition]:
        """All partitions whose work has not ended."""
        return self._colds.keys()

    def is_over(self) -> bool:
        """Whether each partition has had its turn."""
        return not self._waiting

    def begin(self) -> tuple[TopicPartition, Extent] | None:
        """The first partition that awaits no snapshot and still lacks records."""
        for cold in tuple(self._waiting):
            snapshot = self._snapshots.get(cold.tp)
            if snapshot is not None and not snapshot.done():
                continue
            self._waiting.remove(cold)
            if snapshot is not None and (restored := snapshot.result()) is not None:
                self._done[cold.tp] = restored
                self._settings.progress.move(cold.tp, restored.end_offset + 1)
            first = self._done[cold.tp].end_offset + 1
            if self._settings.batched and first <= cold.highwater:
                # Even for a single record: Faust's loop takes a second or two.
                return cold.tp, Extent(first, cold.highwater + 1)
            self._tell(cold.tp)
        return None

    def write(self, tp: TopicPartition, records: Sequence[Parsed], position: int) -> None:
        """Write the records and their last offset in one batch."""
        cold, before = self._colds[tp], self._done[tp]
        batch, refused = to_batch(records, position, cold.decoding, partial(whole, tp))
        cold.database.write(batch)
        self._done[tp] = replace(
            before,
            ended=time.time(),
            end_offset=position - 1,
            replayed=before.replayed + position - 1 - before.end_offset,
            replayed_bytes=before.replayed_bytes
            + sum(len(record.key or b"") + len(record.value or b"") for record in records),
        )
        self._settings.unreadable(tp, refused)
        self._settings.progress.move(tp, position)

    def finish(self, tp: TopicPartition) -> None:
        """Report ``tp`` as restored to its end."""
        self._tell(tp)

    def _tell(self, tp: TopicPartition) -> None:
        self._colds.pop(tp)
        self._settings.progress.finish(tp)
        self._told(self._done[tp])

    def end(self) -> dict[TopicPartition, Restored]:
        """Report the remaining partitions as they are; returns all results."""
        for tp, snapshot in self._snapshots.items():
            # A snapshot that came too late for the replay still counts.
            restored = snapshot.result() if tp in self._colds else None
            if restored is not None and restored.end_offset > self._done[tp].end_offset:
                self._done[tp] = restored
        for tp in tuple(self._colds):
            self._tell(tp)
        return self._done


def _with_committed_ends(
    settings: Settings,
    partitions: Sequence[Cold],
    stop: Stop,
) -> Sequence[Cold]:
    """The partitions; under transactions with the committed ends, fetched from the broker.

    Faust knows these ends only after a fetch, which is often too late.
    """
    if settings.isolation_level != "read_committed":
        return partitions
    try:
        ends = run_until_stopped(
            extents_of(settings.connection, [cold.tp for cold in partitions]), stop
        )
    except (Exception, asyncio.CancelledError) as error:
        logger.warning("Could not read the committed end offsets of changelogs: %r", error)
        return partitions
    if ends is None:
        return partitions
    return [replace(cold, highwater=ends[cold.tp].end - 1) for cold in partitions]


def from_snapshot(
    settings: Settings,
    finder: Finder,
    cold: Cold,
    stop: Callable[[], bool],
) -> Restored | None:
    """Ingest the newest acceptable snapshot into an empty database; None without. Never raises."""
    started, began = time.time(), time.monotonic()
    try:
        with scratch_folder(settings) as folder:
            found = None if stop() else finder.fetch(cold.tp, Path(folder), cold.decoding)
            if found is None or stop():
                return None
            manifest, paths, ours = found
            if not is_empty(cold.database):  # checked here, just before the ingest
                return None
            ingest(cold.database, paths, move=ours)
    except (Exception, asyncio.CancelledError) as error:
        logger.warning(
            "%s-%d is replayed because its snapshot failed: %s",
            cold.tp.topic,
            cold.tp.partition,
            error,
        )
        return None
    logger.info(
        "Restored %s-%d from snapshot %s: %d keys, %d bytes in %.2f s",
        cold.tp.topic,
        cold.tp.partition,
        manifest.snapshot_id,
        manifest.keys,
        manifest.bytes,
        time.monotonic() - began,
    )
    return Restored(
        cold.tp, SNAPSHOT, started, time.time(), -1, manifest.next_offset - 1, manifest.bytes
    )


class Finder:
    """Finds and fetches trustworthy snapshots for a set of partitions."""

    def __init__(
        self, settings: Settings, tps: Sequence[TopicPartition], stop: Callable[[], bool]
    ) -> None:
        if settings.snapshots is None:
            raise ValueError("no snapshots are configured")
        self._catalog = Catalog(open_storage(settings.snapshots))
        topics = sorted({tp.topic for tp in tps})
        logs = run_until_stopped(changelogs(settings.connection, topics), stop)
        if logs is None:
            raise SnapshotError("stopped while the changelogs were compared with the snapshots")
        now_ms = round(time.time() * 1000)
        self._judges = {topic: Judge(self._catalog, log, now_ms) for topic, log in logs.items()}

    def fetch(
        self, tp: TopicPartition, folder: Path, decoding: Decoding = ANYTHING
    ) -> tuple[Manifest, list[Path], bool] | None:
        """(manifest, checked files, whether the files are our copies) or None, the reason logged.

        The newest snapshot is used that is trustworthy and whole, and whose rows all decode in the
        table. After a damaged snapshot the next older snapshot is tried.
        """
        for manifest, reason in self._judges[tp.topic].verdicts(tp.partition):
            paths: list[Path] = []
            if reason is None:
                own = folder / manifest.snapshot_id
                try:
                    paths = self._catalog.fetch(manifest, own)
                    reason = refusal_of_rows(decoding, manifest, paths)
                except (SnapshotError, OSError) as error:
                    reason = str(error)
                if reason is None:
                    return manifest, paths, all(path.parent == own for path in paths)
                shutil.rmtree(own, ignore_errors=True)  # makes room for the next snapshot
            logger.warning(
                "%s-%d: snapshot %s is refused: %s",
                tp.topic,
                tp.partition,
                manifest.snapshot_id,
                reason,
            )
        logger.info("%s-%d: there is no snapshot to restore from", tp.topic, tp.partition)
        return None


def scratch_folder(settings: Settings) -> tempfile.TemporaryDirectory[str]:
    """A folder beside the tables, removed at the end of its ``with``."""
    settings.folder.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(
        prefix=SCRATCH_PREFIX, dir=settings.folder, ignore_cleanup_errors=True
    )


def sweep_scratch(folder: Path) -> None:
    """Remove scratch folders that killed processes left a day ago or earlier."""
    for path in sorted(folder.glob(f"{SCRATCH_PREFIX}*")):
        try:
            if time.time() - path.stat().st_mtime > SCRATCH_MAX_AGE_S:
                shutil.rmtree(path, ignore_errors=True)
        except OSError as error:
            logger.info("%s: %s", path, error)
