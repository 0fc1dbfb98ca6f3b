"""Ledgers in Kafka topics: what names one, and its lines read without Spark."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiokafka import TopicPartition

from faust_assigner.errors import ConfigError
from faust_assigner.ledger import SAMPLE, said_group
from faust_assigner.pipeline.cluster import Cluster, cluster_of
from faust_assigner.snapshots.asking import Connection
from faust_assigner.snapshots.changelog import Extent, extents, read

#: Called with the partition, the offset and the value of each record.
Take = Callable[[int, int, bytes], None]


@dataclass(frozen=True, slots=True)
class TopicSource:
    """One topic of one cluster."""

    cluster: Cluster
    topic: str

    @classmethod
    def from_url(cls, url: str, properties: Mapping[str, str] | None = None) -> TopicSource:
        """``kafka://host:port[,host:port]/topic`` taken apart.

        Raises:
            ConfigError: a part is missing.
        """
        bootstrap, _, topic = url.removeprefix("kafka://").partition("/")
        if not bootstrap or not topic or "/" in topic:
            raise ConfigError(f"{url!r} is not kafka://host:port[,host:port]/topic")
        return cls(cluster_of(bootstrap, properties or {}), topic)

    @property
    def url(self) -> str:
        """The inverse of :meth:`from_url`."""
        return f"kafka://{self.cluster.bootstrap}/{self.topic}"

    def to_options(self) -> dict[str, str]:
        """The options of the data source; Spark blacks out what is called a secret where it shows options."""
        return {
            "bootstrap": self.cluster.bootstrap,
            "topic": self.topic,
            "properties_secret": json.dumps(dict(self.cluster.properties)),
        }

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> TopicSource:
        """The inverse of :meth:`to_options`."""
        properties = json.loads(options.get("properties_secret", "{}"))
        return cls(Cluster(options["bootstrap"], properties), options["topic"])


def split_sources(
    ledgers: Sequence[str],
    properties: Mapping[str, str] | None = None,
) -> tuple[list[str], list[TopicSource]]:
    """(paths, topics) of what a person named; topics are ``kafka://host:port[,host:port]/topic``."""
    paths = [ledger for ledger in ledgers if not ledger.startswith("kafka://")]
    topics = [
        TopicSource.from_url(ledger, properties)
        for ledger in ledgers
        if ledger.startswith("kafka://")
    ]
    return paths, topics


async def read_lines_of(
    connection: Connection,
    topic: str,
    take: Take,
    *,
    most_records: int | None = None,
    seconds: float | None = None,
) -> str:
    """Feed the lines of ``topic`` to ``take``, of each partition in order; "" or what was left out, in words.

    Of more than ``most_records`` the newest are read, and none is read after so many ``seconds``. Cost: about
    0.2 million records a second. Raises UnknownTopicError, UnreachableError and aiokafka's errors.
    """
    began = time.monotonic()
    found = await extents(connection, topic)
    most = None if most_records is None else most_records // max(1, len(found))
    spans = {
        TopicPartition(topic, number): extent
        if most is None
        else Extent(max(extent.start, extent.end - most), extent.end)
        for number, extent in found.items()
    }

    def sink(tp: TopicPartition, records: Sequence[Any], _: int) -> None:
        for record in records:
            if record.value:
                take(tp.partition, record.offset, record.value)

    reached = await read(
        connection,
        spans,
        sink,
        stopped=lambda: seconds is not None and time.monotonic() - began > seconds,
    )
    if any(reached[tp] < span.end for tp, span in spans.items()):
        return f"topic {topic} was not read to its end within {seconds:g} s"
    if any(span.start > found[tp.partition].start for tp, span in spans.items()):
        return f"topic {topic} has older rows that were not read"
    return ""


async def read_story_lines(
    connection: Connection,
    topic: str,
    group_id: str | None,
    *,
    most_records: int | None = None,
    seconds: float | None = None,
) -> tuple[list[bytes], str]:
    """The lines of a group, or of all, without samples; and what was left out, see :func:`read_lines_of`."""
    lines: list[bytes] = []
    mark = b"" if group_id is None else said_group(group_id)

    def take(_partition: int, _offset: int, line: bytes) -> None:
        if mark in line and not line.startswith(SAMPLE):
            lines.append(line)

    left_out = await read_lines_of(
        connection, topic, take, most_records=most_records, seconds=seconds
    )
    return lines, left_out
