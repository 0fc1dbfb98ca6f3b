"""Topics: their newest records, and their reader on Spark with a fake session."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from aiokafka import TopicPartition
from pyspark.errors import AnalysisException

from faust_assigner.errors import ConfigError
from faust_assigner.pipeline.cluster import Cluster
from faust_assigner.pipeline.ledgers import topic_source, topics
from faust_assigner.pipeline.ledgers.progress import OffsetSpan
from faust_assigner.pipeline.ledgers.topic_source import TopicSource, read_lines_of
from faust_assigner.snapshots.changelog import Changelog, Extent

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


# -- topics ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("most", "seconds", "reached", "spans", "told"),
    [
        (None, None, (9, 20), [(2, 9), (0, 20)], ""),
        (10, None, (9, 20), [(4, 9), (15, 20)], "topic t has older rows that were not read"),
        (14, None, (9, 20), [(2, 9), (13, 20)], "topic t has older rows that were not read"),
        (40, None, (9, 20), [(2, 9), (0, 20)], ""),
        (None, 2.5, (9, 19), [(2, 9), (0, 20)], "topic t was not read to its end within 2.5 s"),
    ],
)
def test_the_newest_records_are_shared_evenly_among_the_partitions(
    monkeypatch: pytest.MonkeyPatch,
    most: int | None,
    seconds: float | None,
    reached: tuple[int, int],
    spans: list[tuple[int, int]],
    told: str,
) -> None:
    """The answer reports omitted records; tombstones and empty records are dropped."""
    places = [TopicPartition("t", number) for number in (0, 1)]
    asked: list[Any] = []

    async def extents(connection: Any, topic: str) -> dict[int, Extent]:
        return {0: Extent(2, 9), 1: Extent(0, 20)}

    async def read(connection: Any, found: Any, sink: Any, *, stopped: Any) -> Any:
        asked.append((connection, found, stopped()))
        sink(
            places[1],
            [SimpleNamespace(offset=n, value=value) for n, value in enumerate((b"a", None, b""))],
            0,
        )
        return dict(zip(places, reached, strict=True))

    monkeypatch.setattr(topic_source, "extents", extents)
    monkeypatch.setattr(topic_source, "read", read)
    taken: list[Any] = []
    found = asyncio.run(
        read_lines_of(
            {"x": "y"}, "t", lambda *given: taken.append(given), most_records=most, seconds=seconds
        )
    )
    assert (found, taken) == (told, [(1, 0, b"a")])
    wanted = dict(zip(places, [Extent(*span) for span in spans], strict=True))
    assert asked == [({"x": "y"}, wanted, False)]


def test_a_period_asks_for_its_first_millisecond_in_each_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A partition without a later record, or without an answer, begins at its end."""
    asked: list[Any] = []
    places = [TopicPartition("t", number) for number in (0, 1, 2)]

    class Consumer:
        """A consumer that knows the offsets of two partitions."""

        async def offsets_for_times(self, times: Any) -> Any:
            asked.append(times)
            return {places[0]: SimpleNamespace(offset=4), places[1]: None}

    @contextlib.asynccontextmanager
    async def consumer_of(connection: Any) -> AsyncIterator[Any]:
        asked.append(connection["bootstrap_servers"])
        yield Consumer()

    monkeypatch.setattr(topic_source, "consumer_of", consumer_of)
    monkeypatch.setattr(
        topic_source, "run_request", lambda connection, question: asyncio.run(question)
    )
    log = Changelog("t", {0: Extent(2, 9), 1: Extent(3, 8), 2: Extent(1, 7)}, 0, None)
    since = NOON + timedelta(milliseconds=250)
    found = topic_source.offsets_since(TopicSource(Cluster("a:1"), "t"), log, since)
    assert found == {0: 4, 1: 8, 2: 7}
    assert asked == [["a:1"], dict.fromkeys(places, round(NOON.timestamp()) * 1000 + 250)]
    # aiokafka refuses times before 1970.
    topic_source.offsets_since(TopicSource(Cluster("a:1"), "t"), log, since.replace(year=1960))
    assert asked[2:] == [["a:1"], dict.fromkeys(places, 0)]


def test_the_url_of_a_topic_is_the_parsed_one() -> None:
    """The URL has all brokers."""
    url = "kafka://a:1,b:2/ledger"
    source = TopicSource.from_url(url, {"client.id": "me"})
    assert (source.url, source.topic, source.cluster.bootstrap) == (url, "ledger", "a:1,b:2")


class Frame:
    """A frame of Spark: the calls that made it, and the frames joined to it."""

    def __init__(self, *calls: Any) -> None:
        self.calls = list(calls)

    @property
    def read(self) -> Frame:
        """Return a reader."""
        return Frame()

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any, **more: Any) -> Frame:
            return Frame(*self.calls, (name, *given, *([more] if more else [])))

        return call


