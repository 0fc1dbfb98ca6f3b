"""Spark sessions of the pipeline's commands, ``snapshot``, and the sections of ``pipeline run``."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.cli import jobs
from faust_assigner.cli import pipeline as pipeline_command
from faust_assigner.cli.spark import print_report, run_job
from faust_assigner.errors import ConfigError
from faust_assigner.pipeline import console, session
from faust_assigner.pipeline.cluster import Cluster
from faust_assigner.pipeline.progress import Progress
from faust_assigner.pipeline.simulate import job as simulate_job
from faust_assigner.pipeline.snapshots import job as snapshot_job
from faust_assigner.pipeline.snapshots.job import SnapshotOptions
from faust_assigner.pipeline.weights import job as weights_job
from tests.unit.cli.looks import KAFKA, run

pytestmark = pytest.mark.usefixtures("home")


# -- on Spark


@pytest.mark.parametrize(("master", "started"), [("local[2]", "local[2]"), ("", None)])
@pytest.mark.parametrize("fails", [False, True])
def test_work_on_spark_knows_the_page_of_its_session_which_ends_with_the_work(
    monkeypatch: pytest.MonkeyPatch, master: str, started: str | None, fails: bool
) -> None:
    """The session also ends if the work fails."""
    told: list[Any] = []
    spark = SimpleNamespace(sparkContext=SimpleNamespace(uiWebUrl="http://ui"))

    def work(given: object, progress: Progress) -> str:
        told.append((given, progress.stage, progress.ui))
        if fails:
            raise ConfigError("wrong")
        return "done"

    def start(*given: Any, **more: Any) -> Any:
        told.append((given, more))
        return spark

    monkeypatch.setattr(session, "spark_session", start)
    monkeypatch.setattr(session, "release", lambda given: told.append(("released", given)))
    where: Any = {"no_spark": False, "master": master, "packages": "a:b:1,,c:d:2"}
    if fails:
        with pytest.raises(ConfigError):
            run_job("weights", lambda _: None, work, **where)
    else:
        assert run_job("weights", lambda _: None, work, **where) == "done"
    assert told == [
        ((started,), {"packages": ("a:b:1", "c:d:2")}),
        (spark, "starting Spark", "http://ui"),
        ("released", spark),
    ]


@pytest.mark.parametrize("command", ["weights", "simulate"])
def test_a_command_without_no_spark_runs_on_its_master_with_its_packages(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """The session is passed on with the request and the progress."""
    module = weights_job if command == "weights" else simulate_job
    name = "learn_on_spark" if command == "weights" else "simulate_on_spark"
    monkeypatch.setattr(module, name, lambda *given: {"spark": given[0], "by": given[2].command})

    def run_job(name: str, _: object, work: Callable[[Any, Any], Any], **where: Any) -> Any:
        return {**work("s", Progress(name)), "on": where}

    monkeypatch.setattr(f"faust_assigner.cli.{command}.run_job", run_job)
    chosen = ("--master", "m", "--packages", "p", "--json")
    done = run(command, "--ledger", "l", "--out", "o", *chosen)
    where = {"no_spark": False, "master": "m", "packages": "p"}
    assert json.loads(done.stdout) == {"spark": "s", "by": command, "on": where}
    assert asked == []


def test_a_report_is_shown_or_printed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """The output is one of the two, never both."""
    print_report({"a": 1}, print, as_json=True)
    print_report({"a": 2}, lambda report: print("shown", report), as_json=False)
    assert capsys.readouterr().out == "{\"a\": 1}\nshown {'a': 2}\n"


# -- snapshot

SNAPSHOT = SnapshotOptions(Cluster("a:1"), "t", "d", memory_bytes=256 << 20)


@pytest.mark.parametrize(
    ("options", "changes", "master"),
    [
        ([], {}, "local[*]"),
        (["--previous"], {"previous": True}, "local[*]"),
        (["--max-layers", "0"], {"max_layers": 0}, "local[*]"),
        (["--no-spark"], {"no_spark": True}, "local[*]"),
        (["--master", "m"], {}, "m"),
        (["--connector", "spark"], {"connector": "spark"}, "local[*]"),
        (["--memory-mb", "2"], {"memory_bytes": 2 * 1024 * 1024}, "local[*]"),
        (["--key-codec", "json"], {"codecs": ("json", "auto")}, "local[*]"),
        (["--value-codec", "raw"], {"codecs": ("auto", "raw")}, "local[*]"),
        (["--config", "client.properties"], {"cluster": Cluster("a:1", KAFKA)}, "local[*]"),
    ],
)
def test_each_option_of_a_snapshot_reaches_the_job_alone(
    monkeypatch: pytest.MonkeyPatch, options: list[str], changes: dict[str, Any], master: str
) -> None:
    """The manifests are shown with their folder."""
    told: list[Any] = []

    def take(options: SnapshotOptions, master: str, progress: Progress) -> list[str]:
        told.append((options, master, progress.command))
        return ["manifest"]

    monkeypatch.setattr(snapshot_job, "run", take)
    monkeypatch.setattr(
        console, "show_manifests", lambda *shown, as_json: told.append((*shown, as_json))
    )
    where = ("--bootstrap", "a:1", "--topic", "t", "--to", "d")
    run("snapshot", *where, *options)
    run("snapshot", *where, *options, "--json")
    asked = (replace(SNAPSHOT, **changes), master, "snapshot")
    assert told == [asked, (["manifest"], "d", False), asked, (["manifest"], "d", True)]


# -- pipeline run, and the jobs of spark-submit


def test_a_section_becomes_its_commands_arguments() -> None:
    """A list repeats the option; a switch that is off is left out."""
    entry = {"ledger": ["a", "b"], "stream": True, "shadow": False, "replicas": 0, "every": 1.5}
    assert pipeline_command._command_arguments("history", entry) == [
        *("--ledger", "a", "--ledger", "b"),
        "--stream",
        *("--replicas", "0", "--every", "1.5"),
    ]


@pytest.mark.parametrize("no_spark", [None, False, True])
def test_sections_run_in_a_fixed_order_with_a_schedules_switches(no_spark: bool | None) -> None:
    """A section's own value has priority; a section may occur several times."""
    told = {
        "snapshot": [{"to": "a"}, {"to": "b", "previous": False}],
        "history": {"out": "h", "no-spark": False},
    }
    shared = {"no-spark": True} if no_spark else {}
    assert list(pipeline_command._job_sections(told, no_spark)) == [
        ("history", {"stream": True, "out": "h", "no-spark": False}),
        ("snapshot", {"previous": True, **shared, "to": "a"}),
        ("snapshot", {"previous": False, **shared, "to": "b"}),
    ]


