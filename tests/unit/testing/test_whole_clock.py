"""The kit's clock beside the machine's, the virtual broker's arguments, and whole rows of a report."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.testing import clock as clock_module
from faust_assigner.testing import virtual_broker
from faust_assigner.testing.clock import SHORT_S, Clock, MovedLoop
from faust_assigner.testing.reporting import report
from faust_assigner.testing.virtual_broker import START_MS, VirtualBroker
from tests.unit.testing.test_parts import Signal


def test_a_clock_counts_the_seconds_of_all_its_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Moves while it runs and while it is held add up, and its time is the machine's plus them."""
    now = [500.0]
    machine = SimpleNamespace(monotonic=lambda: now[0], time=time.time)
    monkeypatch.setattr(clock_module, "time", machine)
    monkeypatch.setattr(clock_module, "REAL_TIME", lambda: 1_700_000_000.0 + now[0])
    clock = Clock()
    seen: list[tuple[float, float]] = []

    def look() -> None:
        seen.append((clock.monotonic(), clock.time() - 1_700_000_000.0))

    steps: list[Any] = [
        lambda: clock.move(7.0),
        clock.hold,
        lambda: clock.move(20.0),
        clock.hold,
        clock.run,
        lambda: clock.move(300.0),
        clock.run,
        clock.hold,
        clock.run,
    ]
    for step in steps:
        step()
        look()
        now[0] += 1.0
        look()
    monotonic = [one for one, _ in seen]
    assert [one for _, one in seen] == monotonic
    assert monotonic == [
        *(507.0, 508.0),  # moved
        *(508.0, 508.0),  # held
        *(528.0, 528.0),  # moved while it was held
        *(528.0, 528.0),
        *(528.0, 529.0),  # running again
        *(829.0, 830.0),  # moved
        *(830.0, 831.0),  # a running clock goes on
        *(831.0, 831.0),  # held
        *(831.0, 832.0),
    ]


def test_a_sleep_of_just_the_shortest_time_is_a_poll() -> None:
    """The distance counts from the loop's own time, which may be ahead of the clock."""
    clock = Clock()
    clock.hold()
    clock._held_at = 0.0
    loop = MovedLoop(clock)
    assert loop.extra_s == 0.0
    loop.call_at(SHORT_S, int)
    assert loop.next_alarm().is_short
    loop.extra_s = 2.0
    loop.call_at(2.0 + SHORT_S / 2, int)
    loop.call_at(4.5, int)
    assert loop.next_alarm() == pytest.approx((SHORT_S / 2, True, 2.5))
    loop.close()


def test_the_virtual_broker_passes_its_settings_its_clock_and_the_blocks_error_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broker's clock is the virtual one, and a lost response may be of one API."""
    events: list[Any] = []
    made: list[Any] = []
    node = SimpleNamespace(
        group_timers=SimpleNamespace(
            fire_until=lambda until_ms, tell: (events.append(until_ms), tell(until_ms))
        )
    )

    class Broker:
        server = "the server"

        def __init__(self, *, settings: Any, clock: Any) -> None:
            events.append(settings)
            self.clock = clock
            made.append(self)

        def __enter__(self) -> None:
            events.append("begin")

        def __exit__(self, *given: Any) -> None:
            events.append(given)

        def call(self, work: Any) -> Any:
            return work(node)

    monkeypatch.setattr(virtual_broker, "EmbeddedBroker", Broker)
    monkeypatch.setattr(
        virtual_broker, "with_faults", lambda *given: events.append(("faults", given[0]))
    )
    error = ZeroDivisionError("x")
    virtual = VirtualBroker({"group.max.size": "7"})

    def fails() -> None:
        with virtual as entered:
            assert entered is virtual
            assert made[0].clock() == START_MS
            virtual.advance(25)
            virtual.advance(300)
            assert (made[0].clock(), virtual.now_ms) == (START_MS + 325, START_MS + 325)
            raise error

    with pytest.raises(ZeroDivisionError):
        fails()
    trace = error.__traceback__
    assert events[:-1] == [
        {"group.max.size": "7"},
        "begin",
        ("faults", "the server"),
        START_MS + 25,
        START_MS + 325,
    ]
    assert events[-1][:2] == (ZeroDivisionError, error)
    assert trace is not None
    virtual.lose_response("a", 11, times=2)
    virtual.lose_response("a")
    faults = virtual._faults
    found = [faults.loses("a", key) for key in (3, 11, 3, 11, 3)]
    assert found == [True, True, False, True, False]
    virtual.stall("b")
    assert (faults.dead, faults.stalled) == (set(), {"b": []})


async def test_each_row_of_a_report_is_read_from_the_assignor_at_its_time() -> None:
    """A topic that only resembles Faust's leader topic counts, and so do all tables."""

    def tp(topic: str, partition: int) -> Any:
        return SimpleNamespace(topic=topic, partition=partition)

    leader = "shop-__assignor-__leader"
    assignor = SimpleNamespace(
        generation=5,
        group_for_topic=lambda topic: len(topic),
        assigned_actives=lambda: [tp("orders", 2), tp(leader, 0), tp(f"{leader}-copy", 1)],
        assigned_standbys=lambda: [tp("log-b", 4), tp("log-a", 7), tp(leader, 0)],
        awaited=SimpleNamespace(tps={1, 2, 3}, follows=True),
        joined_with=SimpleNamespace(
            actives={"log-a": [3]}, standbys={"log-b": [4, 1]}, on_disk={"log-a": [3, 9]}
        ),
    )

    def table(name: str) -> Any:
        return SimpleNamespace(
            name=f"table {name}", changelog_topic=SimpleNamespace(get_topic_name=lambda: name)
        )

    app = SimpleNamespace(
        assignor=assignor,
        consumer_generation_id="77",
        tables={name: table(f"log-{name}") for name in "ba"},
        on_partitions_assigned=Signal(),
        on_rebalance_complete=Signal(),
    )
    told: list[Any] = []
    report(app, told.append)
    await app.on_partitions_assigned[0](app, assigned=[tp("orders", 99)])
    assignor.generation = 6
    await app.on_rebalance_complete[0](app)
    assignor.generation = 0
    await app.on_rebalance_complete[0](app)
    assert told == [
        {
            "kind": "assigned",
            "generation": 5,
            "actives": [("orders", 2, 6), (f"{leader}-copy", 1, 29)],
            "standbys": [("log-a", 7, 5), ("log-b", 4, 5)],
            "changelogs": ["log-a", "log-b"],
            "claimed": [("log-a", 3), ("log-a", 9), ("log-b", 1), ("log-b", 4)],
            "awaited": 4,
        },
        {"kind": "ready", "generation": 6},
        {"kind": "ready", "generation": 77},
    ]


def test_the_next_long_sleep_is_the_earliest_in_any_order_of_their_starts() -> None:
    """An ended sleep gives way to the one after it."""
    clock = Clock()
    clock.hold()
    clock._held_at = 0.0
    loop = MovedLoop(clock)
    for seconds in (9.0, 6.0, 3.0, 7.0):
        loop.call_at(seconds, int)
    found = []
    for _ in range(4):
        found.append(loop.next_alarm())
        clock.move(found[-1].in_s)
    assert found == [(3.0, False, 3.0), (3.0, False, 3.0), (1.0, False, 1.0), (2.0, False, 2.0)]
    loop.close()
