"""A connection on a transport in memory: turns, order, and repeated requests."""

from __future__ import annotations

import asyncio
import itertools
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.broker import answering, throttle
from faust_assigner.broker.connection import READ_AHEAD_BYTES, Connection
from faust_assigner.broker.rate_limited_log import LINES_PER_INTERVAL
from faust_assigner.coordinator.classic import ClassicGroup
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import JoinGroup, LeaveGroup, Leaver, Protocol, SyncGroup
from faust_assigner.coordinator.timers import Purpose
from tests.support.clients.raw_client import batch
from tests.support.hall import Hall, Wire, frames, in_hall

API_VERSIONS, HEARTBEAT, PRODUCE, FETCH, METADATA = 18, 12, 0, 1, 3


def test_a_burst_of_one_connection_does_not_queue_others_behind_it() -> None:
    """After a burst of a thousand requests a second client's request is answered second at most."""

    async def story(hall: Hall) -> list[str]:
        burst, _ = hall.connect("burst")
        other, _ = hall.connect("other")
        burst.data_received(b"".join(frames(API_VERSIONS, 1_000)))
        other.data_received(next(frames(API_VERSIONS, 1)))
        return await hall.answers(1_001)

    assert in_hall(story).index("other") <= 1


def test_a_question_is_answered_before_the_beats_that_came_before_it() -> None:
    """A thousand members send heartbeats in the same turn of the loop."""

    async def story(hall: Hall) -> list[str]:
        beat = next(frames(HEARTBEAT, 1, 3, group_id="g", generation_id=1, member_id="m"))
        for number in range(1_000):
            member = Connection(hall.server)
            member.connection_made(Wire(f"member {number}", hall.written))
            member.data_received(beat)
        other, _ = hall.connect("other")
        other.data_received(next(frames(API_VERSIONS, 1)))
        return await hall.answers(1_001)

    assert in_hall(story)[0] == "other"


def test_answers_of_a_burst_keep_their_order_and_their_names() -> None:
    """Correlation ids keep their order even if a request is answered without being read."""

    async def story(hall: Hall) -> list[int]:
        burst, _ = hall.connect("burst")
        burst.data_received(b"".join(frames(API_VERSIONS, 100)))
        await hall.answers(100)
        return [int.from_bytes(data[4:8], "big") for _, data in hall.written]

    assert in_hall(story) == list(range(100))


@pytest.mark.parametrize("configs", [{}, {"flush.messages": "1"}])
def test_a_producer_that_says_its_last_word_and_goes_is_heard(configs: dict[str, str]) -> None:
    """With acks=0 the records are stored before the connection closes at the end of the stream."""

    async def story(hall: Hall) -> tuple[int, bool]:
        topic = hall.node.catalogue.create("t", 1, configs)
        producer, wire = hall.connect("producer")
        parts = [{"index": 0, "records": batch()}]
        values = {
            "acks": 0,
            "timeout_ms": 1_000,
            "topic_data": [{"name": "t", "partition_data": parts}],
        }
        producer.data_received(b"".join(frames(PRODUCE, 3, 9, **values)))
        assert producer.eof_received(), "the transport stays until what was said is served"
        while not wire.closed:
            await asyncio.sleep(0)
        return topic.partitions[0].end_offset, wire.closed

    assert in_hall(story) == (3, True)


def test_a_tls_transport_is_never_asked_to_stay_after_the_end_of_its_input() -> None:
    """asyncio would log a warning; only a plain transport with waiting frames stays open."""

    async def story(hall: Hall) -> list[bool]:
        stays = []
        for protocol in ("PLAINTEXT", "SSL"):
            peer, _ = hall.connect("peer", protocol)
            peer.data_received(b"".join(frames(API_VERSIONS, 2)))
            stays.append(peer.eof_received())
        return stays

    assert in_hall(story) == [True, False]


def test_who_spoke_in_time_is_not_thrown_out_because_others_are_read_first() -> None:
    """The heartbeat waits behind 200 requests as the session ends; a silent member expires."""

    async def story(hall: Hall) -> list[list[str]]:
        now = [10_000]
        hall.node.groups._timer = hall.node.group_timers._clock = lambda: now[0]
        settle(hall)
        hall.node.group_timers.start(asyncio.get_running_loop())
        group = hall.node.groups.get("g")
        assert isinstance(group, ClassicGroup)
        beat, another = (
            next(frames(HEARTBEAT, 1, 3, group_id="g", generation_id=1, member_id=who))
            for who in "ax"
        )
        seen = []
        for speaks in (True, False):
            now[0] += 60_000
            for number in range(200):
                hall.connect(f"other {number}")[0].data_received(another)
            if speaks:
                hall.connect("a")[0].data_received(beat)
            hall.node.group_timers.set("g", 0)
            await hall.answers(201 if speaks else 401)
            for _ in range(10):
                await asyncio.sleep(0.002)
            seen.append(list(group.roster.members))
        return seen

    assert in_hall(story) == [["a"], []]


