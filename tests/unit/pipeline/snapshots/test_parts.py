"""The part of a span: the fields of its future manifest."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from faust_assigner.pipeline.snapshots.spans import Job, Part, Span
from faust_assigner.pipeline.snapshots.writer import SpanWriter
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
