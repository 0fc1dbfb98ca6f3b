"""History as a stream on Spark: incremental visits end with the store of one batch run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from faust_assigner.pipeline.history.job import run, run_here
from faust_assigner.pipeline.history.on_spark import OnSpark
from faust_assigner.pipeline.history.options import HistoryOptions
from tests.integration.spark.ledgers import Ledger, Line, bad, bad_lines, expected, random_rows
from tests.integration.spark.test_history import assert_tables, read_report

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("no_pictures")]


def visit(spark: SparkSession, ledger: Ledger, out: Path) -> dict[str, list[dict[str, Any]]]:
    """Run ``history --stream`` once; return its report."""
    run(spark, HistoryOptions((str(ledger.folder),), str(out), stream=True))
    return read_report(out)


@pytest.mark.slow
def test_stream_gives_the_batch_jobs_answers_while_files_grow_and_rotate(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Three visits to a ledger that grows in mid-line, is rotated and gets more files."""
    ledger, out = Ledger(tmp_path / "ledger"), tmp_path / "out"
    lines = [line for seed in (1, 2, 3) for line in random_rows(f"g{seed}", seed, decisions=4)]
    lines[5:5] = bad_lines()
    first, second = len(lines) // 3, 2 * len(lines) // 3
    live = ledger.folder / "w.jsonl"
    live.parent.mkdir()
    data = [line.data + b"\n" for line in lines]

    live.write_bytes(b"".join(data[:first]) + data[first][:20])
    torn = visit(spark, ledger, out)["quarantine"]
    assert (str(live), first + 1) not in {(row["file"], row["line"]) for row in torn}
    with live.open("ab") as file:
        file.write(data[first][20:] + b"".join(data[first + 1 : second]))
    assert_tables(visit(spark, ledger, out), expected(lines[:second]))

    live.rename(ledger.folder / "w.jsonl.1")
    ledger.write("w.jsonl", [*lines[second:], bad(b'{"table"', "JSON"), Line(b""), *lines[:40]])
    again = visit(spark, ledger, out)
    assert_tables(again, expected(lines))
    whole = HistoryOptions((str(ledger.folder),), str(tmp_path / "whole"))
    run_here(whole)
    there = {(row["file"], row["line"]) for row in read_report(tmp_path / "whole")["quarantine"]}
    # A line refused under the file's old name stays under that name.
    assert there - {(row["file"], row["line"]) for row in again["quarantine"]} <= {
        (str(live) + ".1", line) for _, line in there
    }


@pytest.mark.slow
def test_visit_that_dies_is_made_again_and_counted_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files remain and do not count; the next visit reads the same lines."""
    ledger, out = Ledger(tmp_path / "ledger"), tmp_path / "out"
    ledger.write("w.jsonl", [*random_rows("g", 5, decisions=3), bad(b"x", "JSON")])
    merge = OnSpark.merge
    with monkeypatch.context() as patch:
        patch.setattr(OnSpark, "merge", lambda *given: (merge(*given), 1 / 0))
        with pytest.raises(ZeroDivisionError):
            visit(spark, ledger, out)
    assert not (out / "manifest.json").exists()
    assert list(out.glob("movement/*/*.parquet"))
    report = visit(spark, ledger, out)
    assert_tables(report, expected(ledger.lines))
    assert len(report["quarantine"]) == 1
    assert all(len(list(day.iterdir())) == 1 for day in (out / "movement").iterdir())
