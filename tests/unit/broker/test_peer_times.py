"""The time limits of a connection and their starts, and the resources of a lost connection."""

from __future__ import annotations

import asyncio
import datetime
import socket
from dataclasses import replace

import pytest

from faust_assigner.broker.connection import Connection
from faust_assigner.broker.frames import HeldBytes
from faust_assigner.broker.groups.meter import Meter
from faust_assigner.broker.node import Node
from faust_assigner.broker.security.acls import Acl, Acls
from faust_assigner.broker.security.authorizer import ANONYMOUS, Authorizer
from faust_assigner.broker.security.gate import LOG_IN_TIMEOUT_S
from faust_assigner.broker.security.listeners import Listener
from faust_assigner.broker.server import BrokerServer
from faust_assigner.broker.settings import Settings
from tests.support.asking import read, wanting
from tests.support.hall import Hall, Wire, frames, in_hall

API_VERSIONS, FETCH, HEARTBEAT, HANDSHAKE = 18, 1, 12, 17
UNKNOWN_MEMBER, GROUP_AUTHORIZATION_FAILED = 25, 30


class Clock:
    """The loop time of the connections, set by hand."""

    def __init__(self, hall: Hall) -> None:
        self.s = 1_000.0
        self._hall = hall

    def connect(self, protocol: str = "PLAINTEXT") -> tuple[Connection, Wire]:
        """Connect a peer now."""
        made = Connection(self._hall.server, Listener(protocol, "127.0.0.1", 0))
        clock = self

        class Loop:
            def time(self) -> float:
                return clock.s

            def __getattr__(self, name: str) -> object:
                return getattr(asyncio.get_running_loop(), name)

        made._loop = Loop()  # type: ignore[assignment]
        made._frames.incomplete_since = made._last_active = made._heard_at = made._connected_at = (
            self.s
        )
        wire = Wire("peer", self._hall.written)
        made.connection_made(wire)
        return made, wire

    def sweep(self, peer: Connection, *, after_s: float) -> None:
        """Sweep the peer this much later."""
        self.s += after_s
        peer.sweep(self.s)


async def turns(count: int = 20) -> None:
    """Let the broker run."""
    for _ in range(count):
        await asyncio.sleep(0)


def test_bytes_of_a_frame_do_not_prolong_the_time_for_the_whole_frame() -> None:
    """Otherwise a peer that sends a byte a second would hold memory for ever."""

    async def story(hall: Hall) -> list[int]:
        clock = Clock(hall)
        peer, wire = clock.connect()
        frame = next(frames(API_VERSIONS, 1))
        counts = []
        for number in range(3):
            peer.data_received(frame[number : number + 1])
            clock.sweep(peer, after_s=hall.server.frame_timeout_s / 2.5)
            counts.append(hall.node.counters["frames_slow"])
        assert wire.closed
        return counts

    assert in_hall(story) == [0, 0, 1]


def test_each_frame_has_its_own_time() -> None:
    """The second frame's time begins with its own first byte."""

    async def story(hall: Hall) -> bool:
        clock = Clock(hall)
        peer, wire = clock.connect()
        first, second = frames(API_VERSIONS, 2)
        clock.s += hall.server.frame_timeout_s - 1
        peer.data_received(first)
        await turns()
        peer.data_received(second[:5])
        clock.sweep(peer, after_s=hall.server.frame_timeout_s - 1)
        still_open = not wire.closed
        clock.sweep(peer, after_s=2)
        return still_open and wire.closed

    assert in_hall(story)


@pytest.mark.parametrize("way", ["asks", "is answered"])
def test_a_question_and_an_answer_both_end_a_silence(way: str) -> None:
    """connections.max.idle.ms counts from the later of both, in milliseconds."""

    async def story(hall: Hall) -> list[bool]:
        clock = Clock(hall)
        idle_s = hall.node.settings.connections_max_idle_ms / 1_000
        peer, wire = clock.connect()
        peer.data_received(next(frames(API_VERSIONS, 1)))
        await turns()
        clock.s += idle_s - 1
        if way == "asks":
            peer.data_received(next(frames(API_VERSIONS, 1)))
            await turns()
        else:
            peer._write([b"answer"])
        clock.sweep(peer, after_s=idle_s - 1)
        still_open = not wire.closed
        clock.sweep(peer, after_s=2)
        return [still_open, wire.closed, hall.node.counters["peers_idle"] == 1]

    assert in_hall(story) == [True, True, True]