# -- repeated requests -----------------------------------------------------------------------


def join(hall: Hall, member_id: str) -> None:
    """Add a member to group "g" without a second join request."""
    protocols = (Protocol("range", b"meta"),)
    hall.node.groups.ask(
        "g",
        lambda t: JoinGroup(t, "", member_id, protocols, needs_known_id=False),
        lambda reply: None,
    )


def settle(hall: Hall) -> None:
    """Settle generation 1, in which "a" is the only member and has its assignment."""
    join(hall, "a")
    hall.node.groups.tick("g")
    hall.node.groups.ask(
        "g", lambda t: SyncGroup(t, "a", 1, assignments={"a": b""}), lambda reply: None
    )


async def errors(
    hall: Hall, member: Connection, beat: bytes, *between: Callable[[], None]
) -> list[Code]:
    """Return the errors of a repeated heartbeat, at first and after each step."""
    for number, step in enumerate((lambda: None, *between), 1):
        step()
        member.data_received(beat)
        await hall.answers(number)
    # The error is in the last two bytes, or before an empty tag section.
    return [Code(struct.unpack_from(">h", data, len(data) - 2)[0]) for _, data in hall.written]


@pytest.mark.parametrize("version", range(4))
def test_a_repeated_heartbeat_hears_what_became_of_its_group(version: int) -> None:
    """The request is not parsed again, but each answer is new: stable, a rebalance, removed."""

    async def story(hall: Hall) -> list[Code]:
        settle(hall)
        member, _ = hall.connect("a")
        beat = next(frames(HEARTBEAT, 1, version, group_id="g", generation_id=1, member_id="a"))

        def leave() -> None:
            hall.node.groups.ask("g", lambda t: LeaveGroup(t, (Leaver("a"),)), lambda reply: None)

        return await errors(hall, member, beat, lambda: join(hall, "b"), leave)

    assert in_hall(story) == [Code.NONE, Code.REBALANCE_IN_PROGRESS, Code.UNKNOWN_MEMBER_ID]


def test_a_repeated_heartbeat_keeps_its_member_alive() -> None:
    """Each heartbeat moves the end of the session."""

    async def story(hall: Hall) -> list[int]:
        now = [10_000]
        hall.node.groups._timer = lambda: now[0]
        settle(hall)
        member, _ = hall.connect("a")
        beat = next(frames(HEARTBEAT, 1, 3, group_id="g", generation_id=1, member_id="a"))
        group, ends = hall.node.groups.get("g"), []
        assert group is not None

        def later() -> None:
            now[0] += 1_000

        for number in range(1, 4):
            later()
            member.data_received(beat)
            await hall.answers(number)
            ends.append(group.timers.get(Purpose.SESSION, "a") - now[0])
        return ends

    first, second, third = in_hall(story)
    assert first == second == third > 0


@pytest.mark.parametrize(
    "other",
    [
        {"group_id": "h", "generation_id": 1, "member_id": "a"},
        {"group_id": "g", "generation_id": 2, "member_id": "a"},
        {"group_id": "g", "generation_id": 1, "member_id": "b"},
        {"group_id": "g", "generation_id": 1, "member_id": "ab"},
    ],
)
def test_a_request_that_differs_by_one_letter_is_read(other: dict[str, Any]) -> None:
    """A different group, generation or member is no repetition."""

    async def story(hall: Hall) -> list[Code]:
        settle(hall)
        member, _ = hall.connect("a")
        mine = next(frames(HEARTBEAT, 1, 3, group_id="g", generation_id=1, member_id="a"))
        return await errors(
            hall, member, mine, lambda: member.data_received(next(frames(HEARTBEAT, 1, 3, **other)))
        )

    first, second, *_ = in_hall(story)
    assert (first, second is Code.NONE) == (Code.NONE, False)


def test_another_version_is_no_repetition() -> None:
    """Only version 1's answer has a throttle time."""

    async def story(hall: Hall) -> list[int]:
        member, _ = hall.connect("a")
        values = {"group_id": "g", "generation_id": 1, "member_id": "a"}
        for number, version in enumerate((0, 1, 0), 1):
            member.data_received(next(frames(HEARTBEAT, 1, version, **values)))
            await hall.answers(number)
        return [len(data) for _, data in hall.written]

    assert in_hall(story) == [10, 14, 10]


