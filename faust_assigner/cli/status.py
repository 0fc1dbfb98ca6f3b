"""``faust-assigner status``."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from faust_assigner.cli.failure import quiet_kafka, spoken_errors
from faust_assigner.cli.looking import check_source, look_or_saved_options, where_of
from faust_assigner.cli.screen import console

if TYPE_CHECKING:
    from rich.console import Console

    from faust_assigner.status.collect import Looks, Where
    from faust_assigner.status.report import Report


@click.command()
@look_or_saved_options
@click.option("--partitions", "with_partitions", is_flag=True, help="List every partition, too.")
@click.option("--watch", is_flag=True, help="Look again and again, until Ctrl-C.")
@click.option(
    "--every",
    type=click.FloatRange(min=0.1),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="With --watch: the time between two looks.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print JSON (docs/reference/status.md); with --watch a line per look.",
)
def status(
    saved: Path | None,
    bootstrap: str | None,
    group_id: str | None,
    config: str | None,
    workers: tuple[str, ...],
    web_port: int,
    deadline: float,
    with_partitions: bool,
    watch: bool,
    every: float,
    as_json: bool,
) -> None:
    """What a group of Faust workers does now.

    Its members and what each owns, copies and warms up; lags; what waits for what; the last decision and its
    reason; settings in which workers differ. Read from the group's coordinator and asked of the workers' web
    servers. It works during a rebalance, and when the leader or other workers do not answer.
    """
    check_source(saved, group_id, bootstrap, config, workers)
    if saved is not None and watch:
        raise click.UsageError("--from FILE shows one look: it takes no --watch")
    with spoken_errors(), quiet_kafka():
        seldom_collect()
        if saved is not None:
            _show_saved(saved, with_partitions, as_json)
            return
        where = where_of(bootstrap, group_id or "", config, workers, web_port, deadline)
        if not watch:
            _show(asyncio.run(_look(where)), with_partitions, as_json)
            return
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(_watch(where, every, with_partitions, as_json))


def seldom_collect() -> None:
    """Let Python look for cycles of garbage every 100,000 objects, not every 700.

    The evidence and the report of a large group are hundreds of thousands of objects without a cycle;
    half of the time that a report takes would be spent on looking through them again and again.
    """
    gc.set_threshold(100_000)


async def _look(where: Where) -> Report:
    from faust_assigner.status.build import build
    from faust_assigner.status.collect import Looks

    async with Looks(where, time.time) as looks:
        evidence = await looks.look()
    return build(evidence)


def _show(report: Report, with_partitions: bool, as_json: bool) -> None:
    if as_json:
        click.echo(_as_json(report))
        return
    from faust_assigner.status.render import render

    console().print(render(report, with_partitions=with_partitions))


def _show_saved(saved: Path, with_partitions: bool, as_json: bool) -> None:
    """The newest look of the file; as text with its time before it."""
    from faust_assigner.status.saved import read_saved

    report = read_saved(saved).last
    if not as_json:
        taken = datetime.fromtimestamp(report.taken_at, UTC)
        click.echo(
            f"saved at {taken:%Y-%m-%d %H:%M:%S} UTC in {saved}; the group was not asked now"
        )
    _show(report, with_partitions, as_json)


def _as_json(report: Report) -> str:
    from faust_assigner.wire.worker_status import dumps

    return dumps(report)


async def _watch(where: Where, every: float, with_partitions: bool, as_json: bool) -> None:
    """Look again and again; where the brokers do not answer, say so and go on."""
    from faust_assigner.status.collect import Looks

    screen = console()
    async with Looks(where, time.time) as looks:
        if as_json or not screen.is_terminal:
            while True:
                await _line(looks, with_partitions, as_json)
                await asyncio.sleep(every)
        await _live(looks, screen, every, with_partitions)


async def _line(looks: Looks, with_partitions: bool, as_json: bool) -> None:
    from faust_assigner.pipeline.failure import verdict
    from faust_assigner.status.build import build

    try:
        _show(build(await looks.look()), with_partitions, as_json)
    except Exception as error:
        found = verdict(error)
        if found is None:
            raise
        click.echo(f"faust-assigner: {found[0]}", err=True)


async def _live(looks: Looks, screen: Console, every: float, with_partitions: bool) -> None:
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
                live.update(Text(f"{found[0]}; looking again every {every:g} s", style="red"))
            live.refresh()
            await asyncio.sleep(every)
