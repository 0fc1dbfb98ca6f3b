"""A span that is read in this process, a base whose files are damaged, and a writer that fails."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.pipeline.snapshots import spans, writer
from faust_assigner.pipeline.snapshots.spans import Job, Part, Span, plan_job, publish
from faust_assigner.pipeline.snapshots.writer import SpanWriter, run_here
from faust_assigner.snapshots.catalog import SnapshotCorruptError
from faust_assigner.snapshots.changelog import Changelog, Extent
from faust_assigner.snapshots.compaction import Compacted
from faust_assigner.snapshots.manifest import Manifest, SnapshotError
from faust_assigner.snapshots.sst import SstFile


def manifest(next_offset: int, **more: Any) -> Manifest:
    """Return a manifest that may be a base."""
    told = {
        "topic": "t",
        "partition": 0,
        "snapshot_id": spans.snapshot_id(next_offset),
        "next_offset": next_offset,
        "keys": 3,
        "bytes": 40,
        "sha256": "ab",
        "created_at": "2026-11-21T00:00:00.000Z",
        "files": ("a.sst",),
        "topic_id": "id",
        "start_offset": 2,
        "key_types": ("int",),
        "value_types": ("list",),
    }
    return Manifest(**{**told, **more})


def test_each_span_is_read_into_its_own_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty batches add no records; the spans are read one after the other."""
    seen: list[Any] = []

    class Writer:
        def __init__(self, job: Any, span: Span) -> None:
            self.span = span
            seen.append(("open", job, span))

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None:
            seen.append("close")

        def add(self, *given: Any, **more: Any) -> None:
            seen.append((given, more))

        def finish(self) -> Any:
            return ("part", self.span.partition)

    def read(connection: Any, places: Any, take: Any) -> Any:
        seen.append((connection, places))
        (place,) = places
        records = [
            SimpleNamespace(key=b"k%d" % n, value=b"v%d" % n, offset=10 * n) for n in range(1, 4)
        ]
        take(place, records[:1], 11)
        take(place, [], 20)
        take(place, records[1:], 40)
        return "reading"

    monkeypatch.setattr(writer, "SpanWriter", Writer)
    monkeypatch.setattr(writer, "read", read)
    monkeypatch.setattr(writer, "run_request", lambda *given: seen.append(given))
    first, second = Span(4, 7, 50, None, 3), Span(9, 5, 60)
    job = Job("t", "out", (first, second), 1)
    connection: Any = {"bootstrap_servers": ["a:1"]}
    assert run_here(job, connection) == [("part", 4), ("part", 9)]
    place = writer.TopicPartition("t", 4)
    half = len(seen) // 2
    assert seen[:half] == [
        ("open", job, first),
        (connection, {place: Extent(7, 50)}),
        (([b"k1"], [b"v1"]), {"first_offset": 10, "last_offset": 10}),
        (([b"k2", b"k3"], [b"v2", b"v3"]), {"first_offset": 20, "last_offset": 30}),
        (connection, "reading"),
        "close",
    ]
    assert seen[half : half + 2] == [
        ("open", job, second),
        (connection, {writer.TopicPartition("t", 9): Extent(5, 60)}),
    ]


def test_a_base_whose_files_cannot_be_read_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Any reason counts: of the disk, of the store, or of the content; each is logged."""
    errors = {
        90: OSError("disk"),
        80: SnapshotCorruptError("sum"),
        70: SnapshotError("gone"),
        60: None,
        50: None,
    }
    fetched: list[int] = []

    def fetch(found: Manifest, _folder: Path) -> None:
        fetched.append(found.next_offset)
        if error := errors[found.next_offset]:
            raise error

    log = Changelog("t", {0: Extent(2, 100)}, 1_000, "id")
    judge = SimpleNamespace(
        log=log,
        catalog=SimpleNamespace(fetch=fetch),
        verdicts=lambda partition: [(manifest(offset), None) for offset in errors],
    )
    monkeypatch.setattr(spans, "Judge", lambda *_: judge)
    job = plan_job(log, "unused", created_ms=5, previous=True, whole=True)
    assert job.spans == (Span(0, 60, 100, manifest(60), 2),)
    assert fetched == [90, 80, 70, 60]
    assert [word in caplog.text for word in ("disk", "sum", "gone")] == [True] * 3
    fetched.clear()
    job = plan_job(log, "unused", created_ms=5, previous=True)
    assert (job.spans[0].start, fetched) == (90, [])


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError(), OSError("full")])
def test_a_writer_that_cannot_start_leaves_no_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: BaseException
) -> None:
    """An interrupt is no exception to this."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def fail(*_: Any, **__: Any) -> Any:
        assert len(os.listdir(tmp_path)) == 1
        raise error

    monkeypatch.setattr(writer, "Compactor", fail)
    job = Job("t", str(tmp_path / "out"), (Span(0, 0, 5),), 1)
    with pytest.raises(type(error)):
        SpanWriter(job, job.spans[0])
    assert [name for name in os.listdir(tmp_path) if name != "out"] == []


def test_a_part_has_the_types_of_its_base_too() -> None:
    """A changelog without records has no types, which differs from raw bytes."""

    def part(base: Manifest | None, keys: Any, values: Any) -> Part:
        files = (SstFile("a.sst", Path("a.sst"), 5, 1),)
        done = Compacted((files,), 3, 14, "ab", 2, keys, values, 1)
        found: Any = SpanWriter.__new__(SpanWriter)
        found._job, found._span, found._records = (Job("t", "out", (), 9), Span(4, 10, 20, base), 7)
        found._compactor = SimpleNamespace(finish=lambda end: done)
        found._catalog = SimpleNamespace(upload=lambda *_: ("a.sst",))
        return SpanWriter.finish(found)

    made = part(manifest(10), frozenset({"str"}), frozenset({"dict"}))
    assert (made.key_types, made.value_types) == (("int", "str"), ("dict", "list"))
    made = part(None, frozenset(), frozenset({"dict"}))
    assert (made.key_types, made.value_types) == ((), ("dict",))
    made = part(manifest(10, key_types=None), frozenset({"str"}), None)
    assert (made.key_types, made.value_types) == (("str",), None)


def test_two_parts_of_one_partition_do_not_stand_for_two_partitions(tmp_path: Path) -> None:
    """The number of parts is right; no manifest is written."""
    job = Job("t", str(tmp_path), (Span(0, 0, 5), Span(1, 0, 5)), 1)
    part = Part(0, 5, 1, 2, "ab", (), 1, 1)
    with pytest.raises(SnapshotError, match=r"parts of partitions \[0, 0\], expected \[0, 1\]"):
        publish(job, [part, replace(part, keys=9)])
    assert list(tmp_path.rglob("*.json")) == []


@pytest.mark.parametrize(("layers", "version"), [(None, 1), ((1,), 2), ((2, 1), 2)])
def test_numbers_of_files_make_a_layered_manifest(layers: Any, version: int) -> None:
    """One layer with numbers has files of an earlier snapshot."""
    job = Job("t", "out", (Span(0, 0, 5),), 1)
    part = Part(0, 5, 1, 2, "ab", ("a", "b", "c"), 1, 1, layers=layers)
    found = spans._manifest(job, job.spans[0], part)
    assert (found.format_version, found.layers) == (version, layers)
