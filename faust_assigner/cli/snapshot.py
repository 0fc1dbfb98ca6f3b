"""``faust-assigner snapshot``, with ``verify`` and ``gc``."""

from __future__ import annotations

import contextlib
from typing import Any

import click

from faust_assigner.cli import options as shared
from faust_assigner.cli.failure import reported_errors


@click.group(invoke_without_command=True)
@click.option("--bootstrap", metavar="HOST:PORT[,...]", help="The Kafka cluster.")
@shared.config_option
@click.option("--topic", metavar="CHANGELOG", help="The changelog: <app id>-<table>-changelog.")
@click.option("--to", metavar="DIR", help="Folder or URL (s3://...) of the snapshots.")
@click.option(
    "--previous",
    is_flag=True,
    help="Extend the newest snapshot: read only new records, write only changed rows.",
)
@click.option(
    "--max-layers",
    type=click.IntRange(min=0),
    default=8,
    show_default=True,
    help="The number of layers of changed rows before they are merged; with 0 each run writes the "
    "changed key ranges again.",
)
@click.option(
    "--no-spark", is_flag=True, help="Run in this process, without Spark, for small changelogs."
)
@shared.master_option
@click.option(
    "--connector",
    type=click.Choice(["auto", "spark", "python"]),
    default="auto",
    help="The reader of the topic: Spark's connector or aiokafka.",
)
@click.option(
    "--memory-mb",
    type=click.IntRange(min=1),
    default=256,
    show_default=True,
    help="The memory limit of a partition before its sorted runs are written and merged.",
)
@click.option(
    "--key-codec",
    type=click.Choice(["auto", "json", "raw"]),
    default="auto",
    show_default=True,
    help="The serializer of the table's keys; records that are not JSON are left out.",
)
@click.option(
    "--value-codec",
    type=click.Choice(["auto", "json", "raw"]),
    default="auto",
    show_default=True,
    help="The serializer of the table's values; raw accepts every value.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the manifests as JSON.")
@click.pass_context
def snapshot(
    context: click.Context,
    bootstrap: str | None,
    config: str | None,
    topic: str | None,
    to: str | None,
    previous: bool,
    max_layers: int,
    no_spark: bool,
    master: str,
    connector: str,
    memory_mb: int,
    key_codec: str,
    value_codec: str,
    as_json: bool,
) -> None:
    """Snapshot a changelog, so that workers restore files and replay only the tail."""
    context.obj = {"to": to, "topic": topic, "bootstrap": bootstrap, "config": config}
    if context.invoked_subcommand is not None:
        return
    with reported_errors():
        from faust_assigner.pipeline.console import show_manifests
        from faust_assigner.pipeline.progress import Progress, showing_progress
        from faust_assigner.pipeline.snapshots.job import SnapshotOptions, run

        _require_options(bootstrap, config, topic, to)
        options = SnapshotOptions(
            shared.cluster(bootstrap, config),
            topic or "",
            to or "",
            previous,
            no_spark,
            connector,
            memory_mb << 20,
            (key_codec, value_codec),
            max_layers,
        )
        with showing_progress(Progress("snapshot")) as progress:
            manifests = run(options, master, progress)
        show_manifests(manifests, options.to, as_json=as_json)


def _require_options(
    bootstrap: str | None, config: str | None, topic: str | None, to: str | None
) -> None:
    """Raise UsageError if a required option of a snapshot is missing."""
    missing = [
        f"--{name}"
        for name, value in (
            ("bootstrap", bootstrap or shared.properties(config).get("bootstrap.servers")),
            ("topic", topic),
            ("to", to),
        )
        if not value
    ]
    if missing:
        raise click.UsageError(f"Missing option: {', '.join(missing)}")


