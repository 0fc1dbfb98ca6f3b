"""The background cleaner: due partitions, their order, and the reach of a pass."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from faust_assigner.broker.compaction import Compaction
from faust_assigner.broker.node import Node
from faust_assigner.broker.settings import Settings
from faust_assigner.broker.storage import clean_writes, cleaning
from faust_assigner.broker.storage.cleaning import KEY_COST, CleaningRules
from faust_assigner.broker.storage.log import PartitionLog
from faust_assigner.broker.storage.records import parse_batch
from faust_assigner.broker.storage.store import StoreFailed
from faust_assigner.broker.topics import Topic
from tests.support.clients.raw_client import batch, keyed_record


@pytest.fixture
def node() -> Iterator[Node]:
    """Yield a broker without its sockets, at 0 s."""
    found = Node(Settings(), None, clock=lambda: 0)
    yield found
    found.close()


def topic(node: Node, name: str = "t", **configs: str) -> Topic:
    """Create a compacted topic of a single partition; config names have underscores for dots."""
    given = {key.replace("_", "."): value for key, value in configs.items()}
    return node.catalogue.create(name, 1, {"cleanup.policy": "compact", **given})


def write(found: Topic, *keys: bytes) -> PartitionLog:
    """Append a batch for each key, at 0 s."""
    log = found.partitions[0]
    for key in keys:
        data = batch(keyed_record(key, b"v"), timestamp=0)
        log.append(parse_batch(data), data, 0)
    return log


def test_each_rule_is_the_topics_config_of_its_name(node: Node) -> None:
    """The rules have Kafka's names; the four values are different."""
    found = topic(
        node,
        min_cleanable_dirty_ratio="0.25",
        delete_retention_ms="5",
        min_compaction_lag_ms="6",
        max_compaction_lag_ms="7",
    )
    assert node.compaction.rules(found) == CleaningRules(0.25, 5, 6, 7)


async def test_a_partition_is_due_above_its_dirty_ratio_and_not_at_it(node: Node) -> None:
    """The ratio counts the bytes after the last pass."""
    found = topic(node, min_cleanable_dirty_ratio="0.25")
    log = write(found, b"a", b"b", b"c", b"d")
    await node.compaction.clean_all()
    assert log.cleaned_to == 3
    write(found, b"e")
    await node.compaction.clean_all()
    assert log.cleaned_to == 3
    write(found, b"f")
    await node.compaction.clean_all()
    assert log.cleaned_to == 5


async def test_an_overdue_partition_is_cleaned_whatever_its_ratio(node: Node) -> None:
    """Overdue: the first dirty batch is older than max.compaction.lag.ms."""
    found = topic(node, min_cleanable_dirty_ratio="1", max_compaction_lag_ms="1000")
    log = write(found, b"a", b"a", b"z")
    for now, cleaned_to in ((1_000, 0), (1_001, 2)):
        node.clock = lambda now=now: now
        await node.compaction.clean_all()
        assert log.cleaned_to == cleaned_to


@pytest.mark.parametrize(
    ("policy", "cleaned_to"), [("delete", 0), ("compact", 2), ("compact,delete", 2)]
)
async def test_topics_with_the_policy_compact_are_cleaned_and_no_others(
    node: Node, policy: str, cleaned_to: int
) -> None:
    """Compaction would remove earlier records of a key from a topic that keeps them."""
    log = write(topic(node, cleanup_policy=policy), b"a", b"a", b"z")
    await node.compaction.clean_all()
    assert log.cleaned_to == cleaned_to


