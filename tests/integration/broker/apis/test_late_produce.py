"""A produce request past the request timeout: refused before the append, or acknowledged after it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from faust_assigner.broker import EmbeddedBroker, throttle
from faust_assigner.broker.limits import ANSWER_TIMEOUT_S
from faust_assigner.broker.storage import records
from tests.support.clients.raw_client import RawClient, batch, one_record

TIMED_OUT = 7
SLOW = b"slow to check"


class Clock:
    """The clock that measures requests."""

    now = 0.0

    def monotonic(self) -> float:
        """Return the current second."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock under the test's control."""
    made = Clock()
    monkeypatch.setattr(throttle, "time", made)
    return made


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Iterator[EmbeddedBroker]:
    """A broker with topic ``t``; a batch with SLOW takes longer to check than the request timeout."""
    check = records.check_records

    def slowly(data: bytes, *rest: Any) -> Any:
        if SLOW in data:
            clock.now += 2 * ANSWER_TIMEOUT_S
        return check(data, *rest)

    monkeypatch.setattr(records, "check_records", slowly)
    with EmbeddedBroker() as broker:
        broker.call(lambda node: node.catalogue.create("t", 3, {}))
        yield broker


def produce(client: RawClient, *values: bytes) -> list[tuple[int, int]]:
    """Send a batch to each partition; return (error, base offset) of each."""
    parts = [
        {"index": number, "records": batch(one_record(value))}
        for number, value in enumerate(values)
    ]
    answer = client.call(0, 9, acks=1, topic_data=[{"name": "t", "partition_data": parts}])
    (topic,) = answer.responses
    return [(part.error_code, part.base_offset) for part in topic.partition_responses]


def ends(broker: EmbeddedBroker) -> list[int]:
    """Return the end offsets of the partitions."""
    topic = broker.call(lambda node: node.catalogue.get("t"))
    assert topic is not None
    return [log.end_offset for log in topic.partitions]


def test_a_batch_that_is_not_checked_in_time_is_not_appended(running: EmbeddedBroker) -> None:
    """REQUEST_TIMED_OUT makes the producer retry, and the record is in the log once."""
    with RawClient(running.bootstrap) as client:
        assert produce(client, SLOW) == [(TIMED_OUT, -1)]
        assert ends(running) == [0, 0, 0]
        assert produce(client, b"quick") == [(0, 0)]


def test_what_was_appended_in_time_is_acknowledged_beside_what_was_not(
    running: EmbeddedBroker,
) -> None:
    """Each partition has its own answer; none is both appended and refused."""
    with RawClient(running.bootstrap) as client:
        assert produce(client, b"quick", SLOW, b"quick") == [
            (0, 0),
            (TIMED_OUT, -1),
            (TIMED_OUT, -1),
        ]
        assert ends(running) == [1, 0, 0]


def test_a_batch_that_waits_long_for_the_disk_is_acknowledged(
    running: EmbeddedBroker, clock: Clock
) -> None:
    """The batch is in the log, so the late response acknowledges it."""

    def slow_disk(node: Any) -> None:
        node.catalogue.create("synced", 1, {"flush.messages": "1"})
        flushed = node.flushing.flushed

        async def slowly() -> None:
            clock.now += 2 * ANSWER_TIMEOUT_S
            await flushed()

        node.flushing.flushed = slowly

    running.call(slow_disk)
    with RawClient(running.bootstrap) as client:
        answer = client.produce("synced", 0, batch())
        assert (answer.error_code, answer.base_offset) == (0, 0)
