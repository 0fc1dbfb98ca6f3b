"""The times of the leader's plans: which changes cause a plan, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from faust_assigner.service import values as codec
from faust_assigner.service.handoff import Phase
from faust_assigner.service.leading import rebalancer
from faust_assigner.service.leading.advance import advance
from faust_assigner.service.records import Assigned, Pause, Pin, Status, TopicConfig
from faust_assigner.service.store.base import Delete, Put, Write
from tests.unit.service.leader_stage import (
    SETTINGS,
    T0,
    T1,
    T2,
    T3,
    A,
    Play,
    Stage,
    played,
    warming,
)
from tests.unit.service.stories import ALL


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    """Return a function that runs a scenario beside the leader's loop and returns its stage."""
    return played(monkeypatch)


# -- the time of a plan ------------------------------------------------------------------------------


def _consumer(**changes: Any) -> Put:
    return Put(ALL.consumer("a"), codec.dump_consumer(replace(A, **changes)), 50)


ASSIGNED = Put(ALL.assignment(T0), codec.dump_assigned(Assigned(T0, "a", incarnation="a1")))
FENCE, AWAITING = ALL.fence("x", "x1"), ALL.awaiting
#: after an outage, the owner of one partition is missing
OUTAGE = [
    Put(ALL.assignment(T1), codec.dump_assigned(Assigned(T1, "gone", incarnation="g1"))),
    Put(AWAITING, b"known", 9),
]
CHANGES: dict[str, tuple[Sequence[Write], Sequence[Write], bool]] = {
    "incarnation": ((), [_consumer(incarnation="a2")], True),
    "status": ((), [_consumer(status=Status.DRAINING)], True),
    "topics": ((), [_consumer(topics=("t",))], True),
    "capacity": ((), [_consumer(capacity=2.0)], True),
    "rack": ((), [_consumer(rack="r")], True),
    "capabilities": ((), [_consumer(capabilities=("replicas",))], True),
    "co-partitioned": ((), [_consumer(co_partitioned=(("t", "u"),))], True),
    "former": ((), [_consumer(former={"t": (1,)})], True),
    "a leave": ((), [Delete(ALL.consumer("a"))], True),
    "weights": ((), [_consumer(weights={"t": {0: 2.0}})], False),
    "replicas held": ((), [_consumer(holds={"t": (1,)})], False),
    "endpoint": ((), [_consumer(endpoint="x:1")], False),
    "topic": ((), [Put(ALL.topic("u"), codec.dump_topic(TopicConfig("u", 1)))], True),
    "topic removed": ((), [Delete(ALL.topic("t"))], True),
    "pin": ((), [Put(ALL.pin(T0), codec.dump_pin(Pin(T0, "a")))], True),
    "pause": ((), [Put(ALL.paused, codec.dump_pause(Pause("", 1.0)))], True),
    "assignment": ((), [ASSIGNED], False),
    "assignment deleted": ([ASSIGNED], [Delete(ALL.assignment(T0))], True),
    "fence": ((), [Put(FENCE, b"x", 9)], False),
    "fence ended": ([Put(FENCE, b"x", 9)], [Delete(FENCE)], True),
    "outage": ((), [Put(AWAITING, b"known", 9)], False),
    "outage ended": (OUTAGE, [Delete(AWAITING)], True),
    "cool-down": ((), [Put(ALL.cooldown(T0, "b"), codec.dump_until(1.0), 9)], False),
}


@pytest.mark.parametrize(("before", "change", "asks"), CHANGES.values(), ids=CHANGES)
def test_a_change_of_the_wishes_is_planned_after_a_debounce_and_others_at_the_next_pass(
    play: Play, before: Sequence[Write], change: Sequence[Write], asks: bool
) -> None:
    """The debounce is 2 s, and a pass runs every 40 s."""

    async def story(s: Stage) -> None:
        for write in before:
            s.write(write)
        kept = Assigned(T3, "b", incarnation="b1")
        s.write(Put(ALL.assignment(T3), codec.dump_assigned(kept)))
        s.owners = {T3: "b", T0: "a"} if T0 in s.view.assignments else {T3: "b"}
        await asyncio.sleep(10.0)
        s.plans.clear()
        for write in change:
            s.write(write)
        await asyncio.sleep(1.9)
        assert s.plans == []
        await asyncio.sleep(0.2)
        assert bool(s.plans) is asks
        await asyncio.sleep(40.0)
        assert s.plans

    play(story)


def test_further_changes_do_not_put_a_plan_off(play: Play) -> None:
    """The debounce counts from the first change."""

    async def story(s: Stage) -> None:
        s.owners = {T3: "b"}
        await asyncio.sleep(10.0)
        s.plans.clear()
        for number in range(3):
            s.topic(5 + number)
            await asyncio.sleep(0.9)
        assert s.plans == [12.0]

    play(story)


def test_the_leader_rests_after_a_long_plan_for_half_of_its_duration(play: Play) -> None:
    """After a plan of 8 s, the next plan starts 4 s later, despite further changes."""

    async def story(s: Stage) -> None:
        s.owners = {T3: "b"}
        await asyncio.sleep(10.0)
        s.plans.clear()
        s.plan_s = 8.0
        s.topic(5)
        await asyncio.sleep(2.1)
        s.plan_s = 0.0
        s.topic(6)
        await asyncio.sleep(2.5)
        s.topic(7)  # wakes the leader after the debounce, within the rest
        await asyncio.sleep(1.2)
        assert s.plans == [12.0]
        await asyncio.sleep(0.3)
        assert s.plans == [12.0, 16.0]

    stage = play(story)
    assert stage.metrics.of("rebalanced") == [[1, 0.0]]


