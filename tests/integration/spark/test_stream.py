"""History as a stream: the batch job's answers, each offset range counted once, whatever is killed when."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from faust_assigner.pipeline.history import stream, stream_lines
from faust_assigner.pipeline.history.job import HistoryOptions, run
from faust_assigner.pipeline.ledgers.quarantine import quarantined
from faust_assigner.pipeline.ledgers.sources import read_ledger
from faust_assigner.pipeline.sinks import Folder
from tests.integration.spark.ledgers import (
    DECISION,
    Ledger,
    Line,
    bad,
    bad_lines,
    expected,
    good,
    random_rows,
)
from tests.integration.spark.test_history import assert_tables, read_report

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("no_pictures")]


def visit(spark: SparkSession, ledger: Ledger, out: Path) -> dict[str, list[dict[str, Any]]]:
    """One run of ``history --stream``; its report."""
    run(spark, HistoryOptions((str(ledger.folder),), str(out), stream=True))
    return read_report(out)


def take(spark: SparkSession, ledger: Ledger, out: Path) -> DataFrame:
    """A visit that takes lines and leaves the report to a later one; all lines taken so far."""
    folder = Folder(spark, str(out))
    stream.take_available(spark, [str(ledger.folder)], folder, connector="auto")
    return stream_lines.taken(spark, folder)


@pytest.mark.slow
def test_stream_gives_the_batch_jobs_answers_while_files_grow_and_rotate(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three visits to a ledger that is appended to in mid-line, rotated and joined by others.

    The second visit makes one folder of what was taken; the third finds that beside its own.
    """
    monkeypatch.setattr(stream_lines, "COMPACT_AFTER", 1)
    ledger, out = Ledger(tmp_path / "ledger"), tmp_path / "out"
    lines = [line for seed in (1, 2, 3) for line in random_rows(f"g{seed}", seed, decisions=4)]
    lines[5:5] = bad_lines()
    first, second = len(lines) // 3, 2 * len(lines) // 3
    live = ledger.folder / "w.jsonl"
    live.parent.mkdir()
    data = [line.data + b"\n" for line in lines]

    live.write_bytes(b"".join(data[:first]) + data[first][:20])
    torn = quarantined(take(spark, ledger, out)).collect()
    assert (str(live), first + 1) in {(row.file, row.line) for row in torn}

    with live.open("ab") as file:
        file.write(data[first][20:] + b"".join(data[first + 1 : second]))
    assert_tables(visit(spark, ledger, out), expected(lines[:second]))

    assert sorted(path.name for path in (out / stream_lines.COMPACTED).iterdir()) == ["upto=1"]
    assert not list((out / stream_lines.TAKEN).glob("batch=*"))

    live.rename(ledger.folder / "w.jsonl.1")
    live.unlink(missing_ok=True)
    ledger.write("w.jsonl", [*lines[second:], bad(b'{"table"', "JSON"), Line(b""), *lines[:40]])
    again = visit(spark, ledger, out)
    run(spark, HistoryOptions((str(ledger.folder),), str(tmp_path / "batch")))
    batch = read_report(tmp_path / "batch")
    assert_tables(again, expected(lines))
    assert again == batch
    assert len(batch["quarantine"]) > len(bad_lines())