async def test_the_dirtiest_partition_is_cleaned_first(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    """Readers of that partition skip the most records."""
    caplog.set_level(logging.INFO)
    half, all_ = (topic(node, name, min_cleanable_dirty_ratio="0.1") for name in ("half", "all"))
    write(half, b"a", b"b", b"c")
    await node.compaction.clean_all()
    write(half, b"d", b"e")
    write(all_, b"a", b"b")
    caplog.clear()
    await node.compaction.clean_all()
    cleaned = [record.args[0] for record in caplog.records if "compacted" in record.msg]  # type: ignore[index]
    assert cleaned == ["all", "half"]


async def test_the_space_is_given_back_where_bytes_went(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass without removed bytes returns no space; removed bytes are counted and returned."""
    freed: list[int] = []
    monkeypatch.setattr(node.space, "freed", lambda: freed.append(1))
    found = topic(node)
    log = write(found, b"a", b"b", b"z")
    assert await node.compaction.clean_all() == 0
    assert freed == []
    write(found, b"a", b"b", b"c", b"z")
    before = log.size
    assert await node.compaction.clean_all() == before - log.size == 2 * before // 7
    assert (freed, node.counters["bytes_compacted"]) == ([1], before - log.size)


@pytest.mark.parametrize(
    ("buffer_bytes", "passes"), [(3 * KEY_COST, 3), (0, 9), (100 * KEY_COST, 1)]
)
async def test_the_buffers_bytes_bound_the_keys_of_a_pass(
    node: Node, monkeypatch: pytest.MonkeyPatch, buffer_bytes: int, passes: int
) -> None:
    """A buffer too small for any key still takes a single key, so each pass makes progress."""
    monkeypatch.setattr(cleaning, "CHUNK_BATCHES", 1)
    found = topic(node, min_cleanable_dirty_ratio="0")
    log = write(found, *(b"%d" % n for n in range(10)))
    await Compaction(node, buffer_bytes).clean_all()
    assert (log.cleaned_to, node.counters["log_compactions"]) == (9, passes)


async def test_a_topic_that_is_compacted_no_more_keeps_its_records_from_then_on(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The policy may also change while a thread decides about batches."""
    found = topic(node)
    log = write(found, b"a", b"a", b"z")

    async def aside(work: Callable[[], Any]) -> Any:
        if work.__name__ == "clean_some":
            node.catalogue.configure(found, {"cleanup.policy": "delete"})
        return work()

    monkeypatch.setattr(node, "aside", aside)
    assert await node.compaction.clean_all() == 0
    assert (list(log.index.bases), log.cleaned_to) == ([0, 1, 2], 0)


@pytest.mark.parametrize("error", [StoreFailed("damaged"), ZeroDivisionError()])
async def test_a_partition_that_cannot_be_compacted_does_not_stop_the_others(
    node: Node, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The error would stop them in each round; the error names the partition."""
    logs = [write(topic(node, name), b"a", b"a", b"b") for name in ("bad", "good")]
    begin = clean_writes.begin

    def fail(log: PartitionLog, *rest: Any) -> Any:
        if log is logs[0]:
            raise error
        return begin(log, *rest)

    monkeypatch.setattr(clean_writes, "begin", fail)
    with pytest.raises(type(error)) as raised:
        await node.compaction.clean_all()
    assert [list(log.index.bases) for log in logs] == [[0, 1, 2], [1, 2]]
    assert node.space.needs_reclaim, "the space of the other partition is given back"
    assert "bad-0" in "".join([str(raised.value), *getattr(raised.value, "__notes__", ())])


async def test_the_first_of_several_failures_is_raised_with_their_number(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The good partition between them is compacted."""
    logs = {
        write(topic(node, name), b"a", b"a", *rest): name
        for name, rest in (("first", (b"b",) * 7), ("good", (b"b",) * 4), ("last", (b"b",)))
    }
    begin = clean_writes.begin

    def fail(log: PartitionLog, *rest: Any) -> Any:
        if logs[log] != "good":
            raise StoreFailed(f"no {logs[log]}")
        return begin(log, *rest)

    monkeypatch.setattr(clean_writes, "begin", fail)
    with pytest.raises(StoreFailed, match=r"^2 partitions are not compacted; first-0: no first$"):
        await node.compaction.clean_all()
    assert [len(log.index) for log in logs] == [9, 3, 3]


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (StoreFailed("full"), "compaction failed; the next attempt is in 1 ms: full"),
        (
            ZeroDivisionError(),
            "a bug in this broker stopped a compaction; the next attempt is in 1 ms",
        ),
    ],
)
async def test_compaction_goes_on_after_a_round_that_failed(
    node: Node,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    line: str,
) -> None:
    """The log line has the failure and the time until the next round."""
    again, rounds = asyncio.Event(), iter([error])

    async def clean_all() -> int:
        if (failure := next(rounds, None)) is not None:
            raise failure
        again.set()
        return 0

    monkeypatch.setattr(node.compaction, "clean_all", clean_all)
    running = asyncio.create_task(node.compaction.run(1))
    await asyncio.wait_for(again.wait(), 30.0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert line in caplog.text


async def test_the_freed_bytes_of_all_passes_and_partitions_are_summed(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One partition takes three passes, the next a single pass, a deleted topic's none."""
    monkeypatch.setattr(cleaning, "CHUNK_BATCHES", 1)
    node.compaction._max_keys = 2
    keys = {"one": b"abcabcz", "two": b"aaz", "gone": b"aaz"}
    logs = [
        write(topic(node, name, min_cleanable_dirty_ratio="0"), *(bytes([k]) for k in each))
        for name, each in keys.items()
    ]
    logs[2].deleted = True
    before = [log.size for log in logs]
    freed = await node.compaction.clean_all()
    gone = [old - log.size for old, log in zip(before, logs, strict=True)]
    batch_bytes = before[0] // 7
    assert gone == [3 * batch_bytes, batch_bytes, 0]
    assert freed == node.counters["bytes_compacted"] == 4 * batch_bytes
    assert ([log.cleaned_to for log in logs], node.counters["log_compactions"]) == ([6, 2, 0], 4)


async def test_tombstones_that_stay_for_ever_do_not_stop_the_compaction(node: Node) -> None:
    """The horizon of a tombstone is a time of 8 bytes; the longest retention plus now is more."""
    node.clock = lambda: 1_000
    found = topic(node, delete_retention_ms=str(2**63 - 1))
    log = found.partitions[0]
    for value in (b"old", None):
        data = batch(keyed_record(b"k", value), timestamp=0)
        log.append(parse_batch(data), data, 0)
    write(found, b"other")
    await node.compaction.clean_all()
    assert list(log.index.bases) == [1, 2]
    write(found, b"other", b"last")
    node.clock = lambda: 2**62
    await node.compaction.clean_all()
    assert list(log.index.bases) == [1, 3, 4]
