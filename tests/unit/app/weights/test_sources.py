"""The sources of weights: their results when the document appears, changes and disappears."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition

from faust_assigner.app.weights import sources
from faust_assigner.app.weights.sources import FileSource, Found, NoWeights, TopicSource
from faust_assigner.weights.document import MAX_BYTES


async def test_a_file_is_read_when_it_changed_and_when_it_is_back(tmp_path: Path) -> None:
    """Time, size or inode show the change; without the file the source yields the reason."""
    path = tmp_path / "weights.json"
    path.write_bytes(b"one")
    os.utime(path, ns=(5, 5))
    follow = FileSource(str(path)).follow(0.0)

    async def found() -> Found:
        return await anext(follow)

    assert [await found(), await found()] == [b"one", None]
    path.write_bytes(b"two")
    os.utime(path, ns=(5, 6))
    assert [await found(), await found()] == [b"two", None]
    path.write_bytes(b"longer")
    os.utime(path, ns=(5, 6))
    assert [await found(), await found()] == [b"longer", None]
    (other := tmp_path / "other").write_bytes(b"renamd")
    os.utime(other, ns=(5, 6))
    other.rename(path)
    assert [await found(), await found()] == [b"renamd", None]
    content = path.read_bytes()
    path.unlink()
    for _ in range(2):
        assert isinstance(reason := await found(), NoWeights)
        assert str(reason) == f"{path}: No such file or directory"
    path.write_bytes(content)
    os.utime(path, ns=(5, 6))
    assert await found() == b"renamd"
    await follow.aclose()


async def test_a_file_that_is_too_large_is_cut_behind_the_limit(tmp_path: Path) -> None:
    """The result is a byte longer than the limit, so the parser refuses it."""
    path = tmp_path / "weights.json"
    path.write_bytes(b"x" * (MAX_BYTES + 10))
    follow = FileSource(str(path)).follow(0.0)
    assert len(await anext(follow) or b"") == MAX_BYTES + 1  # type: ignore[arg-type]
    await follow.aclose()


class Consumer:
    """aiokafka's consumer of a topic with these partitions; ``batches`` are its reads."""

    def __init__(self, numbers: set[int] | None = None) -> None:
        self.numbers = {0, 1} if numbers is None else numbers
        self.batches: list[Any] = []
        self.assigned: list[TopicPartition] = []
        self.begun: list[TopicPartition] = []
        self.positions: dict[TopicPartition, int] = {}
        self.timeouts: list[int] = []
        self._client = SimpleNamespace(fetch_all_metadata=self._metadata)
        self.assign = self.assigned.extend

    async def _metadata(self) -> Any:
        return SimpleNamespace(partitions_for_topic=lambda topic: self.numbers)

    async def seek_to_beginning(self, *tps: TopicPartition) -> None:
        """Note the partitions."""
        self.begun += tps

    def partitions_for_topic(self, topic: str) -> set[int]:
        """Return the topic's partitions today."""
        return self.numbers

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions."""
        return set(self.assigned)

    async def end_offsets(self, tps: Any) -> dict[TopicPartition, int]:
        """Return 2 for each partition."""
        return dict.fromkeys(tps, 2)

    async def position(self, tp: TopicPartition) -> int:
        """Return the next offset."""
        return self.positions.get(tp, 0)

    async def getmany(self, *, timeout_ms: int) -> Any:
        """Return the next batch and move the positions behind it."""
        self.timeouts.append(timeout_ms)
        batch = self.batches.pop(0) if self.batches else {}
        for tp, records in batch.items():
            self.positions[tp] = records[-1].offset + 1
        return batch


ZERO, ONE = TopicPartition("weights", 0), TopicPartition("weights", 1)


def record(offset: int, value: bytes | None, *, key: bytes = b"shop", timestamp: int = 0) -> Any:
    """Return a record of the topic."""
    return SimpleNamespace(offset=offset, value=value, key=key, timestamp=timestamp)


async def followed(monkeypatch: pytest.MonkeyPatch, consumer: Consumer, count: int) -> list[Found]:
    """Return the first results of the source of group "shop"."""

    @contextlib.asynccontextmanager
    async def consumer_of(connection: Any) -> AsyncGenerator[Consumer, None]:
        assert connection == {"bootstrap_servers": "here"}
        yield consumer

    monkeypatch.setattr(sources, "consumer_of", consumer_of)
    follow = TopicSource("weights", "shop", {"bootstrap_servers": "here"}).follow(0.25)
    found = [await anext(follow) for _ in range(count)]
    await follow.aclose()
    return found


async def test_the_newest_record_of_the_group_is_looked_for_in_the_whole_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time decides, in any partition; records of other groups are ignored."""
    consumer = Consumer()
    consumer.batches = [
        {ZERO: [record(0, b"old", timestamp=5), record(1, b"theirs", key=b"b", timestamp=99)]},
        {ONE: [record(0, b"new", timestamp=7), record(1, b"late", timestamp=6)]},
        {},
        {ONE: [record(2, b"one", timestamp=8), record(3, b"last", timestamp=8)]},
        {ZERO: [record(2, b"theirs", key=b"b", timestamp=9)]},
    ]
    assert await followed(monkeypatch, consumer, 4) == [b"new", None, b"last", None]
    assert consumer.assigned == consumer.begun == [ZERO, ONE]
    assert set(consumer.timeouts) == {250}


