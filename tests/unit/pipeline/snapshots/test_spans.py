"""The spans of a run: bases, batches, parts and whole manifests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.pipeline.cluster import Cluster
from faust_assigner.pipeline.snapshots import spans
from faust_assigner.pipeline.snapshots.spans import (
    Job,
    Part,
    Span,
    is_corrupt_base,
    plan_job,
    publish,
    refuse_unreadable,
)
from faust_assigner.pipeline.snapshots.writer import SpanWriter
from faust_assigner.snapshots.catalog import SnapshotCorruptError
from faust_assigner.snapshots.changelog import Changelog, Extent
from faust_assigner.snapshots.manifest import Manifest, SnapshotError

CLUSTER = Cluster("a:1", {"client.id": "me"})
JOB = Job("t", "unused", (Span(0, 3, 9), Span(1, 5, 5), Span(4, 0, 7)), 1_700_000_000_000)
PART = Part(
    4, 7, 2, 300, "sha", ("a.sst", "b.sst"), 5, 1, ("str",), None, 3, (1, 1), 120
)  # fmt: skip


def changelog(*extents: tuple[int, int], topic_id: str | None = "id") -> Changelog:
    """Return a changelog of partitions with these starts and ends."""
    found = {number: Extent(*extent) for number, extent in enumerate(extents)}
    return Changelog("t", found, 1_000, topic_id)


def job(folder: Path, *given: Span) -> Job:
    """Return a job of raw records into a folder."""
    return Job("t", str(folder), given, 1_700_000_000_000, topic_id="id", codecs=("raw", "raw"))


def test_the_whole_manifest_of_a_part(tmp_path: Path) -> None:
    """Each field comes from the part, the span or the job."""
    made = Job("t", str(tmp_path), (Span(4, 5, 7, None, 2),), 1_700_000_000_123, topic_id="id")
    assert spans._manifest(made, made.spans[0], PART) == Manifest(
        topic="t",
        partition=4,
        snapshot_id=spans.snapshot_id(7),
        next_offset=7,
        keys=2,
        bytes=300,
        sha256="sha",
        created_at="2023-11-14T22:13:20.123Z",
        files=("a.sst", "b.sst"),
        format_version=2,
        topic_id="id",
        start_offset=2,
        key_types=("str",),
        value_types=None,
        layers=(1, 1),
        new_bytes=120,
    )
    whole = spans._manifest(made, made.spans[0], replace(PART, layers=None))
    assert (whole.format_version, whole.layers) == (1, None)


def test_a_part_counts_its_records_keys_and_new_bytes(tmp_path: Path) -> None:
    """A repeated record counts as two records and one key; all files are new."""
    made = job(tmp_path, Span(0, 2, 9, None, 2))
    with SpanWriter(made, made.spans[0]) as writer:
        writer.add([b"a", b"b"], [b"1", b"2"], first_offset=2, last_offset=4)
        writer.add([b"a", b"c"], [b"3", None], first_offset=6, last_offset=8)
        part = writer.finish()
    assert (part.partition, part.next_offset, part.keys, part.records) == (0, 9, 2, 4)
    assert (part.unreadable, part.layers, part.key_types, part.value_types) == (0, None, None, None)
    assert part.new_bytes == part.bytes > 0
    [manifest] = publish(made, [part])
    assert (manifest.keys, manifest.start_offset, manifest.files) == (2, 2, part.files)


def test_a_batch_from_another_place_names_its_offsets(tmp_path: Path) -> None:
    """The error also has the partition, the last offset and the end."""
    made = job(tmp_path, Span(3, 2, 9))
    with SpanWriter(made, made.spans[0]) as writer:
        writer.add([b"a"], [b"1"], first_offset=2, last_offset=4)
        with pytest.raises(SnapshotError) as refused:
            writer.add([b"a"], [b"1"], first_offset=4, last_offset=6)
    assert str(refused.value) == ("t-3: offsets 4..6 after 4, expected ascending ones below 9")


def test_a_plan_has_a_span_for_each_partition_in_their_order(tmp_path: Path) -> None:
    """Without --previous a span starts at the first offset; the job has all options."""
    log = Changelog("t", {7: Extent(3, 9), 0: Extent(1, 1)}, 1_000, "id")
    found = plan_job(
        log, str(tmp_path), created_ms=55, memory_bytes=77, codecs=("raw", "json"), max_layers=5
    )
    wanted = (Span(0, 1, 1, None, 1), Span(7, 3, 9, None, 3))
    assert found == Job("t", str(tmp_path), wanted, 55, 77, "id", ("raw", "json"), 5)


@pytest.mark.parametrize(
    ("start", "types", "codecs", "reason"),
    [
        (None, (None, None), ("auto", "auto"), "it was written before snapshots left out"),
        (
            3,
            (None, None),
            ("auto", "auto"),
            "it was read from offset 3 on, but the changelog now begins at 4: the snapshot has rows "
            "that retention removed",
        ),
        (4, (("str",), None), ("json", "raw"), None),
        (4, (("str",), None), ("auto", "auto"), None),
        (
            4,
            (("str",), None),
            ("json", "json"),
            "its keys and values were read as ('json', 'raw'), but ('json', 'json') is requested",
        ),
        (4, (None, ()), ("json", "auto"), "its keys and values were read as ('raw', 'json')"),
    ],
)
def test_a_snapshot_that_is_no_base_has_its_reason(
    start: int | None, types: Any, codecs: tuple[str, str], reason: str | None
) -> None:
    """The reason is the start or the codecs; an empty set of types counts as JSON."""
    manifest: Any = SimpleNamespace(
        start_offset=start, keys=1, key_types=types[0], value_types=types[1]
    )
    found = spans._unfit(manifest, 4, codecs)
    assert (found or "").startswith(reason or "")
    assert (found is None) is (reason is None)
    manifest.keys = 0
    assert spans._unfit(manifest, 4, codecs) == (found if codecs == ("auto", "auto") else None)


def test_refused_bases_are_logged_with_their_reasons_until_one_fits(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Files are read only for a whole check; a damaged file is the next reason."""
    fields = {"start_offset": 9, "keys": 1, "key_types": None, "value_types": None}
    manifests = [SimpleNamespace(snapshot_id=f"s{n}", **fields) for n in range(4)]
    manifests[1].start_offset = 1
    judge: Any = SimpleNamespace(
        log=changelog((0, 5), (9, 9)),
        catalog="catalog",
        verdicts=lambda partition: zip(manifests, ("too old", None, None, None), strict=True),
    )
    damaged = {"s2": "bytes differ"}
    monkeypatch.setattr(spans, "_damage", lambda _, manifest: damaged.get(manifest.snapshot_id))
    assert spans._base(judge, 1, ("auto", "auto"), False) is manifests[2]
    assert spans._base(judge, 1, ("auto", "auto"), True) is manifests[3]
    told = [record.getMessage() for record in caplog.records]
    assert [line.partition(" cannot be extended: ")[0] for line in told] == [
        f"t-1: snapshot {name}" for name in ("s0", "s1", "s0", "s1", "s2")
    ]
    assert told[0].endswith(": too old")
    assert told[-1].endswith(": bytes differ")


