"""Reading and writing topics with aiokafka: the clients' settings, their steps, and their ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import InvalidReplicationFactorError, TopicAlreadyExistsError

from faust_assigner.pipeline.cluster import Cluster
from faust_assigner.pipeline.ledgers import topic_source
from faust_assigner.pipeline.ledgers.topic_source import TopicSource
from faust_assigner.pipeline.snapshots import writer
from faust_assigner.pipeline.snapshots.spans import Job, Span
from faust_assigner.pipeline.weights import publish
from faust_assigner.snapshots.changelog import Extent, UnknownTopicError

TP = TopicPartition("t", 3)
SOURCE = TopicSource(Cluster("a:1,b:2", {"request.timeout.ms": "700"}), "t")
#: The connection of SOURCE.
CONNECTION = {
    "bootstrap_servers": ["a:1", "b:2"],
    "security_protocol": "PLAINTEXT",
    "request_timeout_ms": 700,
}


def record(offset: int, value: bytes | None = b"v", key: bytes = b"k") -> Any:
    """Return a record of a topic."""
    return SimpleNamespace(offset=offset, value=value, key=key)


class Client:
    """A Kafka client that records its calls and answers from a script, by the name of the call."""

    def __init__(self, calls: list[Any], answers: dict[str, Iterator[Any]]) -> None:
        self.calls, self.answers = calls, answers

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            self.calls.append((name, *given, *([named] if named else [])))
            if name in ("assign", "seek"):
                return None
            return self._answer(name)

        return call

    async def _answer(self, name: str) -> Any:
        found = next(self.answers[name]) if name in self.answers else None
        if isinstance(found, Exception):
            raise found
        return found


def scripted(calls: list[Any], **answers: list[Any]) -> Callable[..., Any]:
    """Return a class of clients with these answers; its settings are the first call."""
    told = {name: iter(each) for name, each in answers.items()}

    def make(**settings: Any) -> Any:
        calls.append(settings)
        return Client(calls, told)

    return make


# -- a span of a ledger's topic --------------------------------------------------------------------


def test_a_span_is_read_from_its_start_without_a_group_and_without_open_transactions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The consumer is started, gets its partition and then its offset."""
    calls: list[Any] = []
    monkeypatch.setattr(topic_source, "AIOKafkaConsumer", scripted(calls))

    async def opened() -> None:
        await topic_source._open(await topic_source._consumer_of(SOURCE), TP, 17)

    asyncio.run(opened())
    settings = {
        **CONNECTION,
        "enable_auto_commit": False,
        "isolation_level": "read_committed",
        "auto_offset_reset": "earliest",
        "max_partition_fetch_bytes": 8 * 1024 * 1024,
    }
    assert calls == [settings, ("start",), ("assign", [TP]), ("seek", TP, 17)]


FETCH = ("getmany", TP, {"timeout_ms": 1000, "max_records": 16384})
AT = ("position", TP)


@pytest.mark.parametrize(
    ("fetched", "positions", "found", "rounds"),
    [
        ([{TP: [record(5), record(7)]}], [5, 8], ([5, 7], 8), 1),
        ([{TP: [record(8), record(9), record(10)]}], [5, 11], ([8, 9], 11), 1),
        # Control records advance the position alone; an empty answer means another request.
        ([{}], [5, 6], ([], 6), 1),
        ([{}, {}, {TP: [record(6)]}], [5, 5, 5, 7], ([6], 7), 3),
        # A record at the end or behind it is not of the span, but ends it.
        ([{TP: [record(10)]}], [5, 11], ([], 11), 1),
        ([{}], [10, 10], ([], 10), 1),
        ([{TopicPartition("t", 1): [record(6)]}, {TP: [record(6)]}], [5, 5, 7], ([6], 7), 2),
    ],
)
def test_records_before_the_end_are_fetched_with_the_position_after_them(
    fetched: list[Any], positions: list[int], found: tuple[list[int], int], rounds: int
) -> None:
    """The requests are repeated until records arrive, the position moves, or the end is reached."""
    calls: list[Any] = []
    consumer = scripted(calls, getmany=fetched, position=positions)()
    records, position = asyncio.run(topic_source._fetch(consumer, TP, 10))
    assert ([each.offset for each in records], position) == found
    assert calls == [{}, AT, *([FETCH, AT] * rounds)]


