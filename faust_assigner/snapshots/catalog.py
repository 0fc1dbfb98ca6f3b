"""Publish, find and fetch snapshots in one storage.

Publishing has two steps: each producer uploads its files, then the coordinator of the run writes the
manifest after every part has succeeded. A kill in between leaves a folder without a manifest, which
readers skip.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from faust_assigner.snapshots.manifest import (
    MANIFEST_NAME,
    Manifest,
    ManifestError,
    ManifestVersionError,
    SnapshotError,
    snapshot_id,
)
from faust_assigner.snapshots.sst import SstFile, digest_files
from faust_assigner.snapshots.storage import NotAFileError, Storage
from faust_assigner.wire.documents import whole_number

#: Kafka's rule for topic names, which makes them safe as folder names, too.
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_SNAPSHOT_ID = re.compile(r"[0-9]{20}")
#: The problem of a folder whose run is not finished, or was killed.
UNFINISHED = "no manifest: never finished"

logger = logging.getLogger(__name__)


class SnapshotCorruptError(SnapshotError):
    """A file is missing, or its bytes differ from the manifest."""


@dataclass(frozen=True)
class Found:
    """A snapshot folder: its manifest, or the reason for a missing or invalid manifest."""

    topic: str
    partition: int
    snapshot_id: str
    manifest: Manifest | None
    problem: str | None
    #: Whether the snapshot may be valid although its manifest is unknown: a later version of this package
    #: wrote the manifest, or the storage did not return it.
    may_be_valid: bool = False


@dataclass(frozen=True)
class Catalog:
    """The snapshots under one root."""

    storage: Storage

    def topics(self) -> list[str]:
        """Topics with a folder, sorted."""
        return [
            entry.name
            for entry in self.storage.list("")
            if entry.is_folder and is_topic(entry.name)
        ]

    def partitions(self, topic: str) -> list[int]:
        """Partitions of ``topic`` with a folder, ascending."""
        return sorted(
            number
            for entry in self.storage.list(topic)
            if entry.is_folder
            and (number := whole_number(entry.name)) is not None
            and str(number) == entry.name
        )

    def folders(self, topic: str, partition: int) -> list[Found]:
        """Return every snapshot folder of the partition by id, broken folders included.

        A folder with a different name is of another program, and ``gc`` must not remove it.
        """
        return [
            self._look(topic, partition, entry.name)
            for entry in self.storage.list(f"{topic}/{partition}")
            if entry.is_folder and _SNAPSHOT_ID.fullmatch(entry.name)
        ]

    def snapshots(self, topic: str, partition: int) -> list[Manifest]:
        """Return the visible snapshots, the newest first; log each manifest that cannot be used.

        They are sorted by time and not by offset, because a recreated topic starts again at offset 0.
        """
        folders = self.folders(topic, partition)
        for found in folders:
            if found.problem not in (None, UNFINISHED):
                logger.warning(
                    "%s-%d: snapshot %s is not used: %s",
                    topic,
                    partition,
                    found.snapshot_id,
                    found.problem,
                )
        return newest_first(folders)

    def _look(self, topic: str, partition: int, identity: str) -> Found:
        folder = snapshot_folder(topic, partition, identity)
        try:
            manifest = Manifest.from_json(self.storage.read(f"{folder}/{MANIFEST_NAME}"))
        except FileNotFoundError:
            return Found(topic, partition, identity, None, UNFINISHED)
        except ManifestVersionError as error:
            return Found(topic, partition, identity, None, str(error), may_be_valid=True)
        except (ManifestError, NotAFileError) as error:
            return Found(topic, partition, identity, None, str(error))
        except OSError as error:  # no permission, or a bad block: other snapshots must stay visible
            problem = f"its manifest cannot be read: {error}"
            return Found(topic, partition, identity, None, problem, may_be_valid=True)
        claimed = (manifest.topic, manifest.partition, manifest.snapshot_id)
        if claimed != (topic, partition, identity):
            return Found(topic, partition, identity, None, f"its manifest is of {claimed}")
        return Found(topic, partition, identity, manifest, None)

    def upload(
        self, topic: str, partition: int, next_offset: int, files: Sequence[SstFile]
    ) -> tuple[str, ...]:
        """Upload the new files (step one); return the names of all ``files`` for the manifest.

        A file that another snapshot wrote is in the storage already. A rerun over the same range replaces
        files by equal files, and so repairs a damaged file.
        """
        folder = snapshot_folder(topic, partition, snapshot_id(next_offset))
        for file in files:
            if "/" not in file.name:
                self.storage.upload(file.path, f"{folder}/{file.name}")
        return tuple(file.name for file in files)

    def commit(self, manifest: Manifest) -> Manifest:
        """Write the manifest (step two), which makes the snapshot visible.

        Raises SnapshotError if a file was removed after the upload.
        """
        sizes = self.sizes(manifest)
        gone = [path for path in manifest.paths if path not in sizes]
        if gone or sum(sizes[path] for path in manifest.paths) != manifest.bytes:
            raise SnapshotError(
                f"{self.storage.url}/{folder_of(manifest)}: {gone or 'bytes of its files'} are gone since "
                "they were uploaded: the snapshot is not published, take it again"
            )
        self.storage.write(f"{folder_of(manifest)}/{MANIFEST_NAME}", manifest.to_json())
        return manifest

    def sizes(self, manifest: Manifest) -> dict[str, int]:
        """Path -> size of all files in the folders that the manifest names, relative to the partition."""
        home = f"{manifest.topic}/{manifest.partition}"
        return {
            f"{folder}/{entry.name}": entry.size
            for folder in sorted({path.partition("/")[0] for path in manifest.paths})
            for entry in self.storage.list(f"{home}/{folder}")
        }

    def fetch(self, manifest: Manifest, folder: Path) -> list[Path]:
        """Return the snapshot's files on this machine in the order of the manifest, their bytes checked.

        Files of a local catalog stay in place; other files are downloaded into ``folder``.
        Raises :class:`SnapshotCorruptError`.
        """
        paths = []
        for name in manifest.paths:
            remote = f"{manifest.topic}/{manifest.partition}/{name}"
            path = self.storage.local_path(remote)
            if path is None:
                path = folder / name.replace("/", "-")
                folder.mkdir(parents=True, exist_ok=True)
                try:
                    self.storage.download(remote, path)
                except FileNotFoundError:
                    raise SnapshotCorruptError(f"{self.storage.url}/{remote} is missing") from None
            if not path.is_file():
                raise SnapshotCorruptError(f"{self.storage.url}/{remote} is missing")
            paths.append(path)
        sha256, size = digest_files(paths)
        if (sha256, size) != (manifest.sha256, manifest.bytes):
            raise SnapshotCorruptError(
                f"{self.storage.url}/{folder_of(manifest)}: the files have sha256 {sha256} and "
                f"{size} bytes, the manifest says {manifest.sha256} and {manifest.bytes}"
            )
        return paths


def newest_first(folders: Iterable[Found]) -> list[Manifest]:
    """Return the manifests of the visible snapshots, the newest first."""
    manifests = [found.manifest for found in folders if found.manifest]
    return sorted(manifests, key=lambda each: (each.created_ms, each.next_offset), reverse=True)


def is_topic(name: str) -> bool:
    """Return whether ``name`` is a valid topic name (and so a valid folder name)."""
    return bool(_TOPIC.fullmatch(name)) and name not in (".", "..")


def snapshot_folder(topic: str, partition: int, identity: str) -> str:
    """``<topic>/<partition>/<snapshot_id>``, relative to the root."""
    if not is_topic(topic):
        raise SnapshotError(f"{topic!r} is not a name of a Kafka topic")
    return f"{topic}/{partition}/{identity}"


def folder_of(manifest: Manifest) -> str:
    """The folder of a snapshot, relative to the root."""
    return snapshot_folder(manifest.topic, manifest.partition, manifest.snapshot_id)


def listed_files(manifests: Iterable[Manifest]) -> set[str]:
    """Return the paths of all files that ``manifests`` list, relative to the root."""
    return {f"{each.topic}/{each.partition}/{path}" for each in manifests for path in each.paths}
