"""``faust-assigner service``: an operator's queries and orders to the assigner service."""

from __future__ import annotations

import click

from faust_assigner.cli.service import looks, orders


@click.group()
def service() -> None:
    """Ask the assigner service, and give it orders. The command serve runs it."""


for command in (
    looks.assignments,
    looks.consumers,
    looks.handoffs,
    looks.health,
    looks.plan,
    looks.topics,
    looks.pins,
    looks.status,
    orders.abort,
    orders.drain,
    orders.move,
    orders.pause,
    orders.pin,
    orders.remove_topic,
    orders.resume,
    orders.set_topic,
    orders.undrain,
    orders.unpin,
):
    service.add_command(command)