def test_a_partition_that_stands_still_for_a_minute_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At exactly the limit the consumer asks again."""
    calls: list[Any] = []
    consumer = scripted(calls, getmany=[{}] * 4, position=[5] * 5)()
    times = iter([100.0, 100.5, 160.0, 160.1])
    monkeypatch.setattr(
        topic_source.asyncio, "get_running_loop", lambda: SimpleNamespace(time=lambda: next(times))
    )
    # asyncio.run needs the loop's own clock; no step of this coroutine waits.
    with pytest.raises(
        TimeoutError, match=r"^could not read t/3 to its end 10; the position is 5$"
    ):
        topic_source._fetch(consumer, TP, 10).send(None)
    assert calls.count(FETCH) == 3


@pytest.mark.parametrize("fails", [False, True])
def test_a_span_is_read_until_its_end_and_its_consumer_is_stopped(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """A fetch without records gives no batch; the offsets and values are those of the records."""
    calls: list[Any] = []
    answers = iter(
        [([record(5, b"a"), record(6, b"b")], 7), ([], 9), ([record(9, None)], 12), "never asked"]
    )

    async def consumer_of(source: Any) -> Any:
        calls.append(source)
        return Client(calls, {})

    async def open_(consumer: Any, *given: Any) -> None:
        calls.append(given)

    async def fetch(consumer: Any, *given: Any) -> Any:
        calls.append(given)
        if fails:
            raise TimeoutError("stands still")
        return next(answers)

    monkeypatch.setattr(topic_source, "_consumer_of", consumer_of)
    monkeypatch.setattr(topic_source, "_open", open_)
    monkeypatch.setattr(topic_source, "_fetch", fetch)
    reading = topic_source.read_span(SOURCE, 3, 5, 12)
    if fails:
        with pytest.raises(TimeoutError, match="stands still"):
            next(reading)
        assert calls == [SOURCE, (TP, 5), (TP, 12), ("stop",)]
        return
    batches = list(reading)
    assert calls == [SOURCE, (TP, 5), *([(TP, 12)] * 3), ("stop",)]
    assert [batch.schema.names for batch in batches] == [["file", "pos", "value"]] * 2
    assert [list(row.values()) for batch in batches for row in batch.to_pylist()] == [
        ["kafka://a:1,b:2/t/3", 5, b"a"],
        ["kafka://a:1,b:2/t/3", 6, b"b"],
        ["kafka://a:1,b:2/t/3", 9, None],
    ]


# -- a span of a changelog -------------------------------------------------------------------------


def test_a_changelogs_span_is_written_batch_by_batch_with_its_offsets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Offsets may have gaps; an answer without records adds nothing; the writer is always closed."""
    calls: list[Any] = []

    class Writer:
        def __init__(self, *given: Any) -> None:
            calls.append(given)

        def __enter__(self) -> Writer:
            calls.append("entered")
            return self

        def __exit__(self, *_: object) -> None:
            calls.append("closed")

        def add(self, *given: Any, **named: Any) -> None:
            calls.append((given, named))

        def finish(self) -> str:
            calls.append("finished")
            return "part"

    def read(connection: Any, spans: Any, take: Any) -> str:
        calls.append((connection, spans))
        take(TP, [record(4, b"1", b"a"), record(7, None, b"b"), record(11, b"3", b"c")], 0)
        take(TP, [], 0)
        take(TP, [record(20, b"4", b"a")], 0)
        return "reading"

    monkeypatch.setattr(writer, "SpanWriter", Writer)
    monkeypatch.setattr(writer, "read", read)
    monkeypatch.setattr(writer, "run_request", lambda *given: calls.append(given))
    span = Span(3, 4, 21, log_start=2)
    job = Job("t", "unused", (Span(0, 1, 2), span), 5)
    connection: Any = {"x": "y"}
    assert writer.read_span(job, span, connection) == "part"  # type: ignore[comparison-overlap]
    assert calls == [
        (job, span),
        "entered",
        (connection, {TP: Extent(4, 21)}),
        (([b"a", b"b", b"c"], [b"1", None, b"3"]), {"first_offset": 4, "last_offset": 11}),
        (([b"a"], [b"4"]), {"first_offset": 20, "last_offset": 20}),
        (connection, "reading"),
        "finished",
        "closed",
    ]


def row(timestamp: int, key: bytes, value: bytes | None) -> Any:
    """A record with a time."""
    return SimpleNamespace(timestamp=timestamp, key=key, value=value)


