"""Records of one partition, fetched with a scripted client: its settings, its answers and its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition

from faust_assigner.pipeline.cluster import Cluster
from faust_assigner.pipeline.ledgers import topic_source
from faust_assigner.pipeline.ledgers.topic_source import TopicSource, read_lines_of, read_span
from faust_assigner.snapshots.changelog import Extent

SOURCE = TopicSource(Cluster("a:1,b:2"), "ledger")
PLACE = TopicPartition("ledger", 4)


class Client:
    """A consumer that records its calls; each answer of a fetch has offsets and a new position."""

    calls: list[Any]
    answers: list[tuple[tuple[int, ...], int]]

    def __init__(self, **settings: Any) -> None:
        self._position = -1
        self.calls.append(settings)

    async def start(self) -> None:
        """Record the call."""
        self.calls.append("start")

    async def stop(self) -> None:
        """Record the call."""
        self.calls.append("stop")

    def assign(self, places: list[TopicPartition]) -> None:
        """Record the places."""
        self.calls.append(("assign", places))

    def seek(self, place: TopicPartition, offset: int) -> None:
        """Set the next offset."""
        self.calls.append(("seek", place, offset))
        self._position = offset

    async def position(self, place: TopicPartition) -> int:
        """Return the next offset."""
        assert place == PLACE
        return self._position

    async def getmany(self, *places: TopicPartition, **limits: int) -> dict[TopicPartition, Any]:
        """Return the next answer; an answer without records is empty."""
        self.calls.append((places, limits))
        offsets, self._position = self.answers.pop(0)
        records = [SimpleNamespace(offset=one, value=b"v%d" % one) for one in offsets]
        return {PLACE: records} if records else {}


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """Return a function that sets the answers of the next client, and returns its calls."""

    def begin(*answers: tuple[tuple[int, ...], int]) -> list[Any]:
        calls: list[Any] = []
        kind = type("Scripted", (Client,), {"calls": calls, "answers": list(answers)})
        monkeypatch.setattr(topic_source, "AIOKafkaConsumer", kind)
        return calls

    return begin


FETCH = ((PLACE,), {"timeout_ms": 1000, "max_records": 16384})
OPENED = [
    {
        "bootstrap_servers": ["a:1", "b:2"],
        "security_protocol": "PLAINTEXT",
        "enable_auto_commit": False,
        "isolation_level": "read_committed",
        "auto_offset_reset": "earliest",
        "max_partition_fetch_bytes": 8 * 1024 * 1024,
    },
    "start",
    ("assign", [PLACE]),
    ("seek", PLACE, 3),
]


def test_a_span_is_fetched_from_its_start_to_its_end(script: Callable[..., list[Any]]) -> None:
    """An answer with control records alone gives no batch, and the reader goes on to the end."""
    calls = script(((3, 5), 6), ((), 7), ((), 7), ((8, 9, 10), 11))
    batches = [batch.to_pydict() for batch in read_span(SOURCE, 4, 3, 10)]
    place = "kafka://a:1,b:2/ledger/4"
    assert batches == [
        {"file": [place] * 2, "pos": [3, 5], "value": [b"v3", b"v5"]},
        {"file": [place] * 2, "pos": [8, 9], "value": [b"v8", b"v9"]},
    ]
    assert calls == [*OPENED, FETCH, FETCH, FETCH, FETCH, "stop"]


def test_a_partition_that_stands_still_for_a_minute_is_an_error(
    script: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The minute begins with the wait for the next record; the client is stopped."""
    calls = script(((), 3), ((), 3))
    times = iter([100.0, 160.0, 160.5])
    loop = SimpleNamespace(time=lambda: next(times))
    fake = SimpleNamespace(Runner=asyncio.Runner, get_running_loop=lambda: loop)
    monkeypatch.setattr(topic_source, "asyncio", fake)
    with pytest.raises(
        TimeoutError, match="could not read ledger/4 to its end 9; the position is 3"
    ):
        list(read_span(SOURCE, 4, 3, 9))
    assert calls == [*OPENED, FETCH, FETCH, "stop"]


def test_a_consumer_of_half_a_span_stops_the_client(script: Callable[..., list[Any]]) -> None:
    """A task may end before its last batch."""
    calls = script(((3,), 4))
    batches = read_span(SOURCE, 4, 3, 9)
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert calls == [*OPENED, FETCH, "stop"]


@pytest.mark.parametrize(
    ("found", "most", "spans", "told"),
    [
        ({}, 10, {}, ""),
        ({1: Extent(2, 9)}, 0, {1: Extent(9, 9)}, "topic t has older rows that were not read"),
        ({1: Extent(2, 9)}, 7, {1: Extent(2, 9)}, ""),
    ],
    ids=["no partitions", "no records", "all records"],
)
def test_a_limit_of_records_holds_for_any_number_of_partitions(
    monkeypatch: pytest.MonkeyPatch, found: Any, most: int, spans: Any, told: str
) -> None:
    """A limit of zero reads no record, unlike no limit."""
    asked: list[Any] = []

    async def extents(connection: Any, topic: str) -> Any:
        return found

    async def read(connection: Any, wanted: Any, sink: Any, *, stopped: Any) -> Any:
        asked.append(wanted)
        return {place: span.end for place, span in wanted.items()}

    monkeypatch.setattr(topic_source, "extents", extents)
    monkeypatch.setattr(topic_source, "read", read)
    answer = asyncio.run(read_lines_of({}, "t", lambda *given: None, most_records=most))
    assert answer == told
    assert asked == [{TopicPartition("t", number): span for number, span in spans.items()}]


def test_a_read_ends_when_its_seconds_are_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock begins before the request for the offsets."""
    times = iter([100.0, 102.0, 102.5, 102.6])
    monkeypatch.setattr(topic_source, "time", SimpleNamespace(monotonic=lambda: next(times)))
    answers: list[bool] = []

    async def extents(connection: Any, topic: str) -> Any:
        return {0: Extent(0, 5)}

    async def read(connection: Any, wanted: Any, sink: Any, *, stopped: Any) -> Any:
        answers.extend(stopped() for _ in range(3))
        return dict.fromkeys(wanted, 5)

    monkeypatch.setattr(topic_source, "extents", extents)
    monkeypatch.setattr(topic_source, "read", read)
    assert asyncio.run(read_lines_of({}, "t", lambda *given: None, seconds=2.5)) == ""
    assert answers == [False, False, True]
