"""The command ``faust-assigner weights``."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from faust_assigner.cli import options as shared
from faust_assigner.cli.failure import reported_errors
from faust_assigner.cli.spark import print_report, run_job


@click.command()
@click.option(
    "--ledger",
    "ledgers",
    multiple=True,
    required=True,
    metavar="PATH",
    help="A ledger with partition samples: file, folder, glob, URL, or kafka://host:port/topic. "
    "May be repeated.",
)
@click.option("--out", metavar="FILE", help="The versioned weights file, replaced atomically.")
@click.option("--bootstrap", metavar="HOST:PORT", help="With --topic: the brokers.")
@click.option("--topic", metavar="NAME", help="Publish to this compacted topic too.")
@click.option(
    "--by",
    type=click.Choice(["blend", "cpu", "records", "bytes"]),
    default="blend",
    show_default=True,
    help="The measured cost from which weights are computed.",
)
@click.option(
    "--clamp",
    default="0.25:4",
    show_default=True,
    metavar="LOW:HIGH",
    help="The lowest and highest weight, in medians of its group.",
)
@click.option(
    "--since", metavar="TIME", help="Only samples from this time on: a day, a time, or 7d."
)
@click.option("--until", metavar="TIME", help="Only samples before this time.")
@click.option(
    "--half-life",
    default="12h",
    show_default=True,
    metavar="TIME",
    help="The age at which a sample counts half as much as the newest.",
)
@click.option(
    "--max-drift",
    default="50%",
    show_default=True,
    metavar="P%",
    help="The largest allowed change since the published version: the share of the weight that has "
    "moved to other partitions. After a larger change the command publishes nothing and ends "
    "with exit code 3.",
)
@click.option(
    "--shadow",
    is_flag=True,
    help="Plan the newest decisions again, once without and once with weights, and print both "
    "results.",
)
@click.option(
    "--decisions",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    metavar="N",
    help="With --shadow: the number of newest decisions of each group.",
)
@click.option(
    "--replicas",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="With --shadow: the number of standbys.",
)
@shared.max_refused_option
@shared.config_option
@shared.no_spark_option
@shared.packages_option
@shared.master_option
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def weights(
    ledgers: tuple[str, ...],
    out: str | None,
    bootstrap: str | None,
    topic: str | None,
    by: str,
    clamp: str,
    since: str | None,
    until: str | None,
    half_life: str,
    max_drift: str,
    shadow: bool,
    decisions: int,
    replicas: int,
    max_refused: str | None,
    config: str | None,
    no_spark: bool,
    packages: str,
    master: str,
    as_json: bool,
) -> None:
    """Compute each partition's weight from a ledger's samples and publish the weights for the assignor."""
    if out is None and topic is None:
        raise click.UsageError("give --out FILE, or --bootstrap and --topic, or all three")
    if bootstrap is not None and topic is None:
        raise click.UsageError("--bootstrap and --topic require each other")
    with reported_errors():
        from faust_assigner.pipeline.console import show_weights
        from faust_assigner.pipeline.ledgers.period import Period
        from faust_assigner.pipeline.ledgers.refusals import Tolerance
        from faust_assigner.pipeline.weights import job
        from faust_assigner.pipeline.weights.drift import parse_share
        from faust_assigner.weights.limits import Limits

        request = job.Request(
            ledgers,
            datetime.now(UTC),
            out,
            shared.cluster(bootstrap, config) if topic else None,
            topic,
            by,
            Limits.parse(clamp),
            shadow,
            replicas,
            Tolerance.parse(max_refused),
            shared.properties(config),
            Period.parse(since, until, now=datetime.now(UTC)),
            job.half_life_s(half_life),
            parse_share(max_drift),
            decisions,
        )
        report = run_job(
            "weights",
            lambda progress: job.learn_here(request, progress),
            lambda spark, progress: job.learn_on_spark(spark, request, progress),
            no_spark=no_spark,
            master=master,
            packages=packages,
        )
        print_report(report, show_weights, as_json=as_json)
