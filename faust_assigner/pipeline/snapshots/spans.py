"""The steps of a snapshot run, without Spark: spans of a changelog, their files and their manifests.

    offsets, previous snapshots -> spans -> records -> SST files, uploaded -> manifests

A span is the offset range of one partition that a run reads. The process that reads a span uploads its
files (``writer.py``). The manifests are written after all partitions have succeeded, so readers never see
the files of a killed run.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from faust_assigner.snapshots.catalog import Catalog, SnapshotCorruptError
from faust_assigner.snapshots.changelog import Changelog
from faust_assigner.snapshots.compaction import DEFAULT_MEMORY_BYTES
from faust_assigner.snapshots.json_rows import AUTO, JSON, RAW
from faust_assigner.snapshots.layers import DEFAULT_MAX_LAYERS
from faust_assigner.snapshots.manifest import (
    LAYERED,
    WHOLE,
    Manifest,
    SnapshotError,
    format_time_ms,
    snapshot_id,
)
from faust_assigner.snapshots.storage import open_storage
from faust_assigner.snapshots.trust import Judge

logger = logging.getLogger(__name__)

#: If a higher share of records is not JSON, the run fails: the table must have another serializer.
MAX_UNREADABLE_SHARE = 0.5


@dataclass(frozen=True)
class Span:
    """The input of one partition's snapshot: the previous snapshot ``base``, and the offsets [start, end)."""

    partition: int
    start: int
    end: int
    base: Manifest | None = None
    #: The changelog's first offset in this run. A base that starts at a lower offset is refused: it has
    #: rows that retention has removed.
    log_start: int = 0


@dataclass(frozen=True)
class Job:
    """The whole input of a task; pickled for the executors."""

    topic: str
    url: str
    spans: tuple[Span, ...]
    created_ms: int
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    topic_id: str | None = None
    #: The codecs of keys and values; with JSON, records that are not JSON are left out.
    codecs: tuple[str, str] = (AUTO, AUTO)
    #: The maximum number of layers; each layer has the changes since the previous snapshot.
    max_layers: int = DEFAULT_MAX_LAYERS

    @property
    def by_partition(self) -> dict[int, Span]:
        """The spans by partition."""
        return {span.partition: span for span in self.spans}


@dataclass(frozen=True)
class Part:
    """The result of a task: the fields of the future manifest."""

    partition: int
    next_offset: int
    keys: int
    bytes: int
    sha256: str
    files: tuple[str, ...]
    records: int
    runs: int
    key_types: tuple[str, ...] | None = None
    value_types: tuple[str, ...] | None = None
    unreadable: int = 0
    #: The number of files of each layer; None if all files are new and form one layer.
    layers: tuple[int, ...] | None = None
    new_bytes: int = 0


def plan_job(
    changelog: Changelog,
    url: str,
    *,
    created_ms: int,
    previous: bool = False,
    whole: bool = False,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    codecs: tuple[str, str] = (AUTO, AUTO),
    max_layers: int = DEFAULT_MAX_LAYERS,
) -> Job:
    """Decide which offsets of each partition are read.

    With ``previous`` only the records after the partition's newest trusted snapshot are read; the reason for
    each refused snapshot is logged. ``whole`` also checks the snapshot's files; if the files are damaged, the
    next older snapshot is tried.
    """
    judge = Judge(Catalog(open_storage(url)), changelog, created_ms)
    spans = []
    for partition, extent in sorted(changelog.extents.items()):
        base = _base(judge, partition, codecs, whole) if previous else None
        start = base.next_offset if base else extent.start
        spans.append(Span(partition, start, extent.end, base, extent.start))
    return Job(
        changelog.topic,
        url,
        tuple(spans),
        created_ms,
        memory_bytes,
        changelog.topic_id,
        codecs,
        max_layers,
    )


