"""The command ``faust-assigner simulate``."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import click

from faust_assigner.cli import options as shared
from faust_assigner.cli.failure import reported_errors
from faust_assigner.cli.options import Number
from faust_assigner.cli.spark import print_report, run_job

if TYPE_CHECKING:
    from faust_assigner.pipeline.simulate.request import Request
    from faust_assigner.pipeline.simulate.scenarios import Shape
    from faust_assigner.pipeline.simulate.what_if import Change


@click.command()
@click.option(
    "--scenarios",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="Number of scenarios.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Equal seeds give equal figures.",
)
@click.option(
    "--out",
    default="",
    metavar="DIR",
    help="Folder for the results: sim_result (Parquet) and report.json. With Spark, s3:// needs "
    "--packages org.apache.hadoop:hadoop-aws:3.5.0.",
)
@click.option(
    "--ledger",
    "ledgers",
    multiple=True,
    metavar="PATH",
    help="Replay a ledger: file, folder, glob, URL, or kafka://host:port/topic. May be repeated.",
)
@click.option("--group", "group_id", metavar="ID", help="With --ledger: only this group.")
@click.option(
    "--policies",
    default="ours,ours+static,ours+static+weights,stock,stock+static",
    show_default=True,
    help="Names (ours, stock, aiokafka-sticky, aiokafka-roundrobin, package.module:callable), "
    "each with +static, +weights and +eager.",
)
@click.option("--replicas", default="0,1,2", show_default=True, help="Numbers of standbys to try.")
@click.option(
    "--members",
    default="3:6",
    show_default=True,
    help="The number of workers at the start, as a range from:to.",
)
@click.option(
    "--partitions",
    default="12:36",
    show_default=True,
    help="The number of tasks of a fleet, as a range from:to.",
)
@click.option(
    "--racks",
    default="1,3",
    show_default=True,
    help="The possible numbers of racks; each fleet gets one of these numbers at random.",
)
@click.option(
    "--session-timeout",
    type=Number(min=1),
    help="Seconds until the group removes a dead worker (Faust's broker_session_timeout).  "
    "[default: the ledger's value, else 60]",
)
@click.option(
    "--add",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Simulate only one change of the ledger's (or a generated) group: N workers join.",
)
@click.option(
    "--remove",
    multiple=True,
    metavar="MEMBER",
    help="Simulate only one change: this member (instance id or member id) leaves. May be "
    "repeated.",
)
@click.option(
    "--lose-rack", metavar="RACK", help="Simulate only one change: all members of this rack leave."
)
@shared.max_refused_option
@shared.config_option
@click.option("--no-spark", is_flag=True, help="Run in local processes, without Spark.")
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="With --no-spark: the number of processes.  [default: the number of cores]",
)
@shared.packages_option
@shared.master_option
@click.option("--json", "as_json", is_flag=True, help="Print report.json instead of tables.")
def simulate(
    scenarios: int,
    seed: int,
    out: str,
    ledgers: tuple[str, ...],
    group_id: str | None,
    policies: str,
    replicas: str,
    members: str,
    partitions: str,
    racks: str,
    session_timeout: float | None,
    add: int,
    remove: tuple[str, ...],
    lose_rack: str | None,
    max_refused: str | None,
    config: str | None,
    no_spark: bool,
    jobs: int | None,
    packages: str,
    master: str,
    as_json: bool,
) -> None:
    """Simulate churn under many policies and recommend settings, or simulate one change (--add)."""
    is_what_if = bool(add or remove or lose_rack)
    if not out and not is_what_if:
        raise click.UsageError("Missing option '--out'")
    with reported_errors():
        from faust_assigner.pipeline.ledgers.refusals import Tolerance
        from faust_assigner.pipeline.simulate.request import Request
        from faust_assigner.pipeline.simulate.what_if import Change
        from faust_assigner.simulation.fleet import Costs

        request = Request(
            scenarios,
            seed,
            out,
            _parse_names(policies),
            _parse_numbers(replicas, "--replicas"),
            _parse_shape(members, partitions, racks),
            Costs(),
            session_timeout,
            ledgers,
            group_id,
            jobs or os.cpu_count() or 1,
            Tolerance.parse(max_refused),
            shared.properties(config),
        )
        if is_what_if:
            _print_change(request, Change(add, remove, lose_rack), as_json=as_json)
        else:
            _print_scenarios(
                request, no_spark=no_spark, master=master, packages=packages, as_json=as_json
            )


def _print_change(request: Request, change: Change, *, as_json: bool) -> None:
    """Simulate one change of the group and print its report."""
    from faust_assigner.pipeline.simulate.console import show_what_if
    from faust_assigner.pipeline.simulate.job import what_if_here

    print_report(what_if_here(request, change), show_what_if, as_json=as_json)


def _print_scenarios(
    request: Request, *, no_spark: bool, master: str, packages: str, as_json: bool
) -> None:
    """Simulate all scenarios, with or without Spark, and print their report."""
    from faust_assigner.pipeline.simulate import job
    from faust_assigner.pipeline.simulate.console import show_simulation

    report = run_job(
        "simulate",
        lambda progress: job.simulate_here(request, progress),
        lambda spark, progress: job.simulate_on_spark(spark, request, progress),
        no_spark=no_spark,
        master=master,
        packages=packages,
    )
    print_report(report, lambda report: show_simulation(report, request.out), as_json=as_json)


def _parse_shape(members: str, partitions: str, racks: str) -> Shape:
    from faust_assigner.pipeline.simulate.scenarios import Shape

    return Shape(
        members=_parse_range(members, "--members", 1),
        partitions=_parse_range(partitions, "--partitions", 2),
        racks=_parse_numbers(racks, "--racks", 1),
    )


def _parse_names(text: str) -> tuple[str, ...]:
    """Parse names, each once. Raises BadParameter for a text without names."""
    found = dict.fromkeys(name.strip() for name in text.split(",") if name.strip())
    if not found:
        raise click.BadParameter(f"{text!r}: expected names", param_hint="--policies")
    return tuple(found)


def _parse_numbers(text: str, option: str, lowest: int = 0) -> tuple[int, ...]:
    """Parse ``0,1,2`` as numbers. Raises BadParameter for other text."""
    if not re.fullmatch(r"\d{1,6}(,\d{1,6})*", text) or min(map(int, text.split(","))) < lowest:
        raise click.BadParameter(
            f"{text!r}: expected comma-separated numbers from {lowest} on", param_hint=option
        )
    return tuple(dict.fromkeys(int(number) for number in text.split(",")))


def _parse_range(text: str, option: str, lowest: int) -> tuple[int, int]:
    """Parse ``3:8`` or ``5`` as (from, to). Raises BadParameter for other text."""
    low, _, high = text.partition(":")
    if not re.fullmatch(r"\d{1,6}(:\d{1,6})?", text) or not lowest <= int(low) <= int(high or low):
        raise click.BadParameter(f"{text!r}: expected from:to, from {lowest} on", param_hint=option)
    return int(low), int(high or low)
