"""The command ``faust-assigner scaler``."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from faust_assigner.cli.failure import fail, quiet_kafka, reported_errors
from faust_assigner.cli.looking import look_options, where_of

if TYPE_CHECKING:
    from faust_assigner.scaler.case import Recommendation
    from faust_assigner.scaler.settings import Settings
    from faust_assigner.status.collect import Where

#: Seconds between the two queries that measure the rate of arrival; workers commit every few seconds.
ONCE_APART_S = 6.0
_FILE: Any = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@look_options
@click.option(
    "--bind",
    default="127.0.0.1:6071",
    show_default=True,
    metavar="HOST:PORT",
    help="The address for KEDA. Port 0 selects a free port. A non-loopback address requires "
    "--tls-cert and "
    "--tls-key, or --insecure.",
)
@click.option(
    "--tls-cert", type=_FILE, metavar="FILE", help="The PEM file with the server's certificate."
)
@click.option(
    "--tls-key", type=_FILE, metavar="FILE", help="The PEM file with the key of the certificate."
)
@click.option(
    "--tls-client-ca",
    type=_FILE,
    metavar="FILE",
    help="Require a client certificate of this authority (PEM file).",
)
@click.option("--insecure", is_flag=True, help="Serve other machines without TLS.")
@click.option(
    "--set",
    "given",
    multiple=True,
    metavar="KEY=VALUE",
    help="A default for a key of the ScaledObjects' metadata, such as max=12; "
    "docs/how-to/autoscaling.md "
    "lists the keys. May be repeated.",
)
@click.option(
    "--once",
    is_flag=True,
    help="Query the group twice, print the recommendation and exit; start no server.",
)
@click.option("--json", "as_json", is_flag=True, help="With --once: print JSON.")
def scaler(
    bind: str,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_client_ca: Path | None,
    insecure: bool,
    given: tuple[str, ...],
    once: bool,
    as_json: bool,
    group_id: str,
    **reach: Any,
) -> None:
    """Recommend the number of workers of a group, to KEDA over gRPC or once on the terminal.

    Only useful sizes are recommended: with 12 tasks, 5 workers process no faster than 4. The size never
    changes during a restore or a rebalance, or while a worker does not answer. Each answer has
    its reasons, in the log and with --once.
    """
    if as_json and not once:
        raise click.UsageError("--json requires --once")
    with reported_errors(), quiet_kafka():
        from faust_assigner.scaler.settings import read_settings

        defaults = _parse_pairs(given)
        settings = read_settings(defaults)
        where = where_of(group_id=group_id, **reach)
        if once:
            _show(group_id, asyncio.run(_recommend_once(where, settings)), as_json)
            return
        from faust_assigner.scaler.server import Listening, serve
        from faust_assigner.settings.service_kinds import address

        try:
            host, port = address(bind)
        except ValueError:
            raise click.BadParameter(
                f"must be HOST:PORT, got {bind!r}", param_hint="--bind"
            ) from None
        listening = Listening(
            host=host,
            port=port,
            cert=tls_cert,
            key=tls_key,
            client_ca=tls_client_ca,
            insecure=insecure,
        )
        try:
            serve(where, listening, defaults, click.echo)
        except OSError as error:
            fail(error, 1)


def _parse_pairs(given: tuple[str, ...]) -> dict[str, str]:
    """Parse KEY=VALUE pairs. Raises UsageError."""
    found = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals:
            raise click.UsageError(f"--set {text}: must be KEY=VALUE")
        found[key.strip()] = value
    return found


async def _recommend_once(where: Where, settings: Settings) -> Recommendation:
    """Return the recommendation after two queries. Raises the error of a failed query."""
    from faust_assigner.scaler.look import look_of
    from faust_assigner.scaler.memory import Memory
    from faust_assigner.scaler.recommend import recommend
    from faust_assigner.status.collect import Looks

    async with Looks(where, time.monotonic) as looks:
        _, memory = recommend(look_of(await looks.look()), settings, Memory())
        await asyncio.sleep(ONCE_APART_S)
        return recommend(look_of(await looks.look()), settings, memory)[0]


def _show(group_id: str, found: Recommendation, as_json: bool) -> None:
    from faust_assigner.scaler import render

    shown = render.as_json if as_json else render.as_text
    click.echo(shown(group_id, found))
