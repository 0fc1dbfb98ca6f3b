"""``faust-assigner spark doctor``, and the Spark session of other commands."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from faust_assigner.pipeline.progress import Progress


@click.group()
def spark() -> None:
    """Check the Spark installation of the pipeline."""


@spark.command()
@click.option(
    "--start", is_flag=True, help="Also start a session and run one small job (about 10 s)."
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def doctor(start: bool, as_json: bool) -> None:
    """Check Java, PySpark, Python versions and the Kafka connector; print the fix for each problem."""
    from faust_assigner.pipeline.console import show_findings
    from faust_assigner.pipeline.doctor import examine, is_fit

    findings = examine(start=start)
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(finding) for finding in findings], indent=1))
    else:
        show_findings(findings)
    raise SystemExit(0 if is_fit(findings) else 1)


def run_job(
    name: str,
    here: Callable[[Progress], object],
    on_spark: Callable[[object, Progress], object],
    *,
    no_spark: bool,
    master: str,
    packages: str,
) -> Any:
    """Run a job and show its progress: in this process, or in a new Spark session on ``master``."""
    from faust_assigner.pipeline.progress import Progress, showing_progress, ui_of
    from faust_assigner.pipeline.session import release, spark_session

    with showing_progress(Progress(name)) as progress:
        if no_spark:
            return here(progress)
        progress.enter("starting Spark")
        session = spark_session(master or None, packages=tuple(filter(None, packages.split(","))))
        try:
            progress.ui = ui_of(session)
            return on_spark(session, progress)
        finally:
            release(session)


def print_report(report: Any, show: Callable[[Any], None], *, as_json: bool) -> None:
    """Print a report as JSON, or call ``show`` with it."""
    if as_json:
        click.echo(json.dumps(report))
    else:
        show(report)
