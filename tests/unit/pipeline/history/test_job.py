"""The visits of a history: their checks, their stages, their counts and their repetition."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.errors import ConfigError
from faust_assigner.pipeline.history import job
from faust_assigner.pipeline.history.here import Here
from faust_assigner.pipeline.history.job import check, print_line, run_here
from faust_assigner.pipeline.history.options import HistoryOptions
from faust_assigner.pipeline.history.quality import Quality
from faust_assigner.pipeline.history.report import REPORTED, About, Report
from faust_assigner.pipeline.history.store import Store
from faust_assigner.pipeline.ledgers import topic_source
from faust_assigner.pipeline.ledgers.files import LedgerPathError
from faust_assigner.pipeline.ledgers.refusals import EmptyLedger, Tolerance, TooManyRefused
from faust_assigner.pipeline.progress import Progress
from tests.integration.spark.ledgers import bad
from tests.support.pictures import no_pictures as no_pictures
from tests.unit.pipeline.history.made import History, at
from tests.unit.pipeline.history.test_quality import NOW


@pytest.fixture(autouse=True)
def _no_pictures(no_pictures: None) -> None:
    """Draw no pictures: they take most of a run's time."""


class Stages(Progress):
    """A progress that records its stages."""

    def __post_init__(self) -> None:
        """Begin without a stage."""
        super().__post_init__()
        self.entered: list[str] = []

    def enter(self, stage: str) -> None:
        """Record a stage."""
        super().enter(stage)
        self.entered.append(stage)


def visit(history: History, *lines: Any) -> tuple[Report, Stages]:
    """Run over these lines; return the report and the stages."""
    history.ledger.write("w.jsonl", lines)
    shown = Stages()
    return run_here(history.options, shown), shown


def test_a_run_shows_its_stages_its_lines_and_its_days(tmp_path: Path) -> None:
    """The days of earlier runs are kept; a day without new lines is touched too."""
    history = History(tmp_path)
    _, first = visit(history, *at("2026-11-20", 1), bad(b"x", "JSON"))
    stages = ["listing the ledgers", "reading the lines", "merging days", "writing the page"]
    assert first.entered == stages
    assert (first.days_touched, first.days_kept) == (1, 1)
    _, second = visit(history, *at("2026-11-21", 1), *at("2026-11-20", 1), *at("2026-11-22", 1))
    assert (second.days_touched, second.days_kept) == (3, 3)
    assert second.lines is not None
    assert (second.lines.accepted, second.lines.lines) == (6, 0)


def test_a_stream_without_news_reads_no_line_and_writes_the_page_again_if_it_is_gone(
    tmp_path: Path,
) -> None:
    """The report says that the run read no line."""
    history = History(tmp_path, stream=True)
    visit(history, *at("2026-11-20", 1))
    (history.out / "report.html").unlink()
    (history.out / "report.json").unlink()
    shown = Stages()
    report = run_here(history.options, shown)
    assert shown.entered == ["listing the ledgers", "writing the page"]
    assert (history.out / "report.html").exists()
    assert report.quality is not None
    assert (report.quality.lines_accepted, report.quality.days) == (0, 1)


def test_a_stream_reads_lines_that_change_no_row_once(tmp_path: Path) -> None:
    """The new offsets alone are a new generation; the next visit reads no line."""
    history = History(tmp_path, stream=True)
    first, _ = visit(history, *at("2026-11-20", 1))
    again, shown = visit(history, *at("2026-11-20", 1), *at("2026-11-20", 1))
    assert shown.lines is not None
    assert (shown.lines.accepted, again.generation) == (2, first.generation + 1)
    after = Stages()
    assert run_here(history.options, after).generation == again.generation
    assert after.entered == ["listing the ledgers", "writing the page"]


def test_the_first_visit_of_a_stream_writes_a_history_without_lines(tmp_path: Path) -> None:
    """The generation is 1, so the next visit without new lines does nothing."""
    history = History(tmp_path, stream=True)
    (history.ledger.folder).mkdir()
    first, shown = visit(history)
    assert first.generation == 1
    assert "merging days" in shown.entered
    assert run_here(history.options).generation == 1


