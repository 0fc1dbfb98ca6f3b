"""``faust-assigner history``."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from faust_assigner.cli import options as shared
from faust_assigner.cli.failure import reported_errors
from faust_assigner.cli.options import Number


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
    help="Also write the tables as Delta or Iceberg tables; needs --packages with the format for this Spark.",
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
    help="The least number of days in the history; fewer end the command with 3, after it has written.",
)
@click.option(
    "--max-age",
    metavar="TIME",
    help="The highest age of the newest line, like 2d; an older line ends the command with 3.",
)
@shared.config_option
@click.option(
    "--no-spark", is_flag=True, help="Run in this process, for ledgers that fit in memory."
)
@shared.packages_option
@click.option("--master", default="local[*]", show_default=True, help="Spark's master.")
@click.option(
    "--connector",
    type=click.Choice(["auto", "spark", "python"]),
    default="auto",
    help="The reader of topics: Spark's connector or aiokafka.",
)
@click.option("--json", "as_json", is_flag=True, help="Print report.json instead of a summary.")
def history(
    ledgers: tuple[str, ...],
    out: str,
    kind: str,
    stream: bool,
    every: float | None,
    since: str | None,
    until: str | None,
    fail_if_empty: bool | None,
    max_refused: str | None,
    min_days: int | None,
    max_age: str | None,
    config: str | None,
    no_spark: bool,
    packages: str,
    master: str,
    connector: str,
    as_json: bool,
) -> None:
    """Report the group's moves, balance, recoveries and skew, as tables, plots and a page."""
    if every is not None and not stream:
        raise click.UsageError("--every requires --stream")
    with reported_errors():
        from faust_assigner.pipeline.console import show_history
        from faust_assigner.pipeline.history.job import (
            HistoryOptions,
            check,
            run,
            run_here,
            session_for,
        )
        from faust_assigner.pipeline.history.quality import Gates
        from faust_assigner.pipeline.ledgers.period import Period
        from faust_assigner.pipeline.ledgers.refusals import Tolerance
        from faust_assigner.pipeline.progress import Progress, shown
        from faust_assigner.pipeline.session import release
        from faust_assigner.pipeline.snapshots.job import duration_ms

        options = HistoryOptions(
            ledgers,
            out,
            stream,
            every,
            connector,
            fail_if_empty,
            Tolerance.parse(max_refused),
            shared.properties(config),
            Period.parse(since, until, now=datetime.now(UTC)),
            tuple(filter(None, packages.split(","))),
            Gates(min_days, duration_ms(max_age) / 1000 if max_age else None),
            kind,
        )
        with shown(Progress("history")) as progress:
            if no_spark:
                report = run_here(options, progress)
            else:
                check(options)
                progress.enter("starting Spark")
                spark = session_for(options, master or None)
                try:
                    report = run(spark, options, progress)
                finally:
                    release(spark)
        if as_json:
            click.echo(report.to_json(), nl=False)
        else:
            show_history(report, out)
        if report.quality is not None:
            report.quality.check()
