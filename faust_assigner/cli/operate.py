"""What an operator asks the service: its state, a drain, a dry run, its health."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from faust_assigner.cli.failure import spoken_errors

if TYPE_CHECKING:
    from faust_assigner.service.client.operator import Operator

#: What the names of all settings of the service begin with.
ENVIRONMENT = "FAUST_ASSIGNER_"
_file = click.Path(exists=True, dir_okay=False, path_type=Path)


def _checked(context: click.Context, option: click.Parameter, said: str) -> str:
    """gRPC would take a port beyond all ports for another one, and any word for a host's name."""
    from faust_assigner.service.server.options import address

    try:
        address(said)
    except ValueError:
        raise click.BadParameter(f"must be HOST:PORT, got {said!r}") from None
    return said


#: How an instance is found, and its certificate checked.
_CHANNEL = (
    click.option(
        "--at",
        default="127.0.0.1:50051",
        show_default=True,
        metavar="HOST:PORT",
        callback=_checked,
        envvar=f"{ENVIRONMENT}AT",
        show_envvar=True,
        help="An instance of the service.",
    ),
    click.option("--ca", type=_file, help="Who signs the service's certificate, PEM."),
    click.option("--cert", type=_file, help="The caller's certificate, PEM."),
    click.option("--key", type=_file, help="Its key, PEM."),
    click.option(
        "--server-name", default="", help="The name in the service's certificate, if not --at's."
    ),
)
_SHARED = (
    *_CHANNEL,
    click.option(
        "--token",
        default="",
        envvar=f"{ENVIRONMENT}TOKEN",
        show_envvar=True,
        help="The caller's token; better said in the environment.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print JSON."),
)


def _shared(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of every operator's command; it is called with an Operator and ``as_json``."""

    @functools.wraps(command)
    def run(
        at: str,
        ca: Path | None,
        cert: Path | None,
        key: Path | None,
        token: str,
        server_name: str,
        **said: Any,
    ) -> None:
        with spoken_errors():
            from faust_assigner.service.client.channel import Access

            access = Access(ca=ca, cert=cert, key=key, token=token, server_name=server_name)
            asyncio.run(_with_operator(at, access, lambda operator: command(operator, **said)))

    return _offered(_SHARED)(run)


def _offered(
    options: Sequence[Callable[..., Any]],
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """With these options, in this order."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


async def _with_operator(at: str, access: Any, work: Callable[[Operator], Awaitable[None]]) -> None:
    from faust_assigner.service.client.operator import Operator

    async with Operator(at, access) as operator:
        await work(operator)


def _watched(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--watch", is_flag=True, help="Go on, printing again after every change.")(
        command
    )


async def _show(
    operator: Operator,
    watch: bool,
    as_json: bool,
    kind: str,
    heads: Sequence[str],
    row: Callable[[Any], Sequence[Any]],
) -> None:
    """One part of the state as a table or as JSON, once or again and again."""
    before: list[Sequence[Any]] | None = None
    if not watch:
        _print([row(one) for one in getattr(await operator.state(), kind)], heads, as_json)
        return
    async for state in operator.watch():
        rows = [row(one) for one in getattr(state, kind)]
        if rows != before:
            _print(rows, heads, as_json)
        before = rows


def _print(rows: Iterable[Sequence[Any]], heads: Sequence[str], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps([dict(zip(heads, row, strict=True)) for row in rows]))
        return
    table = [heads, *[tuple(map(_cell, row)) for row in rows]]
    widths = [max(len(line[n]) for line in table) for n in range(len(heads))]
    for line in table:
        click.echo(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        )


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value)) or "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value) if value not in (None, "") else "-"


@click.command()
@_watched
@_shared
async def consumers(operator: Operator, watch: bool, as_json: bool) -> None:
    """The registered consumers."""
    await _show(
        operator,
        watch,
        as_json,
        "consumers",
        ("consumer", "status", "topics", "rack", "capacity"),
        lambda one: (one.consumer_name, one.status, list(one.topics), one.rack, one.capacity),
    )


@click.command()
@_watched
@_shared
async def assignments(operator: Operator, watch: bool, as_json: bool) -> None:
    """Whose each partition is."""
    await _show(
        operator,
        watch,
        as_json,
        "assignments",
        ("topic", "partition", "owner", "epoch"),
        lambda one: (one.partition.topic, one.partition.partition, one.owner, one.epoch),
    )


@click.command()
@_watched
@_shared
async def handoffs(operator: Operator, watch: bool, as_json: bool) -> None:
    """The handoffs under way."""
    await _show(
        operator,
        watch,
        as_json,
        "handoffs",
        ("topic", "partition", "from", "to", "phase", "progress", "age_s", "handoff_id"),
        lambda one: (
            one.partition.topic,
            one.partition.partition,
            one.old_owner,
            one.new_owner,
            one.phase,
            round(one.progress, 3),
            round(one.age_s, 1),
            one.handoff_id,
        ),
    )


@click.command()
@click.argument("consumer")
@_shared
async def drain(operator: Operator, consumer: str, as_json: bool) -> None:
    """Hand everything of CONSUMER over to the others; it is given nothing new.

    Prints WAIT_FOR_DRAIN: its stream ends when all is handed over; or SHUTDOWN_NOW where nobody waits for it.
    """
    has_some = await operator.drain(consumer)
    action = "WAIT_FOR_DRAIN" if has_some else "SHUTDOWN_NOW"
    click.echo(json.dumps({"consumer": consumer, "action": action}) if as_json else action)


@click.command()
@click.option("--dry-run", is_flag=True, default=True, help="Write nothing; there is no other way.")
@click.option(
    "--without", multiple=True, metavar="NAME", help="As if this consumer were gone. Repeatable."
)
@click.option(
    "--add", multiple=True, metavar="NAME", help="As if this consumer were there. Repeatable."
)
@_shared
async def plan(
    operator: Operator, dry_run: bool, without: tuple[str, ...], add: tuple[str, ...], as_json: bool
) -> None:
    """What a rebalance would move now, or after a change; nothing is written."""
    moves = await operator.plan(without=without, extra=add)
    _print(
        [
            (one.partition.topic, one.partition.partition, one.from_owner, one.to_owner)
            for one in moves
        ],
        ("topic", "partition", "from", "to"),
        as_json,
    )


@click.command()
@click.option(
    "--role",
    type=click.Choice(["serving", "leader", "process"]),
    default="serving",
    show_default=True,
    help="Whether it serves consumers, leads, or only runs.",
)
@_offered(_CHANNEL)
def health(
    at: str, role: str, ca: Path | None, cert: Path | None, key: Path | None, server_name: str
) -> None:
    """Whether an instance is well: exit code 0, or 1. For probes; needs no token."""
    with spoken_errors():
        from faust_assigner.service.client.channel import Access
        from faust_assigner.service.client.health import is_well

        access = Access(ca=ca, cert=cert, key=key, server_name=server_name)
        well = asyncio.run(is_well(at, role, access))
    click.echo(f"{at} is {'' if well else 'not '}well as {role}")
    raise SystemExit(0 if well else 1)
