"""Options at their edges: empty values, several wrong names, falsy numbers, and all switches of ``serve``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from faust_assigner.cli import jobs
from faust_assigner.cli import pipeline as pipeline_command
from faust_assigner.cli.serve import serve
from faust_assigner.pipeline import session
from faust_assigner.service.server import serve as service_serve
from faust_assigner.settings.service import OPTIONS, flag
from faust_assigner.settings.service_kinds import REPEATED
from tests.unit.cli.looks import REACH, run

pytestmark = pytest.mark.usefixtures("home")


# -- pipeline


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Record the sessions and the sections of a pipeline."""
    found: list[Any] = []

    @contextlib.contextmanager
    def held(*given: Any) -> Iterator[None]:
        found.append(given)
        yield

    monkeypatch.setattr(session, "held_session", held)
    monkeypatch.setattr("faust_assigner.pipeline.jars.cached_connector_jars", list)
    monkeypatch.setattr(pipeline_command, "_run", lambda *given: found.append(given) or 0)
    return found


HISTORY = 'ledger = "l"\nout = "o"\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"[a]\n[b]\n[history]\n", "p: no section is called 'a'"),
        (b"[pipeline]\nz = 1\ny = 2\nmaster = 'm'\n", "p: [pipeline] has no option 'y'"),
        (b"pipeline = 3\n", "p: [pipeline] has no option 'pipeline'"),
        (b"history = 3\n", "history must be a section, [history]"),
        (b"[pipeline]\nmaster = '\xff'\n", "p: 'utf-8' codec can't decode byte 0xff"),
        (b"[history]\nledger = 'l'\nout = 'o'\nevery = -1\n", "p: [history]: Invalid value"),
        (b"[weights]\nledger = 'l'\nsince = 2026-11-20\n", "weights.since: datetime.date("),
        (b"[weights]\nledger = 'l'\nby = 'x'\n", "p: [weights]: Invalid value for '--by'"),
        (b"[snapshot]\nx = 1\n", "p: [snapshot]: No such option: --x"),
    ],
)
def test_a_wrong_file_is_one_error_with_its_place(ran: list[Any], text: bytes, words: str) -> None:
    """The first of several wrong names is shown; a value is checked before the first section runs."""
    Path("p").write_bytes(text)
    done = run("pipeline", "run", "--config", "p", code=2)
    assert words in " ".join(done.stderr.replace("│", " ").split())
    assert ran == []


def test_the_session_has_the_settings_of_all_formats_of_the_histories(ran: list[Any]) -> None:
    """An empty master on the command line is that of spark-submit; an empty list is no option."""
    sections = [f'[[history]]\n{HISTORY}format = "{kind}"\n' for kind in ("delta", "parquet")]
    Path("p").write_text("[pipeline]\nmaster = 'm'\npackages = ',a:b:1,'\n" + "".join(sections))
    run("pipeline", "run", "--config", "p", "--master", "")
    (master, jars, packages, settings), *steps = ran
    assert (master, jars, packages) == (None, [], ("a:b:1",))
    assert "spark.sql.catalog.spark_catalog" in settings
    arguments = ["--stream", "--ledger", "l", "--out", "o", "--format"]
    assert steps == [("history", [*arguments, kind]) for kind in ("delta", "parquet")]
    found = pipeline_command._command_arguments("weights", {"ledger": [], "out": "w"})
    assert found == ["--out", "w"]


@pytest.mark.parametrize("more", [[], ["--check"]])
def test_a_file_without_jobs_is_refused(ran: list[Any], more: list[str]) -> None:
    """A schedule with the file would start Spark, do no work and report success."""
    for text in ("", "[pipeline]\nno-spark = true\n"):
        Path("p").write_text(text)
        refused = run("pipeline", "run", "--config", "p", *more, code=2)
        assert ran == []
        assert "p has none of the sections history, weights, snapshot" in refused.stderr


def test_a_check_lists_the_jobs_in_their_order(ran: list[Any]) -> None:
    """No job runs."""
    Path("p").write_text(f"[weights]\n{HISTORY}[history]\n{HISTORY}")
    done = run("pipeline", "run", "--config", "p", "--check")
    assert (done.stdout, ran) == ("p: history, weights\n", [])


def test_a_wrong_value_of_a_section_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """The heading of the section comes first."""
    assert pipeline_command._run("weights", ["--ledger", "l", "--by", "x"]) == 2
    shown = capsys.readouterr()
    assert shown.out == "== weights\n"
    assert "'x' is not one of 'blend', 'cpu', 'records', 'bytes'" in shown.err