def test_unreadable_records_are_logged_per_partition_and_refused_over_all(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The error has both sums."""
    parts = [
        replace(PART, partition=number, records=10, unreadable=count)
        for number, count in enumerate((0, 4, 6))
    ]
    refuse_unreadable(JOB, parts)
    assert [record.args for record in caplog.records] == [("t", 1, 4), ("t", 2, 6)]
    with pytest.raises(SnapshotError, match="t: 16 of 30 records are not JSON"):
        refuse_unreadable(JOB, [*parts[1:], replace(parts[0], unreadable=6)])


def test_the_share_of_unreadable_records_is_that_of_all_partitions() -> None:
    """A small partition of foreign records does not stop the snapshot of the large ones."""
    small = replace(PART, partition=0, records=4, unreadable=3)
    refuse_unreadable(JOB, [small, replace(PART, partition=1, records=1_000, unreadable=0)])
    with pytest.raises(SnapshotError, match="t: 3 of 4 records are not JSON"):
        refuse_unreadable(JOB, [small])


@pytest.mark.parametrize(("rows", "is_refused"), [(1, True), (2, False)])
def test_the_rows_of_the_previous_snapshot_count_as_readable(rows: int, is_refused: bool) -> None:
    """The two new records are not JSON; with two rows in the base they are half of all records."""
    base = replace(spans._manifest(JOB, JOB.spans[0], PART), keys=rows)
    given = replace(JOB, spans=(Span(0, 7, 9, base), Span(1, 0, 0)))
    part = replace(PART, partition=0, records=2, unreadable=2)
    if is_refused:
        with pytest.raises(SnapshotError, match="t: 2 of 2 records are not JSON"):
            refuse_unreadable(given, [part])
    else:
        refuse_unreadable(given, [part])


@pytest.mark.parametrize(
    ("error", "is_corrupt"),
    [
        (SnapshotCorruptError("x"), True),
        (RuntimeError("... SnapshotCorruptError: bytes differ ..."), True),
        (SnapshotError("SnapshotCorrupt"), False),
    ],
)
def test_a_damaged_base_is_known_by_its_error_here_or_on_an_executor(
    error: Exception, is_corrupt: bool
) -> None:
    """An executor's error has the name in its text."""
    assert is_corrupt_base(error) is is_corrupt
