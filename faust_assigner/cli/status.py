"""The command ``faust-assigner status``."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from faust_assigner.cli.failure import quiet_kafka, reported_errors
from faust_assigner.cli.looking import check_source, look_or_saved_options, where_of
from faust_assigner.cli.options import Number
from faust_assigner.cli.screen import console

if TYPE_CHECKING:
    from rich.console import Console

    from faust_assigner.status.collect import Looks, Where
    from faust_assigner.status.report import Report


@click.command()
@look_or_saved_options
@click.option("--partitions", "with_partitions", is_flag=True, help="List every partition, too.")
@click.option("--watch", is_flag=True, help="Repeat until Ctrl-C.")
@click.option(
    "--every",
    type=Number(min=0.1),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="With --watch: the time between two queries of the group.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print JSON (docs/reference/status.md); with --watch, one line for each query.",
)
def status(
    saved: Path | None,
    group_id: str | None,
    with_partitions: bool,
    watch: bool,
    every: float,
    as_json: bool,
    **reach: Any,
) -> None:
    """Show the current state of a group of Faust workers.

    The report has the members with their partitions, copies and warm-ups; lags; waits with their cause; the
    last decision with its reason; and settings that differ between workers. The data comes from the group's
    coordinator and the workers' web servers. The command works during a rebalance, and without an answer from
    the leader or other workers.
    """
    check_source(saved, group_id, reach["bootstrap"], reach["config"], reach["workers"])
    if saved is not None and watch:
        raise click.UsageError("--from FILE shows a single saved status; remove --watch")
    with reported_errors(), quiet_kafka():
        collect_rarely()
        if saved is not None:
            _print_saved(saved, with_partitions, as_json)
            return
        where = where_of(group_id=group_id or "", **reach)
        if not watch:
            _show(asyncio.run(_look_once(where)), with_partitions, as_json)
            return
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(_watch_group(where, every, with_partitions, as_json))


def collect_rarely() -> None:
    """Run Python's cycle collector after 100,000 new objects instead of 700.

    The report of a large group has hundreds of thousands of objects without cycles. With the default
    threshold, the collector takes half of the time of a report.
    """
    gc.set_threshold(100_000)


async def _look_once(where: Where) -> Report:
    from faust_assigner.status.build import build
    from faust_assigner.status.collect import Looks

    async with Looks(where, time.time) as looks:
        evidence = await looks.look()
    return build(evidence)


def _show(report: Report, with_partitions: bool, as_json: bool) -> None:
    if as_json:
        from faust_assigner.wire.documents import dumps

        click.echo(dumps(report))
        return
    from faust_assigner.status.render import render

    console().print(render(report, with_partitions=with_partitions))


def _print_saved(saved: Path, with_partitions: bool, as_json: bool) -> None:
    """Show the newest status in the file; text output begins with its time."""
    from faust_assigner.status.saved import read_saved

    report = read_saved(saved).last
    if not as_json:
        taken = datetime.fromtimestamp(report.taken_at, UTC)
        click.echo(
            f"saved at {taken:%Y-%m-%d %H:%M:%S} UTC in {saved}; this is not the current state"
        )
    _show(report, with_partitions, as_json)


async def _watch_group(where: Where, every: float, with_partitions: bool, as_json: bool) -> None:
    """Show the status every ``every`` seconds; print the error of a failed query and continue."""
    from faust_assigner.status.collect import Looks

    screen = console()
    async with Looks(where, time.time) as looks:
        if as_json or not screen.is_terminal:
            while True:
                await _print_lines(looks, with_partitions, as_json)
                await asyncio.sleep(every)
        await _update_screen(looks, screen, every, with_partitions)


async def _print_lines(looks: Looks, with_partitions: bool, as_json: bool) -> None:
    from faust_assigner.pipeline.failure import verdict
    from faust_assigner.status.build import build

    try:
        report = build(await looks.look())
    except Exception as error:
        found = verdict(error)
        if found is None:
            raise
        click.echo(f"faust-assigner: {found[0]}", err=True)
        return
    _show(report, with_partitions, as_json)


async def _update_screen(
    looks: Looks, screen: Console, every: float, with_partitions: bool
) -> None:
    from rich.live import Live
    from rich.text import Text

    from faust_assigner.pipeline.failure import verdict
    from faust_assigner.status.build import build
    from faust_assigner.status.render import render

    with Live(console=screen, screen=True, auto_refresh=False) as live:
        while True:
            try:
                report = build(await looks.look())
                rows = max(3, (screen.height - 12) // 2)
                live.update(render(report, with_partitions=with_partitions, rows=rows))
            except Exception as error:
                found = verdict(error)
                if found is None:
                    raise
                live.update(Text(f"{found[0]}; next look in {every:g} s", style="red"))
            live.refresh()
            await asyncio.sleep(every)
