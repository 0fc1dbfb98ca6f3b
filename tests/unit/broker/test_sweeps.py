"""The peers that a sweep closes: slow, silent and stalled peers, none with a pending answer."""

from __future__ import annotations

import asyncio
import datetime
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.broker import server
from faust_assigner.broker.limits import INLINE_ELEMENTS, WRITE_STALL_TIMEOUT_S
from faust_assigner.broker.security.gate import FRAME_BYTES, LOG_IN_TIMEOUT_S
from faust_assigner.broker.throttle import DECODED_AT_A_TIME
from faust_assigner.broker.wire import RequestHeader
from tests.support.asking import ask, wanting
from tests.support.hall import Hall, frames, in_hall

API_VERSIONS, FETCH, HEARTBEAT, METADATA = 18, 1, 12, 3
UNKNOWN_MEMBER = 25
LONG = datetime.timedelta(seconds=300)


def idle_s(hall: Hall) -> float:
    """Return the time after which a silent peer is closed."""
    return hall.node.settings.connections_max_idle_ms / 1_000


async def turns(count: int = 20) -> None:
    """Let the broker run."""
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize(("over_s", "goes"), [(-1.0, False), (1.0, True)])
def test_a_peer_that_takes_none_of_its_answers_is_dropped_with_them(
    over_s: float, goes: bool
) -> None:
    """A plain close would wait until the peer reads its answers."""

    async def story(hall: Hall) -> tuple[bool, int]:
        peer, wire = hall.connect("stalled")
        peer.pause_writing()
        peer.sweep(asyncio.get_running_loop().time() + WRITE_STALL_TIMEOUT_S + over_s)
        return wire.aborted, hall.node.counters["peers_stalled"]

    assert in_hall(story) == (goes, int(goes))


def test_unread_answers_over_the_limit_cost_the_longest_stalled_peers_their_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As few peers as necessary are closed; a reading peer stays, whatever its backlog."""

    async def story(hall: Hall) -> tuple[list[str], int]:
        since = {"reads": None, "third": 3.0, "first": 1.0, "second": 2.0, "late": None}
        wires = []
        for name, stalled in since.items():
            if name == "late":
                monkeypatch.setattr(server, "DISCONNECT_UNSENT_BYTES", 300)
            peer, wire = hall.connect(name)
            wires.append(wire)
            wire.unsent = 100
            peer.data_received(next(frames(API_VERSIONS, 1)))
            await turns()
            peer.stalled_since = stalled
        return [one.name for one in wires if one.aborted], hall.node.counters["answers_over_budget"]

    assert in_hall(story) == (["first", "second"], 2)


def test_the_unread_bytes_of_a_peer_that_is_being_closed_count_as_free() -> None:
    """The longest stalled peer is closing already, and its bytes are enough."""

    async def story(hall: Hall) -> list[bool]:
        peers = [hall.connect(name) for name in ("closing", "stalled", "spare")]
        for number, (peer, _) in enumerate(peers):
            peer.stalled_since, peer.unsent = float(number), 100
        peers[0][0].finish()
        with pytest.MonkeyPatch.context() as patched:
            aborted = []
            for surplus in (100, 101):
                patched.setattr(server, "DISCONNECT_UNSENT_BYTES", 300 - surplus)
                hall.node.unsent_bytes = 300
                hall.server._drop_stalled()
                aborted += [wire.aborted for _, wire in peers]
        return aborted

    assert in_hall(story) == [False, False, False, False, True, False]


def test_a_peer_that_reads_again_has_its_whole_time_again() -> None:
    """The pauses of a slow reader are not summed."""

    async def story(hall: Hall) -> bool:
        peer, wire = hall.connect("slow")
        peer.pause_writing()
        peer.resume_writing()
        peer.sweep(asyncio.get_running_loop().time() + WRITE_STALL_TIMEOUT_S + 1)
        return wire.aborted

    assert not in_hall(story)


async def parked(hall: Hall) -> tuple[Any, Any]:
    """Return a peer whose long poll waits for records of "t"."""
    hall.node.catalogue.create("t", 1, {})
    peer, wire = hall.connect("reader")
    wanted = {"topics": wanting(1), "max_bytes": 1_000, "min_bytes": 1, "max_wait": LONG}
    peer.data_received(next(frames(FETCH, 1, 4, **wanted)))
    await turns()
    return peer, wire


def test_a_peer_that_waits_for_an_answer_is_not_silent() -> None:
    """A long poll or a waiting join may take longer than the idle limit."""

    async def story(hall: Hall) -> tuple[bool, bool]:
        peer, wire = await parked(hall)
        now = asyncio.get_running_loop().time()
        peer.sweep(now + idle_s(hall) + 1)
        waits = wire.closed
        other, gone = hall.connect("silent")
        other.data_received(next(frames(API_VERSIONS, 1)))
        await turns()
        other.sweep(now + idle_s(hall) + 1)
        return waits, gone.closed

    assert in_hall(story) == (False, True)


def test_a_frame_that_waited_behind_an_answer_has_its_whole_time_from_then_on() -> None:
    """The broker delayed the frame: the peer could not send the rest faster."""

    async def story(hall: Hall) -> tuple[bool, bool]:
        peer, wire = await parked(hall)
        peer.data_received(next(frames(API_VERSIONS, 1))[:6])
        peer._frames.incomplete_since = asyncio.get_running_loop().time() - 1_000
        topic = hall.node.catalogue.get("t")
        assert topic is not None
        hall.node.catalogue.delete(topic)
        await turns()
        now = asyncio.get_running_loop().time()
        peer.sweep(now)
        at_once = wire.closed
        peer.sweep(now + hall.server.frame_timeout_s + 1)
        return at_once, wire.closed

    assert in_hall(story) == (False, True)


def test_a_heartbeat_of_a_stranger_is_counted_as_fenced() -> None:
    """The metrics count the heartbeat although no group's machine answers it."""

    async def story(hall: Hall) -> tuple[int, int]:
        answer = await ask(
            hall, HEARTBEAT, 3, group_id="g", generation_id=1, member_id="m", group_instance_id=None
        )
        return int(answer.error_code), hall.node.groups.meter.fenced["UNKNOWN_MEMBER_ID"]

    assert in_hall(story) == (UNKNOWN_MEMBER, 1)


