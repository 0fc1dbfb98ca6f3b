"""What the commands print where nobody looks at a terminal."""

from __future__ import annotations

import pytest

from faust_assigner.pipeline.console import ROWS_PRINTED, show_history, show_verdicts
from faust_assigner.pipeline.history.report import About, Report
from faust_assigner.pipeline.schema import HISTORY
from faust_assigner.snapshots.manifest import Manifest
from faust_assigner.snapshots.upkeep import Verdict


def test_of_a_long_table_the_newest_rows_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Rows are in order of time; how many there are is said."""
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
    """One that is visible and wrong is a fault; a folder without a manifest is none."""
    seen = Manifest.__new__(Manifest)
    unfinished = Verdict("c", None, "no manifest")
    show_verdicts([Verdict("a", seen, None), Verdict("b", seen, "bytes differ"), unfinished])
    lines = capsys.readouterr().out.splitlines()
    states = {line.split()[0]: line.split()[1] for line in lines[2:]}
    assert states == {"a": "ok", "b": "BROKEN", "c": "unfinished"}
