"""The part of a span: the fields of its future manifest."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.pipeline.cluster import Cluster
from faust_assigner.pipeline.snapshots import run as run_module
from faust_assigner.pipeline.snapshots import writer
from faust_assigner.pipeline.snapshots.run import take_snapshot
from faust_assigner.pipeline.snapshots.spans import Job, Part, Span
from faust_assigner.pipeline.snapshots.writer import SpanWriter
from faust_assigner.snapshots.changelog import Changelog, Extent
from faust_assigner.snapshots.compaction import Compacted
from faust_assigner.snapshots.sst import SstFile


def test_one_layer_with_files_of_another_snapshot_has_its_number_of_files() -> None:
    """Only new files count as new bytes; one layer of new files alone needs no numbers."""

    def part(*names: str) -> Part:
        files = tuple(SstFile(name, Path(name), 5 + 4 * n, n) for n, name in enumerate(names))
        done = Compacted((files,), 3, 14, "ab", 2, None, frozenset({"str", "int"}), 1)
        writer: Any = SpanWriter.__new__(SpanWriter)
        writer._job, writer._span, writer._records = Job("orders", "out", (), 9), Span(4, 10, 20), 7
        writer._compactor = SimpleNamespace(finish=lambda end: done if end == 20 else None)
        writer._catalog = SimpleNamespace(
            upload=lambda *given: tuple(file.name for file in given[3]) + given[:3]
        )
        found: Part = writer.finish()
        return found

    common = (4, 20, 3, 14, "ab")
    reused = part("new.sst", "00000000000000000010/old.sst")
    names = ("new.sst", "00000000000000000010/old.sst", "orders", 4, 20)
    assert reused == Part(*common, names, 7, 2, None, ("int", "str"), 1, (2,), 5)
    whole = part("a.sst", "b.sst")
    names = ("a.sst", "b.sst", "orders", 4, 20)
    assert whole == Part(*common, names, 7, 2, None, ("int", "str"), 1, None, 14)


@pytest.mark.parametrize(
    ("previous", "message", "is_tried_again"),
    [
        (True, "SnapshotCorruptError: damaged", True),
        (False, "SnapshotCorruptError: damaged", False),
        (True, "no space", False),
    ],
)
def test_only_a_run_upon_damaged_snapshots_is_tried_again_with_their_files_checked(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    previous: bool,
    message: str,
    is_tried_again: bool,
) -> None:
    """The second plan looks into all files; its failure ends the run."""
    asked: list[Any] = []
    changelog = Changelog("t", {0: Extent(0, 4)}, 1_000, "id")
    job = Job("t", "unused", (), 5)

    def fail(*_: Any) -> list[Part]:
        raise RuntimeError(message)

    monkeypatch.setattr(run_module, "look_at", lambda *_: changelog)
    monkeypatch.setattr(run_module, "_run", fail)
    monkeypatch.setattr(run_module, "plan_job", lambda *_, **more: asked.append(more) or job)
    with pytest.raises(RuntimeError, match=message):
        take_snapshot(Cluster("a:1"), "t", str(tmp_path), previous=previous, created_ms=5)
    assert [(more["previous"], more.get("whole", False)) for more in asked] == [
        (previous, False),
        *([(True, True)] * is_tried_again),
    ]


@pytest.mark.parametrize(
    ("keys", "codecs"), [(None, ("raw", "json")), (0, ("raw", "json")), (3, ("json", "raw"))]
)
def test_a_writer_has_the_limits_of_its_job_and_the_codecs_of_its_base(
    monkeypatch: pytest.MonkeyPatch, keys: int | None, codecs: tuple[str, str]
) -> None:
    """An empty base has no codecs that its rows were read with."""
    made: list[Any] = []

    class Compactor:
        def __init__(self, folder: Path, **named: Any) -> None:
            made.append((folder.is_dir(), named))

        def __enter__(self) -> Compactor:
            return self

        def __exit__(self, *_: object) -> None:
            made.append("closed")

    base: Any = (
        keys if keys is None else SimpleNamespace(keys=keys, key_types=("str",), value_types=None)
    )
    monkeypatch.setattr(writer, "Compactor", Compactor)
    monkeypatch.setattr(writer, "Catalog", lambda storage: ("catalog", storage))
    monkeypatch.setattr(writer, "open_storage", lambda url: url)
    monkeypatch.setattr(writer, "_on_this_machine", lambda *given: (given[:2], given[2].is_dir()))
    span = Span(4, 10, 20, base)
    job = Job("t", "url", (span,), 5, memory_bytes=77, codecs=("raw", "json"), max_layers=3)
    with writer.SpanWriter(job, span) as found:
        assert found._next == 10
    wanted = {
        "base": None if base is None else ((("catalog", "url"), base), True),
        "max_layers": 3,
        "memory_bytes": 77,
        "codecs": codecs,
    }
    assert made == [(True, wanted), "closed"]


def test_a_snapshot_without_news_has_all_fields_of_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No file is written: the new manifest names the files that were fetched."""
    base: Any = SimpleNamespace(
        next_offset=9, keys=3, bytes=77, new_bytes=5, sha256="ab", files=("f", "g"),
        key_types=("str",), value_types=("dict", "list"), layers=(1, 1),
    )  # fmt: skip
    found: Any = SpanWriter.__new__(SpanWriter)
    found._span = Span(4, 9, 9, base, log_start=2)
    assert found.finish() == Part(
        partition=4, next_offset=9, keys=3, bytes=77, sha256="ab", files=("f", "g"), records=0, runs=0,
        key_types=("str",), value_types=("dict", "list"), unreadable=0, layers=(1, 1), new_bytes=0,
    )  # fmt: skip


def test_a_part_as_a_row_has_the_types_of_its_schema() -> None:
    """A value of another type fails only in Spark."""
    part = Part(4, 9, 3, 77, "ab", ("f",), 5, 2, ("str",), None, 1, (1, 1), 6)
    kinds = {"int32": "int", "int64": "long", "string": "string"}
    told = []
    for field in run_module._row(part).schema:
        inner = getattr(field.type, "value_type", None)
        kind = kinds[str(inner or field.type)]
        told.append(f"{field.name} {f'array<{kind}>' if inner else kind}")
    assert ", ".join(told) == run_module.PART_SCHEMA