@pytest.mark.parametrize(("stream", "wanted"), [(False, (2, 1)), (True, (3, 2))])
def test_refused_lines_are_those_of_the_run_or_with_a_stream_of_all_visits(
    tmp_path: Path, stream: bool, wanted: tuple[int, int]
) -> None:
    """A run without a stream reads the whole ledger again."""
    history = History(tmp_path, stream=stream)
    line = bad(b"[1]", "object")
    visit(history, *at("2026-11-20", 1), bad(b"x", "JSON"))
    lines = [*at("2026-11-20", 1), *([bad(b"x", "JSON")] if stream else []), line, line]
    report, shown = visit(history, *lines)
    assert report.refused == wanted[0]
    told = [row["line"] for row in report.tables["quarantine"]]
    assert told == list(range(3, 3 + report.refused))
    assert report.quality is not None
    assert report.quality.lines_refused == 2
    assert shown.lines is not None
    assert shown.lines.lines == 2


def test_an_unfinished_line_of_a_stream_is_no_refused_line(tmp_path: Path) -> None:
    """The line counts neither for the tolerance nor on the terminal."""
    history = History(tmp_path, stream=True, max_refused=Tolerance(most=0))
    history.ledger.write("w.jsonl", at("2026-11-20", 1), end=b"\n{")
    shown = Stages()
    report = run_here(history.options, shown)
    assert report.refused == 0
    assert shown.lines is not None
    assert (shown.lines.accepted, shown.lines.lines) == (2, 0)


def test_too_many_refused_lines_leave_the_history_and_release_the_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lines of each visit are released, even after a failed visit."""
    closed: list[int] = []
    monkeypatch.setattr(Here, "close", lambda self: closed.append(self.lines.counts.lines))
    history = History(tmp_path, max_refused=Tolerance(most=1))
    visit(history, *at("2026-11-20", 1), bad(b"x", "JSON"))
    before = Store(str(history.out)).load()
    with pytest.raises(TooManyRefused, match="2 of 4 lines"):
        visit(history, *at("2026-11-21", 1), bad(b"x", "JSON"), bad(b"x", "JSON"))
    assert Store(str(history.out)).load() == before
    assert not (history.out / "_REPLACING").exists()
    assert closed == [1, 2]


@pytest.mark.parametrize(
    ("before", "wants", "fails"),
    [(False, None, False), (True, None, True), (True, False, False), (False, True, True)],
)
def test_a_ledger_without_lines_fails_if_asked_or_if_it_would_replace_a_history(
    tmp_path: Path, before: bool, wants: bool | None, fails: bool
) -> None:
    """The error names the kept history."""
    history = History(tmp_path, fail_if_empty=wants)
    if before:
        visit(History(tmp_path), *at("2026-11-20", 1))
    else:
        history.ledger.folder.mkdir()
    if not fails:
        visit(history)
        return
    with pytest.raises(EmptyLedger) as failure:
        visit(history)
    assert (f"{history.out} stays as it was" in str(failure.value)) is before


def test_a_stream_that_stands_takes_a_visit_of_refused_lines_alone(tmp_path: Path) -> None:
    """The stream's first visit does not."""
    history = History(tmp_path, stream=True)
    with pytest.raises(EmptyLedger):
        visit(history, bad(b"x", "JSON"))
    visit(history, *at("2026-11-20", 1))
    report, _ = visit(history, *at("2026-11-20", 1), bad(b"x", "JSON"))
    assert report.refused == 1


def test_daily_tables_of_an_earlier_version_are_computed_before_the_lines_are_read(
    tmp_path: Path,
) -> None:
    """The refused lines and read positions stay; the days are not read from the ledger."""
    history = History(tmp_path, stream=True)
    visit(history, *at("2026-11-20", 1), *at("2026-11-21", 1), bad(b"x", "JSON"))
    manifest = history.out / "manifest.json"
    before = Store(str(history.out)).load()
    manifest.write_text(manifest.read_text().replace('"derived": 3', '"derived": 1'))
    shown = Stages()
    run_here(history.options, shown)
    assert shown.entered[:2] == [
        "listing the ledgers",
        "computing the daily tables again, for a new version",
    ]
    after = Store(str(history.out)).load()
    assert (after.sources, after.refused, after.dates) == (before.sources, 1, before.dates)
    assert Store(str(history.out)).read_refused(after).num_rows == 1
    assert (after.generation, after.derived, shown.days_kept) == (before.generation + 1, 3, 2)
    assert all(after.days[day].token != before.days[day].token for day in before.dates)


class Enough(BaseException):
    """The test has enough visits."""