@pytest.mark.slow
def test_batch_that_died_is_taken_again_and_counted_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its lines are written, while they are, after, and once the watch told: all count once."""
    ledger, out = Ledger(tmp_path / "ledger"), tmp_path / "out"
    path = ledger.write("w.jsonl", [*random_rows("g", 5, decisions=3), bad(b"x", "JSON")])
    for moment in ("before the write", "in the write", "after the write"):
        with monkeypatch.context() as patch:
            patch.setattr(stream, "_taker", dying(stream._taker, moment))
            with pytest.raises(Exception, match="killed"):
                visit(spark, ledger, out)
        assert not (out / "report.json").exists()
    with monkeypatch.context() as patch:
        patch.setattr("faust_assigner.pipeline.history.job.print_line", lambda report: 1 / 0)
        with pytest.raises(Exception, match="division by zero"):
            run(spark, HistoryOptions((str(ledger.folder),), str(out), stream=True, every_s=0.1))
    # The watch had made its report of the first micro-batch before it died saying so.
    report = read_report(out)
    assert_tables(report, expected(ledger.lines))
    assert len(report["quarantine"]) == 1
    places = [(row.file, row.pos) for row in take(spark, ledger, out).collect()]
    assert len(places) == len(set(places)) > len(ledger.lines)
    # Without news nothing is taken, also when what was taken is gone.
    before = files_below(out / stream_lines.TAKEN)
    path.unlink()
    take(spark, ledger, out)
    assert files_below(out / stream_lines.TAKEN) == before


def files_below(folder: Path) -> list[tuple[str, bytes]]:
    """Every file with its bytes."""
    return sorted((str(path), path.read_bytes()) for path in folder.rglob("*") if path.is_file())


def dying(taker: Any, moment: str) -> Any:
    """A taker of micro-batches that dies at ``moment``."""

    def dead_taker(folder: Any) -> Any:
        def die(frame: Any, number: int) -> None:
            if moment != "before the write":
                taker(folder)(frame, number)
            if moment == "in the write":
                for part in Path(folder.path(stream_lines.TAKEN, f"batch={number}")).iterdir():
                    part.write_bytes(part.read_bytes()[:-7])
            raise RuntimeError("killed")

        return die

    return dead_taker


@pytest.mark.slow
def test_crash_while_lines_are_compacted_loses_none_and_doubles_none(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the marker the small folders count, after it the one; the next visit tidies up."""
    monkeypatch.setattr(stream_lines, "COMPACT_AFTER", 2)
    folder = Folder(spark, str(tmp_path / "out"))
    for number in range(4):
        ledger = Ledger(tmp_path / f"ledger-{number}")
        ledger.write("w.jsonl", [bad(b"x" * (number + 1), "JSON")])
        stream_lines.write_batch(read_ledger(spark, [str(ledger.folder)]), folder, number)

    def numbers() -> list[tuple[int, int]]:
        return sorted((row.batch, row.pos) for row in stream_lines.taken(spark, folder).collect())

    wanted = numbers()
    assert {number for number, _ in wanted} == {0, 1, 2, 3}
    for step in ("write", "remove"):
        with monkeypatch.context() as patch:
            patch.setattr(Folder, step, lambda *arguments: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                stream_lines.compact(spark, folder, upto=2)
        assert numbers() == wanted
        assert folder.children(stream_lines.TAKEN) == [f"batch={number}" for number in range(4)]
    stream_lines.compact(spark, folder, upto=2)
    assert folder.children(stream_lines.TAKEN) == ["batch=3"]
    assert numbers() == wanted


#: The command as it is, less the reports between: one takes longer than everything else here.
WATCH = """
import sys
from faust_assigner.pipeline import jobs
from faust_assigner.pipeline.history import job as history_job
from faust_assigner.pipeline.history import on_spark as history_on_spark
history_on_spark.publish = lambda lines, folder, options: None
history_job.print_line = lambda report: None
sys.exit(jobs.main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_killed_watch_is_taken_up_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    """SIGKILL in the middle of micro-batches; each byte range of the ledger counts once afterwards."""
    ledger, out = Ledger(tmp_path / "ledger"), tmp_path / "out"
    lines = [*random_rows("g", 6, decisions=10), *bad_lines()]
    ledger.write("w.jsonl", lines[:10])
    command = [
        sys.executable,
        "-c",
        WATCH,
        "history",
        "--ledger",
        str(ledger.folder),
        "--out",
        str(out),
        "--stream",
        "--every",
        "0.1",
        "--master",
        "local[1]",
    ]
    with (tmp_path / "log").open("wb") as log:
        watch = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        written = _feed(
            ledger.folder / "w.jsonl", lines, watch, out / stream.CHECKPOINT / "offsets" / "1"
        )
    finally:
        os.killpg(watch.pid, signal.SIGKILL)
        watch.wait()
    assert written < len(lines), "the watch was to be killed before it had read everything"
    with (ledger.folder / "w.jsonl").open("ab") as file:
        file.write(b"".join(line.data + b"\n" for line in lines[written:]))
    report = visit(spark, ledger, out)
    assert_tables(report, expected(lines))
    assert len(report["quarantine"]) == len(bad_lines())


def _feed(path: Path, lines: list[Line], watch: subprocess.Popen[bytes], second: Path) -> int:
    """Append lines until the watch has begun its second micro-batch; how many lines there are then."""
    written, deadline = 10, time.monotonic() + 240
    with path.open("ab") as file:
        while not second.exists():
            assert watch.poll() is None, "the watch ended by itself"
            assert time.monotonic() < deadline, "the watch takes nothing"
            if second.with_name("0").exists() and written < len(lines) - 20:
                file.write(lines[written].data + b"\n")
                file.flush()
                written += 1
            time.sleep(0.05)
    return written


@pytest.mark.slow
def test_visit_without_news_touches_no_file(spark: SparkSession, tmp_path: Path) -> None:
    """It says again what stands; with news of one day the others' files stay as they are."""
    ledger, out = Ledger(tmp_path / "ledger"), tmp_path / "out"
    ledger.write("w.jsonl", [*random_rows("g", 5, decisions=4), bad(b"x", "JSON")])
    options = HistoryOptions((str(ledger.folder),), str(out), stream=True)

    def files() -> dict[str, tuple[int, int]]:
        return {
            str(path.relative_to(out)): (path.stat().st_ino, path.stat().st_mtime_ns)
            for path in out.rglob("*")
            if path.is_file() and "_stream" not in path.parts
        }

    first, before = run(spark, options), files()
    again = run(spark, options)
    assert files() == before
    assert again.headline() == first.headline()
    assert again.to_json() == first.to_json()
    ledger.write("late.jsonl", [good({**DECISION, "ts": "2027-01-05T00:00:00.000Z"})])
    run(spark, options)
    changed = {
        name
        for name, seen in files().items()
        if before.get(name) != seen and name.endswith(".parquet")
    }
    assert {str(Path(name).parent) for name in changed} == {
        "movement/dt=2027-01-05",
        "balance/dt=2027-01-05",
        "quarantine",
    }


def test_stream_refuses_to_resume_with_other_topics(spark: SparkSession, tmp_path: Path) -> None:
    """A checkpoint belongs to its sources; the message says what to do."""
    out = tmp_path / "out"
    (out / stream_lines.HOME).mkdir(parents=True)
    (out / stream.SOURCES).write_text(json.dumps({"files": False, "topics": ["kafka://x:1/old"]}))
    ledger = Ledger(tmp_path / "ledger")
    ledger.write("w.jsonl", [])
    with pytest.raises(ValueError, match=r"reads kafka://x:1/old, not files: give another --out"):
        visit(spark, ledger, out)