# -- the topic of weights --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topics", "replication", "brokers", "replicas", "code"),
    [
        (["t"], None, 2, 2, 0),
        ([], None, 5, 3, TopicAlreadyExistsError.errno),
        ([], 1, 5, 1, 0),
        ([], 4, 2, 4, 0),
        (["w"], None, 3, None, 0),
    ],
)
def test_weights_are_sent_by_group_to_a_topic_that_is_created_if_it_is_missing(
    monkeypatch: pytest.MonkeyPatch,
    topics: list[str],
    replication: int | None,
    brokers: int,
    replicas: int | None,
    code: int,
) -> None:
    """The topic is compacted and has one partition; each record is acknowledged by all replicas."""
    calls: list[Any] = []
    made: list[Any] = []
    admin = scripted(
        calls,
        list_topics=[topics],
        describe_cluster=[{"brokers": [0] * brokers}],
        create_topics=[SimpleNamespace(topic_errors=[("w", code, "")])],
    )
    monkeypatch.setattr(publish, "AIOKafkaAdminClient", admin)
    monkeypatch.setattr(publish, "AIOKafkaProducer", scripted(calls))
    monkeypatch.setattr(
        publish, "NewTopic", lambda *given, **more: made.append((given, more)) or "new"
    )
    connection: Any = {"x": "y"}
    asyncio.run(publish._send(connection, "w", {"h": b"2", "g": b"1"}, replication))
    creation = [] if replicas is None else [("describe_cluster",), ("create_topics", ["new"])]
    assert calls == [
        {"x": "y"},
        ("start",),
        ("list_topics",),
        *creation,
        ("close",),
        {"x": "y", "acks": "all", "max_request_size": 2_000_000},
        ("start",),
        ("send_and_wait", "w", b"1", {"key": b"g"}),
        ("send_and_wait", "w", b"2", {"key": b"h"}),
        ("stop",),
    ]
    compact = {"topic_configs": {"cleanup.policy": "compact"}}
    assert made == ([] if replicas is None else [(("w", 1, replicas), compact)])


def test_no_weights_are_sent_if_their_topic_cannot_be_created(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The producer could create the topic with the broker's defaults, which delete old records."""
    calls: list[Any] = []
    refused = SimpleNamespace(topic_errors=[("w", InvalidReplicationFactorError.errno, "")])
    answers = {"describe_cluster": [{"brokers": [0]}], "create_topics": [refused]}
    monkeypatch.setattr(
        publish, "AIOKafkaAdminClient", scripted(calls, list_topics=[[]], **answers)
    )
    monkeypatch.setattr(publish, "AIOKafkaProducer", scripted(calls))
    with pytest.raises(InvalidReplicationFactorError, match="topic w does not exist and cannot"):
        asyncio.run(publish._send({"bootstrap_servers": ["a:1"]}, "w", {"g": b"1"}, 3))
    assert [call[0] for call in calls if isinstance(call, tuple)][-2:] == ["create_topics", "close"]


def test_the_clients_of_weights_are_closed_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """No record is sent if the topic cannot be listed."""
    calls: list[Any] = []
    failure = OSError("gone")
    monkeypatch.setattr(publish, "AIOKafkaAdminClient", scripted(calls, list_topics=[failure]))
    monkeypatch.setattr(publish, "AIOKafkaProducer", scripted(calls, send_and_wait=[failure]))
    connection: Any = {}
    with pytest.raises(OSError, match="gone"):
        asyncio.run(publish._send(connection, "w", {"g": b"1"}, None))
    assert calls == [{}, ("start",), ("list_topics",), ("close",)]
    calls.clear()
    monkeypatch.setattr(publish, "AIOKafkaAdminClient", scripted(calls, list_topics=[["w"]]))
    with pytest.raises(OSError, match="gone"):
        asyncio.run(publish._send(connection, "w", {"g": b"1", "h": b"2"}, None))
    assert [call[0] for call in calls[-2:]] == ["send_and_wait", "stop"]


def test_published_weights_are_the_newest_record_of_each_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All partitions are read from their first offset to their end; a tombstone removes a group."""
    spans = {0: Extent(0, 8), 1: Extent(3, 4)}
    batches = {
        0: [row(1, b"g", b"1"), row(2, b"h", b"2"), row(3, b"g", b"3"), row(4, b"h", None)],
        1: [row(2, b"g", b"old"), row(5, b"i", b"5"), row(5, b"i", b"6"), row(1, b"j", None)],
    }
    asked: list[Any] = []

    async def extents(*given: Any) -> dict[int, Extent]:
        asked.append(given)
        return spans

    async def read(connection: Any, wanted: dict[TopicPartition, Extent], sink: Any) -> None:
        asked.append((connection, wanted))
        for tp in wanted:
            for at in range(0, 4, 2):
                sink(tp, batches[tp.partition][at : at + 2], 0)

    monkeypatch.setattr(publish, "extents", extents)
    monkeypatch.setattr(publish, "read", read)
    connection: Any = {"x": "y"}
    assert asyncio.run(publish._read(connection, "w")) == {b"g": b"3", b"i": b"6"}
    wanted = {TopicPartition("w", number): span for number, span in spans.items()}
    assert asked == [(connection, "w"), (connection, wanted)]


def test_a_missing_topic_has_no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """No record is read: a request for its offsets would create the topic."""

    async def extents(*_: Any) -> dict[int, Extent]:
        raise UnknownTopicError("no topic w")

    monkeypatch.setattr(publish, "extents", extents)
    connection: Any = {}
    assert asyncio.run(publish._read(connection, "w")) == {}