def test_a_repeated_visit_prints_its_line_and_sleeps_between_visits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each visit reads the lines written during the sleep."""
    history = History(tmp_path, stream=True, every_s=7.5)
    history.ledger.write("w.jsonl", at("2026-11-20", 1))
    slept: list[tuple[float, str]] = []
    shown = Stages()

    def sleep(seconds: float) -> None:
        slept.append((seconds, shown.stage))
        if len(slept) == 2:
            raise Enough
        history.ledger.write("v.jsonl", at("2026-11-21", 1))

    monkeypatch.setattr(job, "time", SimpleNamespace(sleep=sleep))
    with pytest.raises(Enough):
        run_here(history.options, shown)
    assert slept == [(7.5, "waiting"), (7.5, "waiting")]
    told = capsys.readouterr().out.splitlines()
    assert [line.partition(";")[0] for line in told] == ["1 decisions", "2 decisions"]


def test_the_line_of_a_run_has_each_figure_and_each_gate(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A passed gate is left out."""
    gates = tuple(
        {"gate": name, "limit": "3", "found": f"found {name}", "passed": passed}
        for name, passed in (("min-days", False), ("max-refused", True), ("max-age", False))
    )
    quality = Quality(NOW, 0, 0, 0, 0, 0, None, None, 0, (), 0, None, None, 0, 0, gates)
    report = Report({name: [] for name in REPORTED}, about=About(version="1"), quality=quality)
    print_line(report)
    (line,) = capsys.readouterr().out.splitlines()
    parts = line.split("; ")
    assert parts[:-2] == [f"{value} {name}" for name, value in report.headline()]
    assert parts[-2:] == [
        "--min-days 3: found min-days, missed",
        "--max-age 3: found max-age, missed",
    ]
    print_line(Report({name: [] for name in REPORTED}, about=About(version="1")))
    assert len(capsys.readouterr().out.split("; ")) == len(report.headline())


def test_options_are_checked_before_a_session_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checks cover each topic, the paths, and the history's folder."""
    asked: list[str] = []
    monkeypatch.setattr(topic_source, "topic_now", lambda topic: asked.append(topic.topic))
    topics = ("kafka://h:1/one", "kafka://h:1/two")
    check(HistoryOptions((*topics, str(tmp_path)), str(tmp_path / "out")))
    assert asked == ["one", "two"]
    for ledgers in ((str(tmp_path / "gone"),), (*topics, str(tmp_path / "gone"))):
        with pytest.raises(LedgerPathError, match="no such ledger"):
            check(HistoryOptions(ledgers, str(tmp_path / "out")))
    (tmp_path / "report.json").write_text("{}")
    with pytest.raises(ConfigError, match="earlier version"):
        check(HistoryOptions((str(tmp_path),), str(tmp_path)))


def test_a_stream_remembers_blank_lines_that_it_read(tmp_path: Path) -> None:
    """No row changes, but the next visit begins behind them; a whole run keeps the read positions."""
    history = History(tmp_path, stream=True)
    lines = at("2026-11-20", 1)
    visit(history, *lines)
    store = Store(str(history.out))
    before = store.load()
    path = history.ledger.folder / "w.jsonl"
    path.write_bytes(path.read_bytes() + b"\n\n")
    run_here(history.options)
    after = store.load()
    (progress,) = after.sources["files"].values()  # type: ignore[attr-defined]
    assert (after.generation, progress["at"]) == (before.generation + 1, path.stat().st_size)
    visit(History(tmp_path), *lines, *at("2026-11-21", 1))
    assert store.load().sources == after.sources


def test_the_first_visit_of_a_stream_writes_a_history_without_any_file(tmp_path: Path) -> None:
    """The visit has nothing to read, and no history stands yet."""
    history = History(tmp_path, stream=True)
    history.ledger.folder.mkdir()
    for _ in range(2):
        assert run_here(history.options).generation == 1
    assert Store(str(history.out)).load().generation == 1


def test_a_stream_with_too_many_refused_lines_names_the_first(tmp_path: Path) -> None:
    """The operator finds the line by its place."""
    history = History(tmp_path, stream=True, max_refused=Tolerance(most=0))
    with pytest.raises(
        TooManyRefused, match=r"^1 of 3 lines refused, the first: .*w\.jsonl:3: not"
    ):
        visit(history, *at("2026-11-20", 1), bad(b"x", "JSON"))
