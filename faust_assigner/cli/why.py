"""The command ``faust-assigner why``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from faust_assigner.cli.failure import quiet_kafka, reported_errors
from faust_assigner.cli.looking import GROUP_HELP, reach_options, where_of
from faust_assigner.cli.options import json_option, properties
from faust_assigner.cli.screen import console
from faust_assigner.wire.documents import printable, whole_number

if TYPE_CHECKING:
    from faust_assigner.pipeline.ledgers.topic_source import TopicSource
    from faust_assigner.status.collect import Where


@click.command()
@click.argument("subject", metavar="TOPIC/PARTITION|MEMBER")
@click.option(
    "--ledger",
    "ledgers",
    multiple=True,
    metavar="FOLDER|TOPIC",
    help="The ledgers of all workers instead of a running group: folders, files, globs, URLs, or "
    "a topic as "
    "kafka://HOST:PORT/NAME (with --config). May be repeated.",
)
@click.option("--group", "group_id", metavar="APP", help=GROUP_HELP)
@reach_options
@click.option(
    "--at",
    metavar="TIME",
    help="Show the last move up to the end of this UTC minute: 03:02 (of the last 24 hours) or "
    "2026-11-23T03:02.",
)
@json_option
def why(
    subject: str,
    ledgers: tuple[str, ...],
    group_id: str | None,
    at: str | None,
    as_json: bool,
    **reach: Any,
) -> None:
    """Explain a partition's owner, or the history of a member.

    The command reads the ledgers of a running group from its workers (--bootstrap HOST:PORT --group
    APP) and from the workers' ledger topic, or from files or a topic (--ledger). It prints a timeline of
    the cause, the rounds, the move and the restore; the planner's rule; and the settings or events that
    would have avoided the move, found by planning the decision again. A member is named by instance id,
    host, URL or member id.
    """
    from faust_assigner.story.read import read
    from faust_assigner.story.tell import why_member, why_partition

    moment = None if at is None else _parse_time(at, datetime.now(UTC))
    if not ledgers and not group_id:
        raise click.UsageError("give --bootstrap HOST:PORT --group APP, or --ledger FOLDER")
    with reported_errors(), quiet_kafka():
        lines: Iterable[bytes] = _ledger_lines(ledgers, group_id, reach["config"])
        if not ledgers:
            lines = asyncio.run(_worker_ledger_lines(where_of(group_id=group_id or "", **reach)))
        story = read(lines, group_id)
        topic, _, number = subject.rpartition("/")
        partition = whole_number(number)
        if topic and partition is not None and "://" not in subject:
            answer = why_partition(story, (topic, partition), at=moment)
        else:
            answer = why_member(story, subject, at=moment)
    if as_json:
        from faust_assigner.wire.documents import dumps

        click.echo(dumps(answer))
        return
    from faust_assigner.story.render import render

    console(width=130).print(render(answer))


async def _worker_ledger_lines(where: Where) -> list[bytes]:
    """Return the ledger lines of the group's workers; print a line for each missing ledger."""
    from faust_assigner.status.collect import Looks

    async with Looks(where, time.time) as looks:
        lines, missing = await looks.ledgers(await looks.look())
    for sentence in missing:
        click.echo(f"faust-assigner: {sentence}", err=True)
    return lines


def _ledger_lines(
    ledgers: tuple[str, ...], group_id: str | None, config: str | None
) -> Iterator[bytes]:
    """Yield the lines of the ledgers; print a line for each file that is damaged or removed meanwhile."""
    from faust_assigner.pipeline.ledgers.topic_source import split_sources

    paths, topics = split_sources(ledgers, properties(config))
    for topic in topics:
        yield from _topic_lines(topic, group_id)
    if not paths:
        return
    from faust_assigner.pipeline.ledgers.chunks import Chunk, LedgerDamaged, read_lines
    from faust_assigner.pipeline.ledgers.files import absolute, find_files

    for file in find_files([absolute(path) for path in paths]):
        try:
            for _, line in read_lines(Chunk(file.name, 0, file.size, file.inode)):
                yield line
        except LedgerDamaged as error:
            click.echo(f"faust-assigner: {printable(file.name)}: {error}", err=True)


def _topic_lines(source: TopicSource, group_id: str | None) -> list[bytes]:
    from faust_assigner.pipeline.ledgers.topic_source import read_story_lines
    from faust_assigner.snapshots.kafka_requests import run_request

    connection = source.cluster.connection()
    lines, _ = run_request(connection, read_story_lines(connection, source.topic, group_id))
    return lines


def _parse_time(text: str, now: datetime) -> float:
    """Parse a time, and return it in seconds since 1970.
    A time of day means the last such time before ``now``. Raises BadParameter.
    """
    try:
        if "T" in text or "-" in text:
            found = datetime.fromisoformat(text)
            return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
        pattern = "%H:%M:%S" if text.count(":") == 2 else "%H:%M"
        clock = datetime.strptime(text, pattern).replace(tzinfo=UTC)
    except ValueError:
        raise click.BadParameter(
            f"--at {text!r} is not a time like 03:02 or 2026-11-23T03:02"
        ) from None
    today = now.replace(hour=clock.hour, minute=clock.minute, second=clock.second, microsecond=0)
    return (today if today <= now else today - timedelta(days=1)).timestamp()
