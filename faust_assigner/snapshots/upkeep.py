"""``snapshot verify`` and ``snapshot gc``: check all snapshots, and remove old ones."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from faust_assigner.snapshots.catalog import Catalog, Found, folder_of, snapshot_folder
from faust_assigner.snapshots.changelog import Changelog
from faust_assigner.snapshots.lease import lease_paths, leased_until
from faust_assigner.snapshots.manifest import MANIFEST_NAME, Manifest, SnapshotError
from faust_assigner.snapshots.sst import OFFSET_KEY, read_items
from faust_assigner.snapshots.trust import all_snapshots, earlier_topic, newest_topic_id

logger = logging.getLogger(__name__)

DEFAULT_KEEP = 2
DEFAULT_GRACE_MS = 3_600_000


@dataclass(frozen=True)
class Verdict:
    """The result of ``verify`` for a folder; ``problem`` is None for a sound snapshot."""

    folder: str
    manifest: Manifest | None
    problem: str | None


@dataclass(frozen=True)
class Removal:
    """A folder or file that ``gc`` removed, or would remove, and the reason."""

    path: str
    reason: str
    size: int


def verify(
    catalog: Catalog,
    topics: list[str] | None = None,
    logs: Mapping[str, Changelog] | None = None,
) -> Iterator[Verdict]:
    """Check every snapshot: manifest, files, hash, key order, key count, Faust's offset, and its topic.

    A snapshot of an earlier topic with the same name is a problem. The evidence is ``logs`` (the current
    changelogs by topic) if given, else the other snapshots. Unfinished folders are reported as
    unfinished, which is no error, because readers do not see them.
    Cost: one read of all files, about 1M keys/s.
    """
    for topic in topics if topics is not None else catalog.topics():
        folders = [
            found
            for partition in catalog.partitions(topic)
            for found in catalog.folders(topic, partition)
        ]
        outdated = _outdated(
            [found.manifest for found in folders if found.manifest], (logs or {}).get(topic)
        )
        for found in folders:
            folder = snapshot_folder(found.topic, found.partition, found.snapshot_id)
            if found.manifest is None:
                yield Verdict(folder, None, found.problem)
            else:
                problem = outdated.get(folder) or _problem(catalog, found.manifest)
                yield Verdict(folder, found.manifest, problem)


def _outdated(manifests: Sequence[Manifest], log: Changelog | None) -> dict[str, str]:
    """Return folder -> the reason why its snapshot is of an earlier topic; current folders are absent."""
    topic_id = log.topic_id if log else newest_topic_id(manifests)
    ends = {number: extent.end for number, extent in log.extents.items()} if log else {}
    found = {
        folder_of(each): earlier_topic(each, manifests, topic_id=topic_id, ends=ends)
        for each in manifests
    }
    return {folder: reason for folder, reason in found.items() if reason}


def _problem(catalog: Catalog, manifest: Manifest) -> str | None:
    try:
        return _check_contents(catalog, manifest)
    except (SnapshotError, OSError) as error:
        return str(error)


def _check_contents(catalog: Catalog, manifest: Manifest) -> str | None:
    previous: bytes | None = None
    keys, offset = 0, None
    with tempfile.TemporaryDirectory(prefix="faust-assigner-verify-") as folder:
        for path in catalog.fetch(manifest, Path(folder)):
            # One by one: a joint ingest would sort an out-of-order file into place.
            for key, value in read_items([path]):
                if previous is not None and key <= previous:
                    return f"{path.name}: key {key!r} follows {previous!r}"
                previous = key
                if key == OFFSET_KEY:
                    offset = value
                else:
                    keys += 1
    if keys != manifest.keys:
        return f"{keys} keys in the files, {manifest.keys} in the manifest"
    expected = str(manifest.next_offset - 1).encode()
    if offset != expected:
        return f"Faust's offset key is {offset!r}, expected {expected!r}"
    return None


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

    Kept are the newest ``keep`` snapshots of each partition, limited to those younger than
    ``max_age_ms`` if given, and always the newest; of an earlier topic only the newest. Leftovers of
    killed runs are removed after ``grace_ms`` without a change. If the storage reports no times,
    leftovers stay. While a run holds a lease, no file of its topic is removed.
    """
    if keep < 1:
        raise ValueError(f"keep={keep}: the newest snapshot is always kept")
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
        outdated = _outdated(all_snapshots(catalog, topic), None)
        for partition in catalog.partitions(topic):
            for rank, manifest in enumerate(catalog.snapshots(topic, partition)):
                age_ms = now_ms - manifest.created_ms
                if rank and folder_of(manifest) in outdated:
                    sweeper.drop(manifest, outdated[folder_of(manifest)])
                elif rank >= keep:
                    sweeper.drop(manifest, f"{rank} newer snapshots")
                elif rank and max_age_ms is not None and age_ms > max_age_ms:
                    sweeper.drop(manifest, f"{age_ms / 1000:.0f} s old")
                else:
                    sweeper.drop_unlisted(manifest)
            for found in catalog.folders(topic, partition):
                if found.manifest is None:
                    sweeper.drop_leftover(found)
    return sweeper.removed


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

    def drop(self, manifest: Manifest, reason: str) -> None:
        if self._is_leased(manifest.topic):
            return
        folder = folder_of(manifest)
        self.removed.append(Removal(folder, reason, manifest.bytes))
        if not self._dry_run:
            self._storage.delete(f"{folder}/{MANIFEST_NAME}")
            self._storage.delete_folder(folder)

    def drop_unlisted(self, manifest: Manifest) -> None:
        """Remove the files of an attempt that lost a race to an identical attempt."""
        folder = folder_of(manifest)
        listed = {MANIFEST_NAME, *manifest.files}
        for entry in () if self._is_leased(manifest.topic) else self._storage.list(folder):
            settled = entry.modified_ms is not None and entry.modified_ms < self._oldest_ms
            if entry.name not in listed and not entry.is_folder and settled:
                self.removed.append(
                    Removal(f"{folder}/{entry.name}", "not in the manifest", entry.size)
                )
                if not self._dry_run:
                    self._storage.delete(f"{folder}/{entry.name}")

    def drop_leftover(self, found: Found) -> None:
        folder = snapshot_folder(found.topic, found.partition, found.snapshot_id)
        if self._is_leased(found.topic):
            return
        entries = self._storage.list(folder)
        if any(
            entry.modified_ms is None or entry.modified_ms >= self._oldest_ms for entry in entries
        ):
            return
        size = sum(entry.size for entry in entries)
        self.removed.append(Removal(folder, found.problem or "unfinished", size))
        if not self._dry_run:
            self._storage.delete_folder(folder)
