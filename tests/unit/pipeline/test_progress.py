"""The progress of a run: its line's figures, and the log of a run without a terminal."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.pipeline.ledgers.refusals import Refused
from faust_assigner.pipeline.progress import Progress, showing_progress, ui_of


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rich assumes a terminal for any output if an environment variable says so."""
    monkeypatch.setattr("rich.console.Console.is_terminal", False)


def test_the_line_has_the_stage_and_only_the_known_figures() -> None:
    """The number of rows grows during the read; days appear once known."""
    now = [5.0]
    progress = Progress("history", clock=lambda: now[0])
    lines = Refused()
    progress.enter("reading the lines")
    progress.follow(lines)
    lines.accepted = 12_000
    lines.refuse("f", 1, "r")
    now[0] = 66.0
    assert progress.text() == "history 61 s: reading the lines, 12,000 rows in, 1 refused"
    progress.days_touched = progress.days_merged = progress.days_kept = 0
    assert progress.text().endswith("1 refused, 0 days touched (0 merged), 0 days kept")
    progress.days_touched, progress.days_merged, progress.days_kept = 3, 2, 1_365
    progress.ui = "http://127.0.0.1:4040"
    assert progress.text().endswith(
        "3 days touched (2 merged), 1,365 days kept, Spark: http://127.0.0.1:4040"
    )


def test_a_job_that_reads_no_lines_has_no_figures_of_lines() -> None:
    """A snapshot reads records: "0 rows in" would be wrong."""
    progress = Progress("snapshot", clock=lambda: 1.0)
    progress.enter("looking at the changelog")
    assert progress.text() == "snapshot 0 s: looking at the changelog"


def test_without_a_terminal_the_line_is_logged_at_each_interval(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log goes to stderr with the time; stdout is for the command's output."""
    ends = iter([False, False, True])
    waits = []

    def wait(event: threading.Event, timeout: float | None = None) -> bool:
        waits.append(timeout)
        return next(ends)

    logger = threading.Event()
    monkeypatch.setattr(
        "faust_assigner.pipeline.progress.threading",
        SimpleNamespace(Event=lambda: Waiting(wait, logger), Thread=threading.Thread),
    )
    with showing_progress(Progress("history"), every_s=60.0):
        logger.wait(30)
    told = capsys.readouterr()
    assert [line.split(" ")[1] for line in told.err.splitlines()] == ["history", "history"]
    assert (told.out, waits) == ("", [60.0, 60.0, 60.0])


class Waiting:
    """An event with scripted waits; ``done`` is set at the last wait."""

    def __init__(self, wait: object, done: threading.Event) -> None:
        self._wait, self._done = wait, done

    def wait(self, timeout: float) -> bool:
        """Return the test's next answer."""
        ended = bool(self._wait(self, timeout))  # type: ignore[operator]
        if ended:
            self._done.set()
        return ended

    def set(self) -> None:
        """Do nothing: the scripted answers end by themselves."""


def test_the_log_ends_with_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    """A short run logs no line, and no thread remains."""
    before = threading.active_count()
    with showing_progress(Progress("history")):
        assert threading.active_count() == before + 1
    assert threading.active_count() == before
    assert capsys.readouterr().err == ""


def test_a_session_without_a_page_has_no_address() -> None:
    """Spark Connect has no SparkContext; the error depends on the version."""

    class Connect:
        @property
        def sparkContext(self) -> object:  # noqa: N802 - Spark's name
            raise NotImplementedError

    assert ui_of(Connect()) is None
    there = SimpleNamespace(sparkContext=SimpleNamespace(uiWebUrl="http://127.0.0.1:1"))
    assert ui_of(there) == "http://127.0.0.1:1"


def test_a_terminal_shows_the_newest_line_and_no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line is updated in place four times a second and removed at the end, after a failure too."""
    shown_on: list[Any] = []

    class Live:
        def __init__(self, progress: Progress, **how: Any) -> None:
            shown_on.append((progress, how.pop("console").stderr, how))

        def __enter__(self) -> None:
            shown_on.append("begun")

        def __exit__(self, *_: object) -> None:
            shown_on.append("ended")

    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    monkeypatch.setattr("rich.live.Live", Live)
    progress = Progress("history", clock=lambda: 1.0)
    before = threading.active_count()

    def fails() -> None:
        with showing_progress(progress) as given:
            assert (given, threading.active_count()) == (progress, before)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    how = {"transient": True, "refresh_per_second": 4}
    assert shown_on == [(progress, True, how), "begun", "ended"]
    progress.enter("reading the [lines]")
    assert str(progress.__rich__().text) == "history 0 s: reading the [lines]"
