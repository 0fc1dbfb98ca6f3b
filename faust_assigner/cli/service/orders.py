"""What an operator orders: to drain a consumer, to add or remove a topic, to give a hand-off up."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from faust_assigner.cli.service.asking import shared

if TYPE_CHECKING:
    from faust_assigner.service.client.operator import Operator


def _partition(context: click.Context, argument: click.Parameter, said: str) -> tuple[str, int]:
    topic, slash, number = said.rpartition("/")
    if not (slash and topic and number.isdecimal()):
        raise click.BadParameter(f"must be TOPIC/PARTITION, as orders/7, got {said!r}")
    return topic, int(number)


@click.command()
@click.argument("consumer")
@shared
async def drain(operator: Operator, consumer: str, as_json: bool) -> None:
    """Hand everything of CONSUMER over to the others; it is given nothing new.

    Prints WAIT_FOR_DRAIN: its stream ends when all is handed over; or SHUTDOWN_NOW where nobody waits for it.
    """
    has_some = await operator.drain(consumer)
    action = "WAIT_FOR_DRAIN" if has_some else "SHUTDOWN_NOW"
    click.echo(json.dumps({"consumer": consumer, "action": action}) if as_json else action)


@click.command(name="set-topic")
@click.argument("topic")
@click.argument("count", type=click.IntRange(min=1))
@shared
async def set_topic(operator: Operator, topic: str, count: int, as_json: bool) -> None:
    """Hand out COUNT partitions of TOPIC, also of one that was removed.

    With a smaller COUNT than before, the partitions beyond it are taken from their owners.
    """
    await operator.set_topic(topic, count)
    said = {"topic": topic, "partition_count": count}
    click.echo(json.dumps(said) if as_json else f"{topic}: {count} partitions")


@click.command(name="remove-topic")
@click.argument("topic")
@shared
async def remove_topic(operator: Operator, topic: str, as_json: bool) -> None:
    """Take the partitions of TOPIC from their owners, for good: it stays away until set-topic names it.

    Neither an instance that is started with --topic nor a consumer that wants it brings it back.
    """
    await operator.remove_topic(topic)
    click.echo(json.dumps({"topic": topic, "removed": True}) if as_json else f"{topic}: removed")


@click.command()
@click.argument("partition", metavar="TOPIC/PARTITION", callback=_partition)
@shared
async def abort(operator: Operator, partition: tuple[str, int], as_json: bool) -> None:
    """Give the hand-off of TOPIC/PARTITION up, whichever is open; the next round may begin another one."""
    await operator.abort(partition)
    topic, number = partition
    said = {"topic": topic, "partition": number, "aborted": True}
    click.echo(json.dumps(said) if as_json else f"{topic}/{number}: the hand-off is given up")
