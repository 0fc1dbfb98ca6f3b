"""The data quality of a history, and the gates of a schedule."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from faust_assigner.cli import main
from faust_assigner.pipeline.history import quality as quality_module
from faust_assigner.pipeline.history.quality import GateFailed, Gates, Quality, quality_of
from faust_assigner.pipeline.history.report import REPORTED, Report
from faust_assigner.pipeline.history.store import PENDING, Manifest, Store
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
from tests.unit.pipeline.history.made import History, at, stored

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _no_pictures(no_pictures: None) -> None:
    """Draw no pictures: they take most of a run's time."""


def quality(history: History, *lines: Line, **wanted: Any) -> Quality:
    """Return the quality of the history with these lines, at noon of the 25th."""
    report = history.run(*lines)
    store = Store(str(history.out))
    gates = (Gates(**wanted), Tolerance())
    return quality_of(store, store.load(), report.tables, 0, Refused(), gates, NOW)


def test_days_without_a_line_are_named(tmp_path: Path) -> None:
    """Days between the first and the last count; a day in the future counts separately."""
    lines = [*at("2026-11-20", 1), *at("2026-11-23", 1), *at("2027-01-01", 1)]
    found = quality(History(tmp_path), *lines)
    assert (found.days, found.days_missing, found.missing) == (3, 2, ("2026-11-21", "2026-11-22"))
    assert found.days_in_future == 1


def test_the_newest_line_is_of_any_table_and_not_of_a_clock_that_is_ahead(tmp_path: Path) -> None:
    """A sample is newer than the last decision; a line of next year does not count."""
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
    """The newest line is eleven hours old, at its limit and beyond."""
    (gate,) = quality(History(tmp_path), *at("2026-11-25", 1), max_age_s=hours * 3600).gates
    assert (gate["gate"], gate["passed"]) == ("max-age", passed)


def test_a_history_without_lines_misses_both_gates(tmp_path: Path) -> None:
    """The history has no day and no newest line."""
    found = quality(History(tmp_path), min_days=1, max_age_s=1e9)
    assert [gate["passed"] for gate in found.gates] == [False, False]


def test_partitions_without_samples_are_counted(tmp_path: Path) -> None:
    """Four partitions are owned, and one has samples; Faust's leader topic counts nowhere."""
    leader = {"topic": "g-__assignor-__leader"}
    placed = [good({**ASSIGNMENT, "partition": number}) for number in range(4)]
    placed += [good({**ASSIGNMENT, **leader}), good({**SAMPLE, **leader})]
    found = quality(History(tmp_path), good(DECISION), *placed, good(SAMPLE))
    assert (found.partitions_owned, found.partitions_sampled) == (4, 1)


def run(home: Path, *options: str) -> Result:
    """Run the command over the folder ``ledger``."""
    folders = ("--ledger", str(home / "ledger"), "--out", str(home / "out"))
    return CliRunner().invoke(main, ["history", "--no-spark", *folders, *options])


def test_a_missed_gate_ends_with_3_and_the_history_is_written(tmp_path: Path) -> None:
    """The report and the page have the verdict; a later passing run rewrites both."""
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
    """``pipeline run`` continues with its other sections."""
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


# -- whole results -----------------------------------------------------------------------------


def of(store: Store, now: datetime, refused: Refused | None = None, **more: Any) -> Quality:
    """Return the quality of a store at the time, with its gates and tables."""
    tables = {"owners": more.get("owners", []), "skew": more.get("skew", [])}
    wanted = (more.get("gates", Gates()), more.get("tolerance", Tolerance()))
    told = refused or Refused()
    return quality_of(store, store.load(), tables, more.get("lost", 0), told, wanted, now)


def utc(day: int, hour: int, minute: int = 0) -> datetime:
    """Return a time in November 2026."""
    return datetime(2026, 11, day, hour, minute, tzinfo=UTC)


