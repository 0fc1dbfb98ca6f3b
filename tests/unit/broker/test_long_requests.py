"""Long requests of many clients: few are decoded at a time, the rest waits as frames."""

from __future__ import annotations

import asyncio
import datetime
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.broker import answering
from faust_assigner.broker.api import fetch
from faust_assigner.broker.limits import INLINE_ELEMENTS
from faust_assigner.broker.throttle import DECODED_AT_A_TIME
from faust_assigner.broker.wire import RequestHeader
from tests.support.asking import ask, read, to_topic, wanting
from tests.support.clients.raw_client import batch
from tests.support.hall import Hall, Wire, frames, in_hall
from tests.support.waiting import PATIENCE_S

PRODUCE, FETCH, LIST_OFFSETS, DESCRIBE_GROUPS = 0, 1, 2, 15
JOIN_GROUP, SYNC_GROUP = 11, 14
TIMED_OUT = 7
PARTS = [
    {"partition_index": number, "timestamp": -1, "current_leader_epoch": -1}
    for number in range(INLINE_ELEMENTS + 1)
]
LONG = next(frames(LIST_OFFSETS, 1, 5, replica_id=-1, topics=[{"name": "t", "partitions": PARTS}]))
Work = tuple[Any, asyncio.Future[Any]]


def hold_decoding(hall: Hall) -> list[Work]:
    """Keep the work for the decoding thread until the story runs it."""
    kept: list[Work] = []

    def crunch(work: Any) -> asyncio.Future[Any]:
        kept.append((work, asyncio.get_running_loop().create_future()))
        return kept[-1][1]

    hall.node.crunch = crunch  # type: ignore[method-assign]
    return kept


async def turns(count: int = 20) -> None:
    """Let the loop run."""
    for _ in range(count):
        await asyncio.sleep(0)


def do(kept: list[Work]) -> None:
    """Run all kept work."""
    for work, future in kept:
        if not future.done():
            future.set_result(work())


def test_few_long_requests_are_decoded_at_a_time_and_the_others_follow() -> None:
    """Decoded requests take ten times the memory; waiting frames count in queued.max.request.bytes."""

    async def story(hall: Hall) -> list[Any]:
        kept = hold_decoding(hall)
        for number in range(DECODED_AT_A_TIME + 2):
            hall.connect(str(number))[0].data_received(LONG)
        await turns()
        seen = [len(kept), hall.server._held._total]
        while len(hall.written) < DECODED_AT_A_TIME + 2:
            do(kept)
            await asyncio.sleep(0)
        return [*seen, hall.server._held._total]

    assert in_hall(story) == [DECODED_AT_A_TIME, 2 * (len(LONG) - 4), 0]


def test_a_peer_that_goes_while_its_request_waits_leaves_its_place_to_the_next() -> None:
    """The departed peer holds no bytes."""

    async def story(hall: Hall) -> list[int]:
        kept = hold_decoding(hall)
        peers = [hall.connect(str(number))[0] for number in range(DECODED_AT_A_TIME + 2)]
        for peer in peers:
            peer.data_received(LONG)
        await turns()
        for gone in (peers[0], peers[-2]):
            gone.connection_lost(None)
        await turns()
        return [len(kept), hall.server._held._total, hall.node.line.decoded._value]

    assert in_hall(story) == [DECODED_AT_A_TIME + 1, 0, 0]


@pytest.mark.parametrize("api", ["ListOffsets", "Produce"])
def test_a_long_request_waits_for_its_turn_only_so_long(
    monkeypatch: pytest.MonkeyPatch, api: str
) -> None:
    """The client gets an error; a producer with acks=0 loses its connection."""
    monkeypatch.setattr(answering, "ANSWER_TIMEOUT_S", 0.001)

    async def story(hall: Hall) -> tuple[Any, int]:
        hall.node.line.decoded = asyncio.Semaphore(0)
        peer, wire = hall.connect("peer")
        frame = LONG
        if api == "Produce":
            data = [{"index": n, "records": b""} for n in range(INLINE_ELEMENTS + 1)]
            topics = [{"name": "t", "partition_data": data}]
            frame = next(frames(PRODUCE, 1, 9, acks=0, timeout_ms=1, topic_data=topics))
        peer.data_received(frame)
        while not (hall.written or wire.closed):
            await asyncio.sleep(0.001)
        return outcome(wire), hall.server._held._total

    assert in_hall(story) == ("closed" if api == "Produce" else {TIMED_OUT}, 0)


def outcome(wire: Wire) -> Any:
    """Return the errors of the answer, or that the connection is closed."""
    if wire.closed:
        return "closed"
    answer = read(LIST_OFFSETS, 5, wire.written[0][1])
    return {int(part.error_code) for topic in answer.topics for part in topic.partitions}