def _base(judge: Judge, partition: int, codecs: tuple[str, str], whole: bool) -> Manifest | None:
    for manifest, refused in judge.verdicts(partition):
        reason = refused or _unfit(manifest, judge.log.extents[partition].start, codecs)
        if reason is None and whole:
            reason = _damage(judge.catalog, manifest)
        if reason is None:
            return manifest
        logger.warning(
            "%s-%d: snapshot %s cannot be extended: %s",
            judge.log.topic,
            partition,
            manifest.snapshot_id,
            reason,
        )
    return None


def _unfit(manifest: Manifest, log_start: int, codecs: tuple[str, str]) -> str | None:
    """Return the reason why the next snapshot cannot extend a trusted snapshot; None if it can."""
    if manifest.start_offset is None:
        return "it was written before snapshots left out records that do not decode"
    if manifest.start_offset < log_start:
        return (
            f"it was read from offset {manifest.start_offset} on, but the changelog now begins "
            f"at {log_start}: the snapshot has rows that retention removed"
        )
    found = codecs_of(manifest)
    if manifest.keys and any(
        wanted not in (AUTO, codec) for wanted, codec in zip(codecs, found, strict=True)
    ):
        return f"its keys and values were read as {found}, but {codecs} is requested"
    return None


def codecs_of(manifest: Manifest) -> tuple[str, str]:
    """Return the snapshot's codecs of keys and values."""
    key, value = (
        RAW if types is None else JSON for types in (manifest.key_types, manifest.value_types)
    )
    return key, value


def _damage(catalog: Catalog, manifest: Manifest) -> str | None:
    try:
        with tempfile.TemporaryDirectory(prefix="faust-assigner-snapshot-") as folder:
            catalog.fetch(manifest, Path(folder))
    except (SnapshotError, OSError) as error:
        return str(error)
    return None


def publish(job: Job, parts: Sequence[Part]) -> list[Manifest]:
    """Write the manifests as the last step; raise SnapshotError unless each span has exactly one part."""
    got = sorted(part.partition for part in parts)
    if got != sorted(job.by_partition):
        raise SnapshotError(
            f"{job.topic}: parts of partitions {got}, expected {sorted(job.by_partition)} "
            "(a partition read by two tasks cannot be merged)"
        )
    refuse_unreadable(job, parts)
    catalog = Catalog(open_storage(job.url))
    spans = job.by_partition
    return [
        catalog.commit(_manifest(job, spans[part.partition], part))
        for part in sorted(parts, key=lambda part: part.partition)
    ]


def _manifest(job: Job, span: Span, part: Part) -> Manifest:
    return Manifest(
        topic=job.topic,
        partition=part.partition,
        snapshot_id=snapshot_id(part.next_offset),
        next_offset=part.next_offset,
        keys=part.keys,
        bytes=part.bytes,
        sha256=part.sha256,
        created_at=format_time_ms(job.created_ms),
        files=part.files,
        format_version=WHOLE if part.layers is None else LAYERED,
        topic_id=job.topic_id,
        start_offset=span.log_start,
        key_types=part.key_types,
        value_types=part.value_types,
        layers=part.layers,
        new_bytes=part.new_bytes,
    )


def refuse_unreadable(job: Job, parts: Sequence[Part]) -> None:
    """Log the number of records that are not JSON; raise SnapshotError if they are the majority.

    The rows of the previous snapshots count as records that are JSON.
    """
    for part in parts:
        if part.unreadable:
            logger.warning(
                "%s-%d: left out %d records that are not JSON, as a replay does",
                job.topic,
                part.partition,
                part.unreadable,
            )
    unreadable, records = (
        sum(getattr(part, name) for part in parts) for name in ("unreadable", "records")
    )
    rows = sum(span.base.keys for span in job.spans if span.base)
    if unreadable > MAX_UNREADABLE_SHARE * (records + rows):
        raise SnapshotError(
            f"{job.topic}: {unreadable} of {records} records are not JSON, so no snapshot is "
            "published. If the table has a different serializer, give --key-codec raw or "
            "--value-codec raw"
        )


def is_corrupt_base(error: BaseException) -> bool:
    """Return whether a job failed on the driver or an executor because a previous snapshot is damaged."""
    return isinstance(error, SnapshotCorruptError) or SnapshotCorruptError.__name__ in str(error)
