"""The event loop on a held clock: its next timer and the distance to the timer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from faust_assigner.testing.clock import LONG_S, SHORT_S, Alarm, Clock, MovedLoop


@pytest.fixture
def loop() -> Iterator[MovedLoop]:
    """A loop on a clock held at 100 s."""
    clock = Clock()
    clock.hold()
    clock.move(100)
    made = MovedLoop(clock)
    yield made
    made.close()


def test_the_next_alarm_is_the_earliest_timer_by_its_distance(loop: MovedLoop) -> None:
    """The clock's own reading does not count; the next long sleep is reported separately."""
    now = loop.time()
    for seconds in (2 * LONG_S, 1.0, 3 * LONG_S):
        loop.call_at(now + seconds, int)
    assert loop.next_alarm() == pytest.approx(Alarm(1.0, False, 2 * LONG_S))
    loop.extra_s += 0.25
    assert loop.next_alarm() == pytest.approx(Alarm(0.75, False, 2 * LONG_S - 0.25))


def test_a_cancelled_timer_and_one_that_is_due_are_no_alarms(loop: MovedLoop) -> None:
    """Without any other timer the next alarm is infinitely far away."""
    now = loop.time()
    loop.call_at(now + 1.0, int).cancel()
    loop.call_at(now + LONG_S, int).cancel()
    loop.call_at(now, int)
    assert loop.next_alarm() == Alarm(float("inf"), False, float("inf"))
    loop.call_at(now + 5.0, int)
    assert loop.next_alarm() == pytest.approx(Alarm(5.0, False, 5.0))


def test_a_poll_is_a_short_sleep_up_to_its_limit(loop: MovedLoop) -> None:
    """The duration counts from the start of the sleep, so a waiting poll stays a poll."""
    now = loop.time()
    loop.call_at(now + SHORT_S * 1.5, int)
    assert not loop.next_alarm().is_short
    loop.call_at(now + SHORT_S * 0.9, int)
    assert loop.next_alarm().is_short


def test_a_sleep_of_just_two_seconds_is_long(loop: MovedLoop) -> None:
    """The sleep ends exactly on time."""
    loop._moved._held_at = 100.0  # no rounding
    loop.call_at(100.0 + LONG_S, int)
    assert loop.next_alarm().long_in_s == LONG_S


def test_a_clock_that_runs_again_goes_on_from_its_held_time() -> None:
    """The clock keeps the hours moved by a test."""
    clock = Clock()
    clock.hold()
    clock.move(3600)
    held_at = clock.monotonic()
    clock.run()
    assert held_at <= clock.monotonic() < held_at + 600
