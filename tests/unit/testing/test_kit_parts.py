"""The kit's clock, the records of a broker, virtual time, and connections with faults."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from mode import Service

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import LeaveGroup, Leaver
from faust_assigner.testing import log
from faust_assigner.testing.clock import Clock
from faust_assigner.testing.faults import Faults, FaultyConnection, with_faults
from faust_assigner.testing.virtual_broker import START_MS, VirtualBroker

# -- the clock ------------------------------------------------------------------------------------


def test_a_held_clock_is_the_time_of_the_process_for_the_block() -> None:
    """A service's timer uses its loop's clock then; both are restored after a failure."""
    clock = Clock()
    clock.hold()
    clock.move(7_200)
    before, defaults = time.time, Service.itertimer.__kwdefaults__
    measured = defaults["clock"]
    seen: list[Any] = []

    async def now() -> tuple[float, float]:
        return defaults["clock"](), asyncio.get_running_loop().time()

    def fails() -> None:
        with clock.as_time():
            seen.extend((time.time(), clock.time()))
            seen.append(asyncio.run(now()))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert seen[0] == seen[1] > before() + 7_000
    assert seen[2][0] == pytest.approx(seen[2][1], abs=1.0)
    assert (time.time, defaults["clock"]) == (before, measured)


def test_a_running_clock_is_moved_on_and_runs_on() -> None:
    """The clock gains the seconds of each move; a running clock is left unchanged."""
    clock = Clock()
    began, machine = clock.monotonic(), time.monotonic()
    clock.move(100.0)
    clock.move(20.0)
    clock.run()
    passed = clock.monotonic() - began - (time.monotonic() - machine)
    assert passed == pytest.approx(120.0, abs=0.5)
    clock.hold()
    held = clock.monotonic()
    clock.move(5.0)
    assert clock.monotonic() == held + 5.0


# -- records --------------------------------------------------------------------------------------


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """An embedded broker."""
    with EmbeddedBroker() as started:
        yield started


def test_records_are_read_by_time_partition_and_offset(broker: EmbeddedBroker) -> None:
    """Records are read back as written; an existing topic keeps its partitions."""
    log.create(broker, "t", 3)
    log.create(broker, "t", 9)
    placed = [
        log.append(broker, "t", "b", {"v": 1}, 20.5, 2),
        log.append(broker, "t", None, "text", 10.25, None),
        log.append(broker, "t", ["k", 2], None, 20.5, 1),
        log.append(broker, "t", "b", 4, 5.0, 2),
        log.append(broker, "t", b"c", b"\xff", 30.0, None),
    ]
    assert placed[:4] == [(2, 0), (0, 0), (1, 0), (2, 1)]
    last = placed[4][0]
    assert log.read(broker, "t") == [
        log.Record("b", 4, 5.0, 2, 1),
        log.Record(None, "text", 10.25, 0, 0),
        log.Record(["k", 2], None, 20.5, 1, 0),
        log.Record("b", {"v": 1}, 20.5, 2, 0),
        log.Record("c", b"\xff", 30.0, *placed[4]),
    ]
    wanted = [1, 1, 2]
    wanted[last] += 1
    assert log.ends(broker, "t") == wanted


def test_a_record_with_a_key_is_written_to_the_given_partition_zero(broker: EmbeddedBroker) -> None:
    """The key decides only without a partition."""
    log.create(broker, "t", 3)
    keys = ["a", "b", "c", "d", "e"]
    assert [log.append(broker, "t", key, 1, 1.0, 0) for key in keys] == [(0, n) for n in range(5)]
    assert {log.append(broker, "t", key, 1, 1.0, None)[0] for key in keys} == {1, 2}


def test_an_unknown_topic_has_no_records_and_takes_none(broker: EmbeddedBroker) -> None:
    """The error lists the topics."""
    log.create(broker, "b", 1)
    log.create(broker, "a", 1)
    assert (log.read(broker, "x"), log.ends(broker, "x")) == ([], [])
    with pytest.raises(AssertionError, match=r"no topic 'x': \['a', 'b'\]"):
        log.append(broker, "x", None, "v", 1.0, None)


# -- the virtual broker ---------------------------------------------------------------------------


def test_virtual_time_stands_and_timers_fire_at_their_own_times() -> None:
    """Timers fire in order, up to and including the new time."""
    with VirtualBroker() as virtual:
        assert virtual.now_ms == START_MS
        fired: list[tuple[str, int]] = []

        def arm(node: Any) -> None:
            node.group_timers._tick = lambda key: fired.append((key, virtual.now_ms))
            for key, ms in (("late", 60_001), ("second", 60_000), ("first", 10)):
                node.group_timers.set(key, START_MS + ms)

        virtual.broker.call(arm)
        virtual.advance(60_000)
        assert fired == [("first", START_MS + 10), ("second", START_MS + 60_000)]
        assert virtual.now_ms == START_MS + 60_000
        virtual.advance(1_000)
        assert [name for name, _ in fired] == ["first", "second", "late"]
        assert virtual.group("none") is None
        assert virtual.member_ids("none") == {}
        with pytest.raises(KeyError):
            virtual.expire("none", "client")


@pytest.mark.parametrize("error", [Code.NONE, Code.NOT_COORDINATOR])
def test_a_member_expires_by_its_client_id_or_the_refusal_is_an_error(error: Code) -> None:
    """Of several members the named one alone is removed, with a reason for the broker's log."""
    virtual, asked = VirtualBroker(), list[Any]()
    members = [SimpleNamespace(client_id=f"c{n}", member_id=f"m{n}") for n in (1, 2, 3)]
    group = SimpleNamespace(describe=lambda: SimpleNamespace(members=members))

    def ask(group_id: str, event: Any, done: Any) -> None:
        asked.append((group_id, event(17)))
        done(SimpleNamespace(error=error))

    groups = SimpleNamespace(get={"g": group}.get, ask=ask)
    virtual._broker = SimpleNamespace(  # type: ignore[assignment]
        call=lambda work: work(SimpleNamespace(groups=groups))
    )
    assert virtual.member_ids("g") == {"c1": "m1", "c2": "m2", "c3": "m3"}
    with contextlib.nullcontext() if error is Code.NONE else pytest.raises(AssertionError):
        virtual.expire("g", "c2")
    leaver = Leaver("m2", None, "expired by a test")
    assert asked == [("g", LeaveGroup(17, (leaver,)))]
    with pytest.raises(KeyError):
        virtual.expire("g", "c9")