def test_a_peer_that_reads_again_is_served_and_its_bytes_are_free() -> None:
    """Its next request arrived while it did not read, and is answered without another byte."""

    async def story(hall: Hall) -> list[tuple[int, int]]:
        peer, wire = hall.connect("slow")
        wire.unsent = 70
        peer.data_received(next(frames(API_VERSIONS, 1)))
        await turns()
        peer.pause_writing()
        peer.data_received(next(frames(API_VERSIONS, 1)))
        await turns()
        seen = [(len(hall.written), hall.node.unsent_bytes)]
        wire.unsent = 30
        peer.resume_writing()
        seen.append((len(hall.written), hall.node.unsent_bytes))
        await turns()
        return [*seen, (len(hall.written), hall.node.unsent_bytes)]

    assert in_hall(story) == [(1, 70), (1, 30), (2, 30)]


def test_each_reason_to_let_a_peer_go_has_its_own_time_and_its_own_count() -> None:
    """At the limit each peer stays, and just beyond it the peer is closed."""

    async def story(hall: Hall) -> list[tuple[str, bool, bool]]:
        frame = next(frames(API_VERSIONS, 1))
        limits = {
            "frames_slow": hall.server.frame_timeout_s,
            "log_ins_slow": LOG_IN_TIMEOUT_S,
            "peers_idle": idle_s(hall),
            "peers_stalled": WRITE_STALL_TIMEOUT_S,
        }
        found = []
        for reason, limit in limits.items():
            protocol = "SASL_PLAINTEXT" if reason == "log_ins_slow" else "PLAINTEXT"
            peer, wire = hall.connect(reason, protocol)
            at = [100.0]
            peer._loop = SimpleNamespace(time=lambda at=at: at[0])  # type: ignore[assignment, misc]
            peer._connected_at = peer._frames.incomplete_since = 100.0
            if reason == "log_ins_slow":
                peer.data_received(frame)
                await turns()
                at[0] = 105.0
                peer.data_received(frame)
                await turns()
            elif reason == "peers_idle":
                peer.data_received(frame)
                await turns()
            elif reason == "peers_stalled":
                peer.pause_writing()
            peer.sweep(100.0 + limit)
            before = wire.closed
            peer.sweep(100.0 + limit + 0.001)
            found.append((reason, before, wire.closed and hall.node.counters[reason] == 1))
        assert sum(hall.node.counters[reason] for reason in limits) == 4
        return found

    assert in_hall(story) == [
        ("frames_slow", False, True),
        ("log_ins_slow", False, True),
        ("peers_idle", False, True),
        ("peers_stalled", False, True),
    ]


