"""How long a partition that cannot be read is left alone: longer each time, and anew once it was well."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from faust.types import TP

from faust_assigner.app.consumer.set_aside import MOST_RETRY_S, RETRY_S, SetAside

SOURCE = TP("orders", 7)


class State(SimpleNamespace):
    """aiokafka's state of a partition, by identity."""

    __hash__ = object.__hash__


def pause(it: SetAside, state: Any, now: float) -> float:
    """Seconds that one more failed try leaves it alone."""
    it.unreadable(SOURCE, state, ValueError("corrupt"), now)
    return next(s / 10 for s in range(1, 1000) if not it.is_left_alone(state, now + s / 10 + 1e-9))


def test_each_failed_try_waits_twice_as_long_up_to_the_most() -> None:
    """A partition that stays corrupt costs two requests a minute."""
    it, state = SetAside(), State(position=1)
    assert [pause(it, state, 0.0) for _ in range(7)] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert (RETRY_S, MOST_RETRY_S) == (1.0, 30.0)


def test_what_a_broker_refuses_is_asked_for_again_every_second_at_least() -> None:
    """The broker has a leader again soon; a corrupt record stays corrupt."""
    it, state = SetAside(), State(position=1)

    def refused() -> float:
        it.refused(SOURCE, state, 0.0)
        return next(s / 10 for s in range(1, 1000) if not it.is_left_alone(state, s / 10 + 1e-9))

    assert [refused() for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_what_was_well_again_begins_with_the_short_pause() -> None:
    """The trouble of an hour ago says nothing about the next one."""
    it, state, other = SetAside(), State(position=1), State(position=1)
    for _ in range(4):
        pause(it, state, 0.0)
    it.is_well(state)
    assert not it.is_left_alone(state, 0.0)
    assert pause(it, state, 100.0) == RETRY_S
    assert pause(it, other, 100.0) == RETRY_S
