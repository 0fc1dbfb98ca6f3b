"""Two clocks: the monotonic clock drives timers, the wall clock dates records."""

from __future__ import annotations

from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.events import JoinGroup, Protocol
from tests.support.coordination.consumer_bench import Bench

WALL = 1_700_000_000_000
SESSION_MS = 45_000


def test_a_session_ends_by_the_clock_that_only_goes_forward() -> None:
    """The wall clock has no effect."""
    bench = Bench()
    bench.wall = WALL
    bench.join("m1")
    bench.wall = 1
    bench.heartbeat("m1", 2)
    assert bench.group.next_deadline_ms == bench.now + SESSION_MS


def test_a_group_that_becomes_classic_is_dated_by_the_wall() -> None:
    """The group's offsets expire by this date, even after a restart."""
    bench = Bench()
    bench.wall = WALL
    bench.join("m1")
    bench.heartbeat("m1", -1)
    bench.step(
        JoinGroup(
            99,
            "",
            "c1",
            (Protocol("range", b""),),
            session_timeout_ms=6_000,
            rebalance_timeout_ms=6_000,
            needs_known_id=False,
        )
    )
    (record,) = (value for value in bench.disk.values() if isinstance(value, fx.GroupRecord))
    assert record.state_since_ms == WALL
