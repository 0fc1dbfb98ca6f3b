"""The command ``faust-assigner ui``."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from faust_assigner.cli.failure import fail, quiet_kafka, reported_errors
from faust_assigner.cli.looking import check_source, look_or_saved_options, where_of

if TYPE_CHECKING:
    from faust_assigner.page.watch import Watch
    from faust_assigner.status.collect import Where


@click.command()
@look_or_saved_options
@click.option(
    "--bind",
    default="127.0.0.1",
    show_default=True,
    metavar="HOST",
    help="The address to listen on. The page has no password: on a non-loopback address everyone with "
    "network access can read the page.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=6070,
    show_default=True,
    help="The port; 0 selects a free port.",
)
def ui(bind: str, port: int, saved: Path | None, group_id: str | None, **reach: Any) -> None:
    """Serve a page about a group of Faust workers, until Ctrl-C.

    The page shows tasks by members with their lags, rounds over time, and the history of each task. Workers
    serve the same page at /assignor/; this command serves it from outside. Read-only.
    """
    check_source(saved, group_id, reach["bootstrap"], reach["config"], reach["workers"])
    with reported_errors(), quiet_kafka(), contextlib.suppress(KeyboardInterrupt):
        watch = (
            _saved_watch(saved)
            if saved
            else _live_watch(where_of(group_id=group_id or "", **reach))
        )
        asyncio.run(_serve(watch, bind, port))


def _live_watch(where: Where) -> Watch:
    from faust_assigner.page.watch import Watch
    from faust_assigner.status.collect import Looks

    return Watch(where.group_id, lambda: Looks(where, time.time))


def _saved_watch(file: Path) -> Watch:
    from faust_assigner.page.look import look_of
    from faust_assigner.page.watch import Watch
    from faust_assigner.status.saved import read_saved

    look = look_of(read_saved(file), source=str(file))
    return Watch(look.group, saved=look)


async def _serve(watch: Watch, bind: str, port: int) -> None:
    from faust_assigner.page.server import served

    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with contextlib.AsyncExitStack() as stack:
        try:
            host, free = await stack.enter_async_context(served(watch, host=bind, port=port))
        except OSError as error:
            fail(f"Cannot listen on {bind}:{port}: {error.strerror or error}", 1)
        shown = f"[{host}]" if ":" in host else host
        click.echo(
            f"The page of group {watch.group}: http://{shown}:{free}/ (Ctrl-C ends the server)"
        )
        await ended.wait()
