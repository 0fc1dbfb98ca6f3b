"""The tables of a day, the page, and the files beside the store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from faust_assigner.pipeline.history import output, plots
from faust_assigner.pipeline.history.facts import facts_in, merged
from faust_assigner.pipeline.history.job import run_here
from faust_assigner.pipeline.history.options import HistoryOptions
from faust_assigner.pipeline.history.page import rebalance_row, to_html
from faust_assigner.pipeline.history.report import REPORTED, About, Report, _spans
from faust_assigner.pipeline.history.store import table_schema
from faust_assigner.pipeline.history.tables import tables_of
from faust_assigner.pipeline.ledgers.parse import parse_messages
from faust_assigner.pipeline.one_writer import FolderInUse, only_writer
from faust_assigner.pipeline.schema import FACTS
from faust_assigner.pipeline.sinks import Folder
from tests.integration.spark.ledgers import (
    ASSIGNMENT,
    DECISION,
    RECOVERY,
    SAMPLE,
    START,
    Ledger,
    good,
    stamp,
)


def rows_of(*rows: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the daily tables of rows of a single day."""
    lines = [good(row).data for row in rows]
    messages = {"file": ["f"] * len(lines), "pos": list(range(len(lines))), "value": lines}
    found = facts_in(parse_messages([pa.RecordBatch.from_pydict(messages)]))
    nothing = {fact: table_schema(fact).empty_table() for fact in FACTS}
    return {name: table.to_pylist() for name, table in tables_of(merged(nothing, found)).items()}


@pytest.fixture(autouse=True)
def no_pictures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures take most of a run's time, and a single test needs them."""
    if "picture" not in request.node.name:
        monkeypatch.setattr(plots, "draw", lambda report: {})


@pytest.mark.parametrize("broken", [b"{oops", b"[]", b"{}", b'{"about": 5}'])
def test_a_report_that_is_broken_is_written_again(tmp_path: Path, broken: bytes) -> None:
    """Even a run without new lines rewrites the report from the store."""
    Ledger(tmp_path / "ledger").write("w.jsonl", [good(DECISION), good(ASSIGNMENT)])
    options = HistoryOptions((str(tmp_path / "ledger"),), str(tmp_path / "out"))
    run_here(options)
    told = tmp_path / "out" / "report.json"
    before = {**json.loads(told.read_bytes()), "quality": None}  # it has the run's time
    told.write_bytes(broken)
    run_here(options)
    assert {**json.loads(told.read_bytes()), "quality": None} == before