def test_faults_reach_the_connections_of_the_virtual_broker() -> None:
    """Each call passes its own arguments; the lost responses are counted."""
    with VirtualBroker() as virtual:
        faults: Faults = virtual.broker.server.connection_type.faults  # type: ignore[attr-defined]
        assert issubclass(virtual.broker.server.connection_type, FaultyConnection)
        virtual.kill("a")
        virtual.stall("b")
        virtual.lose_response("c", 11, times=2)
        assert (faults.dead, list(faults.stalled)) == ({"a"}, ["b"])
        assert [faults.loses("c", 11) for _ in range(3)] == [True, True, False]
        assert virtual.responses_lost == 2
        virtual.resume("b")
        assert faults.stalled == {}


# -- a connection with faults ---------------------------------------------------------------------


def request(client_id: str) -> bytes:
    """Return the first bytes of a request."""
    name = client_id.encode()
    return bytes(12) + len(name).to_bytes(2, "big") + name


class Wire:
    """The base connection: its served data, and its aborts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.served: list[bytes] = []
        self.aborted = 0
        base = FaultyConnection.__mro__[1]
        monkeypatch.setattr(base, "data_received", lambda it, data: self.served.append(data))
        self.server: Any = SimpleNamespace()
        self.faults = Faults()
        with_faults(self.server, self.faults)

    def connect(self) -> Any:
        """Return a new connection."""
        made = object.__new__(self.server.connection_type)
        made._client_id, made._waiting, made._first, made.is_closing = None, b"", b"", False
        made.abort = lambda: setattr(self, "aborted", self.aborted + 1)
        return made


def test_requests_of_a_stalled_client_are_served_in_order_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another client is served meanwhile; a closing connection of the stalled client is not."""
    wire = Wire(monkeypatch)
    first, second, closed, other = (wire.connect() for _ in range(4))
    wire.faults.stall("a")
    first.data_received(request("a"))
    other.data_received(request("b"))
    second.data_received(request("a"))
    closed.data_received(request("a"))
    first.data_received(b"more")
    assert wire.served == [request("b")]
    closed.is_closing = True
    wire.faults.resume("a")
    assert wire.served == [request("b"), request("a") + b"more", request("a")]
    first.data_received(b"later")
    assert wire.served[-1] == b"later"
    wire.faults.resume("a")
    assert len(wire.served) == 4


def test_a_name_in_parts_is_served_and_then_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client killed during its connection is cut off at its next data."""
    wire = Wire(monkeypatch)
    connection = wire.connect()
    whole = request("client")
    connection.data_received(whole[:15])
    connection.data_received(whole[15:])
    assert wire.served == [whole[:15], whole[15:]]
    wire.faults.kill("client")
    connection.data_received(b"more")
    fresh = wire.connect()
    fresh.data_received(whole)
    assert (wire.aborted, len(wire.served)) == (2, 2)