async def test_an_older_record_that_arrives_last_does_not_win_at_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After the topic has grown, two partitions hold records of the group."""
    consumer = Consumer()
    consumer.batches = [
        {ONE: [record(1, b"new", timestamp=7)]},
        {ZERO: [record(0, b"older", timestamp=6), record(1, b"old", timestamp=5)]},
    ]
    assert await followed(monkeypatch, consumer, 1) == [b"new"]


async def test_a_topic_without_a_record_of_the_group_has_no_weights_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reason names topic and group; the first record ends the problem."""
    consumer = Consumer({0})
    consumer.batches = [
        {ZERO: [record(0, b"theirs", key=b"b"), record(1, b"theirs", key=b"shop2")]},
        {ZERO: [record(2, b"ours")]},
    ]
    reason, found = await followed(monkeypatch, consumer, 2)
    assert isinstance(reason, NoWeights)
    assert str(reason) == "topic weights has no record of group 'shop'"
    assert found == b"ours"


async def test_weights_that_are_deleted_were_withdrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record without a value withdraws the weights; an empty value is a bad document."""
    consumer = Consumer({0})
    consumer.batches = [{ZERO: [record(0, b"a"), record(1, None)]}, {ZERO: [record(2, b"")]}]
    reason, found = await followed(monkeypatch, consumer, 2)
    assert isinstance(reason, NoWeights)
    assert str(reason) == "the weights of 'shop' were withdrawn"
    assert found == b""


async def test_a_topic_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The request does not create the topic."""
    with pytest.raises(NoWeights, match="topic weights does not exist"):
        await followed(monkeypatch, Consumer(set()), 1)


async def test_the_source_ends_if_the_topic_gets_more_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The follower opens it again, and so reads the new partitions."""
    consumer = Consumer({0})
    consumer.batches = [{ZERO: [record(0, b"a"), record(1, b"b")]}, {ZERO: [record(2, b"c")]}]
    assert await followed(monkeypatch, consumer, 2) == [b"b", b"c"]
    consumer.positions.clear()
    consumer.batches = [{ZERO: [record(0, b"a"), record(1, b"b")]}]
    consumer.assigned.clear()

    async def grow(*, timeout_ms: int) -> Any:
        consumer.numbers = {0, 1}
        return await Consumer.getmany(consumer, timeout_ms=timeout_ms)

    monkeypatch.setattr(consumer, "getmany", grow)
    with pytest.raises(StopAsyncIteration):
        await followed(monkeypatch, consumer, 2)


async def test_a_partition_without_a_leader_does_not_hold_the_source_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """aiokafka's ``position`` does not end before the partition has a leader."""
    monkeypatch.setattr(sources, "READ_S", 0.01)
    consumer = Consumer({0, 1})
    consumer.batches = [{ZERO: [record(0, b"a"), record(1, b"b")]}]

    async def position(tp: TopicPartition) -> int:
        if tp == ONE:
            await asyncio.Event().wait()
        return consumer.positions.get(tp, 0)

    monkeypatch.setattr(consumer, "position", position)
    with pytest.raises(TimeoutError, match="partition 1 of topic weights was not read to its end"):
        await followed(monkeypatch, consumer, 1)


async def test_a_pipe_is_no_file_of_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe without a writer would block the thread of the weights, and the stop of the worker."""
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(sources, "open", None, raising=False)  # must not be opened
    async with contextlib.aclosing(FileSource(str(tmp_path / "pipe")).follow(0.01)) as found:
        said = await anext(found)
    assert str(said) == f"{tmp_path / 'pipe'}: it is not a file"
