"""The names of all commands, the check of the environment before each of them, and whole pipelines."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner

from faust_assigner.cli import main
from faust_assigner.cli.commands import COMMANDS, MOVED
from faust_assigner.errors import TryAgain
from faust_assigner.pipeline import console
from faust_assigner.pipeline.history import job as history_job
from faust_assigner.snapshots import catalog, changelog, storage
from tests.unit.cli.looks import run

pytestmark = pytest.mark.usefixtures("home")

NAMES = [
    *("broker", "deploy-check", "doctor", "groups", "history", "pipeline", "scaler", "serve"),
    *("service", "simulate", "snapshot", "spark", "status", "ui", "weights", "why"),
]


def test_all_commands_are_listed_by_their_names_and_can_be_loaded() -> None:
    """A name has dashes, and no other spelling is a command."""
    group: Any = main
    context = click.Context(group)
    assert group.list_commands(context) == NAMES == sorted(COMMANDS)
    assert [group.get_command(context, name).name for name in NAMES] == NAMES
    for name in ("deploy_check", "deploy", "main", ""):
        assert group.get_command(context, name) is None
    assert "No such command 'deploy_check'" in run("deploy_check", code=2).stderr


@pytest.mark.parametrize("name", [name for name in NAMES if name != "doctor"])
def test_a_misspelled_setting_stops_every_command(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Only ``doctor`` runs, because it reports the misspelling with its other findings."""
    monkeypatch.setenv("FAUST_ASSIGNER_BINDS", "x")
    done = run(name, "--help", code=2)
    assert done.stdout == ""
    assert done.stderr.startswith(
        "faust-assigner: Unknown settings in the environment: FAUST_ASSIGNER_BINDS: "
    )
    assert "Usage: " in run("doctor", "--help").stdout


def test_only_the_first_word_can_be_a_moved_command() -> None:
    """A worker or a group may have such a name."""
    for name in sorted(MOVED):
        words = f"'{name}' is a command of the service: faust-assigner service {name}"
        assert words in run(name, "x", code=2).stderr
        done = CliRunner().invoke(main, ["groups", "describe", name])
        assert "command of the service" not in done.output


# -- snapshot, history


@pytest.mark.parametrize("topics", [["tt", "ut"], ["t-2", "u"]])
def test_a_changelog_is_named_by_its_whole_name(
    monkeypatch: pytest.MonkeyPatch, topics: list[str]
) -> None:
    """A part of another changelog's name is not its name."""
    monkeypatch.setattr(storage, "open_storage", lambda url: url)
    monkeypatch.setattr(catalog, "Catalog", lambda _: SimpleNamespace(topics=lambda: topics))
    done = run("snapshot", "verify", "d", "--topic", "t", code=2)
    assert done.stderr == "faust-assigner: no snapshots of t under d\n"


def test_a_silent_cluster_is_no_deleted_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an answer the snapshots of a recreated topic would pass."""

    def look_at(*_: object) -> Any:
        raise TryAgain("no broker answers")

    monkeypatch.setattr(storage, "open_storage", lambda url: url)
    monkeypatch.setattr(catalog, "Catalog", lambda _: SimpleNamespace(topics=lambda: ["t"]))
    monkeypatch.setattr(changelog, "look_at", look_at)
    done = run("snapshot", "verify", "d", "--bootstrap", "a:1", code=75)
    assert done.stderr == "faust-assigner: no broker answers\n"


def test_the_period_of_a_history_is_counted_back_from_the_command_in_utc(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All options of a history at once reach the job in their places."""
    told: list[Any] = []

    class Quality:
        def check(self) -> None:
            """Note the check."""
            told.append("check")

    def visit(options: Any, progress: Any) -> Any:
        told.append((options, progress.command))
        return SimpleNamespace(quality=Quality(), to_json=lambda: "{}")

    monkeypatch.setattr(history_job, "run_here", visit)
    monkeypatch.setattr(console, "show_history", lambda _, out: told.append(out))
    options = ("--ledger=l", "--ledger=m", "--out=o", "--since=3d", "--until=1d", "--max-age=36h")
    more = ("--min-days=2", "--packages=a:b:1,,c:d:2", "--connector=spark", "--no-spark")
    run("history", *options, *more, "--max-refused=4", "--fail-if-empty", "--format=iceberg")
    (asked, name), out, checked = told
    assert (name, out, checked) == ("history", "o", "check")
    now, minute = datetime.now(UTC), timedelta(minutes=1)
    assert abs(now - timedelta(days=3) - asked.period.since) < minute
    assert abs(now - timedelta(days=1) - asked.period.until) < minute
    assert (asked.gates.min_days, asked.gates.max_age_s) == (2, 129_600.0)
    assert (asked.ledgers, asked.out, asked.format) == (("l", "m"), "o", "iceberg")
    assert (asked.packages, asked.connector) == (("a:b:1", "c:d:2"), "spark")
    assert (asked.max_refused.most, asked.fail_if_empty) == (4, True)
    assert (asked.stream, asked.every_s) == (False, None)
