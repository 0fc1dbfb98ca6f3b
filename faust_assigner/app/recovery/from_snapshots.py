"""Restores a partition from its newest trustworthy snapshot: fetches and ingests the files."""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mode import get_logger

from faust_assigner.app.recovery.batched_replay import run_until_stopped
from faust_assigner.app.recovery.decoding import ANYTHING, Decoding, refusal_of_rows
from faust_assigner.app.recovery.progress import Progress
from faust_assigner.app.recovery.restore_task import SNAPSHOT, Cold, Restored, Settings
from faust_assigner.snapshots.catalog import Catalog
from faust_assigner.snapshots.changelog import changelogs
from faust_assigner.snapshots.manifest import Manifest, SnapshotError
from faust_assigner.snapshots.sst import ingest, is_empty
from faust_assigner.snapshots.storage import FsspecStorage, open_storage
from faust_assigner.snapshots.trust import Judge

if TYPE_CHECKING:
    from aiokafka import TopicPartition

logger = get_logger(__name__)

SCRATCH_PREFIX = ".faust-assigner-restore-"
#: Seconds after which a scratch folder counts as left by a killed process.
SCRATCH_MAX_AGE_S = 86_400


def from_snapshot(
    settings: Settings, finder: Finder, cold: Cold, stop: Callable[[], bool]
) -> Restored | None:
    """Ingest the newest acceptable snapshot, if any, into an empty database. Never raises."""
    started, began = time.time(), time.monotonic()
    try:
        with scratch_folder(settings) as folder:
            found = None if stop() else finder.fetch(cold.tp, Path(folder), cold.decoding)
            if found is None or stop():
                return None
            manifest, paths, ours = found
            if not is_empty(cold.database):  # check just before the ingest
                return None
            ingest(cold.database, paths, move=ours)
    except (Exception, asyncio.CancelledError) as error:
        logger.log(
            logging.INFO if stop() else logging.WARNING,
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
        storage = open_storage(settings.snapshots)
        if isinstance(storage, FsspecStorage):
            # Otherwise a rebalance or a stop would wait for the download.
            counted = partial(_after_block, settings.progress, stop)
            storage.stopped = counted
        self._catalog = Catalog(storage)
        topics = sorted({tp.topic for tp in tps})
        logs = run_until_stopped(changelogs(settings.connection, topics, tps), stop)
        if logs is None:
            raise SnapshotError("stopped while the changelogs were compared with the snapshots")
        now_ms = round(time.time() * 1000)
        self._judges = {topic: Judge(self._catalog, log, now_ms) for topic, log in logs.items()}

    def fetch(
        self, tp: TopicPartition, folder: Path, decoding: Decoding = ANYTHING
    ) -> tuple[Manifest, list[Path], bool] | None:
        """Return (manifest, checked files, whether the files are our copies), or None.

        The snapshot is the newest that is trustworthy and whole and whose rows all decode in the
        table. After a damaged snapshot the next older snapshot is tried. Each refusal is logged.
        """
        for manifest, reason in self._judges[tp.topic].verdicts(tp.partition):
            paths: list[Path] = []
            if reason is None:
                own = folder / manifest.snapshot_id
                try:
                    paths = self._catalog.fetch(manifest, own)
                    reason = refusal_of_rows(decoding, manifest, paths, folder)
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


def _after_block(progress: Progress, stop: Callable[[], bool]) -> bool:
    """Count a downloaded block; return whether to stop."""
    progress.blocks += 1
    return stop()


def scratch_folder(settings: Settings) -> tempfile.TemporaryDirectory[str]:
    """Create a temporary folder beside the tables, removed at the end of the ``with`` block."""
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
