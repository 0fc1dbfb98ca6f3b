"""The refused lines of a visit: their line numbers, their limit, and earlier visits' lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from faust_assigner.pipeline.history import refused
from faust_assigner.pipeline.history.options import HistoryOptions
from faust_assigner.pipeline.history.refused import RefusedLines, joined, table_of
from faust_assigner.pipeline.ledgers.parse import parse_chunks
from faust_assigner.pipeline.ledgers.progress import FilePosition, Visit, plan_full_visit
from faust_assigner.pipeline.ledgers.refusals import Refused
from tests.integration.spark.ledgers import Ledger, bad
from tests.unit.pipeline.history.made import at


def collected(*rows: tuple[str, int, int, int, str | None]) -> RefusedLines:
    """Return refused lines and closing rows: (file, chunk, pos, line, reason)."""
    found = RefusedLines()
    for row in rows:
        found.take(*row)
    return found


ROWS = (
    ("b", 50, 60, 2, "late"),
    ("b", 50, 90, 7, None),
    ("b", 0, 50, 4, None),
    ("b", 0, 3, 1, "early"),
    ("a", 0, 30, 3, "open"),
    ("a", 0, 20, 2, "whole"),
    ("a", 0, 40, 3, None),
)


def progress(at: int, size: int) -> FilePosition:
    """Return a file's progress up to ``size``, with an unfinished line from ``at`` on."""
    return FilePosition(at, size, "", 0, "")


def test_refused_lines_are_numbered_from_the_first_line_of_their_file() -> None:
    """Numbers continue over chunks in any order and over visits; unfinished lines have none."""
    lines = collected(*ROWS)
    assert lines.lines() == {"b": 11, "a": 3}
    visit = Visit(files={"a": progress(30, 40)}, lines_before={"b": 100, "a": 20})
    assert lines.rows(visit) == [("a", 22, "whole"), ("b", 101, "early"), ("b", 106, "late")]
    assert lines.rows(Visit())[:2] == [("a", 2, "whole"), ("a", 3, "open")]


@pytest.mark.parametrize(
    ("at", "size", "told"),
    [(30, 30, 2), (29, 31, 1), (30, 31, 1), (31, 40, 2), (20, 30, 1), (20, 31, 0), (0, 20, 2)],
)
def test_an_unfinished_line_begins_where_the_next_visit_begins(
    at: int, size: int, told: int
) -> None:
    """For a file without an unfinished line, that is its end."""
    lines = collected(*ROWS)
    rows = lines.rows(Visit(files={"a": progress(at, size)}))
    assert sum(file == "a" for file, _, _ in rows) == told


def test_refused_lines_beyond_the_limit_have_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing rows still count lines, and the smallest places are stored."""
    monkeypatch.setattr(refused, "KEPT", 2)
    lines = collected(*ROWS)
    assert [row[-1] for row in lines.refused] == ["late", "early"]
    assert lines.lines() == {"b": 11, "a": 3}
    told = [("f", 3, "r"), ("f", 1, "r"), ("e", 9, "s")]
    assert table_of(told).to_pylist() == [
        {"file": "f", "line": 3, "reason": "r"},
        {"file": "f", "line": 1, "reason": "r"},
    ]


def test_stored_and_new_refused_lines_are_joined_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines are sorted by place; beyond the limit earlier visits' lines are dropped."""
    stand = table_of([("g", 1, "r"), ("g", 2, "r"), ("h", 1, "r")])
    new = [("h", 1, "r"), ("a", 5, "s"), ("g", 2, "other")]

    def told() -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in joined(stand, iter(new)).to_pylist()]

    assert told() == [("a", 5, "s"), ("g", 1, "r"), ("g", 2, "other"), ("g", 2, "r"), ("h", 1, "r")]
    monkeypatch.setattr(refused, "KEPT", 3)
    assert told() == [("a", 5, "s"), ("g", 2, "other"), ("h", 1, "r")]


def test_watched_batches_count_each_line_and_stay_as_they_are(tmp_path: Path) -> None:
    """The batch has an accepted line, two refused lines and the closing row."""
    ledger = Ledger(tmp_path)
    path = ledger.write("w.jsonl", [bad(b"x", "JSON"), *at("2026-11-20", 1, 2), bad(b"[]", "JSON")])
    chunks = plan_full_visit([str(tmp_path)], HistoryOptions((), "").period, {}).chunks
    batches = list(parse_chunks(chunks))
    lines = RefusedLines(Refused(accepted=10, keep=5))
    assert list(lines.watch(batches)) == batches
    assert (lines.counts.accepted, lines.counts.lines) == (13, 2)
    assert [(file, line) for file, line, _ in lines.counts.kept] == [(str(path), 1), (str(path), 5)]
    assert [row[:4] for row in lines.refused] == [
        (str(path), 0, 0, 1),
        (str(path), 0, path.stat().st_size - 3, 5),
    ]
    assert lines.lines() == {str(path): 5}
