"""The data quality of a history, and the gates of a schedule."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from faust_assigner.cli import main
from faust_assigner.pipeline.history.quality import Gates, Quality, quality_of
from faust_assigner.pipeline.history.store import Store
from faust_assigner.pipeline.ledgers.refusals import Refused, Tolerance
from tests.integration.spark.ledgers import (
    ASSIGNMENT,
    DECISION,
    RECOVERY,
    SAMPLE,
    Ledger,
    Line,
    bad,
    good,
    stamp,
)
from tests.support.pictures import no_pictures as no_pictures
from tests.unit.pipeline.history.made import History, at

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _no_pictures(no_pictures: None) -> None:
    """They take most of a run."""


def quality(history: History, *lines: Line, **wanted: Any) -> Quality:
    """The quality of the history with these lines, at noon of the 25th."""
    report = history.run(*lines)
    store = Store(str(history.out))
    gates = (Gates(**wanted), Tolerance())
    return quality_of(store, store.load(), report.tables, 0, Refused(), gates, NOW)


def test_days_without_a_line_are_named(tmp_path: Path) -> None:
    """Between the first and the last day; a day in the future is counted apart."""
    lines = [*at("2026-11-20", 1), *at("2026-11-23", 1), *at("2027-01-01", 1)]
    found = quality(History(tmp_path), *lines)
    assert (found.days, found.days_missing, found.missing) == (3, 2, ("2026-11-21", "2026-11-22"))
    assert found.days_in_future == 1


def test_the_newest_line_is_of_any_table_and_not_of_a_clock_that_is_ahead(tmp_path: Path) -> None:
    """A sample after the last decision; a line of next year does not hide that the others ended."""
    sampled = {**SAMPLE, "ts": "2026-11-23T06:00:00.000Z"}
    ended = {**RECOVERY, "started": "2026-11-22T23:00:00.000Z", "ended": "2026-11-23T05:00:00.000Z"}
    lines = [*at("2026-11-23", 1), *at("2027-01-01", 1), good(sampled), good(ended)]
    found = quality(History(tmp_path), *lines)
    assert found.newest_line == datetime(2026, 11, 23, 6, tzinfo=UTC)
    assert found.age_s == timedelta(days=2, hours=6).total_seconds()


@pytest.mark.parametrize(("days", "passed"), [(1, True), (2, True), (3, False)])
def test_min_days_counts_the_days_of_the_history(tmp_path: Path, days: int, passed: bool) -> None:
    """Days in the future do not count."""
    lines = [*at("2026-11-20", 1), *at("2026-11-23", 1), *at("2027-01-01", 1)]
    (gate,) = quality(History(tmp_path), *lines, min_days=days).gates
    assert (gate["gate"], gate["passed"]) == ("min-days", passed)


@pytest.mark.parametrize(("hours", "passed"), [(11.0, True), (10.9, False)])
def test_max_age_is_of_the_newest_line(tmp_path: Path, hours: float, passed: bool) -> None:
    """A line of eleven hours ago, at its limit and beyond."""
    (gate,) = quality(History(tmp_path), *at("2026-11-25", 1), max_age_s=hours * 3600).gates
    assert (gate["gate"], gate["passed"]) == ("max-age", passed)


def test_a_history_without_lines_misses_both_gates(tmp_path: Path) -> None:
    """It has no day, and no line that could be young."""
    found = quality(History(tmp_path), min_days=1, max_age_s=1e9)
    assert [gate["passed"] for gate in found.gates] == [False, False]


def test_partitions_without_samples_are_counted(tmp_path: Path) -> None:
    """Four are owned, one of them writes samples."""
    placed = [good({**ASSIGNMENT, "partition": number}) for number in range(4)]
    found = quality(History(tmp_path), good(DECISION), *placed, good(SAMPLE))
    assert (found.partitions_owned, found.partitions_sampled) == (4, 1)


def run(home: Path, *options: str) -> Result:
    """The command over the folder ``ledger``."""
    folders = ("--ledger", str(home / "ledger"), "--out", str(home / "out"))
    return CliRunner().invoke(main, ["history", "--no-spark", *folders, *options])


def test_a_missed_gate_ends_with_3_and_the_history_is_written(tmp_path: Path) -> None:
    """The report and the page have the verdict; a later run that passes rewrites both."""
    now = datetime.now(UTC)
    row = {**DECISION, "ts": stamp(now - timedelta(hours=2))}
    Ledger(tmp_path / "ledger").write("w.jsonl", [good(row), bad(b"x", "JSON")])
    missed = run(tmp_path, "--max-age", "1h", "--max-refused", "1")
    assert missed.exit_code == 3, missed.output
    assert "--max-age 1 h: the newest line is 2 h old, missed" in missed.output
    told = json.loads((tmp_path / "out" / "report.json").read_text())
    assert len(told["movement"]) == 1
    verdicts = {gate["gate"]: gate["passed"] for gate in told["quality"]["gates"]}
    assert verdicts == {"max-refused": True, "max-age": False}
    assert (told["quality"]["lines_accepted"], told["quality"]["lines_refused"]) == (1, 1)
    assert "the newest line is 2 h old, missed" in (tmp_path / "out" / "report.html").read_text()
    assert run(tmp_path, "--max-age", "3h").exit_code == 0
    told = json.loads((tmp_path / "out" / "report.json").read_text())
    assert [gate["passed"] for gate in told["quality"]["gates"]] == [True]


def test_gates_are_options_of_the_schedule_and_its_code_is_3(tmp_path: Path) -> None:
    """``pipeline run`` goes on with its other sections."""
    now = {"ts": stamp(datetime.now(UTC))}
    lines = [good({**DECISION, **now}), good({**SAMPLE, **now})]
    Ledger(tmp_path / "ledger").write("w.jsonl", lines)
    (tmp_path / "pipeline.toml").write_text(
        f"""
        [pipeline]
        no-spark = true
        [history]
        ledger = "{tmp_path}/ledger"
        out = "{tmp_path}/out"
        min-days = 7
        max-age = "3650d"
        [weights]
        ledger = "{tmp_path}/ledger"
        out = "{tmp_path}/weights.json"
        """
    )
    done = CliRunner().invoke(
        main, ["pipeline", "run", "--config", str(tmp_path / "pipeline.toml")]
    )
    assert done.exit_code == 3, done.output
    assert "--min-days 7: the history has 1 days, missed" in done.output
    assert (tmp_path / "weights.json").exists()
