"""The ``faust-assigner`` command: parse, call, print. Nothing imports this module."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
from collections.abc import Iterator
from typing import Any, NoReturn

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


@main.group(invoke_without_command=True)
@click.option("--bootstrap", metavar="HOST:PORT[,...]", help="The Kafka cluster.")
@click.option("--topic", metavar="CHANGELOG", help="The changelog: <app id>-<table>-changelog.")
@click.option("--to", metavar="DIR", help="Folder or URL (s3://...) of the snapshots.")
@click.option("--previous", is_flag=True, help="Build on the newest snapshot, read only what is new.")
@click.option("--no-spark", is_flag=True, help="In this process, without Spark: for small changelogs.")
@click.option("--master", default="local[*]", show_default=True, help="Spark's master.")
@click.option("--connector", type=click.Choice(["auto", "spark", "python"]), default="auto",
              help="What reads the topic: Spark's connector or aiokafka.")
@click.option("--memory-mb", type=click.IntRange(min=1), default=256, show_default=True,
              help="Memory of a partition before it is merged from sorted runs.")
@click.option("--json", "as_json", is_flag=True, help="Print the manifests as JSON.")
@click.pass_context
def snapshot(context: click.Context, bootstrap: str | None, topic: str | None, to: str | None,
             previous: bool, no_spark: bool, master: str, connector: str, memory_mb: int,
             as_json: bool) -> None:
    """Snapshot a changelog, so that workers restore files and replay only the tail."""
    context.obj = {"to": to, "topic": topic}
    if context.invoked_subcommand is not None:
        return
    missing = [f"--{name}" for name, value in
               (("bootstrap", bootstrap), ("topic", topic), ("to", to)) if not value]
    if missing:
        raise click.UsageError(f"Missing option: {', '.join(missing)}")
    with _spoken_errors():
        from faust_assigner.pipeline.console import show_manifests
        from faust_assigner.pipeline.snapshot_job import SnapshotOptions, run

        options = SnapshotOptions(bootstrap or "", topic or "", to or "", previous, no_spark, connector,
                                  memory_mb << 20)
        show_manifests(run(options, master), options.to, as_json=as_json)


@snapshot.command("verify")
@click.argument("folder", metavar="[DIR]", required=False)
@click.option("--to", metavar="DIR", help="Folder or URL of the snapshots.")
@click.option("--topic", metavar="CHANGELOG", help="Only this changelog.")
@click.option("--json", "as_json", is_flag=True, help="Print the verdicts as JSON.")
@click.pass_context
def verify_snapshots(context: click.Context, folder: str | None, to: str | None, topic: str | None,
                     as_json: bool) -> None:
    """Check hashes, key order, counts and offsets; 1 if any visible snapshot is not whole."""
    with _spoken_errors():
        from faust_assigner.pipeline.console import show_verdicts
        from faust_assigner.snapshots.upkeep import verify

        catalog, topics = _snapshots(context, folder or to, topic)
        verdicts = list(verify(catalog, topics))
        show_verdicts(verdicts, as_json=as_json)
        raise SystemExit(1 if any(each.problem and each.manifest for each in verdicts) else 0)


@snapshot.command("gc")
@click.argument("folder", metavar="[DIR]", required=False)
@click.option("--to", metavar="DIR", help="Folder or URL of the snapshots.")
@click.option("--topic", metavar="CHANGELOG", help="Only this changelog.")
@click.option("--keep", type=click.IntRange(min=1), default=2, show_default=True,
              help="Snapshots kept of each partition.")
@click.option("--max-age", metavar="TIME", help="Of these, drop all but the newest once older (7d, 36h).")
@click.option("--grace", default="1h", show_default=True, metavar="TIME",
              help="Leave unfinished snapshots alone until unchanged for so long.")
@click.option("--dry-run", is_flag=True, help="Say what would go, remove nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the removals as JSON.")
@click.pass_context
def collect_snapshots(context: click.Context, folder: str | None, to: str | None, topic: str | None,
                      keep: int, max_age: str | None, grace: str, dry_run: bool, as_json: bool) -> None:
    """Remove old snapshots, and leftovers of runs that were killed."""
    import time

    with _spoken_errors():
        from faust_assigner.pipeline.console import show_removals
        from faust_assigner.pipeline.snapshot_job import duration_ms
        from faust_assigner.snapshots.upkeep import collect_garbage

        catalog, topics = _snapshots(context, folder or to, topic)
        removed = collect_garbage(
            catalog, now_ms=round(time.time() * 1000), keep=keep, topics=topics, dry_run=dry_run,
            max_age_ms=duration_ms(max_age) if max_age else None, grace_ms=duration_ms(grace))
        show_removals(removed, dry_run=dry_run, as_json=as_json)


def _snapshots(context: click.Context, folder: str | None, topic: str | None) -> tuple[Any, list[str] | None]:
    """(the catalog, the topics asked for), from the subcommand's options or the group's."""
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
@click.option("--settings", "list_settings", is_flag=True,
              help="List every setting with its default, and leave.")
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


@main.command()
@click.option("--scenarios", type=click.IntRange(min=1), default=1000, show_default=True, help="How many.")
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True,
              help="The same seed, the same numbers.")
@click.option("--out", default="", metavar="DIR", help="Folder for sim_result and report.json.")
@click.option("--ledger", "ledgers", multiple=True, metavar="PATH",
              help="Replay a recorded week: file, folder or glob. May be repeated.")
@click.option("--group", "group_id", metavar="ID", help="With --ledger: this group alone.")
@click.option("--policies", default="ours,ours+static,ours+static+weights,stock", show_default=True,
              help="Names (ours, stock, aiokafka-sticky, aiokafka-roundrobin, package.module:callable), "
                   "each with +static and +weights.")
@click.option("--replicas", default="0,1,2", show_default=True, help="Numbers of standbys to try.")
@click.option("--members", default="3:6", show_default=True, help="Workers at the start, from:to.")
@click.option("--partitions", default="12:36", show_default=True, help="Tasks of a fleet, from:to.")
@click.option("--racks", default="1,3", show_default=True, help="Numbers of racks to draw from.")
@click.option("--session-timeout", type=click.FloatRange(min=1), default=60.0, show_default=True,
              help="Seconds until a dead worker is missed (Faust's broker_session_timeout).")
@click.option("--add", type=click.IntRange(min=0), default=0, metavar="N",
              help="Instead of scenarios, one change to the ledger's (or a generated) group: N workers join.")
@click.option("--remove", multiple=True, metavar="MEMBER", help="One change: this member goes. Repeatable.")
@click.option("--lose-rack", metavar="RACK", help="One change: everybody in this rack goes.")
@click.option("--no-spark", is_flag=True, help="In processes of this machine, without Spark.")
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="With --no-spark: processes.  [cores]")
@click.option("--master", default="local[*]", show_default=True, help="Spark's master.")
@click.option("--json", "as_json", is_flag=True, help="Print report.json instead of tables.")
def simulate(scenarios: int, seed: int, out: str, ledgers: tuple[str, ...], group_id: str | None,
             policies: str, replicas: str, members: str, partitions: str, racks: str, session_timeout: float,
             add: int, remove: tuple[str, ...], lose_rack: str | None, no_spark: bool, jobs: int | None,
             master: str, as_json: bool) -> None:
    """Play churn scenarios under many policies and say which settings to take; or one change (--add)."""
    is_what_if = bool(add or remove or lose_rack)
    if not out and not is_what_if:
        raise click.UsageError("Missing option '--out'")
    with _spoken_errors():
        from faust_assigner.pipeline import simulate_job
        from faust_assigner.pipeline.scenarios import Shape
        from faust_assigner.pipeline.sim_console import show_simulation, show_what_if
        from faust_assigner.pipeline.what_if import Change
        from faust_assigner.testing.fleet import Costs

        request = simulate_job.Request(
            scenarios, seed, out, _names(policies), _numbers(replicas, "--replicas"),
            Shape(members=_range(members, "--members", 1), partitions=_range(partitions, "--partitions", 2),
                  racks=_numbers(racks, "--racks", 1)),
            Costs(session_timeout_s=session_timeout), ledgers, group_id, jobs or os.cpu_count() or 1,
        )
        if is_what_if:
            report = simulate_job.what_if_here(request, Change(add, remove, lose_rack))
        elif no_spark:
            report = simulate_job.simulate_here(request)
        else:
            with _spark(master) as spark:
                report = simulate_job.simulate_on_spark(spark, request)
        if as_json:
            click.echo(json.dumps(report))
        elif is_what_if:
            show_what_if(report)
        else:
            show_simulation(report, out)


@main.command()
@click.option("--ledger", "ledgers", multiple=True, required=True, metavar="PATH",
              help="Where partition samples are: file, folder, glob. May be repeated.")
@click.option("--out", metavar="FILE", help="The versioned weights file, replaced in one step.")
@click.option("--bootstrap", metavar="HOST:PORT", help="With --topic: the brokers.")
@click.option("--topic", metavar="NAME", help="Publish to this compacted topic too.")
@click.option("--by", type=click.Choice(["blend", "cpu", "records", "bytes"]), default="blend",
              show_default=True, help="What a weight is learned from.")
@click.option("--clamp", default="0.25:4", show_default=True, metavar="LOW:HIGH",
              help="The least and the most a weight may be, in medians of its group.")
@click.option("--shadow", is_flag=True, help="Score: the newest decision again, counted and weighted.")
@click.option("--replicas", type=click.IntRange(min=0), default=1, show_default=True,
              help="With --shadow: standbys.")
@click.option("--no-spark", is_flag=True, help="In this process; for ledgers that fit in memory.")
@click.option("--master", default="local[*]", show_default=True, help="Spark's master.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def weights(ledgers: tuple[str, ...], out: str | None, bootstrap: str | None, topic: str | None, by: str,
            clamp: str, shadow: bool, replicas: int, no_spark: bool, master: str, as_json: bool) -> None:
    """Learn each partition's weight from a ledger's samples and publish them for the assignor."""
    if out is None and topic is None:
        raise click.UsageError("give --out FILE, or --bootstrap and --topic, or all three")
    if (topic is None) != (bootstrap is None):
        raise click.UsageError("--bootstrap and --topic go together")
    with _spoken_errors():
        from datetime import UTC, datetime

        from faust_assigner.pipeline import weights_job
        from faust_assigner.weights import Limits

        request = weights_job.Request(ledgers, datetime.now(UTC), out, bootstrap, topic, by,
                                      Limits.parse(clamp), shadow, replicas)
        if no_spark:
            report = weights_job.learn_here(request)
        else:
            with _spark(master) as spark:
                report = weights_job.learn_on_spark(spark, request)
        if as_json:
            click.echo(json.dumps(report))
            return
        from faust_assigner.pipeline.sim_console import show_weights

        show_weights(report)


@contextlib.contextmanager
def _spark(master: str) -> Iterator[Any]:
    """A session for one command; it ends with the command."""
    from faust_assigner.pipeline.session import spark_session

    session = spark_session(master)
    try:
        yield session
    finally:
        session.stop()


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _numbers(text: str, option: str, lowest: int = 0) -> tuple[int, ...]:
    """``0,1,2`` as numbers; anything else is a usage error that names the option."""
    if not re.fullmatch(r"\d{1,6}(,\d{1,6})*", text) or min(map(int, text.split(","))) < lowest:
        raise click.BadParameter(f"{text!r}: numbers from {lowest} with commas expected", param_hint=option)
    return tuple(dict.fromkeys(int(number) for number in text.split(",")))


def _range(text: str, option: str, lowest: int) -> tuple[int, int]:
    """``3:8`` or ``5`` as (from, to)."""
    low, _, high = text.partition(":")
    if not re.fullmatch(r"\d{1,6}(:\d{1,6})?", text) or not lowest <= int(low) <= int(high or low):
        raise click.BadParameter(f"{text!r}: from:to expected, from {lowest} on", param_hint=option)
    return int(low), int(high or low)


if __name__ == "__main__":
    main()
