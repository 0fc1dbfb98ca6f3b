"""The snapshots that may replace the current changelog, the newest first.

A recreated topic has the same name but different records. Kafka's topic id distinguishes the
topics; a manifest without an id is trusted until a later snapshot shows that the topic was recreated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from faust_assigner.snapshots.catalog import Catalog, Found, folder_of, newest_first
from faust_assigner.snapshots.changelog import Changelog
from faust_assigner.snapshots.manifest import Manifest, refusal


@dataclass(frozen=True)
class Judge:
    """Judges the snapshots of one changelog in ``catalog``."""

    catalog: Catalog
    log: Changelog
    now_ms: int

    def verdicts(self, partition: int) -> Iterator[tuple[Manifest, str | None]]:
        """Yield each snapshot of the partition with the reason against its use, or None if it is usable."""
        for manifest in self.catalog.snapshots(self.log.topic, partition):
            yield manifest, self._refusal(manifest, partition)

    def _refusal(self, manifest: Manifest, partition: int) -> str | None:
        log = self.log
        if manifest.created_ms > self.now_ms:
            # It may end beyond the known end of the changelog, and its age is unknown.
            return (
                f"it was taken at {manifest.created_at}, which is later than the time of this comparison: "
                "the snapshot is new, or the clock of its machine was ahead"
            )
        # A snapshot with the current topic id needs no comparison, so no other manifest is read.
        others: Sequence[Manifest] = ()
        if manifest.topic_id is None or manifest.topic_id != log.topic_id:
            unknown = [found for found in self._all_folders if found.may_be_valid]
            if unknown and manifest.topic_id is None:
                return (
                    f"it names no topic id, and snapshot {unknown[0].partition}/{unknown[0].snapshot_id} "
                    f"may show that the topic was recreated: {unknown[0].problem}"
                )
            others = newest_first(self._all_folders)
        return earlier_topic(
            manifest,
            others,
            topic_id=log.topic_id,
            ends={number: extent.end for number, extent in log.extents.items()},
        ) or refusal(
            manifest,
            topic=log.topic,
            partition=partition,
            now_ms=self.now_ms,
            delete_retention_ms=log.delete_retention_ms,
            log_start=log.extents[partition].start,
        )

    @cached_property
    def _all_folders(self) -> Sequence[Found]:
        return all_folders(self.catalog, self.log.topic)


def all_folders(catalog: Catalog, topic: str) -> list[Found]:
    """Return the snapshot folders of every partition."""
    return [
        found
        for partition in catalog.partitions(topic)
        for found in catalog.folders(topic, partition)
    ]


def newest_topic_id(manifests: Sequence[Manifest]) -> str | None:
    """Return the topic id of the newest snapshot that has one, as an estimate without Kafka, or None."""
    named = [manifest for manifest in manifests if manifest.topic_id is not None]
    return (
        max(named, key=lambda each: (each.created_ms, each.partition)).topic_id if named else None
    )


def earlier_topic(
    manifest: Manifest, others: Sequence[Manifest], *, topic_id: str | None, ends: Mapping[int, int]
) -> str | None:
    """Return the evidence that ``manifest`` belongs to an earlier topic with the same name, or None.

    ``topic_id`` and ``ends`` (by partition) are the current topic's, as far as known; ``others``
    are snapshots of all its partitions. No I/O.
    """
    if topic_id is not None and manifest.topic_id not in (None, topic_id):
        return (
            f"it is of the topic with id {manifest.topic_id}, the changelog has {topic_id}: "
            "the topic was recreated"
        )
    if manifest.next_offset > ends.get(manifest.partition, manifest.next_offset):
        return (
            f"it ends at offset {manifest.next_offset}, the changelog at {ends[manifest.partition]}: "
            "the topic was recreated or truncated"
        )
    if topic_id is not None and manifest.topic_id == topic_id:
        return None
    for newer in others:
        if newer.created_ms > manifest.created_ms:
            shown = _recreation_evidence(newer, manifest, topic_id, ends)
            if shown:
                return (
                    f"it names no topic id, and snapshot {newer.partition}/{newer.snapshot_id}, taken "
                    f"later, {shown}: the topic was recreated"
                )
    return None


def _recreation_evidence(
    newer: Manifest, manifest: Manifest, topic_id: str | None, ends: Mapping[int, int]
) -> str | None:
    if topic_id is not None and newer.topic_id not in (None, topic_id):
        return f"is of the topic with id {newer.topic_id}, not {topic_id}"
    end = ends.get(newer.partition, newer.next_offset)
    if newer.next_offset > end:
        return f"ends beyond the changelog's end, {end}"
    if newer.partition == manifest.partition and newer.next_offset < manifest.next_offset:
        return f"ends at the lower offset {newer.next_offset}"
    return None


def outdated_folders(manifests: Sequence[Manifest], log: Changelog | None) -> dict[str, str]:
    """Return folder -> the reason why its snapshot is of an earlier topic; current folders are absent."""
    topic_id = log.topic_id if log else newest_topic_id(manifests)
    ends = {number: extent.end for number, extent in log.extents.items()} if log else {}
    found = {
        folder_of(each): earlier_topic(each, manifests, topic_id=topic_id, ends=ends)
        for each in manifests
    }
    return {folder: reason for folder, reason in found.items() if reason}
