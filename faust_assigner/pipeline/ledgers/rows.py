"""Read a small ledger without Spark, line by line, with the same file search, topics and parser."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from faust_assigner.ledger import Refusal, Row, parse
from faust_assigner.pipeline.ledgers.chunks import Chunk, LedgerDamaged, read_lines
from faust_assigner.pipeline.ledgers.files import LedgerFile, absolute, find_files
from faust_assigner.pipeline.ledgers.period import Period, without_future
from faust_assigner.pipeline.ledgers.refusals import Refused, Tolerance
from faust_assigner.pipeline.ledgers.topic_source import TopicSource, read_lines_of, split_sources
from faust_assigner.snapshots.kafka_requests import run_request


def read_here(
    ledgers: Sequence[str],
    tolerance: Tolerance,
    period: Period | None = None,
    properties: Mapping[str, str] | None = None,
    *,
    refused: Refused | None = None,
    now: datetime | None = None,
) -> tuple[list[Row], Refused]:
    """Return all accepted lines of ``ledgers`` in ``period``, in memory, and the count of refused lines.

    With ``now``, lines from clocks that are ahead are left out, see ``without_future``. ``refused`` counts
    lines while they are read, for a progress display. Raises LedgerPathError for a missing path, and
    TooManyRefused if the refused lines exceed ``tolerance``.
    """
    refused = Refused() if refused is None else refused
    rows = list(accepted_rows(ledgers, refused, period, properties))
    tolerance.check(refused)
    rows = (period or Period()).rows(rows)
    return rows if now is None else without_future(rows, now), refused


def accepted_rows(
    ledgers: Sequence[str],
    refused: Refused | None = None,
    period: Period | None = None,
    properties: Mapping[str, str] | None = None,
) -> Iterator[Row]:
    """Yield the accepted lines of ``ledgers`` (files, folders, globs, topics); ``refused`` counts all lines.

    Files without lines of ``period`` are not read. All lines of the other files and of topics are
    returned, also lines outside ``period``. ``properties`` are Kafka's client properties. A topic's rows
    are held in memory.

    Raises LedgerPathError for a missing path, and UnknownTopicError, UnreachableError or RefusedByKafka for
    a topic.
    """
    refused = Refused() if refused is None else refused
    paths, topics = split_sources(ledgers, properties)
    for topic in topics:
        yield from _rows_of_topic(topic, refused)
    if not paths:
        return
    files = find_files([absolute(path) for path in paths])
    for file in (period or Period()).files(files):
        yield from _rows_of(file, refused)


def _rows_of_topic(source: TopicSource, refused: Refused) -> list[Row]:
    rows: list[Row] = []

    def take(partition: int, offset: int, line: bytes) -> None:
        found = parse(line)
        if isinstance(found, Row):
            refused.accepted += 1
            rows.append(found)
        elif isinstance(found, Refusal):
            refused.refuse(f"{source.url}/{partition}", offset, found.reason)

    connection = source.cluster.connection()
    run_request(connection, read_lines_of(connection, source.topic, take))
    return rows


def _rows_of(file: LedgerFile, refused: Refused) -> Iterator[Row]:
    number = 0
    try:
        for _, line in read_lines(Chunk(file.name, 0, file.size, file.inode)):
            number += 1
            found = parse(line)
            if isinstance(found, Row):
                refused.accepted += 1
                yield found
            elif isinstance(found, Refusal):
                refused.refuse(file.name, number, found.reason)
    except LedgerDamaged as error:
        refused.refuse(file.name, number + 1, str(error))