@pytest.mark.parametrize(
    ("codes", "code"), [((3, 75), 3), ((3, 1), 1), ((2, 1), 2), ((0, 9), 9), ((9, 75), 75)]
)
def test_the_worst_exit_code_of_all_sections_is_the_runs(
    home: Path, monkeypatch: pytest.MonkeyPatch, codes: tuple[int, int], code: int
) -> None:
    """A permanent failure outranks a missed gate, and a missed gate outranks a temporary failure."""
    left = list(codes)
    monkeypatch.setattr(pipeline_command, "_run", lambda *_: left.pop(0))
    sections = 'ledger = ["l"]\nout = "o"\n'
    Path("p").write_text(f"[pipeline]\nno-spark = true\n[history]\n{sections}[weights]\n{sections}")
    run("pipeline", "run", "--config", "p", code=code)


@pytest.mark.parametrize(
    ("file", "option", "started"),
    [
        ("", [], "local[*]"),
        ('master = "local[2]"\n', [], "local[2]"),
        ('master = "local[2]"\n', ["--master", "local[3]"], "local[3]"),
        ('master = ""\n', [], None),
    ],
)
def test_the_sections_share_a_session_on_the_runs_master(
    monkeypatch: pytest.MonkeyPatch, file: str, option: list[str], started: str | None
) -> None:
    """The option has priority over the file; the session has the cached connector jars."""
    held: list[Any] = []

    class Held:
        def __init__(self, *given: Any) -> None:
            held.append(given)

        def __enter__(self) -> None:
            held.append("begin")

        def __exit__(self, *_: object) -> None:
            held.append("end")

    monkeypatch.setattr(session, "held_session", Held)
    monkeypatch.setattr("faust_assigner.pipeline.jars.cached_connector_jars", lambda: ["k.jar"])
    monkeypatch.setattr(
        pipeline_command, "_run", lambda name, arguments: held.append((name, arguments)) or 0
    )
    Path("p").write_text(f'[pipeline]\n{file}[weights]\nledger = "l"\nout = "w"\n')
    run("pipeline", "run", "--config", "p", *option)
    assert held == [
        (started, ["k.jar"], (), {}),
        "begin",
        ("weights", ["--ledger", "l", "--out", "w"]),
        "end",
    ]


@pytest.mark.parametrize(
    ("error", "code"), [(None, 0), (SystemExit(None), 0), (SystemExit(75), 75)]
)
def test_a_sections_exit_code_is_returned(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch, error: BaseException | None, code: int
) -> None:
    """An exit code other than 0 neither raises nor ends the run."""

    def learn(*_: object) -> dict[str, Any]:
        if error is not None:
            raise error
        return {}

    monkeypatch.setattr(weights_job, "learn_here", learn)
    arguments = ["--no-spark", "--ledger", "l", "--out", "w"]
    assert pipeline_command._run("weights", arguments) == code
    assert jobs.main(["weights", *arguments]) == code


def test_a_wrong_value_in_a_section_is_its_own_failure() -> None:
    """The exit code is 2, and the remaining sections still run."""
    assert pipeline_command._run("weights", ["--ledger", "l"]) == 2


def test_spark_submit_brings_the_master_itself(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job's own default would run on a single machine."""
    started: list[Any] = []
    monkeypatch.setattr(
        "faust_assigner.cli.weights.run_job",
        lambda *_, **more: started.append(more["master"]) or {},
    )
    assert jobs.main(["weights", "--ledger", "l", "--out", "w"]) == 0
    assert jobs.main(["weights", "--ledger", "l", "--out", "w", "--master", "yarn"]) == 0
    assert started == ["", "yarn"]