@pytest.mark.parametrize("arguments", [[], ["doctor"], ["--help"], ["weigh"]])
def test_a_job_that_is_none_is_refused_with_the_list(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code is that of a wrong option."""
    assert jobs.main(arguments) == 2
    shown = capsys.readouterr()
    names = "history,pipeline,simulate,snapshot,weights"
    assert (shown.out, shown.err) == ("", f"usage: jobs.py {{{names}}} [options]\n")


# -- simulate, why, ui


@pytest.mark.parametrize(("cores", "jobs_used"), [(7, 7), (None, 1)])
def test_a_simulation_uses_all_cores(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch, cores: int | None, jobs_used: int
) -> None:
    """A number may have six digits."""
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    run("simulate", "--no-spark", "--out", "o", "--replicas", "123456,0", "--racks", "999999")
    [request] = asked
    assert (request.jobs, request.replicas, request.shape.racks) == (
        *(jobs_used, (123_456, 0)),
        (999_999,),
    )
    for option in ("--replicas", "--racks"):
        run("simulate", "--no-spark", "--out", "o", option, "1234567", code=2)


@pytest.mark.parametrize("options", [(), ("--group", ""), ("--bootstrap", "a:1")])
def test_a_question_without_a_group_or_a_ledger_is_refused(options: tuple[str, ...]) -> None:
    """An empty name is no group."""
    done = run("why", "orders/7", *options, code=2)
    assert "give --bootstrap HOST:PORT --group APP, or --ledger FOLDER" in done.stderr


@pytest.mark.parametrize("command", ["ui", "status"])
@pytest.mark.parametrize(
    "option",
    [
        ("--config", "client.properties"),
        ("--bootstrap", "a:1"),
        ("--worker", "w"),
        ("--group", "g"),
    ],
)
def test_a_saved_status_takes_no_option_of_a_running_group(
    command: str, option: tuple[str, str]
) -> None:
    """The option would be ignored."""
    Path("saved").touch()
    done = run(command, "--from", "saved", *option, code=2)
    assert "--from FILE shows a saved status" in done.stderr


def test_an_error_without_a_number_keeps_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """asyncio joins the errors of several addresses to one text."""

    def served(*_: object, **__: object) -> Any:
        raise OSError("Multiple exceptions: in use, in use")

    monkeypatch.setattr("faust_assigner.page.server.served", served)
    done = run("ui", *REACH, "--bind", "localhost", "--port", "9", code=1)
    words = "Multiple exceptions: in use, in use"
    assert done.stderr == f"faust-assigner: Cannot listen on localhost:9: {words}\n"


# -- serve, service


def test_every_setting_of_the_service_has_its_flag_with_its_help() -> None:
    """Only a switch that is on by default can be turned off; no flag has a default of its own."""
    found: list[Any] = serve.get_params(click.Context(serve))[: len(OPTIONS)]
    shown = [(one.opts, one.secondary_opts, one.multiple, one.is_flag, one.help) for one in found]
    assert shown == [
        (
            [flag(one)],
            [flag(one).replace("--", "--no-", 1)] if one.default is True else [],
            one.kind in REPEATED,
            isinstance(one.default, bool),
            f"{one.meaning}  [{one.name}; default: {one.default_text}]",
        )
        for one in OPTIONS
    ]
    assert {one.default for one in found} == {None}
    assert [one.metavar for one in found] == [
        None if isinstance(one.default, bool) else one.metavar for one in OPTIONS
    ]


@pytest.mark.parametrize(
    ("flags", "value"),
    [
        ([flag(one)], True)
        if one.default is False
        else ([flag(one).replace("--", "--no-", 1)], False)
        for one in OPTIONS
        if isinstance(one.default, bool)
    ],
)
def test_every_switch_reaches_the_service(
    monkeypatch: pytest.MonkeyPatch, flags: list[str], value: bool
) -> None:
    """A switch that is turned off is not a switch that is not given."""
    given: list[Any] = []

    def read(told: Any, environment: Any) -> str:
        given.append(told)
        return "options"

    monkeypatch.setattr("faust_assigner.service.server.options.Options.read", read)
    monkeypatch.setattr(service_serve, "serve", lambda options, say: given.append((options, say)))
    run("serve", *flags)
    [told, served] = given
    assert list(told.values()) == [value]
    assert served == ("options", click.echo)


@pytest.mark.parametrize("at", ["x", "x:", "x:70000", ":", "", "[::1]", "http://x:1", "[::1:1"])
@pytest.mark.parametrize("command", [("health",), ("topics",)])
def test_an_address_of_the_service_has_a_host_and_a_port(command: tuple[str, ...], at: str) -> None:
    """gRPC itself would connect to a different port."""
    done = run("service", *command, "--at", at, code=2)
    assert f"must be HOST:PORT, got {at!r}" in done.stderr
