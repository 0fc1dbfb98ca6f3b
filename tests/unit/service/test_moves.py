"""What the leader does about hand-offs under way: crews, deadlines, and consumers that leave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from faust_assigner.service.handoff import Handoff, Phase, TopicPartition
from faust_assigner.service.leading.moves import advance
from faust_assigner.service.records import Consumer, Status
from faust_assigner.service.view import View
from tests.unit.service.stories import ALL, AT, HANDOFF, SETTINGS, view_of

MATE = TopicPartition("u", 0)
TIMEOUT_S = SETTINGS.handoff_timeout_s
READY = replace(HANDOFF, phase=Phase.READY)
RELEASING = replace(READY, strict=True)
COMPLETE = replace(HANDOFF, phase=Phase.COMPLETE)


def given(*handoffs: Handoff, new: Status = Status.READY) -> View:
    """``old`` owns what is not given yet; the topics "t" and "u" travel together."""
    owners = {
        handoff.at: "new" if handoff.phase is Phase.COMPLETE else "old" for handoff in handoffs
    }
    bound = (("t", "u"),)
    return view_of(
        Consumer(name="old", co_partitioned=bound),
        Consumer(name="new", co_partitioned=bound, status=new),
        topics={"t": 1, "u": 1},
        owners={AT: "old", MATE: "old", **owners},
        handoffs=handoffs,
    )


def endings(view: View, ages_s: Mapping[TopicPartition, float] = {}) -> dict[TopicPartition, str]:
    """How hand-offs end, by the keys that are written."""
    found = {}
    for bundle in advance(view, ages_s, SETTINGS, 1_000.0):
        keys = {write.key for write in bundle.writes}
        for at in (AT, MATE):
            if ALL.assignment(at) in keys:
                found[at] = "given"
            elif ALL.handoff(at) in keys:
                found[at] = "given up" if bundle.ended else "over"
    return found


@pytest.mark.parametrize(("age_s", "ends"), [(TIMEOUT_S - 0.1, {}), (TIMEOUT_S, {AT: "given up"})])
def test_a_handoff_is_given_up_at_its_deadline(
    age_s: float, ends: dict[TopicPartition, str]
) -> None:
    """Exactly then, and not before."""
    assert endings(given(HANDOFF), {AT: age_s}) == ends


def test_a_mate_that_is_complete_does_not_hold_the_others_up() -> None:
    """It was given in an earlier transaction: only those still on the way wait for each other."""
    view = given(COMPLETE, replace(READY, at=MATE))
    assert endings(view) == {MATE: "given"}


def test_mates_are_given_together_once_all_are_ready() -> None:
    """One that warms holds the other."""
    assert endings(given(READY, replace(HANDOFF, at=MATE))) == {}
    assert endings(given(READY, replace(READY, at=MATE))) == {AT: "given", MATE: "given"}


@pytest.mark.parametrize("late", [HANDOFF, RELEASING])
def test_who_travels_with_a_late_one_is_given_up_with_it(late: Handoff) -> None:
    """Whether the late one still warms or the old owner does not let go of it."""
    waits = replace(READY, strict=late.strict, released=late.strict)
    view = given(waits, replace(late, at=MATE))
    assert endings(view, {MATE: TIMEOUT_S}) == {AT: "given up", MATE: "given up"}


@pytest.mark.parametrize(("handoff", "ends"), [(READY, {AT: "given up"}), (COMPLETE, {})])
def test_a_new_owner_that_leaves_ends_only_what_is_not_complete(
    handoff: Handoff, ends: dict[TopicPartition, str]
) -> None:
    """What it owns already goes on from it by a hand-off of its own; the old owner still lets go."""
    assert endings(given(handoff, new=Status.DRAINING)) == ends
