"""Shared parts of the ``faust-assigner service`` commands: options, connection, output."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from faust_assigner.cli.failure import reported_errors
from faust_assigner.cli.options import json_option
from faust_assigner.settings.service import AT, TOKEN
from faust_assigner.settings.service_kinds import address

if TYPE_CHECKING:
    from faust_assigner.service.client.channel import Access
    from faust_assigner.service.client.operator import Operator
    from faust_assigner.service.proto import kafka_assigner_pb2 as pb

#: A state counts as old if the store has not answered for this many seconds.
OLD_S = 15.0
_file = click.Path(exists=True, dir_okay=False, path_type=Path)


def _check_address(context: click.Context, option: click.Parameter, said: str) -> str:
    """Return the address if it is valid. Raises BadParameter.

    gRPC itself would use a different port instead of a port that is too large, and any word as a host.
    """
    try:
        address(said)
    except ValueError:
        raise click.BadParameter(f"must be HOST:PORT, got {said!r}") from None
    return said


#: The options to connect to an instance and to check its certificate.
CHANNEL = (
    click.option(
        "--at",
        default="{}:{}".format(*AT.default),
        show_default=True,
        metavar="HOST:PORT",
        callback=_check_address,
        envvar=AT.name,
        show_envvar=True,
        help="The address of an instance of the service.",
    ),
    click.option(
        "--ca", type=_file, help="The PEM file with the authority of the service's certificate."
    ),
    click.option("--cert", type=_file, help="The PEM file with the caller's certificate."),
    click.option(
        "--key", type=_file, help="The PEM file with the key of the caller's certificate."
    ),
    click.option(
        "--server-name", default="", help="The name in the service's certificate, if not --at's."
    ),
)
_SHARED = (
    *CHANNEL,
    click.option(
        "--token",
        default="",
        envvar=TOKEN.name,
        show_envvar=True,
        help="The caller's token; give it in the environment, where ps does not show it.",
    ),
    click.option("--token-file", type=_file, help="A file with the caller's token."),
    click.option(
        "--group", default="", help="The name of the group, if the service has several groups."
    ),
    json_option,
)


def shared(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that all operators' commands have; call the command with an Operator."""

    @functools.wraps(command)
    def run(
        at: str,
        ca: Path | None,
        cert: Path | None,
        key: Path | None,
        token: str,
        token_file: Path | None,
        server_name: str,
        group: str,
        **said: object,
    ) -> None:
        with reported_errors():
            from faust_assigner.service.client.channel import Access

            access = Access(
                ca=ca,
                cert=cert,
                key=key,
                token=token,
                token_file=token_file,
                server_name=server_name,
            )
            asyncio.run(
                _with_operator(at, access, group, lambda operator: command(operator, **said))
            )

    return offered(_SHARED)(run)


def offered(
    options: Sequence[Callable[..., Any]],
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds ``options`` to a command, in this order."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


async def _with_operator(
    at: str, access: Access, group: str, work: Callable[[Operator], Awaitable[None]]
) -> None:
    from faust_assigner.service.client.operator import Operator

    async with Operator(at, access, group=group) as operator:
        await work(operator)


def watched(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option ``--watch``."""
    return click.option(
        "--watch", is_flag=True, help="Keep running, and print again after every change."
    )(command)


async def show(
    operator: Operator,
    watch: bool,
    as_json: bool,
    kind: str,
    heads: Sequence[str],
    row: Callable[[Any], Sequence[object]],
) -> None:
    """Print the part ``kind`` of the state as a table or JSON, once or, with ``watch``, at every change."""
    before: list[Sequence[object]] | None = None
    if not watch:
        state = await operator.state()
        warn_if_old(state)
        print_rows([row(one) for one in getattr(state, kind)], heads, as_json, nothing=f"no {kind}")
        return
    async for state in operator.watch():
        warn_if_old(state)
        rows = [row(one) for one in getattr(state, kind)]
        if rows != before:
            print_rows(rows, heads, as_json, nothing=f"no {kind}")
        before = rows


def warn_if_old(state: pb.State) -> None:
    """Warn on stderr if the store has not answered the instance for :data:`OLD_S` seconds."""
    if state.age_s >= OLD_S:
        click.echo(
            f"Warning: the store has not answered this instance for {state.age_s:.0f} s; the last "
            "known state is shown. Ask a different instance, or see whether etcd runs",
            err=True,
        )


def print_rows(
    rows: Iterable[Sequence[object]], heads: Sequence[str], as_json: bool, *, nothing: str = ""
) -> None:
    """Print a table with these heads, or ``nothing`` in place of an empty table, or a JSON list."""
    if as_json:
        click.echo(json.dumps([dict(zip(heads, row, strict=True)) for row in rows]))
        return
    table = [heads, *[tuple(map(_cell_text, row)) for row in rows]]
    if nothing and len(table) == 1:
        click.echo(nothing)
        return
    widths = [max(len(line[n]) for line in table) for n in range(len(heads))]
    for line in table:
        click.echo(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        )


def _cell_text(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value)) or "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value) if value not in (None, "") else "-"
