"""The ``faust-assigner`` command: parse, call, print. Nothing imports this module."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections.abc import Iterator
from typing import NoReturn

import click

from faust_assigner import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="faust-assigner")
def main() -> None:
    """Partition assignment for Faust: an embedded broker, plans, history, snapshots, simulation."""


def _fail(message: object, code: int) -> NoReturn:
    """Say what is wrong on stderr and leave: 2 for what was asked, 1 for what went wrong."""
    click.echo(f"faust-assigner: {message}", err=True)
    raise SystemExit(code)


@contextlib.contextmanager
def _spoken_errors() -> Iterator[None]:
    """Errors of ours and of Spark as one line and an exit code, never as a traceback."""
    from faust_assigner.errors import FaustAssignerError

    try:
        yield
    except ModuleNotFoundError as error:
        _fail(f"{error.name} is not installed: pip install 'faust-assigner[spark]'", 1)
    except FaustAssignerError as error:
        _fail(error, 2)
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j"):
            raise
        _fail(f"Spark: {_last_words(str(error))}", 1)


def _last_words(text: str) -> str:
    """The line of a Spark error that says why: the innermost Python or Java error, else the first."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if re.match(r"(Caused by: |[\w.]*(Error|Exception|Refused)\b)", line)]
    return (telling or lines or ["no reason given"])[-1 if telling else 0]


@main.command()
@click.option("--ledger", "ledgers", multiple=True, required=True, metavar="PATH",
              help="A ledger: file, folder, glob, URL, or kafka://host:port/topic. May be repeated.")
@click.option("--out", required=True, metavar="DIR", help="Folder for tables, plots and report.")
@click.option("--stream", is_flag=True, help="Take only what is new since the last run, with a checkpoint.")
@click.option("--every", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS",
              help="With --stream: go on, looking again this often.")
@click.option("--master", default="local[*]", show_default=True, help="Spark's master.")
@click.option("--connector", type=click.Choice(["auto", "spark", "python"]), default="auto",
              help="What reads topics: Spark's connector or aiokafka.")
@click.option("--json", "as_json", is_flag=True, help="Print report.json instead of a summary.")
def history(ledgers: tuple[str, ...], out: str, stream: bool, every: float | None, master: str,
            connector: str, as_json: bool) -> None:
    """What the group did: movement, balance, recovery, skew; as tables, plots and one page."""
    if every is not None and not stream:
        raise click.UsageError("--every goes with --stream")
    with _spoken_errors():
        from faust_assigner.pipeline.console import show_history
        from faust_assigner.pipeline.history_job import HistoryOptions, check, run, session_for

        options = HistoryOptions(ledgers, out, stream, every, connector)
        check(options)
        spark = session_for(options, master)
        try:
            report = run(spark, options)
        finally:
            spark.stop()
        if as_json:
            click.echo(report.to_json(), nl=False)
        else:
            show_history(report, out)


@main.group()
def spark() -> None:
    """The Spark installation the pipeline runs on."""


@spark.command()
@click.option("--start", is_flag=True, help="Also start a session and run one small job (about 10 s).")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def doctor(start: bool, as_json: bool) -> None:
    """Check Java, PySpark, Python versions and the Kafka connector; name the fix for each."""
    from faust_assigner.pipeline.console import show_findings
    from faust_assigner.pipeline.doctor import examine, is_fit

    findings = examine(start=start)
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(finding) for finding in findings], indent=1))
    else:
        show_findings(findings)
    raise SystemExit(0 if is_fit(findings) else 1)


@main.command()
@click.option("--data", type=click.Path(file_okay=False), metavar="DIR",
              help="Folder for records, offsets and groups; without it all is in memory.")
@click.option("--port", type=click.IntRange(0, 65535), default=9092, show_default=True,
              help="Port to listen on; 0 picks a free one.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on and to advertise.")
@click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE",
              help="A broker setting by Kafka's name (num.partitions=12). May be repeated.")
@click.option("--settings", "list_settings", is_flag=True, help="List every setting with its default, and leave.")
def broker(data: str | None, port: int, host: str, assignments: tuple[str, ...], list_settings: bool) -> None:
    """Run the embedded Kafka-protocol broker until SIGTERM or Ctrl-C."""
    from pathlib import Path

    from faust_assigner.broker.serve import parse_assignments, serve
    from faust_assigner.broker.settings import describe_settings

    if list_settings:
        for name, default, meaning in describe_settings():
            click.echo(f"{name}={default}\n    {meaning}")
        return
    with _spoken_errors():
        try:
            serve(Path(data) if data else None, host, port, parse_assignments(assignments), click.echo)
        except OSError as error:
            _fail(error, 1)


if __name__ == "__main__":
    main()
