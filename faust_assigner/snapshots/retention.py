"""The command ``snapshot gc``: remove old snapshots, and the files that killed runs left."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from faust_assigner.snapshots.catalog import (
    Catalog,
    Found,
    folder_of,
    listed_files,
    newest_first,
    snapshot_folder,
)
from faust_assigner.snapshots.lease import lease_paths, leased_until
from faust_assigner.snapshots.manifest import MANIFEST_NAME, Manifest
from faust_assigner.snapshots.storage import Entry
from faust_assigner.snapshots.trust import all_folders, outdated_folders

logger = logging.getLogger(__name__)

DEFAULT_KEEP = 2
DEFAULT_GRACE_MS = 3_600_000


@dataclass(frozen=True)
class Removal:
    """A folder or file that ``gc`` removed, or would remove, and the reason."""

    path: str
    reason: str
    size: int


def collect_garbage(
    catalog: Catalog,
    *,
    now_ms: int,
    keep: int = DEFAULT_KEEP,
    max_age_ms: int | None = None,
    grace_ms: int = DEFAULT_GRACE_MS,
    topics: list[str] | None = None,
    dry_run: bool = False,
) -> list[Removal]:
    """Remove snapshots beyond the retention; with ``dry_run`` only list them.

    The newest ``keep`` snapshots of each partition are kept if they are younger than ``max_age_ms`` (if
    given). A snapshot with a time beyond ``grace_ms`` from now counts as the oldest, because the clock of its
    machine was ahead. The newest snapshot is always kept; other snapshots of an earlier topic are removed. A
    file that a kept snapshot lists stays, whichever snapshot wrote the file. Leftovers of killed runs are
    removed after ``grace_ms`` without a change. If the storage reports no times, leftovers stay. While a run
    holds a lease, no file of its topic is removed. If a partition has a manifest of a later format version or
    a manifest that cannot be read, none of its data files is removed.
    """
    if keep < 1:
        raise ValueError(
            f"keep must be at least 1, because the newest snapshot is always kept; got {keep}"
        )
    sweeper = _Sweeper(catalog, now_ms, grace_ms, dry_run)
    for topic in topics if topics is not None else catalog.topics():
        until = leased_until(catalog.storage, topic, now_ms)
        if until:
            logger.warning(
                "%s: nothing is removed, a snapshot is being taken (its lease ends at %s)",
                topic,
                until,
            )
            continue
        sweeper.drop_leases(topic)
        outdated = outdated_folders(newest_first(all_folders(catalog, topic)), None)
        for partition in catalog.partitions(topic):
            folders = catalog.folders(topic, partition)
            if _has_unknown(folders):
                continue
            ranked = _by_rank(folders, now_ms + grace_ms)
            sweeper.sweep(topic, partition, _dropped(ranked, outdated, now_ms, keep, max_age_ms))
    return sweeper.removed


def _dropped(
    ranked: Sequence[Manifest],
    outdated: Mapping[str, str],
    now_ms: int,
    keep: int,
    max_age_ms: int | None,
) -> dict[str, str]:
    """Return the snapshots of a partition to remove, with the reasons; the newest snapshot stays."""
    return {
        manifest.snapshot_id: reason
        for rank, manifest in enumerate(ranked)
        if rank
        and (
            reason := outdated.get(folder_of(manifest))
            or _retention_reason(rank, now_ms - manifest.created_ms, keep, max_age_ms)
        )
    }


def _has_unknown(folders: Iterable[Found]) -> bool:
    """Return whether a snapshot may be valid although its manifest is unknown; log the first of them."""
    for found in folders:
        if found.may_be_valid:
            logger.warning(
                "%s-%d: no data file is removed, because snapshot %s may list any of the files: %s",
                found.topic,
                found.partition,
                found.snapshot_id,
                found.problem,
            )
            return True
    return False


def _by_rank(folders: Sequence[Found], latest_ms: int) -> list[Manifest]:
    """Return the visible snapshots, the newest first, but snapshots from after ``latest_ms`` last.

    Their machine's clock was ahead, so workers refuse them until that time.
    """
    return sorted(newest_first(folders), key=lambda each: each.created_ms > latest_ms)


def _retention_reason(rank: int, age_ms: int, keep: int, max_age_ms: int | None) -> str | None:
    """Return the reason to remove a snapshot that ``rank`` snapshots follow; None to keep it."""
    if rank >= keep:
        return f"{rank} newer snapshots"
    if max_age_ms is not None and age_ms > max_age_ms:
        return f"{age_ms / 1000:.0f} s old"
    return None


class _Sweeper:
    """Removes files in an order that never leaves a visible snapshot without its files."""

    def __init__(self, catalog: Catalog, now_ms: int, grace_ms: int, dry_run: bool) -> None:
        self._catalog = catalog
        self._storage = catalog.storage
        self._now_ms, self._oldest_ms = now_ms, now_ms - grace_ms
        self._dry_run = dry_run
        self.removed: list[Removal] = []

    def drop_leases(self, topic: str) -> None:
        """Remove the leases of killed runs, if none of the topic's leases is valid."""
        for path in () if self._dry_run else lease_paths(self._storage, topic):
            self._storage.delete(path)

    def _is_leased(self, topic: str) -> bool:
        """Return whether a run has begun; checked before each removal, because a run first takes a lease."""
        return leased_until(self._storage, topic, self._now_ms) is not None

    def sweep(self, topic: str, partition: int, dropped: Mapping[str, str]) -> None:
        """Remove the snapshots ``dropped`` (id -> reason), and all files that no other snapshot lists.

        The manifests are removed first. Then the remaining manifests are read again and their files counted:
        a kill at any point leaves each visible snapshot with all its files.
        """
        for identity in dropped:
            if self._is_leased(topic):
                return
            if not self._dry_run:
                self._storage.delete(f"{topic}/{partition}/{identity}/{MANIFEST_NAME}")
        folders = self._catalog.folders(topic, partition)
        if _has_unknown(folders):
            return
        in_use = listed_files(
            found.manifest
            for found in folders
            if found.manifest and found.snapshot_id not in dropped
        )
        for found in folders:
            if self._is_leased(topic):
                return
            folder = snapshot_folder(topic, partition, found.snapshot_id)
            if found.snapshot_id in dropped:
                self._drop(folder, in_use, dropped[found.snapshot_id])
            elif found.manifest:
                self._drop_unlisted(folder, in_use)
            else:
                self._drop_leftover(folder, in_use, found.problem or "unfinished")

    def _drop(self, folder: str, in_use: Collection[str], reason: str) -> None:
        """Remove a snapshot's files, except the files that a later snapshot lists."""
        entries = self._storage.list(folder)
        unused = [entry for entry in entries if f"{folder}/{entry.name}" not in in_use]
        size = sum(entry.size for entry in unused if entry.name != MANIFEST_NAME)
        self.removed.append(Removal(folder, reason, size))
        self._delete(folder, unused, is_all=len(unused) == len(entries))

    def _drop_unlisted(self, folder: str, in_use: Collection[str]) -> None:
        """Remove files that no manifest lists, left by a run that lost a race to an identical run."""
        for entry in self._storage.list(folder):
            path = f"{folder}/{entry.name}"
            is_spare = path not in in_use and entry.name != MANIFEST_NAME
            if is_spare and not entry.is_folder and self._is_settled(entry):
                self.removed.append(Removal(path, "not in the manifest", entry.size))
                self._delete(folder, [entry], is_all=False)

    def _drop_leftover(self, folder: str, in_use: Collection[str], reason: str) -> None:
        entries = self._storage.list(folder)
        unused = [entry for entry in entries if f"{folder}/{entry.name}" not in in_use]
        if unused and all(map(self._is_settled, unused)):
            self.removed.append(Removal(folder, reason, sum(entry.size for entry in unused)))
            self._delete(folder, unused, is_all=len(unused) == len(entries))

    def _is_settled(self, entry: Entry) -> bool:
        return entry.modified_ms is not None and entry.modified_ms < self._oldest_ms

    def _delete(self, folder: str, entries: Sequence[Entry], *, is_all: bool) -> None:
        if self._dry_run:
            return
        if is_all:
            self._storage.delete_folder(folder)
            return
        for entry in entries:
            self._storage.delete(f"{folder}/{entry.name}")