def test_a_peer_that_is_being_closed_is_dropped_by_the_next_sweep() -> None:
    """The peer had the time between two sweeps to read its last answers; it counts once."""

    async def story(hall: Hall) -> list[tuple[bool, bool, int]]:
        peer, wire = hall.connect("peer")
        seen = []
        peer.close("frames_refused", "test")
        seen.append((wire.closed, wire.aborted, hall.node.counters["frames_refused"]))
        peer.sweep(asyncio.get_running_loop().time())
        seen.append((wire.closed, wire.aborted, hall.node.counters["frames_refused"]))
        return seen

    assert in_hall(story) == [(True, False, 1), (True, True, 1)]


def test_a_peer_that_has_logged_in_has_neither_the_time_nor_the_size_of_a_stranger() -> None:
    """The limits before the log-in end with it; a peer without a log-in is closed."""

    async def story(hall: Hall) -> list[tuple[bool, bool]]:
        found = []
        for user in (None, "alice"):
            peer, wire = hall.connect("peer", "SASL_PLAINTEXT")
            peer.data_received(next(frames(API_VERSIONS, 1)))
            await turns()
            assert peer.peer.gate is not None
            peer.peer.gate.user = user
            peer.sweep(asyncio.get_running_loop().time() + LOG_IN_TIMEOUT_S + 1)
            late = wire.closed
            peer.data_received((FRAME_BYTES + 1).to_bytes(4, "big"))
            found.append((late, wire.closed))
        return found

    assert in_hall(story) == [(True, True), (False, False)]


@pytest.mark.parametrize("is_closed", [False, True])
def test_an_answer_that_comes_after_the_end_of_its_connection_closes_it_no_second_time(
    is_closed: bool,
) -> None:
    """Only the reason of the first close is counted."""

    async def story(hall: Hall) -> list[int]:
        peer, _ = hall.connect("peer")
        outcome = asyncio.get_running_loop().create_future()
        peer._wait(outcome, RequestHeader(FETCH, 4, 9, "raw", 0))
        if is_closed:
            peer.close("frames_over_budget", "test")
        outcome.set_exception(ValueError("a bug"))
        await turns()
        return [hall.node.counters[name] for name in ("frames_over_budget", "requests_failed")]

    assert in_hall(story) == ([1, 0] if is_closed else [0, 1])


def test_a_long_request_is_held_until_its_turn_to_be_decoded_and_no_longer() -> None:
    """Its bytes count as waiting frames, together with the bytes behind it."""

    async def story(hall: Hall) -> tuple[int, list[int]]:
        held: list[int] = []
        hall.server.hold = lambda peer, size: held.append(size)  # type: ignore[method-assign]
        names = [{"name": f"t{n}"} for n in range(INLINE_ELEMENTS + 1)]
        frame = next(frames(METADATA, 1, 9, topics=names, allow_auto_topic_creation=False))
        places = [await hall.node.line.decoded.acquire() for _ in range(DECODED_AT_A_TIME)]
        peer, _ = hall.connect("peer")
        peer.data_received(frame)
        await turns()
        peer.data_received(b"\0\0")
        await turns()
        for _ in places:
            hall.node.line.decoded.release()
        await hall.answers(1)
        return len(frame) - 4, held

    size, held = in_hall(story)
    assert held == [size + 4, 0, size, size + 2, 2]