def test_bytes_do_not_prolong_the_time_to_log_in() -> None:
    """The time counts from the connection."""

    async def story(hall: Hall) -> list[bool]:
        clock = Clock(hall)
        peer, wire = clock.connect("SASL_PLAINTEXT")
        clock.s += LOG_IN_TIMEOUT_S - 1
        peer.data_received(next(frames(API_VERSIONS, 1)))
        await turns()
        clock.sweep(peer, after_s=0.5)
        still_open = not wire.closed
        clock.sweep(peer, after_s=1)
        return [still_open, wire.closed, hall.node.counters["log_ins_slow"] == 1]

    assert in_hall(story) == [True, True, True]


def test_a_closed_peer_that_reads_nothing_is_dropped_with_the_next_sweep() -> None:
    """Its transport would wait for ever until the peer reads the last answers."""

    async def story(hall: Hall) -> list[bool]:
        clock = Clock(hall)
        peer, wire = clock.connect()
        peer.close("peers_idle", "silent")
        before = wire.aborted
        clock.sweep(peer, after_s=1)
        return [before, wire.aborted]

    assert in_hall(story) == [False, True]


def test_a_frame_as_large_as_the_setting_is_taken_and_a_larger_one_is_not() -> None:
    """The limit is socket.request.max.bytes; a frame has at least one byte."""

    async def story(hall: Hall) -> list[bool]:
        largest = hall.node.settings.socket_request_max_bytes
        closed = []
        for size in (largest, largest + 1, 1, 0, -1):
            peer, wire = hall.connect("peer")
            peer.data_received(size.to_bytes(4, "big", signed=True))
            closed.append(wire.closed)
        return closed

    assert in_hall(story) == [False, True, False, True, True]


def test_a_peer_is_nobody_before_its_log_in() -> None:
    """Before the log-in, the rules of the claimed user must not apply."""

    async def story(hall: Hall) -> list[str]:
        clock = Clock(hall)
        peer, _ = clock.connect("SASL_PLAINTEXT")
        before = peer.peer.principal
        assert peer.peer.gate is not None
        peer.peer.gate.user = "alice"
        return [before, peer.peer.principal]

    assert in_hall(story) == [ANONYMOUS, "User:alice"]


def test_heartbeats_are_measured_from_the_arrival_of_their_bytes() -> None:
    """Cached answers are measured, too."""

    async def story(hall: Hall) -> list[float]:
        seen: list[float] = []

        class Seen(Meter):
            def served(self, api_key: bytes, heard_at: float) -> None:
                seen.append(heard_at)

        hall.node.groups.meter = Seen()
        clock = Clock(hall)
        peer, _ = clock.connect()
        for frame in frames(HEARTBEAT, 2, 3, group_id="g", generation_id=1, member_id="m"):
            clock.s += 5
            peer.data_received(frame)
            await turns()
        return seen

    assert in_hall(story) == [1_005.0, 1_010.0]


def test_a_lost_peer_gives_back_everything_that_counts_against_others() -> None:
    """It returns unread answers, held bytes, its connection slot, and its long poll."""

    async def story(hall: Hall) -> list[object]:
        log = hall.node.catalogue.create("t", 1, {}).partitions[0]
        peer, wire = hall.connect("reader")
        waits = datetime.timedelta(seconds=300)
        wanted = {"topics": wanting(1), "max_bytes": 1_000, "min_bytes": 1, "max_wait": waits}
        peer.data_received(next(frames(FETCH, 1, 4, **wanted)))
        await turns()
        wire.unsent = 100
        peer._count_unsent()
        peer.data_received(b"\0\0\0\x20half a frame")
        taken = [
            hall.node.unsent_bytes,
            len(log.waiters),
            hall.server.connections,
            bool(hall.server._held._sizes),
        ]
        peer.connection_lost(None)
        await turns()
        assert not hall.server._per_address
        left = [
            hall.node.unsent_bytes,
            len(log.waiters),
            hall.server.connections,
            bool(hall.server._held._sizes),
        ]
        return [taken, left]

    assert in_hall(story) == [[100, 1, 1, True], [0, 0, 0, False]]


@pytest.mark.parametrize("setting", ["max_connections", "max_connections_per_ip"])
def test_the_last_allowed_connection_is_admitted_and_the_next_one_is_not(setting: str) -> None:
    """Each refusal is counted, and a lost connection frees its slot."""

    async def story(hall: Hall) -> list[bool]:
        hall.node.settings = replace(hall.node.settings, **{setting: 2})
        peers = [hall.connect(str(number)) for number in range(3)]
        closed = [wire.closed for _, wire in peers]
        assert hall.node.counters["connections_refused"] == 1
        for peer, _ in peers[1:]:
            peer.connection_lost(None)
        return [*closed, hall.connect("later")[1].closed]

    assert in_hall(story) == [False, False, True, False]


