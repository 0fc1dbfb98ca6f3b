"""The pause of an unreadable partition: longer with each failure, short again after a success."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from faust_assigner.app.consumer.set_aside import MOST_RETRY_S, RETRY_S, SetAside

SOURCE = TP("orders", 7)


class State(SimpleNamespace):
    """aiokafka's state of a partition, compared by identity."""

    __hash__ = object.__hash__


def pause(it: SetAside, state: Any, now: float) -> float:
    """Return the pause in seconds after a failed attempt."""
    it.unreadable(SOURCE, state, ValueError("corrupt"), now)
    return next(s / 10 for s in range(1, 1000) if not it.is_set_aside(state, now + s / 10 + 1e-9))


def test_each_failed_try_waits_twice_as_long_up_to_the_most() -> None:
    """A corrupt partition costs two requests a minute."""
    it, state = SetAside(), State(position=1)
    assert [pause(it, state, 0.0) for _ in range(7)] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert (RETRY_S, MOST_RETRY_S) == (1.0, 30.0)


def test_what_a_broker_refuses_is_asked_for_again_every_second_at_least() -> None:
    """A partition without a leader recovers soon; a corrupt record stays corrupt."""
    it, state = SetAside(), State(position=1)

    def refused() -> float:
        it.refused(SOURCE, state, 0.0)
        return next(s / 10 for s in range(1, 1000) if not it.is_set_aside(state, s / 10 + 1e-9))

    assert [refused() for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_what_was_well_again_begins_with_the_short_pause() -> None:
    """An earlier failure does not predict the length of the next failure."""
    it, state, other = SetAside(), State(position=1), State(position=1)
    for _ in range(4):
        pause(it, state, 0.0)
    it.note_success(state)
    assert not it.is_set_aside(state, 0.0)
    assert pause(it, state, 100.0) == RETRY_S
    assert pause(it, other, 100.0) == RETRY_S


def test_what_is_set_aside_is_named_and_counted_until_it_is_well() -> None:
    """Both reasons count; a repeated failure counts once, and a deleted state does not count."""
    it, states = SetAside(), [State(position=n) for n in range(3)]
    assert (len(it), it.partitions()) == (0, [])
    tps = [TP("orders", n) for n in range(3)]
    for _ in range(2):
        it.unreadable(tps[0], states[0], ValueError("corrupt"), 10.0)
    it.refused(tps[1], states[1], 10.0)
    it.unreadable(tps[2], states[2], ValueError("corrupt"), 10.0)
    assert (len(it), sorted(it.partitions())) == (3, tps)
    it.note_success(states[1])
    assert (len(it), sorted(it.partitions())) == (2, [tps[0], tps[2]])
    del states[2]
    assert (len(it), it.partitions()) == (1, [tps[0]])
    it.note_success(states[1])
    assert len(it) == 1


def test_a_partition_is_left_alone_until_the_time_of_its_next_try() -> None:
    """The pause ends at its exact second and covers a single partition."""
    it, state, other = SetAside(), State(position=1), State(position=1)
    it.unreadable(SOURCE, state, ValueError("corrupt"), 10.0)
    assert [it.is_set_aside(state, now) for now in (10.0, 10.99, 11.0, 12.0)] == [
        True,
        True,
        False,
        False,
    ]
    assert not it.is_set_aside(other, 10.0)
    it.refused(TP("orders", 8), other, 20.0)
    assert [it.is_set_aside(other, now) for now in (20.0, 20.1)] == [True, False]


def test_the_log_names_the_partition_its_offset_the_error_and_the_next_try(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An operator finds the corrupt batch by the line; a refusal is logged as INFO."""
    caplog.set_level("INFO")
    it, state = SetAside(), State(position=41)
    for _ in range(2):
        it.unreadable(SOURCE, state, ValueError("crc"), 5.0)
    it.refused(SOURCE, State(position=1), 5.0)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        (
            "ERROR",
            "orders-7 cannot be read from offset 41: ValueError: crc; this partition stands "
            f"still, the other partitions are processed; the next attempt is in {wait_s} s",
        )
        for wait_s in (1.0, 2.0)
    ] + [
        (
            "INFO",
            "orders-7: the broker answers the fetch with an error; the next attempt is in 0.1 s",
        )
    ]


def test_a_fetch_that_failed_as_a_whole_sets_nothing_aside() -> None:
    """Records of an earlier fetch may wait; aiokafka itself retries the whole fetch."""
    it = SetAside()
    states = [
        State(position=4, has_valid_position=True, timestamp=timestamp)
        for timestamp in (999, None, 1_000)
    ]
    tps = [TP("orders", number) for number in range(3)]
    asked: list[Any] = [(tp, state, 4) for tp, state in zip(tps, states, strict=True)]
    it.note_answer(asked[:2], {TP("bills", 0): [], tps[1]: []}, 1_000, 50.0)
    assert (len(it), it.partitions()) == (0, [])
    it.note_answer(asked, {tps[1]: []}, 1_000, 50.0)
    assert it.partitions() == [tps[0]]
    assert it.is_set_aside(states[0], 50.05)
    assert not it.is_set_aside(states[0], 50.1)
    states[0].timestamp = 1_001
    it.note_answer(asked[:1], {}, 1_001, 51.0)
    assert it.partitions() == []