@snapshot.command("verify")
@click.argument("folder", metavar="[DIR]", required=False)
@click.option("--to", metavar="DIR", help="Folder or URL of the snapshots.")
@click.option("--topic", metavar="CHANGELOG", help="Only this changelog.")
@click.option(
    "--bootstrap",
    metavar="HOST:PORT[,...]",
    help="The Kafka cluster, which returns the topic ids to recognise recreated topics.",
)
@shared.config_option
@click.option("--json", "as_json", is_flag=True, help="Print the verdicts as JSON.")
@click.pass_context
def verify_snapshots(
    context: click.Context,
    folder: str | None,
    to: str | None,
    topic: str | None,
    bootstrap: str | None,
    config: str | None,
    as_json: bool,
) -> None:
    """Check hashes, key order, counts, offsets and the topic; exit 1 if a visible snapshot is damaged."""
    with reported_errors():
        from faust_assigner.pipeline.console import show_verdicts
        from faust_assigner.snapshots.verification import verify

        catalog, topics = _requested_snapshots(context, folder or to, topic)
        verdicts = list(
            verify(catalog, topics, _current_logs(context, bootstrap, config, topics, catalog))
        )
        show_verdicts(verdicts, as_json=as_json)
        raise SystemExit(1 if any(each.problem and each.manifest for each in verdicts) else 0)


@snapshot.command("gc")
@click.argument("folder", metavar="[DIR]", required=False)
@click.option("--to", metavar="DIR", help="Folder or URL of the snapshots.")
@click.option("--topic", metavar="CHANGELOG", help="Only this changelog.")
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="The number of snapshots kept per partition.",
)
@click.option(
    "--max-age",
    metavar="TIME",
    help="Also remove snapshots older than this age (7d, 36h), except the newest snapshot.",
)
@click.option(
    "--grace",
    default="1h",
    show_default=True,
    metavar="TIME",
    help="Keep unfinished snapshots until they are unchanged for this time.",
)
@click.option(
    "--dry-run", is_flag=True, help="List the files that would be removed, without removing them."
)
@click.option("--json", "as_json", is_flag=True, help="Print the removals as JSON.")
@click.pass_context
def collect_snapshots(
    context: click.Context,
    folder: str | None,
    to: str | None,
    topic: str | None,
    keep: int,
    max_age: str | None,
    grace: str,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Remove old snapshots, and leftovers of killed runs."""
    import time

    with reported_errors():
        from faust_assigner.pipeline.console import show_removals
        from faust_assigner.pipeline.snapshots.job import duration_ms
        from faust_assigner.snapshots.retention import collect_garbage

        catalog, topics = _requested_snapshots(context, folder or to, topic)
        removed = collect_garbage(
            catalog,
            now_ms=round(time.time() * 1000),
            keep=keep,
            topics=topics,
            dry_run=dry_run,
            max_age_ms=duration_ms(max_age) if max_age else None,
            grace_ms=duration_ms(grace),
        )
        show_removals(removed, dry_run=dry_run, as_json=as_json)


def _current_logs(
    context: click.Context,
    bootstrap: str | None,
    config: str | None,
    topics: list[str] | None,
    catalog: Any,
) -> Any:
    """Return topic -> its changelog in the given cluster now; None if no cluster is given."""
    from faust_assigner.snapshots.changelog import UnknownTopicError, look_at

    bootstrap, config = bootstrap or context.obj["bootstrap"], config or context.obj["config"]
    if not (bootstrap or shared.properties(config).get("bootstrap.servers")):
        return None
    connection = shared.cluster(bootstrap, config).connection()
    logs = {}
    for topic in topics or catalog.topics():
        with contextlib.suppress(UnknownTopicError):
            # the topic was deleted: check its snapshots without the topic's offsets
            logs[topic] = look_at(connection, topic)
    return logs


def _requested_snapshots(
    context: click.Context, folder: str | None, topic: str | None
) -> tuple[Any, list[str] | None]:
    """Return (the catalog, the requested topics or None for all).
    If an option is missing, its value before the subcommand's name is used.
    """
    from faust_assigner.errors import ConfigError
    from faust_assigner.snapshots.catalog import Catalog
    from faust_assigner.snapshots.storage import open_storage

    url, topic = folder or context.obj["to"], topic or context.obj["topic"]
    if not url:
        raise click.UsageError("Missing option: --to")
    catalog = Catalog(open_storage(url))
    known = catalog.topics()
    if not known or (topic and topic not in known):
        raise ConfigError(f"no snapshots {f'of {topic} ' if topic else ''}under {url}")
    return catalog, [topic] if topic else None
