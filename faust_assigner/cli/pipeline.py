"""``faust-assigner pipeline run``: runs the jobs of one configuration file in one Spark session."""

from __future__ import annotations

import contextlib
import importlib
import tomllib
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from faust_assigner.cli.failure import reported_errors

#: The file's sections in the order of their runs; each with the options that are on by default.
STEPS: Mapping[str, Mapping[str, Any]] = {
    "history": {"stream": True},
    "weights": {},
    "snapshot": {"previous": True},
}
_USAGE = 2
#: The exit codes by priority: wrong options, permanent failure, failed gate (a limit), temporary failure.
_WORST_FIRST = (_USAGE, 1, 3, 75)
#: The options of the section [pipeline]; the other sections have the options of their commands.
_SHARED = frozenset({"master", "packages", "no-spark"})


@click.group()
def pipeline() -> None:
    """Run the pipeline's scheduled jobs from one configuration file."""


@pipeline.command()
@click.option(
    "--config",
    "path",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A TOML file with the sections pipeline, history, weights and snapshot.",
)
@click.option("--check", is_flag=True, help="Check the file and end.")
@click.option("--master", help="Spark's master, instead of the file's.")
def run(path: Path, check: bool, master: str | None) -> None:
    """Run each section that the file has: incrementally, so that a run may be repeated at any time.

    A failed section does not stop the other sections. Exit code: 2 or 1 if a section failed permanently,
    3 if the data did not pass a gate (a limit), 75 if a retry may succeed, 0 otherwise.
    """
    told = _read_file(path)
    shared = told.pop("pipeline", {})
    if master is not None:
        shared["master"] = master
    steps = [
        (name, _command_arguments(name, entry))
        for name, entry in _job_sections(told, shared.get("no-spark"))
    ]
    for name, arguments in steps:
        _check_arguments(path, name, arguments)
    if not steps:
        raise click.UsageError(f"{path} has none of the sections {', '.join(STEPS)}")
    if check:
        click.echo(f"{path}: {', '.join(name for name, _ in steps)}")
        return
    with reported_errors(), _spark_session(shared, told.get("history", {})):
        codes = [_run(name, arguments) for name, arguments in steps]
    failed = [code for code in codes if code]
    raise SystemExit(next((code for code in _WORST_FIRST if code in failed), max([0, *failed])))


def _read_file(path: Path) -> dict[str, Any]:
    try:
        told = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{path}: {error}") from error
    unknown = sorted(told.keys() - STEPS.keys() - {"pipeline"})
    if unknown:
        raise click.UsageError(f"{path}: no section is called {unknown[0]!r}")
    shared = told.get("pipeline", {})
    wrong = sorted(shared.keys() - _SHARED) if isinstance(shared, dict) else ["pipeline"]
    if wrong:
        raise click.UsageError(f"{path}: [pipeline] has no option {wrong[0]!r}")
    return told


def _job_sections(
    told: Mapping[str, Any], no_spark: object
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (name, options) of each section, in order; ``[[snapshot]]`` may occur several times."""
    for name, wanted in STEPS.items():
        entries = told.get(name, [])
        for entry in entries if isinstance(entries, list) else [entries]:
            if not isinstance(entry, dict):
                raise click.UsageError(f"{name} must be a section, [{name}]")
            yield name, {**wanted, **({"no-spark": True} if no_spark else {}), **entry}


def _command_arguments(name: str, entry: Mapping[str, Any]) -> list[str]:
    """Convert a section to the arguments of its command."""
    found: list[str] = []
    for option, value in entry.items():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, bool):
                found += [f"--{option}"] if each else []
            elif isinstance(each, (str, int, float)):
                found += [f"--{option}", str(each)]
            else:
                raise click.UsageError(
                    f"{name}.{option}: {each!r} must be a string, a number or a boolean"
                )
    return found


def _load_command(name: str) -> click.Command:
    command: click.Command = getattr(importlib.import_module(f"faust_assigner.cli.{name}"), name)
    return command


def _check_arguments(path: Path, name: str, arguments: list[str]) -> None:
    """Raise UsageError for an option that the command does not have."""
    try:
        _load_command(name).make_context(name, list(arguments))
    except click.UsageError as error:
        raise click.UsageError(f"{path}: [{name}]: {error.format_message()}") from error


@contextlib.contextmanager
def _spark_session(shared: Mapping[str, Any], history: Any) -> Iterator[None]:
    """Hold a Spark session in the block, set up for the formats of ``history``; none with ``no-spark``."""
    if shared.get("no-spark"):
        yield
        return
    from faust_assigner.pipeline.history.lakehouse import settings_of
    from faust_assigner.pipeline.jars import cached_connector_jars
    from faust_assigner.pipeline.session import held_session

    packages = tuple(filter(None, str(shared.get("packages", "")).split(",")))
    master = str(shared.get("master", "local[*]")) or None
    settings: dict[str, str] = {}
    for entry in history if isinstance(history, list) else [history]:
        settings |= settings_of(entry.get("format", ""))
    jars = cached_connector_jars()
    with held_session(master, jars, packages, settings):
        yield


def _run(name: str, arguments: list[str]) -> int:
    """Run one section, and return its exit code."""
    click.echo(f"== {name}")
    try:
        _load_command(name).main(arguments, prog_name=name, standalone_mode=False)
    except SystemExit as end:
        return int(end.code or 0)
    except click.ClickException as error:
        error.show()
        return _USAGE
    except (click.Abort, BrokenPipeError):
        raise
    except Exception:  # a bug in one section must not keep the other sections from running
        traceback.print_exc()
        return 1
    return 0