def test_a_long_fetch_that_waits_for_records_leaves_its_place() -> None:
    """Consumers of many partitions would keep all other long requests waiting."""

    async def story(hall: Hall) -> int:
        topic = hall.node.catalogue.create("t", INLINE_ELEMENTS + 1, {})
        limits = {"max_wait": datetime.timedelta(minutes=1), "max_bytes": 10**6, "min_bytes": 1}
        wanted = wanting(INLINE_ELEMENTS + 1)
        asked = asyncio.ensure_future(ask(hall, FETCH, 11, topics=wanted, **limits))
        while not topic.partitions[0].waiters:
            await asyncio.sleep(0.001)
        left = hall.node.line.decoded._value
        await ask(hall, PRODUCE, 9, **to_topic(batch()))
        await asked
        return left

    assert in_hall(story) == DECODED_AT_A_TIME


@pytest.mark.parametrize(("limit", "is_brief"), [(2, False), (1, True)])
def test_fetches_beyond_the_limit_of_waiting_partitions_wait_briefly(
    monkeypatch: pytest.MonkeyPatch, limit: int, is_brief: bool
) -> None:
    """Each waiting fetch keeps its list of partitions in memory."""
    monkeypatch.setattr(fetch, "MAX_WAITING_PARTITIONS", limit)
    monkeypatch.setattr(fetch, "BRIEF_WAIT_MS", 1)

    async def story(hall: Hall) -> tuple[bool, int]:
        topic = hall.node.catalogue.create("t", 2, {})
        limits = {"max_wait": datetime.timedelta(minutes=9), "max_bytes": 10**6, "min_bytes": 1}
        asked = asyncio.ensure_future(ask(hall, FETCH, 11, topics=wanting(2), **limits))
        done, _ = await asyncio.wait({asked}, timeout=PATIENCE_S / 2 if is_brief else 0.05)
        if not done:
            hall.node.catalogue.delete(topic)
        await asked
        return bool(done), hall.node.waiting_partitions

    assert in_hall(story) == (is_brief, 0)


def test_a_long_request_with_a_null_list_gives_its_place_back_once() -> None:
    """The answer is INVALID_REQUEST."""
    name = b"\0\1t"
    count = LONG.index(name) - 4  # the second topic has null partitions
    frame = bytearray(LONG[:count] + b"\0\0\0\2" + LONG[count + 4 :] + name + b"\xff\xff\xff\xff")
    frame[:4] = (len(frame) - 4).to_bytes(4, "big")

    async def story(hall: Hall) -> tuple[int, int]:
        peer, _ = hall.connect("peer")
        peer.data_received(bytes(frame))
        while not hall.written:
            await asyncio.sleep(0.001)
        return hall.node.counters["requests_invalid"], hall.node.line.decoded._value

    assert in_hall(story) == (1, DECODED_AT_A_TIME)


@pytest.mark.parametrize(("count", "jobs"), [(INLINE_ELEMENTS, 0), (INLINE_ELEMENTS + 1, 1)])
def test_a_long_answer_is_encoded_in_a_thread_and_a_short_one_at_once(
    count: int, jobs: int
) -> None:
    """The number of the answer's elements counts, not the request's."""

    async def story(hall: Hall) -> tuple[int, int]:
        works: list[Any] = []
        crunch = hall.node.crunch
        hall.node.crunch = lambda work: (works.append(work), crunch(work))[1]  # type: ignore[method-assign]
        values = {"groups": [{"group_id": f"g{n}"} for n in range(count)]}
        pieces = await answering._encode_response(
            hall.node, RequestHeader(DESCRIBE_GROUPS, 5, 7, "raw", 0), values
        )
        answer = read(DESCRIBE_GROUPS, 5, b"".join(pieces))
        return len(works), len(answer.groups)

    assert in_hall(story) == (jobs, count)


async def test_a_request_that_waits_for_other_clients_leaves_its_place_and_no_other_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Joins that kept their places until the last member joins would block the requests before it."""
    left: list[int] = []

    async def crunch(work: Any) -> Any:
        return work()

    async def answer(node: Any, *_: Any) -> None:
        left.append(node.line.decoded._value)

    monkeypatch.setattr(answering, "read_request", lambda *_: "request")
    monkeypatch.setattr(answering, "_answer", answer)
    node: Any = SimpleNamespace(line=SimpleNamespace(decoded=asyncio.Semaphore(5)), crunch=crunch)
    nothing: Any = None
    for key in range(93):
        api: Any = SimpleNamespace(key=key)
        await answering._answer_long(node, nothing, api, nothing, b"", lambda: None)
        assert node.line.decoded._value == 5, key
    assert {key for key, free in enumerate(left) if free == 5} == {FETCH, JOIN_GROUP, SYNC_GROUP}
    assert set(left) == {4, 5}
