"""``pipeline run``: all sections of a file, each with its command's options and failures."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from faust_assigner.cli import jobs, main
from faust_assigner.cli import pipeline as command
from faust_assigner.pipeline import session
from faust_assigner.pipeline.history import plots
from tests.integration.spark.ledgers import ASSIGNMENT, DECISION, SAMPLE, Ledger, good


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ledger, without pictures."""
    monkeypatch.setattr(plots, "draw", lambda report: {})
    monkeypatch.chdir(tmp_path)
    ledger = Ledger(tmp_path / "ledger")
    ledger.write("w.jsonl", [good(DECISION), good(ASSIGNMENT), good(SAMPLE)])
    return tmp_path


def run(home: Path, text: str, *more: str) -> Result:
    """Run with a file of this text."""
    (home / "pipeline.toml").write_text(f"[pipeline]\nno-spark = true\n{text}")
    return CliRunner().invoke(
        main, ["pipeline", "run", "--config", str(home / "pipeline.toml"), *more]
    )


HISTORY = '[history]\nledger = ["ledger"]\nout = "history"\n'
WEIGHTS = '[weights]\nledger = ["ledger"]\nout = "weights.json"\n'


def test_all_sections_run_and_a_second_run_changes_nothing(home: Path) -> None:
    """The history reads only new lines: its manifest stays unchanged."""
    first = run(home, HISTORY + WEIGHTS)
    assert first.exit_code == 0, first.output
    assert json.loads((home / "weights.json").read_text())
    before = (home / "history" / "manifest.json").read_bytes()
    assert run(home, HISTORY + WEIGHTS).exit_code == 0
    assert (home / "history" / "manifest.json").read_bytes() == before
    assert json.loads(before)["sources"]["files"]


def test_a_section_that_fails_keeps_no_other_from_running(home: Path) -> None:
    """The exit code is the failed section's."""
    failed = run(home, HISTORY.replace('"ledger"', '"nowhere"') + WEIGHTS)
    assert (failed.exit_code, "no such ledger" in failed.output) == (2, True)
    assert (home / "weights.json").exists()


def test_a_bug_in_a_section_keeps_no_other_from_running(
    home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its traceback is printed; a retry does not help."""

    def broken(*_: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr("faust_assigner.pipeline.history.job.run_here", broken)
    failed = run(home, HISTORY + WEIGHTS)
    assert failed.exit_code == 1
    assert isinstance(failed.exception, SystemExit)
    assert "KeyError: 'a bug'" in failed.output
    assert (home / "weights.json").exists()


@pytest.mark.parametrize("error", [KeyboardInterrupt, BrokenPipeError])
def test_an_end_from_outside_ends_all_sections(
    home: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """Ctrl-C and a closed pipe are no failures of a section."""

    def ended(*_: object) -> None:
        raise error

    monkeypatch.setattr("faust_assigner.pipeline.history.job.run_here", ended)
    assert run(home, HISTORY + WEIGHTS).exit_code == 1
    assert not (home / "weights.json").exists()


@pytest.mark.parametrize(
    ("codes", "code"), [((75, 0), 75), ((75, 1), 1), ((2, 75), 2), ((0, 0), 0)]
)
def test_a_failure_for_good_goes_before_trying_again(
    home: Path, monkeypatch: pytest.MonkeyPatch, codes: tuple[int, int], code: int
) -> None:
    """A scheduler need not retry a hopeless run."""
    left = list(codes)
    monkeypatch.setattr("faust_assigner.cli.pipeline._run", lambda *_: left.pop(0))
    assert run(home, HISTORY + WEIGHTS).exit_code == code


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[histroy]\n", "no section is called 'histroy'"),
        (HISTORY + "evry = 5\n", "No such option: --evry"),
        (HISTORY.replace("out", "# out"), "Missing option '--out'"),
        (HISTORY + "since = {a = 1}\n", "must be a string, a number or a boolean"),
        ("x = 1\n", "[pipeline] has no option 'x'"),
        ("[history\n", "pipeline.toml"),
    ],
)
def test_a_wrong_file_is_refused_before_anything_runs(home: Path, text: str, said: str) -> None:
    """The error has the section and the option; the exit code is 2."""
    refused = run(home, WEIGHTS + text if text.startswith("[") else text + WEIGHTS)
    assert (refused.exit_code, said in refused.output) == (2, True), refused.output
    assert not (home / "weights.json").exists()


def test_a_check_runs_nothing(home: Path) -> None:
    """The output names the sections."""
    checked = run(home, HISTORY + WEIGHTS, "--check")
    assert (checked.exit_code, "history, weights" in checked.output) == (0, True)
    assert not (home / "history").exists()


def test_the_main_for_spark_submit_takes_the_commands_options(home: Path) -> None:
    """The options include ``--no-spark`` and ``--packages``."""
    arguments = ["--ledger", "ledger", "--out", "history", "--no-spark", "--packages", "a:b:1"]
    assert jobs.main(["history", *arguments]) == 0
    assert (home / "history" / "report.json").exists()
    assert jobs.main(["history", "--no-such-option"]) == 2


@pytest.mark.parametrize(
    ("kind", "is_set"), [("delta", True), ("iceberg", False), ("parquet", False)]
)
def test_the_shared_session_has_the_settings_of_deltas_tables(
    home: Path, monkeypatch: pytest.MonkeyPatch, kind: str, is_set: bool
) -> None:
    """A session takes them only at its start, before the history's section runs."""
    started: list[Any] = []

    @contextlib.contextmanager
    def held(*given: Any) -> Iterator[None]:
        started.append(given)
        yield

    monkeypatch.setattr(session, "held_session", held)
    monkeypatch.setattr(command, "_run", lambda name, arguments: 0)
    text = f'[pipeline]\npackages = "a:b:1"\n{HISTORY}format = "{kind}"\n'
    (home / "pipeline.toml").write_text(text)
    done = CliRunner().invoke(main, ["pipeline", "run", "--config", str(home / "pipeline.toml")])
    assert done.exit_code == 0, done.output
    (given,) = started
    assert given[2] == ("a:b:1",)
    assert ("spark.sql.catalog.spark_catalog" in given[3]) is is_set
