"""Which peers a sweep lets go: the slow, the silent and the stalled; not those that wait for the broker."""

from __future__ import annotations

import asyncio
import datetime
from typing import Any

import pytest

from faust_assigner.broker import connection, server
from faust_assigner.broker.limits import WRITE_STALL_TIMEOUT_S
from tests.support.asking import ask, wanting
from tests.support.hall import Hall, frames, in_hall

API_VERSIONS, FETCH, HEARTBEAT = 18, 1, 12
UNKNOWN_MEMBER = 25
LONG = datetime.timedelta(seconds=300)


def idle_s(hall: Hall) -> float:
    """After so long a silent peer goes."""
    return hall.node.settings.connections_max_idle_ms / 1_000


async def turns(count: int = 20) -> None:
    """Let the broker do what it can."""
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize(("over_s", "goes"), [(-1.0, False), (1.0, True)])
def test_a_peer_that_takes_none_of_its_answers_is_dropped_with_them(
    over_s: float, goes: bool
) -> None:
    """Closing alone would wait for it to take them."""

    async def story(hall: Hall) -> tuple[bool, int]:
        peer, wire = hall.connect("stalled")
        peer.pause_writing()
        peer.sweep(asyncio.get_running_loop().time() + WRITE_STALL_TIMEOUT_S + over_s)
        return wire.aborted, hall.node.counters["peers_stalled"]

    assert in_hall(story) == (goes, int(goes))


def test_unread_answers_over_the_limit_cost_the_longest_stalled_peers_their_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As many as needed and no more; a peer that reads keeps its connection, however much it has to read."""

    async def story(hall: Hall) -> tuple[list[str], int]:
        since = {"reads": None, "third": 3.0, "first": 1.0, "second": 2.0, "late": None}
        wires = []
        for name, stalled in since.items():
            if name == "late":
                for module in (connection, server):
                    monkeypatch.setattr(module, "MOST_UNSENT_BYTES", 300)
            peer, wire = hall.connect(name)
            wires.append(wire)
            wire.unsent = 100
            peer.data_received(next(frames(API_VERSIONS, 1)))
            await turns()
            peer.stalled_since = stalled
        return [one.name for one in wires if one.aborted], hall.node.counters["answers_over_budget"]

    assert in_hall(story) == (["first", "second"], 2)


def test_a_peer_that_reads_again_has_its_whole_time_again() -> None:
    """Pauses of a slow reader are not added up."""

    async def story(hall: Hall) -> bool:
        peer, wire = hall.connect("slow")
        peer.pause_writing()
        peer.resume_writing()
        peer.sweep(asyncio.get_running_loop().time() + WRITE_STALL_TIMEOUT_S + 1)
        return wire.aborted

    assert not in_hall(story)


async def parked(hall: Hall) -> tuple[Any, Any]:
    """A peer whose long poll waits for records of "t"."""
    hall.node.catalogue.create("t", 1, {})
    peer, wire = hall.connect("reader")
    wanted = {"topics": wanting(1), "max_bytes": 1_000, "min_bytes": 1, "max_wait": LONG}
    peer.data_received(next(frames(FETCH, 1, 4, **wanted)))
    await turns()
    return peer, wire


def test_a_peer_that_waits_for_an_answer_is_not_silent() -> None:
    """A long poll, or a join that waits for others, may take longer than a silence may."""

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
    """It was held up by the broker: a peer cannot send the rest faster."""

    async def story(hall: Hall) -> tuple[bool, bool]:
        peer, wire = await parked(hall)
        peer.data_received(next(frames(API_VERSIONS, 1))[:6])
        peer._incomplete_since = asyncio.get_running_loop().time() - 1_000
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
    """It is answered without a group's machine, and must not be missed in the metrics for that."""

    async def story(hall: Hall) -> tuple[int, int]:
        answer = await ask(
            hall, HEARTBEAT, 3, group_id="g", generation_id=1, member_id="m", group_instance_id=None
        )
        return int(answer.error_code), hall.node.groups.meter.fenced["UNKNOWN_MEMBER_ID"]

    assert in_hall(story) == (UNKNOWN_MEMBER, 1)