def test_before_log_in_a_frame_may_not_be_larger_than_any_frame_may() -> None:
    """A small socket.request.max.bytes also applies before the log-in."""

    async def story(hall: Hall) -> list[bool]:
        hall.node.settings = replace(hall.node.settings, socket_request_max_bytes=100)
        closed = []
        for size in (100, 101):
            peer, wire = Clock(hall).connect("SASL_PLAINTEXT")
            peer.data_received(size.to_bytes(4, "big"))
            closed.append(wire.closed)
        return closed

    assert in_hall(story) == [False, True]


def test_a_peer_whose_frame_was_served_holds_its_other_bytes_from_then_on() -> None:
    """Of two half-sent frames over the limit, the frame without progress is dropped immediately."""

    async def story(hall: Hall) -> list[bool]:
        hall.server._held = HeldBytes(60)
        (frame,) = frames(API_VERSIONS, 1)
        half = len(frame).to_bytes(4, "big") + b"x"
        busy, busy_wire = hall.connect("busy")
        stuck, stuck_wire = hall.connect("stuck")
        busy.data_received(frame[:5])
        stuck.data_received(half)
        busy.data_received(frame[5:] + half)
        await turns()
        third, _ = hall.connect("third")
        third.data_received((100).to_bytes(4, "big") + b"x" * 51)
        return [busy_wire.closed, stuck_wire.closed, stuck_wire.aborted]

    assert in_hall(story) == [False, True, True]


def test_answers_from_memory_count_as_unread_as_others_do() -> None:
    """Otherwise a peer that repeats heartbeats and reads no answer would fill the memory."""

    async def story(hall: Hall) -> int:
        peer, wire = hall.connect("peer")
        beat, again = frames(HEARTBEAT, 2, 3, group_id="g", generation_id=1, member_id="m")
        peer.data_received(beat)
        await turns()
        wire.unsent = 50
        peer.data_received(again)
        await turns()
        return hall.node.unsent_bytes

    assert in_hall(story) == 50


def test_a_repeated_request_is_checked_again_where_there_are_rules() -> None:
    """A withdrawn right must not remain in a cached answer."""

    async def story(hall: Hall) -> list[int]:
        acls = Acls(hall.node.store)
        rule = Acl(3, "g", 3, ANONYMOUS, "*", 3, 3)  # the rule allows READ of the group "g"
        acls.add([rule])
        hall.node.authorizer = Authorizer(acls, frozenset())
        peer, wire = hall.connect("peer")
        wire.get_extra_info = (  # type: ignore[method-assign]
            lambda name, default=None: None if name == "peercert" else ("127.0.0.1", 1)
        )
        codes = []
        for frame in frames(HEARTBEAT, 2, 3, group_id="g", generation_id=1, member_id="m"):
            mine = wire.written = []
            peer.data_received(frame)
            await turns()
            (answer,) = mine
            codes.append(int(read(HEARTBEAT, 3, answer[1]).error_code))
            acls.remove([rule])
        return codes

    assert in_hall(story) == [UNKNOWN_MEMBER, GROUP_AUTHORIZATION_FAILED]


def test_a_peer_that_fails_to_log_in_is_answered_and_let_go() -> None:
    """The peer may not try other mechanisms on the same connection."""

    async def story(hall: Hall) -> list[object]:
        peer, wire = Clock(hall).connect("SASL_PLAINTEXT")
        peer.data_received(next(frames(HANDSHAKE, 1, 1, mechanism="GSSAPI")))
        await turns()
        return [len(hall.written), wire.closed, hall.node.counters["log_ins_failed"]]

    assert in_hall(story) == [1, True, 1]


async def test_lines_about_peers_that_were_left_out_are_counted_by_the_sweep() -> None:
    """Otherwise the last count would wait for the next line of the same kind."""
    node = Node(Settings.parse({}))
    server = BrokerServer(node, frame_timeout_s=0.01)
    swept: list[float] = []
    node.peer_log.sweep = swept.append  # type: ignore[method-assign]
    await server.start()
    try:
        while not swept:
            await asyncio.sleep(0.001)
    finally:
        await server.stop()


async def test_a_start_that_finds_one_port_taken_gives_the_others_back() -> None:
    """The next start needs the ports."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        listeners = f"PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:{port}"
        node = Node(Settings.parse({"listeners": listeners}))
        server = BrokerServer(node)
        opened: list[asyncio.Server] = []
        stop = server._stop_listening

        def noting() -> None:
            opened.extend(server._listening)
            stop()

        server._stop_listening = noting  # type: ignore[method-assign]
        with pytest.raises(OSError, match="in use"):
            await server.start()
        assert [one.is_serving() for one in opened] == [False]
        assert server._listening == []
        node.close()
