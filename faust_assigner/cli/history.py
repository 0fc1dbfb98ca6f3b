"""``faust-assigner history``."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from faust_assigner.cli import options as shared
from faust_assigner.cli.failure import spoken_errors


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
    "--stream", is_flag=True, help="Take only what is new since the last run, with a checkpoint."
)
@click.option(
    "--every",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="With --stream: go on, looking again this often.",
)
@click.option(
    "--since", metavar="TIME", help="Only what happened from then on: a day, a time, or 7d."
)
@click.option("--until", metavar="TIME", help="Only what happened before; days are UTC days.")
@shared.fail_if_empty_option
@shared.max_refused_option
@shared.config_option
@click.option("--no-spark", is_flag=True, help="In this process; for ledgers that fit in memory.")
@shared.packages_option
@click.option("--master", default="local[*]", show_default=True, help="Spark's master.")
@click.option(
    "--connector",
    type=click.Choice(["auto", "spark", "python"]),
    default="auto",
    help="What reads topics: Spark's connector or aiokafka.",
)
@click.option("--json", "as_json", is_flag=True, help="Print report.json instead of a summary.")
def history(
    ledgers: tuple[str, ...],
    out: str,
    stream: bool,
    every: float | None,
    since: str | None,
    until: str | None,
    fail_if_empty: bool | None,
    max_refused: str | None,
    config: str | None,
    no_spark: bool,
    packages: str,
    master: str,
    connector: str,
    as_json: bool,
) -> None:
    """What the group did: movement, balance, recovery, skew; as tables, plots and one page."""
    if every is not None and not stream:
        raise click.UsageError("--every goes with --stream")
    with spoken_errors():
        from faust_assigner.pipeline.console import show_history
        from faust_assigner.pipeline.history.job import (
            HistoryOptions,
            check,
            run,
            run_here,
            session_for,
        )
        from faust_assigner.pipeline.ledgers.period import Period
        from faust_assigner.pipeline.ledgers.refusals import Tolerance

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
        )
        if no_spark:
            report = run_here(options)
        else:
            check(options)
            spark = session_for(options, master or None)
            try:
                report = run(spark, options)
            finally:
                spark.stop()
        if as_json:
            click.echo(report.to_json(), nl=False)
        else:
            show_history(report, out)
