"""The output of ``history`` equals a plain-Python model of the same ledger."""

from __future__ import annotations

import json
import os
import random
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from faust_assigner.cli import main
from faust_assigner.pipeline.history.job import run, run_here
from faust_assigner.pipeline.history.on_spark import OnSpark
from faust_assigner.pipeline.history.options import HistoryOptions
from faust_assigner.pipeline.history.report import Report
from faust_assigner.pipeline.ledgers.chunks import cut, pack
from faust_assigner.pipeline.ledgers.files import LedgerPathError
from faust_assigner.pipeline.ledgers.period import Period
from faust_assigner.pipeline.ledgers.progress import Visit
from faust_assigner.pipeline.ledgers.sources import read_chunks
from tests.integration.spark.ledgers import (
    ASSIGNMENT,
    DECISION,
    Ledger,
    Line,
    bad,
    bad_lines,
    expected,
    good,
    random_rows,
    without,
)

pytestmark = pytest.mark.spark

TABLES = ("movement", "balance", "recovery", "skew")
DETAILS = ("rebalances", "owners", "deploys", "slowest", "timeline", "standstills")


def read_report(out: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the content of report.json."""
    report: dict[str, list[dict[str, Any]]] = json.loads((out / "report.json").read_text())
    return report


def assert_tables(
    report: dict[str, list[dict[str, Any]]], wanted: dict[str, list[dict[str, Any]]]
) -> None:
    """Assert equal rows with equal columns in equal order; doubles may differ in the last bits."""
    for table in TABLES:
        assert [list(row) for row in report[table]] == [list(row) for row in wanted[table]], table
        for row, model in zip(report[table], wanted[table], strict=True):
            assert row == {
                key: pytest.approx(value, rel=1e-12) if isinstance(value, float) else value
                for key, value in model.items()
            }


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """A big ledger in many files: rotations, torn tails, blank lines, every kind of bad line, repeats."""
    ledger = Ledger(tmp_path_factory.mktemp("ledger"))
    rng = random.Random(20261121)
    groups = [random_rows(f"group-{seed}", seed) for seed in range(6)]
    lines = [line for group in groups[:4] for line in group]
    blank = [Line(b"")] * 20 + [Line(b" \t")] * 5
    lines += [good({**ASSIGNMENT, "decision_id": "nowhere"}), *bad_lines(), *blank]
    rng.shuffle(lines)
    cut = len(lines) // 3
    ledger.write("a/worker-1.jsonl.1", lines[:cut])
    # The first file's lines again, as after a copy; Windows line ends; no line end at the end.
    ledger.write(
        "a/worker-1.jsonl", [*lines[cut : 2 * cut], *lines[50:cut]], newline=b"\r\n", end=b""
    )
    ledger.write("a/deep/worker-2.jsonl.17", lines[2 * cut : -100])
    ledger.write("a/deep/worker-2.jsonl.18.gz", lines[-100:])
    ledger.write("a/worker-3.jsonl", [], end=b"")
    # Two leaders of one generation: the earlier row is kept; an optional column is missing.
    decision = groups[4][0].row
    assert decision is not None
    late = good({**decision, "ts": decision["ts"].replace(year=2027), "policy": "zombie"})
    placed = [line.row for line in groups[4] if line.row and line.row["table"] == "assignment"]
    bare = [good(without(row, "prev_member_id")) for row in placed]
    ledger.write(
        "b/torn.jsonl", [late, *groups[4], *bare, bad(groups[4][0].data[:-9], "JSON")], end=b""
    )
    ledger.write("c-2026.log", groups[5])
    (ledger.folder / "a" / "README.txt").write_text("not a ledger")
    torn = ledger.folder / "a" / "worker-1.jsonl.gz"
    torn.write_bytes(b"no gzip at all")
    ledger.refused.add((str(torn), 1))
    ledger.why[str(torn), 1] = "not read further"
    return ledger


@pytest.fixture(scope="module")
def made(
    spark: SparkSession, ledger: Ledger, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Report]:
    """One run over a folder, a glob, a file and an overlap of them."""
    out = tmp_path_factory.mktemp("history") / "out"
    parts = ("a", "b/*.jsonl", "c-2026.log", "a/worker-1.jsonl")
    ledgers = tuple(str(ledger.folder / part) for part in parts)
    return out, run(spark, HistoryOptions(ledgers, str(out)))


def test_every_table_is_what_the_model_says(made: tuple[Path, Report], ledger: Ledger) -> None:
    """Movement, balance, recovery and skew of six groups over days; every line counts once."""
    report = read_report(made[0])
    assert set(report) == {*TABLES, *DETAILS, "quarantine", "about", "quality"}
    assert_tables(report, expected(ledger.lines))


def test_each_bad_line_is_quarantined_with_its_place_and_reason(
    made: tuple[Path, Report], ledger: Ledger
) -> None:
    """Exactly the bad lines; the reason has the column or the error."""
    rows = read_report(made[0])["quarantine"]
    assert {(row["file"], row["line"]) for row in rows} == ledger.refused
    assert len(rows) == len(ledger.refused)
    for row in rows:
        assert ledger.why[row["file"], row["line"]].lower() in row["reason"].lower(), row


def test_parquet_folders_hold_the_reports_rows(made: tuple[Path, Report]) -> None:
    """Each table has a folder, partitioned by day, with exactly the rows of report.json."""
    report = read_report(made[0])
    for table in (*TABLES, "quarantine"):
        rows = report[table]
        stored = pd.read_parquet(made[0] / table)
        if "dt" in stored:
            assert {f"dt={row['dt']}" for row in rows} == {
                path.name for path in (made[0] / table).iterdir()
            }
            stored["dt"] = stored["dt"].astype(str)
        stored = stored.astype(object).where(stored.notna(), None)
        assert sorted(map(repr, stored[list(rows[0])].to_dict("records"))) == sorted(
            map(repr, rows)
        ), table


def test_placements_without_a_decision_are_told_and_not_counted(made: tuple[Path, Report]) -> None:
    """They have no day; the summary has their number."""
    assert made[1].without_decision == 1


def test_page_and_plots_need_nothing_else(made: tuple[Path, Report]) -> None:
    """The page contains its pictures and fetches no other file."""
    page = (made[0] / "report.html").read_text()
    wanted = {
        "members",
        "standstill",
        "causes",
        "releases",
        "owners",
        "balance",
        "recovery",
        "skew",
    }
    assert wanted <= set(re.findall(r'id="picture-(\w+)"', page))
    assert page.count("<svg") == page.count('id="picture-')
    assert not re.search(r"""(src|href)=["'][^#]""", page)
    assert "url(http" not in page
    assert "<script" not in page
    assert "v0" in page[page.index('id="deploys"') :]


@pytest.fixture
def command(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """``faust-assigner history …`` on the shared session, which the command must not stop."""

    class Kept:
        def __getattr__(self, name: str) -> Any:
            return (lambda: None) if name == "stop" else getattr(spark, name)

    monkeypatch.setattr(
        "faust_assigner.pipeline.history.job.session_for", lambda options, master: Kept()
    )
    return lambda *arguments: CliRunner().invoke(main, ["history", *arguments])


@pytest.mark.slow
def test_ledger_without_lines_gives_empty_tables_with_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    """An empty folder is an empty history."""
    (tmp_path / "ledger").mkdir()
    run(spark, HistoryOptions((str(tmp_path / "ledger"),), str(tmp_path / "out")))
    report = read_report(tmp_path / "out")
    assert not any(report[table] for table in (*TABLES, *DETAILS, "quarantine"))
    assert not list((tmp_path / "out" / "movement").glob("dt=*"))
    columns = set(pd.read_parquet(tmp_path / "out" / "movement").columns)
    assert {"group_id", "dt", "policy", "decisions", "moved"} <= columns
    assert "No rows" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.slow
@pytest.mark.usefixtures("no_pictures")
def test_command_prints_a_summary(
    command: Callable[..., Result], ledger: Ledger, tmp_path: Path
) -> None:
    """Without a terminal it prints plain lines; refused lines are no failure."""
    plain = command(
        "--ledger",
        str(ledger.folder / "b"),
        "--ledger",
        str(ledger.folder / "c-2026.log"),
        "--out",
        str(tmp_path / "out"),
    )
    assert plain.exit_code == 0, plain.output
    assert not set("│┃━") & set(plain.output)
    report = read_report(tmp_path / "out")
    (refused,) = report["quarantine"]
    for said in (
        f"{refused['file']}:{refused['line']}",
        "standby hits",
        report["movement"][0]["dt"],
    ):
        assert said in plain.output


@pytest.mark.slow
@pytest.mark.usefixtures("no_pictures")
def test_ledger_that_says_nothing_leaves_the_history_that_stands(
    command: Callable[..., Result], ledger: Ledger, tmp_path: Path
) -> None:
    """An emptied or renamed folder must not pass for a quiet week: exit code 1, no change."""
    out = str(tmp_path / "out")
    empty, refused = tmp_path / "empty", tmp_path / "refused"
    empty.mkdir()
    refused.mkdir()
    (refused / "w.jsonl").write_bytes(b"no json\n" * 3)
    assert command("--ledger", str(refused), "--out", out).exit_code == 1
    assert not (tmp_path / "out" / "report.json").exists()
    assert command("--ledger", str(empty), "--out", out, "--fail-if-empty").exit_code == 1
    assert command("--ledger", str(ledger.folder / "b"), "--out", out).exit_code == 0
    before = (tmp_path / "out" / "report.json").read_bytes()
    for nothing in (empty, refused):
        failed = command("--ledger", str(nothing), "--out", out)
        assert (failed.exit_code, "no line of the ledgers is accepted" in failed.output) == (
            1,
            True,
        ), failed.output
        assert (tmp_path / "out" / "report.json").read_bytes() == before
    assert command("--ledger", str(empty), "--out", out, "--allow-empty").exit_code == 0
    # The empty ledger is accepted, and the existing days are kept.
    assert read_report(tmp_path / "out")["movement"] == json.loads(before)["movement"]


@pytest.mark.slow
@pytest.mark.usefixtures("no_pictures")
def test_more_refused_lines_than_are_taken_fail(
    command: Callable[..., Result], tmp_path: Path
) -> None:
    """A number or a share; the error has the first reason, and no file is written."""
    Ledger(tmp_path / "ledger").write("w.jsonl", [good(DECISION), *[bad(b"x", "JSON")] * 3])
    asked = ("--ledger", str(tmp_path / "ledger"), "--out", str(tmp_path / "out"), "--max-refused")
    for most in ("2", "70%", "0"):
        failed = command(*asked, most)
        assert (failed.exit_code, "3 of 4 lines refused, the first: " in failed.output) == (1, True)
    assert not (tmp_path / "out" / "report.json").exists()
    assert command(*asked, "some").exit_code == 2
    assert command(*asked, "75%").exit_code == 0


@pytest.mark.slow
def test_line_numbers_are_right_in_a_file_read_in_many_chunks(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A file cut anywhere, inside and between lines, counts its lines once."""
    ledger = Ledger(tmp_path / "ledger")
    lines = [bad(b"x" * (i % 90), "JSON") if i % 3 else Line(b"") for i in range(1, 600)]
    path = ledger.write("many.jsonl", lines)
    chunks = cut(str(path), 0, path.stat().st_size, 300)
    assert len(chunks) > 50
    visit = Visit(chunks)
    options = HistoryOptions((str(path),), str(tmp_path / "out"))
    spread = read_chunks(spark, pack(chunks, 7))
    assert spread.count() == len(chunks) + sum(line.refused is not None for line in lines)
    rows = OnSpark(spark, visit, options).lines.rows(visit)
    assert {(file, line) for file, line, _ in rows} == ledger.refused
    assert len(rows) == len(ledger.refused)


@pytest.mark.slow
def test_missing_path_is_an_error_that_names_it(spark: SparkSession, tmp_path: Path) -> None:
    """This holds beside existing ledgers and for a glob without a match, too."""
    (tmp_path / "there.jsonl").touch()
    for missing in (str(tmp_path / "nowhere"), str(tmp_path / "*.nothing")):
        with pytest.raises(LedgerPathError, match=r"no such ledger: .*no"):
            run(
                spark,
                HistoryOptions((str(tmp_path / "there.jsonl"), missing), str(tmp_path / "out")),
            )
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_history_without_spark_says_the_same(
    made: tuple[Path, Report], ledger: Ledger, tmp_path: Path
) -> None:
    """report.json is equal to the last bits, including the page's further tables."""
    parts = ("a", "b/*.jsonl", "c-2026.log", "a/worker-1.jsonl")
    here = run_here(
        HistoryOptions(tuple(str(ledger.folder / part) for part in parts), str(tmp_path))
    )
    wanted = read_report(made[0])
    assert_tables(read_report(tmp_path), wanted)
    assert read_report(tmp_path)["quarantine"] == wanted["quarantine"]
    assert here.headline() == made[1].headline()
    assert here.without_decision == made[1].without_decision == 1
    assert here.tables == made[1].tables


@pytest.mark.slow
@pytest.mark.parametrize("with_spark", [True, False], ids=["spark", "here"])
@pytest.mark.usefixtures("no_pictures")
def test_times_on_the_page_are_utc_wherever_the_driver_is(
    spark: SparkSession, tmp_path: Path, with_spark: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a change to winter time the later of two decisions has the earlier local time."""
    ledger = Ledger(tmp_path / "ledger")
    times = ("2026-11-01T05:30:00", "2026-11-01T06:10:00")
    ledger.write(
        "w.jsonl", [good({**DECISION, "decision_id": each, "ts": f"{each}.000Z"}) for each in times]
    )
    options = HistoryOptions((str(ledger.folder),), str(tmp_path / "out"))
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        time.tzset()
        report = run(spark, options) if with_spark else run_here(options)
    time.tzset()
    assert [row["ts"] for row in report.tables["rebalances"]] == [
        datetime.fromisoformat(f"{each}+00:00") for each in times
    ]
    assert report.tables["deploys"][0]["first"] == report.about.first
    page = (tmp_path / "out" / "report.html").read_text().partition('id="rebalances"')[2]
    assert page.index("2026-11-01 06:10:00</td>") < page.index("2026-11-01 05:30:00</td>")


@pytest.mark.slow
@pytest.mark.usefixtures("no_pictures")
def test_period_is_the_same_with_and_without_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Both have only the decisions, placements, recoveries and samples of two days."""
    ledger = Ledger(tmp_path / "ledger")
    for seed in range(3):
        path = ledger.write(f"w-{seed}.jsonl", random_rows(f"group-{seed}", seed))
        written = datetime(
            2026, 12, 1, tzinfo=UTC
        ).timestamp()  # after its lines' times, on any day of the run
        os.utime(path, (written, written))
    period = Period.parse("2026-11-22", "2026-11-24", now=datetime(2026, 12, 1, tzinfo=UTC))
    inside = {"2026-11-22", "2026-11-23"}
    wanted = {
        table: [row for row in rows if row["dt"] in inside]
        for table, rows in expected(ledger.lines).items()
    }
    assert all(wanted.values())
    for name, publish in (("spark", lambda options: run(spark, options)), ("here", run_here)):
        publish(HistoryOptions((str(ledger.folder),), str(tmp_path / name), period=period))
        assert_tables(read_report(tmp_path / name), wanted)
