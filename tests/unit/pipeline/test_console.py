"""The commands' output without a terminal."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from faust_assigner.pipeline.console import (
    ROWS_PRINTED,
    show,
    show_history,
    show_manifests,
    show_removals,
    show_verdicts,
)
from faust_assigner.pipeline.history.report import About, Report
from faust_assigner.pipeline.schema import HISTORY
from faust_assigner.snapshots.manifest import Manifest
from faust_assigner.snapshots.retention import Removal
from faust_assigner.snapshots.verification import Verdict


def test_of_a_long_table_the_newest_rows_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Rows are in order of time, and the title has their number."""
    rows = [
        {"group_id": "g", "dt": f"day {n:03d}", "policy": "p", "decisions": 1, "assigned": 1, "moved": 0,
         "cold_moves": 0, "standby_hits": 0}
        for n in range(ROWS_PRINTED + 5)
    ]  # fmt: skip
    tables = {name: rows if name == "movement" else [] for name in HISTORY}
    show_history(Report(tables, about=About(version="1")), "somewhere")
    said = capsys.readouterr().out
    assert "day 024" in said
    assert "day 004" not in said
    assert f"(the last {ROWS_PRINTED} of {ROWS_PRINTED + 5} rows)" in said


def test_a_broken_snapshot_is_told_apart_from_an_unfinished_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A wrong visible snapshot is a fault; a folder without a manifest is not."""
    seen = Manifest.__new__(Manifest)
    unfinished = Verdict("c", None, "no manifest")
    show_verdicts([Verdict("a", seen, None), Verdict("b", seen, "bytes differ"), unfinished])
    lines = capsys.readouterr().out.splitlines()
    states = {line.split()[0]: line.split()[1] for line in lines[2:]}
    assert states == {"a": "ok", "b": "BROKEN", "c": "unfinished"}


MANIFEST = Manifest(
    topic="log", partition=3, snapshot_id="00042", next_offset=42, keys=1_000, bytes=2_048,
    sha256="ab", created_at="2026-01-01T00:00:00.000Z", files=("f",),
    new_bytes=1_024,
)  # fmt: skip


def test_columns_are_as_wide_as_their_widest_cell(capsys: pytest.CaptureFixture[str]) -> None:
    """No line ends with blanks."""
    show("Title", ("a", "head"), [("long cell", "x"), ("y", "")])
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["Title", "a          head", "long cell  x", "y"]


def test_snapshots_are_printed_a_partition_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    """A run without partitions is reported too."""
    show_manifests([MANIFEST], "s3://there")
    title, _, row, _, end = capsys.readouterr().out.splitlines()
    assert (title, end) == ("Snapshots of log", "Written to s3://there")
    assert row.split() == ["3", "42", "1,000", "2,048", "1,024", "1", "00042"]
    show_manifests([], "there")
    assert capsys.readouterr().out.splitlines()[0] == "No partitions"


def test_what_programs_read_is_json_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """No other text is printed."""
    show_manifests([MANIFEST], "there", as_json=True)
    assert json.loads(capsys.readouterr().out) == [{**asdict(MANIFEST), "files": ["f"]}]
    show_verdicts([Verdict("a", MANIFEST, None), Verdict("b", None, "why")], as_json=True)
    assert json.loads(capsys.readouterr().out) == [
        {"snapshot": "a", "visible": True, "problem": None},
        {"snapshot": "b", "visible": False, "problem": "why"},
    ]
    gone = Removal(path="p", size=5, reason="old")
    show_removals([gone], dry_run=False, as_json=True)
    assert json.loads(capsys.readouterr().out) == [asdict(gone)]


@pytest.mark.parametrize(("dry_run", "title"), [(True, "Would remove 1"), (False, "Removed 1")])
def test_what_would_be_removed_is_told_from_what_was(
    capsys: pytest.CaptureFixture[str], dry_run: bool, title: str
) -> None:
    """Both have the size and the reason."""
    show_removals([Removal(path="p", size=5_000, reason="old")], dry_run=dry_run)
    lines = capsys.readouterr().out.splitlines()
    assert (lines[0], lines[2].split()) == (title, ["p", "5,000", "old"])
