"""Requests by bytes to a broker without sockets: what only an odd client or an odd moment shows."""

from __future__ import annotations

import asyncio
import datetime
import gzip
import threading
from typing import Any

from kio.index import load_response_schema
from kio.serial import entity_reader

from tests.support.hall import Hall, frames, in_hall
from tests.support.raw_client import batch, one_record

PRODUCE, FETCH, LIST_OFFSETS, JOIN_GROUP, DELETE_RECORDS, API_VERSIONS = 0, 1, 2, 11, 21, 18
SECOND = datetime.timedelta(seconds=1)


async def ask(hall: Hall, api_key: int, version: int, **values: Any) -> Any:
    """One request of a fresh peer, and its answer."""
    peer, wire = hall.connect("peer")
    mine = wire.written = []
    peer.data_received(next(frames(api_key, 1, version, **values)))
    while not mine:
        await asyncio.sleep(0)
    return read(api_key, version, b"".join(data for _, data in mine))


def read(api_key: int, version: int, frame: bytes) -> Any:
    """An answer's values."""
    schema = load_response_schema(api_key, version)
    start = 9 if schema.__header_schema__.__flexible__ else 8
    return entity_reader(schema)(frame, start)[0]


def to_topic(*parts: bytes) -> dict[str, Any]:
    """Batches for partition 0 of "t", all in one request."""
    data = [{"index": 0, "records": part} for part in parts]
    return {"acks": -1, "timeout_ms": 1_000, "topic_data": [{"name": "t", "partition_data": data}]}


def test_of_several_batches_for_a_partition_the_last_counts() -> None:
    """As in Kafka: one answer, one batch."""

    async def story(hall: Hall) -> tuple[int, int, int]:
        topic = hall.node.catalogue.create("t", 1, {})
        first, last = batch(one_record()), batch(one_record() + one_record(offset_delta=1), count=2)
        answer = await ask(hall, PRODUCE, 9, **to_topic(first, last))
        parts = answer.responses[0].partition_responses
        return len(parts), int(parts[0].error_code), topic.partitions[0].end_offset

    assert in_hall(story) == (1, 0, 2)


def test_a_topic_that_is_deleted_while_a_batch_is_checked_takes_nothing() -> None:
    """A compressed batch is checked beside the loop; meanwhile somebody deletes its topic."""

    async def story(hall: Hall) -> tuple[int, list[object]]:
        topic = hall.node.catalogue.create("t", 1, {})
        held, aside = threading.Event(), hall.node.aside

        def late(work: Any) -> Any:
            return aside(lambda: (held.wait(20), work())[1])

        hall.node.aside = late  # type: ignore[method-assign]
        data = batch(gzip.compress(one_record()), attributes=1)
        asked = asyncio.ensure_future(ask(hall, PRODUCE, 9, **to_topic(data)))
        for _ in range(5):
            await asyncio.sleep(0)
        hall.node.catalogue.delete(topic)
        held.set()
        answer = await asked
        return int(answer.responses[0].partition_responses[0].error_code), list(hall.node.store.scan(b"b"))

    assert in_hall(story) == (3, [])


def test_a_reader_that_waited_is_forgotten() -> None:
    """Its place among those to wake is given back, whether data came or the time was over."""

    async def story(hall: Hall) -> list[int]:
        topic = hall.node.catalogue.create("t", 1, {})
        part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000}
        wanted = {"topics": [{"topic": "t", "partitions": [part]}], "max_bytes": 1_000, "min_bytes": 1}
        await ask(hall, FETCH, 4, max_wait=datetime.timedelta(milliseconds=5), **wanted)
        waiting = [len(topic.partitions[0].waiters)]
        asked = asyncio.ensure_future(ask(hall, FETCH, 4, max_wait=20 * SECOND, **wanted))
        while not topic.partitions[0].waiters:
            await asyncio.sleep(0)
        waiting.append(len(topic.partitions[0].waiters))
        other, _ = hall.connect("producer")
        other.data_received(next(frames(PRODUCE, 1, 9, **to_topic(batch()))))
        await asked
        return [*waiting, len(topic.partitions[0].waiters)]

    assert in_hall(story) == [0, 1, 0]


