"""A leader's later terms, its changed judgement of consumers, and the changes that ask for a plan."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from faust_assigner.service import values as codec
from faust_assigner.service.handoff import HandoffEvent, TopicPartition
from faust_assigner.service.leading.advance import _events
from faust_assigner.service.leading.rebalancer import _asks_for_plan
from faust_assigner.service.records import Assigned, Consumer
from faust_assigner.service.store.base import KeyValue, Put
from faust_assigner.service.tasks import cancel_and_wait
from faust_assigner.service.view import Change, Entry
from tests.unit.service import test_advance as given
from tests.unit.service.leader_stage import SETTINGS, T0, T1, T2, T3, Play, Stage, played
from tests.unit.service.stories import ALL


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    """Return a function that runs a scenario beside the leader's loop and returns its stage."""
    return played(monkeypatch)


def test_a_later_term_plans_anew_from_an_unchanged_view(play: Play) -> None:
    """Its own revision is waited for, and the plan comes after a debounce."""

    async def story(s: Stage) -> None:
        await asyncio.sleep(10.0)
        assert s.plans == [2.0]
        await cancel_and_wait(s.task)  # type: ignore[attr-defined]
        s.term.revision = 99
        again = asyncio.create_task(s.rebalancer.lead(s.term))
        await asyncio.sleep(1.9)
        assert (s.plans, s.waited) == ([2.0], [77, 99])
        await asyncio.sleep(0.2)
        assert s.plans == [2.0, 12.0]
        await cancel_and_wait(again)

    play(story)


def test_after_a_conflict_is_over_an_unchanged_group_is_not_planned_again(play: Play) -> None:
    """The leader plans every half a second only while a decision is refused."""

    async def story(s: Stage) -> None:
        s.owners, s.refused = {T0: "a", T1: "b"}, {ALL.assignment(T1)}
        await asyncio.sleep(2.1)
        s.refused = set()
        await asyncio.sleep(60.0)
        assert (s.owner_of(T0), s.owner_of(T1)) == ("a", "b")
        count = len(s.plans)
        await asyncio.sleep(200.0)
        assert len(s.plans) == count

    play(story)


def test_a_changed_judgement_of_a_consumer_is_planned_at_the_next_pass(play: Play) -> None:
    """The end of the time for which a failure counts is no change of the store."""

    async def story(s: Stage) -> None:
        await asyncio.sleep(10.0)
        s.write(Put(ALL.cooldown(T0, "b"), codec.dump_until(1.0), 9))
        await asyncio.sleep(190.0)
        # The failure counts from 10 to 70; the passes are at 42, 82, 122 and 162.
        assert s.plans == [2.0, 42.0, 82.0]

    play(story, settings=replace(SETTINGS, cooldown_s=60.0))


def test_all_partitions_that_must_move_wait_and_few_begin(play: Play) -> None:
    """The metrics count the begun hand-offs; their ends ask for the next plan."""

    async def story(s: Stage) -> None:
        for at in (T0, T1, T2, T3):
            owned = Assigned(at, "a", incarnation="a1")
            s.write(Put(ALL.assignment(at), codec.dump_assigned(owned)))
        s.owners = {T0: "b", T1: "b", T2: "b", T3: "a"}
        await asyncio.sleep(2.05)
        assert (len(s.view.handoffs), s.rebalancer._waiting) == (1, 3)

    stage = play(story, settings=replace(SETTINGS, max_handoffs=4, max_handoffs_per_consumer=1))
    assert stage.metrics.of("rebalanced")[0] == [1, 0.0]


ENTRY: Any = Entry(KeyValue("k", b"", 1, 1), b"")
KINDS = (
    *("topics", "pins", "pauses", "assignments", "fences", "awaiting", "handoffs", "cooldowns"),
    *("replicas", "leaders", "bases", "expelled", "resyncs", "departed", "removed"),
)


def test_the_changes_that_ask_for_a_plan() -> None:
    """Some kinds ask at each change, others only at the end of a key."""
    asks = {
        kind: tuple(
            _asks_for_plan(Change(kind, "x", before, after))
            for before, after in ((None, ENTRY), (ENTRY, ENTRY), (ENTRY, None))
        )
        for kind in KINDS
    }
    at_each, at_the_end = (True, True, True), (False, False, True)
    assert {kind: when for kind, when in asks.items() if any(when)} == {
        **dict.fromkeys(("topics", "pins", "pauses"), at_each),
        **dict.fromkeys(("assignments", "fences", "awaiting"), at_the_end),
    }


WISHES: dict[str, Any] = {
    "incarnation": "a2",
    "topics": ("t",),
    "capacity": 2.0,
    "rack": "r",
    "capabilities": ("replicas",),
    "co_partitioned": (("t", "u"),),
    "former": {"t": (1,)},
}
OTHERS: dict[str, Any] = {
    "session": "s",
    "registered_at": 9.0,
    "holds": {"t": (0,)},
    "endpoint": "e",
}


@pytest.mark.parametrize(("field", "value"), [*WISHES.items(), *OTHERS.items()])
def test_a_registration_asks_for_a_plan_if_its_wishes_change(field: str, value: Any) -> None:
    """A join and an end ask too."""
    before = Consumer(name="a", incarnation="a1")
    entries = [
        Entry(KeyValue("k", b"", 1, 1), one) for one in (before, replace(before, **{field: value}))
    ]
    assert _asks_for_plan(Change("consumers", "a", *entries)) is (field in WISHES)
    assert _asks_for_plan(Change("consumers", "a", None, entries[0]))
    assert _asks_for_plan(Change("consumers", "a", entries[0], None))


@pytest.mark.parametrize(("handoff", "is_late"), [(given.WARMING, True), (given.RELEASING, False)])
def test_a_late_hand_off_of_a_replaced_owner_ends_only_its_warm_up(
    handoff: Any, is_late: bool
) -> None:
    """The fenced owner needs no expulsion: its lease ends by itself."""
    successor = replace(given.OLD, incarnation="o2")
    view = given.seen(handoff, consumers=(successor, given.NEW), fenced=("old", "o1"))
    late = {given.AT}
    found = list(_events(view, view.handoffs[given.AT].value, [handoff], late))
    assert found == [HandoffEvent.LATE] * is_late
    assert list(_events(view, handoff, [handoff], {TopicPartition("t", 9)})) == []
