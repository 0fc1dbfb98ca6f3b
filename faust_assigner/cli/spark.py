"""``faust-assigner spark doctor``, and the Spark session of other commands."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator
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


def on_spark(
    master: str, packages: str, work: Callable[[object], object], progress: Progress
) -> Any:
    """Run ``work`` with a session on ``master``, then stop the session."""
    from faust_assigner.pipeline.progress import ui_of

    progress.enter("starting Spark")
    with spark_for(master, packages) as session:
        progress.ui = ui_of(session)
        return work(session)


def tell(report: Any, show: Callable[[Any], None], *, as_json: bool) -> None:
    """Print a report, as JSON or by ``show``."""
    if as_json:
        click.echo(json.dumps(report))
    else:
        show(report)


@contextlib.contextmanager
def spark_for(master: str, packages: str = "") -> Iterator[object]:
    """Provide a session for a command; it ends with the command."""
    from faust_assigner.pipeline.session import release, spark_session

    session = spark_session(master or None, packages=tuple(filter(None, packages.split(","))))
    try:
        yield session
    finally:
        release(session)