@pytest.mark.parametrize("more", [b"", b"\0\0\0\1\0"])
def test_a_request_with_more_or_less_than_a_correlation_id_is_no_repetition(more: bytes) -> None:
    """All else in it is as before; the broker reads it anew, and it is malformed."""

    async def story(hall: Hall) -> tuple[int, bool]:
        member, wire = hall.connect("a")
        beat = next(frames(HEARTBEAT, 1, 3, group_id="g", generation_id=1, member_id="a"))
        member.data_received(beat)
        await hall.answers(1)
        body = beat[4:8] + more + beat[12:]
        member.data_received(struct.pack(">i", len(body)) + body)
        for _ in range(100):
            await asyncio.sleep(0)
        return len(hall.written), wire.closed

    assert in_hall(story) == (1, True)


def test_a_repetition_that_fails_is_read_again_and_answered() -> None:
    """An error during the answer costs neither the answer nor the connection."""

    async def story(hall: Hall) -> tuple[list[str], bool]:
        member, wire = hall.connect("a")
        beat = next(frames(HEARTBEAT, 1, 3, group_id="g", generation_id=1, member_id="a"))
        member.data_received(beat)
        await hall.answers(1)
        sound = hall.node.groups.heartbeat
        fails = [True]

        def beat_once(*asked: Any) -> Code:
            if fails.pop() if fails else False:
                raise ValueError("once")
            return sound(*asked)

        hall.node.groups.heartbeat = beat_once  # type: ignore[method-assign]
        member.data_received(beat)
        return await hall.answers(2), wire.closed

    assert in_hall(story) == (["a", "a"], False)


def test_nothing_more_of_a_connection_is_served_while_an_answer_is_pending() -> None:
    """Requests behind a parked join or a long poll wait in order."""

    async def story(hall: Hall) -> list[int]:
        member, _ = hall.connect("a")
        waits: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        member._pending = waits
        member.data_received(next(frames(API_VERSIONS, 1)))
        for _ in range(5):
            await asyncio.sleep(0)
        answered = [len(hall.written)]
        member._pending = None
        member._queue_or_pause()
        await hall.answers(1)
        return [*answered, len(hall.written)]

    assert in_hall(story) == [0, 1]


# -- limits ----------------------------------------------------------------------------------