def test_the_whole_quality_of_a_store(tmp_path: Path) -> None:
    """Each figure is distinct; pending rows are no day."""
    store = stored(
        tmp_path,
        {
            "2026-11-18": {"samples": [{"ts": utc(18, 1)}]},
            "2026-11-20": {
                "samples": [{"ts": utc(20, 4)}],
                "decisions": [{"ts": utc(20, 6)}, {"ts": utc(20, 2)}],
                "recoveries": [{"started": utc(20, 20), "ended": utc(20, 5)}],
            },
            "2026-12-24": {"samples": [{"ts": datetime(2026, 12, 24, tzinfo=UTC)}]},
            PENDING: {"placements": [{"role": "active"}]},
        },
    )
    skew = [
        {"group_id": "g", "dt": date(2026, 11, 20), "topic": "t"},
        {"group_id": "g", "dt": date(2026, 11, 20), "topic": "t"},
        {"group_id": "g", "dt": date(2026, 11, 18), "topic": "t"},
        {"group_id": "h", "dt": date(2026, 11, 18), "topic": "t"},
    ]
    owners = [{"active_partitions": 4}, {"active_partitions": 3}]
    refused = Refused(accepted=1_500, lines=1_000)
    found = of(store, NOW, refused, owners=owners, skew=skew, lost=5)
    assert found == Quality(
        checked_at=NOW,
        lines_accepted=1_500,
        lines_refused=1_000,
        refused_in_all=12,
        placements_without_decision=5,
        days=3,
        first_day="2026-11-18",
        last_day="2026-12-24",
        days_missing=1,
        missing=("2026-11-19",),
        days_in_future=1,
        newest_line=utc(20, 6),
        age_s=timedelta(days=5, hours=6).total_seconds(),
        partitions_owned=7,
        partitions_sampled=3,
    )
    assert found.rows() == [
        ("lines of this run", "1,500 accepted", False),
        ("refused", "1,000 (40.00%)", True),
        ("refused in all runs", "12", False),
        ("placements without decision", "5", True),
        ("days", "3, 2026-11-18 to 2026-12-24", False),
        ("days without a line", "1 (newest: 2026-11-19)", True),
        ("days in the future", "1", True),
        ("newest line", "2026-11-20 06:00:00 UTC, 5.25 d before this run", False),
        ("partitions with samples", "3 of 7", True),
    ]
    told = json.loads(Report({name: [] for name in REPORTED}, quality=found).to_json())["quality"]
    assert (told["checked_at"], told["newest_line"]) == (
        "2026-11-25T12:00:00+00:00",
        "2026-11-20T06:00:00+00:00",
    )
    assert (told["days"], told["missing"], told["age_s"]) == (3, ["2026-11-19"], found.age_s)


def test_the_quality_of_an_empty_store_needs_no_attention(tmp_path: Path) -> None:
    """The store has no day, line or partition; a zero raises no alarm."""
    found = quality_of(
        Store(str(tmp_path)), Manifest(), {"owners": [], "skew": []}, 0, Refused(), NO_GATES, NOW
    )
    assert found == Quality(NOW, 0, 0, 0, 0, 0, None, None, 0, (), 0, None, None, 0, 0)
    assert [row[1] for row in found.rows()] == [
        "0 accepted",
        "0 (0.00%)",
        "0",
        "0",
        "0, - to -",
        "0",
        "0",
        "-",
        "0 of 0",
    ]
    assert not any(alarm for _, _, alarm in found.rows())


NO_GATES = (Gates(), Tolerance())


@pytest.mark.parametrize(
    ("kind", "hour", "minute"), [("decisions", 13, 0), ("samples", 12, 59), ("recoveries", 12, 30)]
)
def test_a_line_of_a_clock_that_is_ahead_by_an_hour_is_the_newest(
    tmp_path: Path, kind: str, hour: int, minute: int
) -> None:
    """The age is zero, not negative; a line beyond the hour is in the future."""
    column = {"recoveries": "ended"}.get(kind, "ts")
    ahead = utc(25, hour, minute)
    beyond = [{"ts": utc(25, 13, 1)}]
    rows = {"samples": beyond, "decisions": [], kind: [{column: ahead}, *beyond]}
    if kind == "recoveries":
        rows[kind] = [{column: ahead}]
    found = of(stored(tmp_path, {"2026-11-25": rows}), NOW)
    assert (found.newest_line, found.age_s) == (ahead, 0.0)


@pytest.mark.parametrize(("minute", "future"), [(59, 1), (0, 0)])
def test_the_next_day_is_in_the_future_until_an_hour_before_it(
    tmp_path: Path, minute: int, future: int
) -> None:
    """A worker's clock may be ahead by the hour."""
    days = {"2026-11-25": {"samples": []}, "2026-11-26": {"samples": []}}
    now = utc(25, 22 if minute else 23, minute)
    found = of(stored(tmp_path, days), now, gates=Gates(min_days=2))
    assert found.days_in_future == future
    assert found.gates[0]["found"] == f"the history has {2 - future} days"


