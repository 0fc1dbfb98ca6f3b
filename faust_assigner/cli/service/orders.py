"""The commands for an operator's orders, such as drain, pause, pin, move and abort."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from faust_assigner.cli.service.operator_options import shared

if TYPE_CHECKING:
    from faust_assigner.service.client.operator import Operator


#: The largest 32-bit number: a request has no room for a larger one.
MOST = 2**31 - 1


def _parse_partition(
    context: click.Context, argument: click.Parameter, said: str
) -> tuple[str, int]:
    topic, slash, number = said.rpartition("/")
    if not (slash and topic and number.isdecimal() and len(number) <= 10 and int(number) <= MOST):
        raise click.BadParameter(f"must be TOPIC/PARTITION, as orders/7, got {said!r}")
    return topic, int(number)


_AT = click.argument("partition", metavar="TOPIC/PARTITION", callback=_parse_partition)


def _name(partition: tuple[str, int]) -> str:
    return f"{partition[0]}/{partition[1]}"


def _partition_row(partition: tuple[str, int]) -> dict[str, object]:
    return {"topic": partition[0], "partition": partition[1]}


def _print_result(as_json: bool, words: str, **row: object) -> None:
    """Print ``words``, or ``row`` as JSON."""
    click.echo(json.dumps(row) if as_json else words)


@click.command()
@click.argument("consumer")
@shared
async def drain(operator: Operator, consumer: str, as_json: bool) -> None:
    """Hand all partitions of CONSUMER over to other consumers; it gets no new partitions.

    Its stream ends after the last hand-off, or at once if no other consumer can take a partition.
    """
    has_some = await operator.drain(consumer)
    action = "WAIT_FOR_DRAIN" if has_some else "SHUTDOWN_NOW"
    words = {
        "WAIT_FOR_DRAIN": "hands its partitions over; its stream ends after the last hand-off",
        "SHUTDOWN_NOW": "has no partitions that another consumer can take; its stream ends now",
    }
    _print_result(as_json, f"{consumer}: {words[action]}", consumer=consumer, action=action)


@click.command()
@click.argument("consumer")
@shared
async def undrain(operator: Operator, consumer: str, as_json: bool) -> None:
    """End the drain of CONSUMER: it keeps its remaining partitions, and gets new partitions again."""
    await operator.undrain(consumer)
    _print_result(as_json, f"{consumer}: not drained any more", consumer=consumer, drained=False)


@click.command()
@click.option("--reason", default="", help="The reason of the pause, which status shows.")
@shared
async def pause(operator: Operator, reason: str, as_json: bool) -> None:
    """Move no partition for balance until resume.

    Partitions without a living owner still get new owners at once. Consumers that leave or are drained
    still hand over their partitions, and the commands pin and move still move partitions.
    """
    await operator.pause(reason)
    _print_result(as_json, "paused", paused=True, reason=reason)


@click.command()
@shared
async def resume(operator: Operator, as_json: bool) -> None:
    """End a pause: moves for balance begin again."""
    await operator.resume()
    _print_result(as_json, "not paused", paused=False)


@click.command()
@_AT
@click.argument("consumer")
@shared
async def move(
    operator: Operator, partition: tuple[str, int], consumer: str, as_json: bool
) -> None:
    """Hand TOPIC/PARTITION to CONSUMER now, also during a pause. Later plans may move it again.

    To keep the loads even, another partition of CONSUMER may move to the previous owner.
    """
    await operator.move(partition, consumer)
    _print_result(
        as_json,
        f"{_name(partition)}: goes to {consumer}",
        **_partition_row(partition),
        consumer=consumer,
    )


@click.command()
@_AT
@click.argument("consumer")
@shared
async def pin(operator: Operator, partition: tuple[str, int], consumer: str, as_json: bool) -> None:
    """Keep TOPIC/PARTITION on CONSUMER until unpin, whenever CONSUMER is registered."""
    await operator.pin(partition, consumer)
    said = f"{_name(partition)}: pinned to {consumer}"
    _print_result(as_json, said, **_partition_row(partition), consumer=consumer, pinned=True)


@click.command()
@_AT
@shared
async def unpin(operator: Operator, partition: tuple[str, int], as_json: bool) -> None:
    """End the pin of TOPIC/PARTITION, or cancel its unfinished move."""
    await operator.unpin(partition)
    _print_result(
        as_json, f"{_name(partition)}: not pinned", **_partition_row(partition), pinned=False
    )


@click.command(name="set-topic")
@click.argument("topic")
@click.argument("count", type=click.IntRange(1, MOST))
@shared
async def set_topic(operator: Operator, topic: str, count: int, as_json: bool) -> None:
    """Assign COUNT partitions of TOPIC, also of a removed topic.

    With a smaller COUNT than before, the partitions beyond it are taken from their owners.
    """
    await operator.set_topic(topic, count)
    _print_result(as_json, f"{topic}: {count} partitions", topic=topic, partition_count=count)


@click.command(name="remove-topic")
@click.argument("topic")
@shared
async def remove_topic(operator: Operator, topic: str, as_json: bool) -> None:
    """Remove the partitions of TOPIC from their owners; only set-topic adds the topic again.

    The topic stays removed, even if an instance starts with --topic or a consumer subscribes to it.
    """
    await operator.remove_topic(topic)
    _print_result(as_json, f"{topic}: removed", topic=topic, removed=True)


@click.command()
@_AT
@shared
async def abort(operator: Operator, partition: tuple[str, int], as_json: bool) -> None:
    """Abort the present hand-off of TOPIC/PARTITION; the next round may begin a new hand-off."""
    await operator.abort(partition)
    said = f"{_name(partition)}: the hand-off is aborted"
    _print_result(as_json, said, **_partition_row(partition), aborted=True)
