"""The hand-off's table: every state, every event, and properties of all sequences."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product

import pytest

from faust_assigner.service.handoff import (
    NEXT,
    Effect,
    Handoff,
    HandoffEvent,
    Phase,
    State,
    TopicPartition,
    advanced,
    state_of,
    step,
)

ORDER = (Phase.WARMING, Phase.READY, Phase.COMPLETE)
FRESH = Handoff(TopicPartition("t", 0), "old", "new", Phase.WARMING, 100.0)


def lives(strict: bool, depth: int = 6) -> list[list[tuple[HandoffEvent, Handoff | None, Effect]]]:
    """Every sequence of effective events, to its end."""
    done, open_ = [], [([], replace(FRESH, strict=strict))]
    for _ in range(depth):
        longer = []
        for life, handoff in open_:
            for event in HandoffEvent:
                after = step(state_of(handoff), event, strict=strict)
                if after is None:
                    continue
                to, effect = after
                stored = None if to is State.GONE else advanced(handoff, to, offset=5, reason="no")
                (done if stored is None else longer).append(
                    ([*life, (event, stored, effect)], stored)
                )
        open_ = longer
    assert not open_, "every life ends within six steps"
    return [life for life, _ in done]


@pytest.mark.parametrize("strict", [False, True])
def test_phases_only_go_forward(strict: bool) -> None:
    """The order is Warming, Ready, Complete, gone; no phase is skipped or repeated."""
    for life in lives(strict):
        phases = [Phase.WARMING, *(handoff.phase for _, handoff, _ in life if handoff)]
        steps = [ORDER.index(phase) for phase in phases]
        assert all(after - before in (0, 1) for before, after in pairwise(steps)), life


@pytest.mark.parametrize("strict", [False, True])
def test_the_partition_is_given_once_at_most(strict: bool) -> None:
    """A hand-off that became Complete always gave the partition."""
    for life in lives(strict):
        given = [effect for _, _, effect in life].count(Effect.GIVE)
        completed = any(handoff and handoff.phase is Phase.COMPLETE for _, handoff, _ in life)
        assert given <= 1
        assert given == 1 or not completed


def test_a_strict_owner_has_released_or_is_gone_before_the_new_one_owns() -> None:
    """The rule covers every sequence of a strict hand-off."""
    for life in lives(strict=True):
        happened = [event for event, _, _ in life]
        for n, (event, _, effect) in enumerate(life):
            if effect is Effect.GIVE:
                assert event is HandoffEvent.OLD_GONE or HandoffEvent.LET_GO in happened[:n]


@pytest.mark.parametrize("strict", [False, True])
def test_nobody_owns_who_was_not_warm_unless_the_old_owner_is_gone(strict: bool) -> None:
    """GIVE without WARM is only for orphans."""
    for life in lives(strict):
        happened = [event for event, _, _ in life]
        for n, (event, _, effect) in enumerate(life):
            warm = HandoffEvent.WARM in happened[:n]
            assert effect is not Effect.GIVE or event is HandoffEvent.OLD_GONE or warm


@pytest.mark.parametrize("state", [s for s in State if s is not State.GONE])
def test_every_state_ends_by_itself_or_by_its_deadline(state: State) -> None:
    """C7: the leader has a step of its own, or the deadline ends the state."""
    assert (state, HandoffEvent.LOOK) in NEXT or (state, HandoffEvent.LATE) in NEXT


@pytest.mark.parametrize("state", [s for s in State if s is not State.GONE])
def test_no_state_outlives_both_its_consumers(state: State) -> None:
    """The leader can act after the loss of either consumer."""
    for event in (HandoffEvent.NEW_GONE, HandoffEvent.OLD_GONE):
        assert (state, event) in NEXT or (state, HandoffEvent.LOOK) in NEXT


def test_gone_is_the_end() -> None:
    """No event revives a hand-off."""
    assert all(step(State.GONE, event) is None for event in HandoffEvent)


def test_only_what_is_failed_or_late_cools_the_new_owner_down() -> None:
    """A departed new owner gets no request anyway, and an owner dropped by the plan is healthy."""
    cooling = {event for (_, event), (_, effect) in NEXT.items() if effect is Effect.COOL}
    assert cooling == {HandoffEvent.LOOK, HandoffEvent.LATE}
    assert {
        state
        for (state, event), (_, effect) in NEXT.items()
        if effect is Effect.COOL and event is HandoffEvent.LOOK
    } == {State.FAILED}


def test_an_owner_is_expelled_for_not_releasing_and_for_nothing_else() -> None:
    """A fault of the new owner never costs the old owner its session."""
    expelling = {
        pair
        for pair, (to, effect) in NEXT.items()
        if effect is Effect.EXPEL or (to is State.EXPELLED)
    }
    assert expelling == {
        (State.RELEASING, HandoffEvent.LATE),
        (State.UNRELEASED, HandoffEvent.LOOK),
    }


@pytest.mark.parametrize(("state", "event"), list(product(State, HandoffEvent)))
def test_what_is_stored_reads_back_as_the_state_it_was_stored_as(
    state: State, event: HandoffEvent
) -> None:
    """The rule covers every step of the table, strict or not."""
    start = next((h for h in STORED if state_of(h) is state), None)
    after = step(state, event, strict=start.strict) if start else None
    if start is not None and after is not None and after[0] is not State.GONE:
        assert state_of(advanced(start, after[0], offset=5, reason="no")) is after[0]


STORED = (
    FRESH,
    replace(FRESH, failed="no"),
    replace(FRESH, phase=Phase.READY),
    replace(FRESH, phase=Phase.READY, strict=True),
    replace(FRESH, phase=Phase.READY, strict=True, unreleased="no"),
    replace(FRESH, phase=Phase.READY, strict=True, unreleased="no", expelled=True),
    replace(FRESH, phase=Phase.READY, strict=True, released=True),
    replace(FRESH, phase=Phase.COMPLETE),
    replace(FRESH, phase=Phase.COMPLETE, strict=True, released=True),
)


def test_a_new_owner_that_is_warm_has_come_all_the_way() -> None:
    """The last progress report is some seconds old, so readiness sets the progress to 1."""
    for to in (State.READY, State.RELEASING):
        assert advanced(replace(FRESH, progress=0.4), to).progress == 1.0
