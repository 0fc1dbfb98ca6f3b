"""The options of commands that read a running group."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from faust_assigner.cli.groups import bootstrap_option
from faust_assigner.cli.options import Number, cluster, config_option

if TYPE_CHECKING:
    from faust_assigner.status.collect import Where

GROUP_HELP = "The app's id."
#: The options that locate a running group and its workers.
REACH_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    bootstrap_option,
    config_option,
    click.option(
        "--worker",
        "workers",
        multiple=True,
        metavar="URL",
        help="A worker's web server, http://HOST:PORT, to query in any case. During a rebalance the "
        "group hides the workers' URLs; any single worker knows all of them. May be repeated.",
    ),
    click.option(
        "--web-port",
        type=click.IntRange(1, 65535),
        default=6066,
        show_default=True,
        help="Faust's web_port: tried on the members' hosts during a rebalance.",
    ),
    click.option(
        "--deadline",
        type=Number(min=0.1),
        default=3.0,
        show_default=True,
        metavar="SECONDS",
        help="The time limit for a worker's answer; all workers are queried concurrently.",
    ),
)


def look_options(command: Callable[..., object]) -> Callable[..., object]:
    """Add the options that select a group, and the options to connect to it and its workers."""
    group = click.option("--group", "group_id", required=True, metavar="APP", help=GROUP_HELP)
    return group(reach_options(command))


def look_or_saved_options(command: Callable[..., object]) -> Callable[..., object]:
    """Add the options of :func:`look_options` and ``--from FILE``; :func:`check_source` checks them."""
    saved = click.option(
        "--from",
        "saved",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Show a saved status, the output of status --json, instead of a running group.",
    )
    group = click.option("--group", "group_id", metavar="APP", help=GROUP_HELP)
    return saved(group(reach_options(command)))


def check_source(saved: Path | None, group_id: str | None, *reach: object) -> None:
    """Raise UsageError unless the options name either a group or a file."""
    if saved is None and not group_id:
        raise click.UsageError("give --bootstrap HOST:PORT --group APP, or --from FILE")
    if saved is not None and (group_id or any(reach)):
        raise click.UsageError(
            "--from FILE shows a saved status: it takes no --bootstrap, --config, --group or --worker"
        )


def reach_options(command: Callable[..., object]) -> Callable[..., object]:
    """Add the options to connect to a group and its workers."""
    for option in reversed(REACH_OPTIONS):
        command = option(command)
    return command


def where_of(
    bootstrap: str | None,
    group_id: str,
    config: str | None,
    workers: tuple[str, ...],
    web_port: int,
    deadline: float,
) -> Where:
    """Convert the options to a :class:`Where`. Raises ConfigError if they name no brokers."""
    from faust_assigner.settings import schema
    from faust_assigner.settings.table import URLS
    from faust_assigner.status.collect import Where

    return Where(
        connection=cluster(bootstrap, config).connection(),
        group_id=group_id,
        workers=workers,
        web_port=web_port,
        patterns=schema.read(URLS, environment=os.environ),
        deadline_s=deadline,
    )
