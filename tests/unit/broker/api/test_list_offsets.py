"""ListOffsets and OffsetForLeaderEpoch: the start, the end, and the offsets of a log at a time."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from faust_assigner.broker.storage.store import StoreFailed
from tests.support.asking import ask, to_topic
from tests.support.clients.raw_client import batch
from tests.support.hall import Hall, in_hall

PRODUCE, LIST_OFFSETS, EPOCH_END = 0, 2, 23
LATEST, LATEST_TIERED, EARLIEST_PENDING = -1, -5, -6
UNKNOWN_PARTITION, UNSUPPORTED_VERSION, STORAGE_ERROR, UNKNOWN_LEADER_EPOCH = 3, 35, 56, 75


async def two_records(hall: Hall) -> None:
    """Append two batches of one record each to "t", of the times 1,000 and 2,000."""
    hall.node.catalogue.create("t", 1, {})
    for timestamp in (1_000, 2_000):
        await ask(hall, PRODUCE, 9, **to_topic(batch(timestamp=timestamp)))


async def listed(hall: Hall, timestamp: int, *, epoch: int = -1, version: int = 11) -> Any:
    """Return the answer for partition 0 of "t"."""
    part = {"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": epoch}
    values: dict[str, Any] = {"replica_id": -1, "isolation_level": 0}
    if version >= 10:
        values["timeout"] = datetime.timedelta(seconds=1)
    topics = [{"name": "t", "partitions": [part]}]
    answer = await ask(hall, LIST_OFFSETS, version, topics=topics, **values)
    return answer.topics[0].partitions[0]


@pytest.mark.parametrize("timestamp", [LATEST_TIERED, EARLIEST_PENDING])
def test_nothing_is_tiered_nor_waits_to_be(timestamp: int) -> None:
    """KIP-405: both timestamps have no offset here, and a request for them is no error."""

    async def story(hall: Hall) -> tuple[int, int, int]:
        await two_records(hall)
        found = await listed(hall, timestamp)
        return int(found.error_code), found.offset, found.leader_epoch

    assert in_hall(story) == (0, -1, -1)


@pytest.mark.parametrize(("epoch", "error"), [(0, 0), (1, UNKNOWN_LEADER_EPOCH)])
def test_a_leader_epoch_from_the_future_is_unknown(epoch: int, error: int) -> None:
    """The only epoch is 0 (KIP-320)."""

    async def story(hall: Hall) -> int:
        await two_records(hall)
        return int((await listed(hall, LATEST, epoch=epoch)).error_code)

    assert in_hall(story) == error


def test_a_time_that_cannot_be_read_is_refused_and_counted() -> None:
    """A wrong offset would be worse than an error that clients retry."""

    async def story(hall: Hall) -> tuple[int, int, int]:
        await two_records(hall)

        def broken(keys: object) -> list[bytes | None]:
            raise StoreFailed("i/o error")

        hall.node.store.get_many = broken  # type: ignore[method-assign]
        found = await listed(hall, 1_500)
        return int(found.error_code), found.offset, hall.node.counters["reads_failed"]

    assert in_hall(story) == (STORAGE_ERROR, -1, 1)


def test_a_batch_that_is_deleted_while_it_is_read_has_no_offset() -> None:
    """Retention deletes the batch during the read: the answer has no deleted offset."""

    async def story(hall: Hall) -> tuple[int, int]:
        await two_records(hall)
        log, load = hall.node.catalogue.partition("t", 0), hall.node.store.get_many
        assert log is not None

        def late(keys: Any) -> list[bytes | None]:
            log.trim(2)
            return load(keys)

        hall.node.store.get_many = late  # type: ignore[method-assign]
        found = await listed(hall, 1_000)
        return int(found.error_code), found.offset

    assert in_hall(story) == (0, -1)


@pytest.mark.parametrize(("epoch", "found"), [(0, (0, 2)), (1, (-1, -1)), (-1, (-1, -1))])
def test_only_the_one_leader_epoch_has_an_end(epoch: int, found: tuple[int, int]) -> None:
    """The epoch ends at the end of the log, also while a transaction is open."""

    async def story(hall: Hall) -> tuple[int, int]:
        await two_records(hall)
        log = hall.node.catalogue.partition("t", 0)
        assert log is not None
        log.transactions.open[7] = 1
        part = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": epoch}
        topics = [{"topic": "t", "partitions": [part]}]
        answer = await ask(hall, EPOCH_END, 4, replica_id=-1, topics=topics)
        end = answer.topics[0].partitions[0]
        return end.leader_epoch, end.end_offset

    assert in_hall(story) == found


def test_the_end_of_a_partition_that_does_not_exist_is_an_error() -> None:
    """The answer is not the end of an empty log."""

    async def story(hall: Hall) -> int:
        await two_records(hall)
        part = {"partition": 1, "current_leader_epoch": -1, "leader_epoch": 0}
        topics = [{"topic": "t", "partitions": [part]}]
        answer = await ask(hall, EPOCH_END, 4, replica_id=-1, topics=topics)
        return int(answer.topics[0].partitions[0].error_code)

    assert in_hall(story) == UNKNOWN_PARTITION


@pytest.mark.parametrize(
    ("timestamp", "since"),
    [(0, 4), (-1, 4), (-2, 4), (-3, 7), (-4, 8), (-5, 9), (-6, 11), (-7, 12)],
)
def test_a_special_timestamp_is_known_from_its_version_on(timestamp: int, since: int) -> None:
    """Older versions return an error and no offset, as in Kafka; -7 is always unknown."""

    async def story(hall: Hall) -> list[tuple[int, int]]:
        await two_records(hall)
        answers = [await listed(hall, timestamp, version=version) for version in range(4, 12)]
        return [
            (version, int(answer.offset))
            for version, answer in enumerate(answers, 4)
            if answer.error_code == UNSUPPORTED_VERSION
        ]

    assert in_hall(story) == [(version, -1) for version in range(4, since)]


@pytest.mark.parametrize("committed", [0, 1])
def test_an_empty_log_ends_at_0(committed: int) -> None:
    """No record and no transaction moves the end, and no time has an offset."""

    async def story(hall: Hall) -> list[int]:
        hall.node.catalogue.create("t", 1, {})
        offsets = []
        for time in (LATEST, -2, 0):
            part = {"partition_index": 0, "timestamp": time, "current_leader_epoch": -1}
            topics = [{"name": "t", "partitions": [part]}]
            values = {"replica_id": -1, "isolation_level": committed, "topics": topics}
            answer = await ask(hall, LIST_OFFSETS, 5, **values)
            offsets.append(answer.topics[0].partitions[0].offset)
        return offsets

    assert in_hall(story) == [0, 0, -1]


def test_no_time_has_an_offset_before_the_log_start() -> None:
    """The log starts inside its only batch, whose deleted records are still on the disk."""

    async def story(hall: Hall) -> list[int]:
        log = hall.node.catalogue.create("t", 1, {}).partitions[0]
        await ask(hall, PRODUCE, 9, **to_topic(batch(count=3, timestamp=1_000)))
        log.trim(2)
        return [(await listed(hall, time)).offset for time in (500, 1_000, 1_001)]

    assert in_hall(story) == [2, 2, -1]


def test_a_topic_in_two_elements_is_answered_once_with_the_partitions_of_both() -> None:
    """A partition that is named twice has an error, also in two elements of its topic."""

    async def story(hall: Hall) -> list[tuple[str, list[tuple[int, int, int]]]]:
        for name, count in (("t", 3), ("u", 1)):
            hall.node.catalogue.create(name, count, {})
        asked = [("t", (2, 1)), ("u", (0,)), ("t", (0, 2))]
        topics = [
            {
                "name": name,
                "partitions": [
                    {"partition_index": n, "timestamp": LATEST, "current_leader_epoch": -1}
                    for n in numbers
                ],
            }
            for name, numbers in asked
        ]
        answer = await ask(hall, LIST_OFFSETS, 5, replica_id=-1, isolation_level=0, topics=topics)
        return [
            (t.name, [(p.partition_index, int(p.error_code), p.offset) for p in t.partitions])
            for t in answer.topics
        ]

    assert in_hall(story) == [("t", [(2, 42, -1), (1, 0, 0), (0, 0, 0)]), ("u", [(0, 0, 0)])]