def test_the_newest_of_the_missing_days_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All missing days are counted; the page names three."""
    monkeypatch.setattr(quality_module, "DAYS_NAMED", 4)
    days = {f"2026-11-{day}": {"samples": [{"ts": utc(day, 1)}]} for day in (10, 17)}
    found = of(stored(tmp_path, days), NOW)
    named = tuple(f"2026-11-{day}" for day in (13, 14, 15, 16))
    assert (found.days_missing, found.missing) == (6, named)
    (row,) = [row for row in found.rows() if row[0] == "days without a line"]
    assert row == ("days without a line", "6 (newest: 2026-11-14, 2026-11-15, 2026-11-16)", True)


def test_gates_have_their_limit_their_value_and_their_verdict(tmp_path: Path) -> None:
    """Gates are in the order of the options; the exception names the missed gates."""
    store = stored(tmp_path, {"2026-11-25": {"samples": [{"ts": utc(25, 11)}]}})
    wanted = Gates(min_days=1_000, max_age_s=3_599.0)
    refused = Refused(9, 1_234)
    found = of(store, NOW, refused, gates=wanted, tolerance=Tolerance(most=5_000))
    assert list(found.gates) == [
        {"gate": "max-refused", "limit": "5,000", "found": "1,234 lines refused", "passed": True},
        {"gate": "min-days", "limit": "1,000", "found": "the history has 1 days", "passed": False},
        {
            "gate": "max-age",
            "limit": "60 min",
            "found": "the newest line is 1 h old",
            "passed": False,
        },
    ]
    assert found.rows()[-3:] == [
        ("gate max-refused", "--max-refused 5,000: 1,234 lines refused, passed", False),
        ("gate min-days", "--min-days 1,000: the history has 1 days, missed", True),
        ("gate max-age", "--max-age 60 min: the newest line is 1 h old, missed", True),
    ]
    with pytest.raises(GateFailed) as failure:
        found.check()
    assert str(failure.value) == (
        "--min-days 1,000: the history has 1 days, missed; "
        "--max-age 60 min: the newest line is 1 h old, missed"
    )
    assert failure.value.exit_code == 3


def test_gates_that_pass_at_their_limits_raise_nothing(tmp_path: Path) -> None:
    """A line of age zero passes a limit of zero, and a share is printed in percent."""
    store = stored(tmp_path, {"2026-11-25": {"samples": [{"ts": NOW}]}})
    gates = Gates(min_days=0, max_age_s=0.0)
    found = of(store, NOW, gates=gates, tolerance=Tolerance(share=0.00125))
    assert [(gate["limit"], gate["passed"]) for gate in found.gates] == [
        ("0.1250%", True),
        ("0", True),
        ("0 s", True),
    ]
    found.check()


@pytest.mark.parametrize(
    ("tolerance", "limit"), [(Tolerance(most=0), "0"), (Tolerance(share=0.0), "0.0000%")]
)
def test_a_tolerance_of_nothing_is_a_gate_too(
    tmp_path: Path, tolerance: Tolerance, limit: str
) -> None:
    """A tolerance of zero differs from no tolerance."""
    (gate,) = of(stored(tmp_path, {}), NOW, gates=Gates(), tolerance=tolerance).gates
    assert (gate["gate"], gate["limit"], gate["passed"]) == ("max-refused", limit, True)


def test_an_age_without_a_line_is_missed_and_says_so(tmp_path: Path) -> None:
    """The limit may even be years."""
    (gate,) = of(stored(tmp_path, {}), NOW, gates=Gates(max_age_s=90.0)).gates
    assert gate == {
        "gate": "max-age",
        "limit": "1.5 min",
        "found": "the history has no line",
        "passed": False,
    }


@pytest.mark.parametrize(("owned", "alarm"), [(2, False), (3, True), (1, False)])
def test_partitions_without_samples_need_attention(tmp_path: Path, owned: int, alarm: bool) -> None:
    """More sampled than owned partitions count as all owned."""
    skew = 2 * [{"group_id": "g", "dt": date(2026, 11, 20), "topic": "t"}]
    found = of(stored(tmp_path, {}), NOW, owners=[{"active_partitions": owned}], skew=skew)
    row = found.rows()[-1]
    assert row == ("partitions with samples", f"{min(2, owned)} of {owned}", alarm)
