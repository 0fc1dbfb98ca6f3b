"""The command ``faust-assigner broker``."""

from __future__ import annotations

import click

from faust_assigner.cli.failure import fail, reported_errors


@click.command()
@click.option(
    "--data",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="Folder for records, offsets and groups; without it, all data is in memory.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=9092,
    show_default=True,
    help="Port to listen on; 0 selects a free port.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on, and to advertise unless advertised.listeners is set.",
)
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="NAME=VALUE",
    help="A broker setting by Kafka's name (num.partitions=12). May be repeated.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help="Show metrics for Prometheus on 127.0.0.1:N; 0 picks a free port. [default: none]",
)
@click.option(
    "--settings",
    "list_settings",
    is_flag=True,
    help="List every setting with its default, and exit.",
)
def broker(
    data: str | None,
    port: int,
    host: str,
    assignments: tuple[str, ...],
    metrics_port: int | None,
    list_settings: bool,
) -> None:
    """Run the embedded Kafka-protocol broker until SIGTERM or Ctrl-C."""
    from pathlib import Path

    from faust_assigner.broker.serve import parse_assignments, serve
    from faust_assigner.broker.settings import SETTINGS

    if list_settings:
        for one in SETTINGS.values():
            click.echo(f"{one.name}={one.default_text}\n    {one.meaning}")
        return
    with reported_errors():
        try:
            serve(
                Path(data) if data else None,
                host,
                port,
                parse_assignments(assignments),
                click.echo,
                metrics_port=metrics_port,
            )
        except OSError as error:
            fail(error, 1)
