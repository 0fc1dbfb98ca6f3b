"""The command ``faust-assigner history``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from faust_assigner.cli import options as shared
from faust_assigner.cli.failure import reported_errors
from faust_assigner.cli.options import Number

if TYPE_CHECKING:
    from faust_assigner.pipeline.history.options import HistoryOptions
    from faust_assigner.pipeline.history.report import Report


class _CommandOptions(TypedDict):
    """The command's options as click passes them, except ``--no-spark``, ``--master`` and ``--json``."""

    ledgers: tuple[str, ...]
    out: str
    kind: str
    stream: bool
    every: float | None
    since: str | None
    until: str | None
    fail_if_empty: bool | None
    max_refused: str | None
    min_days: int | None
    max_age: str | None
    config: str | None
    packages: str
    connector: str


@click.command()
@click.option(
    "--ledger",
    "ledgers",
    multiple=True,
    required=True,
    metavar="PATH",
    help="A ledger: file, folder, glob, URL, or kafka://host:port/topic. May be repeated.",
)
@click.option("--out", required=True, metavar="DIR", help="Folder for tables, plots and report.")
@click.option(
    "--format",
    "kind",
    type=click.Choice(["parquet", "delta", "iceberg"]),
    default="parquet",
    show_default=True,
    help="Also write the tables as Delta or Iceberg tables; needs --packages with the format for "
    "this Spark.",
)
@click.option("--stream", is_flag=True, help="Read only the new lines since the last run.")
@click.option(
    "--every",
    type=Number(min=0, min_open=True),
    metavar="SECONDS",
    help="With --stream: repeat at this interval.",
)
@click.option(
    "--since", metavar="TIME", help="Only events from this time on: a day, a time, or 7d."
)
@click.option("--until", metavar="TIME", help="Only events before this time; days are UTC days.")
@shared.fail_if_empty_option
@shared.max_refused_option
@click.option(
    "--min-days",
    type=click.IntRange(min=1),
    metavar="N",
    help="The minimum number of days in the history. With fewer days the command writes the "
    "history and ends with exit code 3.",
)
@click.option(
    "--max-age",
    metavar="TIME",
    help="The maximum age of the newest line, like 2d. With an older line the command writes the "
    "history and ends with exit code 3.",
)
@shared.config_option
@shared.no_spark_option
@shared.packages_option
@shared.master_option
@click.option(
    "--connector",
    type=click.Choice(["auto", "spark", "python"]),
    default="auto",
    help="The reader of topics: Spark's connector or aiokafka.",
)
@click.option("--json", "as_json", is_flag=True, help="Print report.json instead of a summary.")
def history(no_spark: bool, master: str, as_json: bool, **given: Unpack[_CommandOptions]) -> None:
    """Report the group's moves, balance, recoveries and skew, as tables, plots and a page."""
    if given["every"] is not None and not given["stream"]:
        raise click.UsageError("--every requires --stream")
    with reported_errors():
        from faust_assigner.pipeline.console import show_history

        options = _parse_options(given)
        report = _report(options, master=None if no_spark else master)
        if as_json:
            click.echo(report.to_json(), nl=False)
        else:
            show_history(report, options.out)
        if report.quality is not None:
            report.quality.check()


def _parse_options(given: _CommandOptions) -> HistoryOptions:
    """Parse the options. Raises ConfigError."""
    from faust_assigner.pipeline.history.options import HistoryOptions
    from faust_assigner.pipeline.history.quality import Gates
    from faust_assigner.pipeline.ledgers.period import Period
    from faust_assigner.pipeline.ledgers.refusals import Tolerance
    from faust_assigner.pipeline.snapshots.job import duration_ms

    max_age = given["max_age"]
    return HistoryOptions(
        given["ledgers"],
        given["out"],
        given["stream"],
        given["every"],
        given["connector"],
        given["fail_if_empty"],
        Tolerance.parse(given["max_refused"]),
        shared.properties(given["config"]),
        Period.parse(given["since"], given["until"], now=datetime.now(UTC)),
        tuple(filter(None, given["packages"].split(","))),
        Gates(given["min_days"], duration_ms(max_age) / 1000 if max_age else None),
        given["kind"],
    )


def _report(options: HistoryOptions, *, master: str | None) -> Report:
    """Compute the history with Spark at ``master``, or in this process if ``master`` is None."""
    from faust_assigner.pipeline.history.job import check, run, run_here, session_for
    from faust_assigner.pipeline.progress import Progress, showing_progress
    from faust_assigner.pipeline.session import release

    with showing_progress(Progress("history")) as progress:
        if master is None:
            return run_here(options, progress)
        check(options)
        progress.enter("starting Spark")
        spark = session_for(options, master or None)
        try:
            return run(spark, options, progress)
        finally:
            release(spark)