def test_half_sent_frames_over_the_budget_cost_the_oldest_its_connection() -> None:
    """All connections together use at most queued.max.request.bytes."""

    async def story(hall: Hall) -> list[bool]:
        budget = hall.node.settings.queued_max_request_bytes
        size = hall.node.settings.socket_request_max_bytes
        half = struct.pack(">i", size) + bytes(size - 8)
        peers = [hall.connect(str(number)) for number in range(budget // size + 1)]
        for connection, _ in peers:
            connection.data_received(half)
        return [wire.closed for _, wire in peers]

    closed = in_hall(story)
    assert closed[0]
    assert not any(closed[1:])


def test_a_peer_that_waits_for_an_answer_is_read_only_so_far_ahead() -> None:
    """Beyond the limit its transport pauses until the answer is written."""

    async def story(hall: Hall) -> list[bool]:
        member, wire = hall.connect("a")
        paused = []
        waits: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        member._pending = waits
        for _ in range(2):
            member.data_received(bytes(READ_AHEAD_BYTES // 2 + 1))
            paused.append(wire.paused)
        member._pending = None
        member._frames.clear()
        member._queue_or_pause()
        return [*paused, wire.paused]

    assert in_hall(story) == [False, True, False]


def test_a_peer_that_sends_faster_than_its_turns_come_is_held_back() -> None:
    """Its frames would fill the shared memory and disconnect a client with a large request."""

    async def story(hall: Hall) -> list[bool]:
        flooder, wire = hall.connect("a")
        flood = b"".join(frames(HEARTBEAT, 3, group_id="g" * 1_000, member_id="m", generation_id=1))
        count, paused = 0, []
        while not wire.paused and len(flooder._frames) < 2 * READ_AHEAD_BYTES:
            flooder.data_received(flood)
            count += 3
        paused.append(wire.paused)
        while len(flooder._frames) > READ_AHEAD_BYTES // 2:
            paused[-1] &= wire.paused
            await asyncio.sleep(0)
        paused.append(wire.paused)
        await hall.answers(count)
        return [*paused, wire.paused]

    assert in_hall(story) == [True, False, False]


def test_what_peers_do_not_take_is_counted_up_and_down() -> None:
    """The bytes of all unsent answers count until they are sent or lost."""

    async def story(hall: Hall) -> list[int]:
        peers = [hall.connect(name) for name in ("a", "b")]
        counted = []
        for connection, wire in peers:
            wire.unsent = 100
            connection.data_received(next(frames(API_VERSIONS, 1)))
        await hall.answers(2)
        counted.append(hall.node.unsent_bytes)
        peers[0][1].unsent = 0
        peers[0][0].resume_writing()
        counted.append(hall.node.unsent_bytes)
        peers[1][0].connection_lost(None)
        counted.append(hall.node.unsent_bytes)
        return counted

    assert in_hall(story) == [200, 100, 0]


def test_a_producer_without_acknowledgement_learns_of_a_fault_by_its_connection() -> None:
    """With acks=0 a producer reads no error code, not even for the broker's own fault."""

    async def story(hall: Hall) -> tuple[list[str], bool]:
        hall.node.catalogue.create("t", 1, {})

        def broken(*_: object) -> None:
            raise ValueError("a fault")

        hall.node.rules = broken  # type: ignore[assignment, method-assign]
        producer, wire = hall.connect("producer")
        parts = [{"index": 0, "records": batch()}]
        values = {
            "acks": 0,
            "timeout_ms": 1_000,
            "topic_data": [{"name": "t", "partition_data": parts}],
        }
        producer.data_received(next(frames(PRODUCE, 1, 9, **values)))
        while not wire.closed:
            await asyncio.sleep(0)
        return [name for name, _ in hall.written], wire.closed

    assert in_hall(story) == ([], True)


def test_a_large_frame_is_read_to_its_end() -> None:
    """Reading pauses only behind a whole frame: a pause inside a frame would never end."""

    async def story(hall: Hall) -> list[bool]:
        peer, wire = hall.connect("producer")
        frame = (2 * READ_AHEAD_BYTES).to_bytes(4, "big")
        paused = []
        for part in (frame, bytes(READ_AHEAD_BYTES), b"\0"):
            peer.data_received(part)
            paused.append(wire.paused)
        return paused

    assert in_hall(story) == [False] * 3


@pytest.mark.parametrize(("api", "stays"), [(PRODUCE, True), (FETCH, False)])
def test_only_a_running_produce_keeps_a_connection_without_further_input(
    api: int, stays: bool
) -> None:
    """The answer to a waiting fetch has no reader; the records of a produce request count."""

    async def story(hall: Hall) -> bool:
        peer, _ = hall.connect("peer")
        peer._pending = asyncio.get_running_loop().create_future()
        peer._pending_key = api
        return bool(peer.eof_received())

    assert in_hall(story) is stays


def test_a_client_that_disconnects_as_its_long_request_gets_a_place_leaves_the_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The request is served, gets its place and loses its client in one turn of the loop."""
    count = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: next(count) * 2 * throttle.SLICE_S)
    monkeypatch.setattr(throttle, "time", clock)

    async def story(hall: Hall) -> bool:
        hall.node.catalogue.create("t", 1, {})
        places, loop = hall.node.line.places, asyncio.get_running_loop()
        for _ in range(throttle.LONG_AT_A_TIME):
            await places.acquire()
        peer, _ = hall.connect("peer")
        peer.data_received(next(frames(METADATA, 1, 9, topics=None)))
        loop.call_soon(places.release)
        loop.call_soon(peer.connection_lost, None)
        for _ in range(5):
            await asyncio.sleep(0)
        return places.locked()

    assert not in_hall(story)


def test_unexpected_errors_of_many_requests_are_few_lines(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that finds a fault of the broker repeats its request; each close would log a traceback."""

    def fail(*_: Any, **__: Any) -> None:
        raise ValueError("a fault of the broker")

    monkeypatch.setattr(answering, "read_request", fail)
    requests = 3 * LINES_PER_INTERVAL

    async def story(hall: Hall) -> int:
        wires = []
        for number in range(requests):
            peer, wire = hall.connect(f"peer {number}")
            peer.data_received(next(frames(METADATA, 1, 9, topics=None)))
            wires.append(wire)
        while not all(wire.closed for wire in wires):
            await asyncio.sleep(0)
        return hall.node.counters["requests_failed"]

    with caplog.at_level("INFO"):
        assert in_hall(story) == requests
    traces = [record for record in caplog.records if record.exc_info]
    assert len(traces) == LINES_PER_INTERVAL
    assert traces[0].levelname == "ERROR"
    assert len(caplog.records) == LINES_PER_INTERVAL + 1
