"""Ledger topics: from where they are read, to where, and how one that was made anew is known."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition

from faust_assigner.pipeline.cluster import Cluster
from faust_assigner.pipeline.ledgers import topics
from faust_assigner.pipeline.ledgers.period import SLACK, Period
from faust_assigner.pipeline.ledgers.topics import TopicSource, TopicStreamReader
from faust_assigner.snapshots.changelog import Changelog, Extent

SOURCE = TopicSource(Cluster("a:1"), "t")
NOON = dt.datetime(2026, 11, 21, 12, 0, tzinfo=dt.UTC)


def log(topic_id: str | None, *extents: tuple[int, int]) -> Changelog:
    """The topic as it stands."""
    numbered = {number: Extent(*extent) for number, extent in enumerate(extents)}
    return Changelog("t", numbered, 1_000, topic_id)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[Changelog]:
    """The topic of a test: its last element is how it stands."""
    found = [log("id-1", (0, 5), (2, 9))]
    monkeypatch.setattr(topics, "topic_now", lambda source: found[-1])
    return found


def spans(reader: TopicStreamReader, start: Any, end: Any) -> list[tuple[int, int, int]]:
    """What a micro-batch reads."""
    return [span.value for span in reader.partitions(start, end)]


def test_a_stream_reads_what_is_new_in_each_partition(now: list[Changelog]) -> None:
    """From the first record that is there; partitions without anything new are left out."""
    reader = TopicStreamReader(SOURCE)
    start = reader.initialOffset()
    assert start == {"0": 0, "1": 2, "topic_id": "id-1"}
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert spans(reader, start, end) == [(0, 0, 5), (1, 2, 9)]
    now.append(log("id-1", (0, 5), (2, 11)))
    later = reader.latestOffset(end, reader.getDefaultReadLimit())
    assert spans(reader, end, later) == [(1, 9, 11)]


@pytest.mark.parametrize("topic_id", ["id-0", "id-2"])
def test_a_topic_with_another_id_is_read_from_its_first_record(
    now: list[Changelog], topic_id: str
) -> None:
    """However its id sorts, and although it is longer than the old one by now."""
    reader = TopicStreamReader(SOURCE)
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    now.append(log(topic_id, (0, 7), (0, 20)))
    later = reader.latestOffset(end, reader.getDefaultReadLimit())
    assert later == {"0": 7, "1": 20, "topic_id": topic_id}
    assert spans(reader, end, later) == [(0, 0, 7), (1, 0, 20)]


def test_without_ids_one_shorter_partition_gives_a_new_topic_away(now: list[Changelog]) -> None:
    """The other partition has as many records as before."""
    now[:] = [log(None, (0, 5), (0, 9))]
    reader = TopicStreamReader(SOURCE)
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    now.append(log(None, (0, 5), (0, 3)))
    later = reader.latestOffset(end, reader.getDefaultReadLimit())
    assert spans(reader, end, later) == [(0, 0, 5), (1, 0, 3)]


def test_an_end_that_lags_behind_takes_no_offset_back(now: list[Changelog]) -> None:
    """Another broker answers, which has not heard of the last records: the topic is the same by its id."""
    reader = TopicStreamReader(SOURCE)
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    now.append(log("id-1", (0, 4), (2, 9)))
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end


def test_a_partition_that_is_added_is_read_from_its_first_record(now: list[Changelog]) -> None:
    """While it is empty its end is 0; a later end would skip records."""
    reader = TopicStreamReader(SOURCE)
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    now.append(log("id-1", (0, 5), (2, 9), (0, 0)))
    added = reader.latestOffset(end, reader.getDefaultReadLimit())
    assert (added["2"], spans(reader, end, added)) == (0, [])
    now.append(log("id-1", (0, 5), (2, 9), (0, 3)))
    later = reader.latestOffset(added, reader.getDefaultReadLimit())
    assert spans(reader, added, later) == [(2, 0, 3)]


def test_a_run_that_takes_what_is_there_stops_where_it_stood(now: list[Changelog]) -> None:
    """Records come faster than they are read: it would never end."""
    reader = TopicStreamReader(SOURCE)
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    now.append(log("id-1", (0, 50), (2, 90)))
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert (end["0"], end["1"]) == (5, 9)


class Reader:
    """Spark's, as far as options go."""

    def __init__(self) -> None:
        self.asked: dict[str, str] = {}

    def format(self, name: str) -> Reader:
        """The connector."""
        return self

    def options(self, **options: str) -> Reader:
        """Kept."""
        self.asked = options
        return self

    def load(self) -> Any:
        """A frame of anything."""
        return SimpleNamespace(select=lambda *names: None)


def test_a_period_is_read_from_some_time_before_it_begins() -> None:
    """Records are written after the moment that they tell of, but for a clock that is behind."""
    reader = Reader()
    spark: Any = SimpleNamespace(read=reader)
    topics.read_topic(spark, SOURCE, connector="spark", period=Period(NOON, None))
    first = (NOON - SLACK).timestamp() * 1_000
    assert reader.asked["startingTimestamp"] == str(round(first))
    topics.read_topic(spark, SOURCE, connector="spark")
    assert "startingTimestamp" not in reader.asked


class Consumer:
    """Gives its answers one after the other: offsets, and the position behind them."""

    def __init__(self, *answers: tuple[Sequence[int], int]) -> None:
        self._answers = list(answers)
        self._position = 0

    async def position(self, tp: object) -> int:
        """The next offset."""
        return self._position

    async def getmany(self, tp: object, **more: int) -> dict[object, list[Any]]:
        """The next answer."""
        offsets, self._position = self._answers.pop(0)
        return {tp: [SimpleNamespace(offset=offset) for offset in offsets]}


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([((1, 2, 3, 4), 5)], ([1, 2], 5)),
        ([((), 0), ((), 2)], ([], 2)),
        ([((), 0), ((0,), 1)], ([0], 1)),
    ],
    ids=["beyond the end", "control records alone", "an empty answer first"],
)
def test_a_fetch_gives_records_before_the_end_or_a_position_that_moved(
    answers: list[tuple[Sequence[int], int]], expected: tuple[list[int], int]
) -> None:
    """Control records move the position alone; an answer without either is asked for again."""
    tp = TopicPartition("t", 0)
    records, position = asyncio.run(topics._fetch(Consumer(*answers), tp, 3))
    assert ([record.offset for record in records], position) == expected