async def offset_at(hall: Hall, timestamp: int, times: int = 1) -> tuple[int, int, int]:
    """(answers, error, offset) of ListOffsets for partition 0, named so many times."""
    part = {"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": -1}
    answer = await ask(
        hall, LIST_OFFSETS, 5, replica_id=-1, topics=[{"name": "t", "partitions": [part] * times}]
    )
    (found, *more) = answer.topics[0].partitions
    return 1 + len(more), int(found.error_code), found.offset


def test_a_time_inside_a_batch_that_was_trimmed_is_where_the_log_begins() -> None:
    """The batch is whole on disk; what was deleted of it is never named."""

    async def story(hall: Hall) -> tuple[int, int, int]:
        topic = hall.node.catalogue.create("t", 1, {})
        records = b"".join(one_record(offset_delta=n) for n in range(5))
        await ask(hall, PRODUCE, 9, **to_topic(batch(records, count=5, timestamp=1_000)))
        topic.partitions[0].trim(3)
        return await offset_at(hall, 500)

    assert in_hall(story) == (1, 0, 3)


def test_a_partition_named_twice_is_an_invalid_request() -> None:
    """Answered once, as Kafka does."""

    async def story(hall: Hall) -> tuple[int, int, int]:
        hall.node.catalogue.create("t", 1, {})
        return await offset_at(hall, -1, times=2)

    assert in_hall(story) == (1, 42, -1)


def test_records_that_are_not_there_yet_are_not_deleted() -> None:
    """An offset beyond the end is out of range, and the log stays; -1 is the end itself."""

    async def story(hall: Hall) -> list[tuple[int, int]]:
        hall.node.catalogue.create("t", 1, {})
        await ask(hall, PRODUCE, 9, **to_topic(batch()))
        found = []
        for offset in (2, -2, -1):
            parts = [{"partition_index": 0, "offset": offset}]
            answer = await ask(hall, DELETE_RECORDS, 1, topics=[{"name": "t", "partitions": parts}])
            part = answer.topics[0].partitions[0]
            found.append((int(part.error_code), part.low_watermark))
        return found

    assert in_hall(story) == [(1, -1), (1, -1), (0, 1)]


def joining(**more: Any) -> dict[str, Any]:
    """A first JoinGroup."""
    protocols = [{"name": "range", "metadata": b"m"}]
    return {"group_id": "g", "session_timeout": 10 * SECOND, "member_id": "", "protocol_type": "consumer",
            "protocols": protocols, **more}  # fmt: skip


def test_before_version_1_a_join_may_take_as_long_as_a_session() -> None:
    """Such clients say no other time; later ones say their own."""

    async def story(hall: Hall) -> list[int]:
        peer, _ = hall.connect("old")
        peer.data_received(next(frames(JOIN_GROUP, 1, 0, **joining(group_id="old"))))
        peer, _ = hall.connect("new")
        values = joining(group_id="new", rebalance_timeout=SECOND)
        peer.data_received(next(frames(JOIN_GROUP, 1, 1, **values)))
        for _ in range(20):
            await asyncio.sleep(0)
        members = [next(iter(group.roster)) for group in hall.node.groups]
        return [member.rebalance_timeout_ms for member in members]

    assert in_hall(story) == [10_000, 1_000]


def test_a_static_member_is_in_at_once() -> None:
    """Its instance id makes it known: only others come back with the id they were given."""

    async def story(hall: Hall) -> list[int]:
        codes = []
        for instance in (None, "worker-1"):
            values = joining(group_id=f"g-{instance}", rebalance_timeout=SECOND, group_instance_id=instance)
            asked = asyncio.ensure_future(ask(hall, JOIN_GROUP, 5, **values))
            for _ in range(20):
                await asyncio.sleep(0)
            hall.node.groups.tick(f"g-{instance}")
            codes.append(int((await asked).error_code))
        return codes

    assert in_hall(story) == [79, 0]


def test_what_was_answered_before_a_stop_is_delivered() -> None:
    """Peers are let go with what they were given, and dropped only when they do not take it."""

    async def story(hall: Hall) -> tuple[bool, bool]:
        _, taker = hall.connect("taker")
        stop = asyncio.ensure_future(hall.server.stop())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        seen = taker.closed, taker.aborted
        for connection in list(hall.server._connections):
            connection.connection_lost(None)
        await stop
        return seen

    assert in_hall(story) == (True, False)