def test_sparks_connector_reads_each_topic_with_its_own_offsets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two spans of a topic share a reader; a deleted range does not fail the job."""
    column = SimpleNamespace(cast=lambda kind: f"as {kind}", alias=lambda name: name)
    joined: list[Any] = []
    monkeypatch.setattr(
        topics,
        "F",
        SimpleNamespace(
            concat=lambda *parts: joined.append(parts) or column, lit=str, col=lambda name: column
        ),
    )
    one, two = (TopicSource(Cluster("a:1"), name) for name in ("t", "u"))
    spans = [OffsetSpan(one, 0, 3, 9), OffsetSpan(two, 0, 1, 2), OffsetSpan(one, 4, 5, 6)]
    spark: Any = Frame()
    found: Any = topics.read_spans(spark, spans, connector="spark")
    *first, (union, second) = found.calls
    assert union == "unionByName"

    def reader(assign: Any, starts: Any, ends: Any) -> list[Any]:
        return [
            ("format", "kafka"),
            ("options", {"kafka.bootstrap.servers": "a:1"}),
            ("option", "assign", json.dumps(assign)),
            ("option", "startingOffsets", json.dumps(starts)),
            ("option", "endingOffsets", json.dumps(ends)),
            ("option", "kafka.isolation.level", "read_committed"),
            ("option", "failOnDataLoss", "false"),
            ("load",),
            ("select", "file", "pos", "value"),
        ]

    assert first == reader({"t": [0, 4]}, {"t": {"0": 3, "4": 5}}, {"t": {"0": 9, "4": 6}})
    assert joined == [(f"kafka://a:1/{topic}/", "as string") for topic in "tu"]
    assert second.calls == reader({"u": [0]}, {"u": {"0": 1}}, {"u": {"0": 2}})


@pytest.mark.parametrize(
    ("connector", "has", "wanted"),
    [("auto", True, "spark"), ("auto", False, "python"), ("python", True, "python")],
)
def test_topics_are_read_by_sparks_connector_if_the_session_has_it(
    monkeypatch: pytest.MonkeyPatch, connector: str, has: bool, wanted: str
) -> None:
    """Without the connector aiokafka reads; the error for another name lists the names."""
    monkeypatch.setattr(topics, "has_connector", lambda spark: has)
    monkeypatch.setattr(topics, "_by_aiokafka", lambda spark, spans: ("python", spans))
    monkeypatch.setattr(topics, "_by_connector", lambda spark, source, spans: ("spark", spans))
    spans = [OffsetSpan(TopicSource(Cluster("a:1"), "t"), 0, 3, 9)]
    spark: Any = "session"
    assert topics.read_spans(spark, spans, connector=connector) == (wanted, spans)
    with pytest.raises(ConfigError, match="one of auto, spark, python, got 'java'"):
        topics.read_spans(spark, spans, connector="java")


def test_each_span_is_read_by_a_task_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The task has the span's partition and offsets."""
    monkeypatch.setattr(topics, "read_span", lambda *given: [given])
    source = TopicSource(Cluster("a:1"), "t")
    spans = [OffsetSpan(source, 4, 3, 9), OffsetSpan(source, 1, 0, 2)]
    spark: Any = Frame()
    (_, *numbers), (_, task, schema) = topics._by_aiokafka(spark, spans).calls  # type: ignore[attr-defined]
    assert numbers == [0, 2, 1, 2]
    assert schema == "file string, pos long, value binary"
    batches = [pa.RecordBatch.from_arrays([pa.array([1, 0])], names=["id"])]
    assert list(task(iter(batches))) == [(source, 1, 0, 2), (source, 4, 3, 9)]


@pytest.mark.parametrize(
    ("fields", "has"),
    [(["key", "value"], True), ([], False), (AnalysisException("no kafka"), False)],
)
def test_a_session_has_the_connector_if_it_knows_the_schema_of_kafkas_source(
    fields: Any, has: bool
) -> None:
    """Spark asks no broker for it."""
    asked: list[Any] = []

    class Reader:
        def format(self, name: str) -> Reader:
            asked.append(name)
            return self

        def options(self, **given: str) -> Reader:
            asked.append(given)
            return self

        def load(self) -> Any:
            if isinstance(fields, Exception):
                raise fields
            return SimpleNamespace(schema=SimpleNamespace(fieldNames=lambda: fields))

    spark: Any = SimpleNamespace(read=Reader())
    assert topics.has_connector(spark) is has
    nowhere = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "none"}
    assert asked == ["kafka", nowhere]


def test_a_story_leaves_out_samples_and_no_line_that_mentions_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the beginning of a line tells its table; the limits reach the reader."""
    mine = b'{"group_id":"g"'
    mark = topic_source.group_marker("g")
    lines = [
        topic_source.SAMPLE + mark,
        mark + b"1",
        mine[:5] + topic_source.SAMPLE + mark,
        topic_source.group_marker("g-eu"),
        b'{"group_id":"f","member":"g"}',
    ]
    asked: list[Any] = []

    async def read(connection: Any, topic: str, take: Any, **limits: Any) -> str:
        asked.append((connection, topic, limits))
        for number, line in enumerate(lines):
            take(0, number, line)
        return "left out"

    monkeypatch.setattr(topic_source, "read_lines_of", read)
    where: Any = {"x": "y"}
    found = asyncio.run(topic_source.read_story_lines(where, "t", "g", most_records=3, seconds=4.0))
    assert found == (lines[1:3], "left out")
    everyone, _ = asyncio.run(topic_source.read_story_lines(where, "t", None))
    assert everyone == lines[1:]
    assert asked == [
        (where, "t", {"most_records": 3, "seconds": 4.0}),
        (where, "t", {"most_records": None, "seconds": None}),
    ]


def test_topics_of_one_name_on_two_clusters_are_read_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two topics of one cluster are read apart too."""
    asked: list[Any] = []

    class Read:
        def unionByName(self, other: Any) -> Read:  # noqa: N802 - Spark's
            return self

    def read(spark: Any, source: TopicSource, spans: Any) -> Read:
        asked.append((source.url, [span.partition for span in spans]))
        return Read()

    monkeypatch.setattr(topics, "_by_connector", read)
    one, two, other = (
        TopicSource(Cluster(place), name)
        for place, name in (("a:1", "t"), ("b:1", "t"), ("a:1", "u"))
    )
    spans = [OffsetSpan(source, n, 0, 9) for n, source in enumerate((one, two, one, other))]
    spark: Any = "spark"
    topics.read_spans(spark, spans, connector="spark")
    assert asked == [("kafka://a:1/t", [0, 2]), ("kafka://b:1/t", [1]), ("kafka://a:1/u", [3])]