@pytest.mark.parametrize(
    ("joins", "planned"),
    [
        ([], 2.0),
        ([1.5], 3.5),
        ([1.5, 3.0], 5.0),
        ([2.5], 2.0),
        ([1.5 * n for n in range(1, 30)], 20.0),
        ([1.5, 30.0, 31.5], 3.5),
    ],
)
def test_an_idle_group_is_planned_a_debounce_after_its_last_join(
    play: Play, joins: Sequence[float], planned: float
) -> None:
    """The limit is ten debounces after the first join; a join after the plan starts a new series."""

    async def story(s: Stage) -> None:
        for number, moment in enumerate(joins):
            await asyncio.sleep(moment - s.now)
            s.consumers(replace(A, name=f"c{number}"))
        await asyncio.sleep(max(21.0 - s.now, 0.0))
        assert s.plans[0] == planned

    play(story)


def test_only_a_join_is_waited_for_in_an_idle_group(play: Play) -> None:
    """Neither a leave nor a changed wish delays the plan."""

    async def story(s: Stage) -> None:
        await asyncio.sleep(100.0)
        s.plans.clear()
        s.write(_consumer(rack="r"))
        await asyncio.sleep(1.5)
        s.write(_consumer(rack="s"))
        s.write(Delete(ALL.consumer("b")))
        await asyncio.sleep(5.0)
        assert s.plans[0] == 102.0

    play(story)


def test_a_second_series_of_joins_in_an_idle_group_is_gathered_anew(play: Play) -> None:
    """The limit of ten debounces counts from the first join of the series."""

    async def story(s: Stage) -> None:
        await asyncio.sleep(100.0)
        s.plans.clear()
        for number in range(16):
            s.consumers(replace(A, name=f"c{number}"))
            await asyncio.sleep(1.5)
        assert s.plans[0] == 120.0

    play(story)


def test_a_pause_between_joins_does_not_prolong_their_limit(play: Play) -> None:
    """The first plan, after such a pause, left the group idle; the limit of the series stays."""

    async def story(s: Stage) -> None:
        for number in range(14):
            await asyncio.sleep(2.5 + 1.5 * number - s.now)
            s.consumers(replace(A, name=f"c{number}"))
        assert s.plans == [2.0, 20.0]

    play(story)


def test_a_group_at_work_is_planned_a_debounce_after_the_first_join(play: Play) -> None:
    """Later joins do not delay the plan."""

    async def story(s: Stage) -> None:
        s.owners = {T3: "b"}
        await asyncio.sleep(100.0)
        s.plans.clear()
        for number in range(3):
            s.consumers(replace(A, name=f"c{number}"))
            await asyncio.sleep(1.5)
        assert s.plans == [102.0]
        await asyncio.sleep(0.6)
        assert s.plans == [102.0, 105.0]

    play(story)


@pytest.mark.parametrize("waits", [True, False])
def test_the_end_of_a_hand_off_is_planned_at_once_while_partitions_wait(
    play: Play, waits: bool
) -> None:
    """A hand-off has ended, so a partition may move; other events do not speed up a plan."""

    async def story(s: Stage) -> None:
        at_work = {T0: "b", T1: "b"} if waits else {T0: "b", T1: "a"}
        s.owners = at_work
        for at in (T0, T1):
            owned = Assigned(at, "a", incarnation="a1")
            s.write(Put(ALL.assignment(at), codec.dump_assigned(owned)))
        await asyncio.sleep(60.0)
        assert set(s.view.handoffs) == {T0}
        s.plans.clear()
        s.write(Put(ALL.cooldown(T3, "a"), codec.dump_until(1.0), 9))
        s.write(Delete(ALL.cooldown(T3, "a")))
        await asyncio.sleep(0.1)
        assert s.plans == []
        s.write(Delete(ALL.handoff(T0)))
        await asyncio.sleep(0.1)
        assert bool(s.plans) is waits

    play(story, settings=replace(SETTINGS, max_handoffs=1))


def test_a_bundle_that_compares_a_key_of_a_step_under_way_waits(play: Play) -> None:
    """The hand-off's step and the plan's move of the same partition would conflict."""

    async def story(s: Stage) -> None:
        s.handoff(warming(T0, failed="no"))
        s.handoff(warming(T1))
        s.owners = {T0: "a", T1: "a", T2: "a"}
        s.commits.clear()
        s.write(Put(ALL.handoff(T1), codec.dump_handoff(warming(T1, failed="no"))))
        await asyncio.sleep(2.1)
        assert s.view.handoffs == {}
        assert s.owner_of(T2) == "a"
        assert s.given_up is False

    play(story)


def test_a_late_hand_off_without_a_step_is_looked_at_twice_a_second(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its old owner is gone but fenced: the leader waits for the fence, and does not spin."""
    looks: list[float] = []

    def noted(view: Any, late: Any, *more: Any) -> Any:
        looks.append(asyncio.get_running_loop().time())
        assert len(looks) < 1_000
        return advance(view, late, *more)

    monkeypatch.setattr(rebalancer, "advance", noted)

    async def story(s: Stage) -> None:
        s.handoff(warming(T0, phase=Phase.READY, strict=True))
        s.owners = {T0: "b"}
        s.write(Delete(ALL.consumer("a")), Put(ALL.fence("a", "a1"), b"s", 50))
        await asyncio.sleep(59.0)
        looks.clear()
        await asyncio.sleep(31.0)
        assert 58 <= len(looks) <= 64
        s.write(Delete(ALL.fence("a", "a1")))
        await asyncio.sleep(0.1)
        assert s.owner_of(T0) == "b"

    play(story)
