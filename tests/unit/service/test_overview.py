"""An operator's reads as complete lists, and the dry run of a plan."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.service import values as codec
from faust_assigner.service.errors import BadRequest, NotFound
from faust_assigner.service.handoff import Handoff, Phase, TopicPartition
from faust_assigner.service.leading.overview import Overview
from faust_assigner.service.leading.targets import Targets
from faust_assigner.service.records import (
    Assigned,
    Consumer,
    Leader,
    OpenHandoff,
    PlannedMove,
    Status,
    TopicConfig,
)
from faust_assigner.service.store.base import Event, KeyValue
from faust_assigner.service.view import View
from tests.unit.service.stories import ALL

A = Consumer(name="a", incarnation="a1")
B = Consumer(name="b", incarnation="b1", status=Status.DRAINING)
C = Consumer(name="c", incarnation="c1")
T0, T1, T2, U0 = (*(TopicPartition("t", n) for n in range(3)), TopicPartition("u", 0))
HANDOFF = Handoff(T1, "a", "c", Phase.WARMING, 1.0, old_incarnation="a1", new_incarnation="c1")


class Group:
    """A view of a group, and an overview whose plans give all partitions to one consumer."""

    def __init__(self) -> None:
        self.view = View(ALL)
        self.revision = 10
        self.asked: list[list[Consumer]] = []
        self.planned: Targets | None = Targets({T0: "c", T1: "a", U0: "c"}, {})
        self.mirror: Any = SimpleNamespace(view=self.view, listeners=[])
        rebalancer: Any = SimpleNamespace(
            age_s=lambda at: 30.0 + at.partition, targets=self._targets
        )
        self.overview = Overview(self.mirror, rebalancer)
        self.put(ALL.topic("u"), codec.dump_topic(TopicConfig("u", 1, True)))
        self.put(ALL.topic("t"), codec.dump_topic(TopicConfig("t", 3)))
        for consumer in (C, A, B):
            self.put(ALL.consumer(consumer.name), codec.dump_consumer(consumer))
        self.put(ALL.epochs, codec.dump_base(1_000))
        for at, owner, incarnation in (
            (U0, "a", "a0"),
            (T2, "gone", "x"),
            (T0, "a", "a1"),
            (T1, "a", "a1"),
        ):
            assigned = Assigned(at, owner, offset=4, incarnation=incarnation)
            self.put(ALL.assignment(at), codec.dump_assigned(assigned))
        self.put(ALL.handoff(T2), codec.dump_handoff(replace(HANDOFF, at=T2)))
        self.put(ALL.handoff(T1), codec.dump_handoff(HANDOFF))

    def put(self, key: str, value: bytes) -> None:
        """Write a key."""
        self.revision += 1
        self.view.apply(
            Event(key, self.revision, KeyValue(key, value, self.revision, self.revision))
        )

    async def _targets(self, consumers: Sequence[Consumer]) -> Targets | None:
        self.asked.append(list(consumers))
        return self.planned


async def test_every_list_is_whole_and_sorted() -> None:
    """The lists are consumers, topics, hand-offs with id and age, and owners with their epochs."""
    group = Group()
    seen = group.overview
    assert await seen.consumers() == (A, B, C)
    assert await seen.topics() == (TopicConfig("t", 3), TopicConfig("u", 1, True))
    assert await seen.handoffs() == (
        OpenHandoff(HANDOFF, 22, 31.0),
        OpenHandoff(replace(HANDOFF, at=T2), 21, 32.0),
    )
    assert await seen.assignments() == (
        Assigned(T0, "a", 1_019, 4, "a1"),
        Assigned(T1, "a", 1_020, 4, "a1"),
        Assigned(T2, "gone", 1_018, 4, "x", absent=True),
        Assigned(U0, "a", 1_017, 4, "a0", absent=True),
    )
    assert await seen.leader() is None
    group.put(ALL.leader, codec.dump_leader(Leader("n1", 5)))
    assert await seen.leader() == Leader("n1", 5)


async def test_a_dry_run_plans_for_the_ready_consumers_without_some_and_with_some() -> None:
    """An added consumer replaces a registered one of its name; a removed owner counts as gone."""
    group = Group()
    moves = (PlannedMove(T0, "a", "c"), PlannedMove(U0, None, "c"))
    assert await group.overview.plan() == moves
    x, a = Consumer(name="b"), replace(A, capacity=3.0)
    assert await group.overview.plan(without=["c"], extra=[x, a]) == moves
    assert await group.overview.plan(without=["a", "b"]) == (
        PlannedMove(T0, None, "c"),
        PlannedMove(T1, None, "a"),
        PlannedMove(U0, None, "c"),
    )
    assert group.asked == [[A, C], [a, x], [C]]
    group.planned = None
    assert await group.overview.plan() == ()


@pytest.mark.parametrize(
    ("without", "extra", "error"),
    [
        (["a", "x"], [], NotFound),
        (["a b"], [], BadRequest),
        ([], [Consumer(name="x"), Consumer(name="a b")], BadRequest),
        ([], [Consumer(name="x"), Consumer(name="y", capacity=0.0)], BadRequest),
        ([], [Consumer(name="x"), Consumer(name="y"), Consumer(name="x")], BadRequest),
    ],
)
async def test_a_dry_run_with_a_wrong_consumer_is_refused(
    without: Sequence[str], extra: Sequence[Consumer], error: type[Exception]
) -> None:
    """All names and claims are checked before the plan."""
    group = Group()
    with pytest.raises(error):
        await group.overview.plan(without=without, extra=extra)
    assert group.asked == []


async def test_changes_are_heard_from_the_beginning_of_the_context_to_its_end() -> None:
    """Two contexts are independent, and each removes its own listener."""
    group = Group()
    with group.overview.changes() as one:
        with group.overview.changes() as two:
            assert len(group.mirror.listeners) == 2
        for listener in group.mirror.listeners:
            listener([])
        assert isinstance(one, asyncio.Event)
        assert (one.is_set(), two.is_set()) == (True, False)
    assert group.mirror.listeners == []