def test_the_report_is_of_the_newest_days_and_names_the_older(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Parquet folders have all days."""
    monkeypatch.setattr(output, "REPORT_DAYS", 2)
    days = ("2026-11-20", "2026-11-21", "2026-11-22")
    Ledger(tmp_path / "ledger").write(
        "w.jsonl",
        [good({**DECISION, "decision_id": day, "ts": f"{day}T00:00:00.000Z"}) for day in days],
    )
    run_here(HistoryOptions((str(tmp_path / "ledger"),), str(tmp_path / "out")))
    told = json.loads((tmp_path / "out" / "report.json").read_text())
    assert [row["dt"] for row in told["movement"]] == list(days[1:])
    assert (told["about"]["days"], told["about"]["days_in_all"]) == (2, 3)
    assert "older: 1 days" in (tmp_path / "out" / "report.html").read_text()


def test_a_file_that_is_replaced_is_there_all_the_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk leaves the old file and no draft."""
    folder = Folder(str(tmp_path))
    folder.write("report.json", b"old")
    with monkeypatch.context() as patch:
        patch.setattr("os.replace", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            folder.write("report.json", b"new")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [
        ("report.json", b"old")
    ]
    folder.write("report.json", b"new")
    assert (tmp_path / "report.json").read_bytes() == b"new"


def test_a_run_that_writes_nothing_leaves_no_folder_behind(tmp_path: Path) -> None:
    """The lock is on the folder itself; a folder that existed before stays."""
    with (
        only_writer(str(tmp_path / "new")),
        pytest.raises(FolderInUse),
        only_writer(str(tmp_path / "new")),
    ):
        pass
    assert not (tmp_path / "new").exists()
    (tmp_path / "mine").mkdir()
    with only_writer(f"file://{tmp_path}/mine"):
        pass
    assert (tmp_path / "mine").exists()


# -- tables ----------------------------------------------------------------------------------


def test_of_decisions_that_disagree_under_one_id_the_earliest_stands() -> None:
    """The order of writing and reading does not matter."""
    later = {**DECISION, "ts": stamp(START.replace(hour=22)), "policy": "later"}
    for rows in ((DECISION, later), (later, DECISION)):
        assert [row["policy"] for row in rows_of(*rows)["movement"]] == ["p"]


def test_a_member_that_is_told_twice_is_one() -> None:
    """The member is idle once, and its load is counted once."""
    member = DECISION["members"][0]  # type: ignore[index]
    found = rows_of({**DECISION, "members": [member, member]})
    assert found["balance"][0]["idle_members"] == 1


def test_a_counter_that_was_reset_takes_nothing_away() -> None:
    """An amount below zero is ignored."""
    rows = [
        {**SAMPLE, "records_in": 10},
        {**SAMPLE, "records_in": -7, "ts": stamp(START.replace(minute=1))},
    ]
    assert [row["records_in"] for row in rows_of(*rows)["skew"]] == [10]


def test_recoveries_and_placements_that_are_told_twice_count_once() -> None:
    """Standbys do not count as placements of actives."""
    standby = {**ASSIGNMENT, "role": "standby", "member_id": "n", "partition": 5}
    found = rows_of(DECISION, ASSIGNMENT, ASSIGNMENT, standby, RECOVERY, RECOVERY)
    assert [(row["assigned"], row["moved"]) for row in found["movement"]] == [(1, 1)]
    assert [row["recoveries"] for row in found["recovery"]] == [1]


# -- the page --------------------------------------------------------------------------------


def report(**tables: list[dict[str, Any]]) -> Report:
    """Return a report with these tables and empty other tables."""
    return Report({name: tables.get(name, []) for name in REPORTED}, about=About(version="1"))


def test_the_newest_rebalance_leads_the_page_and_times_are_utc() -> None:
    """Rows are in order of time; the page reverses them."""
    times = [START, START.replace(hour=22)]
    counts = dict.fromkeys(("members", "tasks_moved", "tasks_cold", "tasks_orphaned", "moved"), 0)
    said = {"group_id": "g", "decision_id": "d", "trigger": "join", "policy": "p", "deploy": "v"}
    row = {**said, **counts, "solve_ms": 1.0, "longest_recovery_s": None}
    told = report(rebalances=[{**row, "ts": at} for at in times])
    page = to_html(told, {}, title="t").decode().partition('id="rebalances"')[2]
    assert page.index("2026-11-21 22:00:00") < page.index("2026-11-21 20:00:00")


def test_refused_lines_that_are_not_shown_are_counted() -> None:
    """The count includes lines beyond the table."""
    row = {"file": "f", "line": 1, "reason": "r"}
    told = Report(report(quarantine=[row]).tables, refused=5_001, about=About(version="1"))
    assert "5,000" in to_html(told, {}, title="t").decode()


@pytest.mark.parametrize(
    ("numbers", "said"), [([0, 1, 2, 3, 7], "0-3, 7"), ([2, 0], "0, 2"), ([5], "5"), ([], "")]
)
def test_partition_numbers_are_told_as_spans(numbers: list[int], said: str) -> None:
    """Adjacent numbers are joined."""
    assert _spans(numbers) == said


def test_the_headline_names_each_figure_and_sums_over_the_days() -> None:
    """The lines are on the page, on the terminal and in the job's last line."""
    move = {"decisions": 1_000, "assigned": 30, "moved": 7, "standby_hits": 5}
    tables = report(
        movement=[move, move],
        balance=[{"max_spread": 1, "idle_members": 2}, {"max_spread": 3, "idle_members": 0}],
        recovery=[{"max_s": 2.5, "recoveries": 4}, {"max_s": 0.5, "recoveries": 1}],
        skew=[{"share": 0.25}, {"share": 0.5}],
    ).tables
    about = About(tasks_moved=11, tasks_cold=2, days=2, days_in_all=9, version="1")
    found = Report(tables, without_decision=6, refused=8, about=about)
    assert dict(found.headline()) == {
        "decisions": "2,000",
        "tasks moved": "11",
        "tasks moved cold": "2",
        "topic partitions placed": "60",
        "topic partitions moved": "14",
        "standby hits (topic partitions)": "10",
        "worst spread (topic partitions)": "3",
        "idle members": "2",
        "recoveries": "5",
        "slowest recovery": "2.500 s",
        "heaviest partition": "50.0% of its topic",
        "refused lines": "8",
        "placements without decision": "6",
        "days": "2 of 9",
    }
    nothing = dict(report().headline())
    names = ("worst spread (topic partitions)", "slowest recovery", "heaviest partition")
    assert [nothing[name] for name in names] == ["-", "-", "-"]


@pytest.mark.parametrize(("longest", "shown"), [(None, ""), (0.0, 0.0), (2.5, 2.5)])
def test_a_recovery_without_a_duration_is_shown(longest: float | None, shown: object) -> None:
    """The cell is empty only for a decision without a recovery."""
    counts = dict.fromkeys(("members", "tasks_moved", "tasks_orphaned", "tasks_cold", "moved"), 1)
    words = dict.fromkeys(("ts", "group_id", "trigger", "policy"), "x")
    outcome = {**counts, **words, "solve_ms": 1.0, "longest_recovery_s": longest}
    assert rebalance_row(outcome)["longest recovery s"] == shown
