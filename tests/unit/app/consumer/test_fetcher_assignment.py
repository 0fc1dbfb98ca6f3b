"""An in-place change of aiokafka's assignment: states, records and waits of revoked partitions."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.consumer.subscription_state import Assignment
from aiokafka.structs import TopicPartition

from faust_assigner.app.consumer.fetcher import UNKNOWN_OFFSET, change_assignment

A, B, C = (TopicPartition("orders", number) for number in range(3))


class Made:
    """An assignment of ``A`` and ``B`` with positions and records; ``acts`` lists wake-ups."""

    def __init__(self) -> None:
        self.own: Any = Assignment({A, B})
        self.acts: list[Any] = []
        for tp in (A, B):
            self.own.state_value(tp).reset_to(7)
        self.fetcher: Any = SimpleNamespace(
            _records={A: "records", B: "records"}, wake=lambda: self.acts.append("waiter")
        )
        self.subscriptions = SimpleNamespace(
            _notify_assignment_waiters=lambda: self.acts.append("assigned")
        )

    def to(self, *tps: TopicPartition) -> None:
        """Change the assignment."""
        change_assignment(self.own, tps, self.subscriptions, self.fetcher)


@pytest.fixture
async def made() -> Made:
    """An assignment of ``A`` and ``B``."""
    return Made()


async def test_what_stays_keeps_its_state_and_its_records(made: Made) -> None:
    """A new partition has a state without a position; both kinds of waiters are woken."""
    kept = made.own.state_value(A)
    made.to(A, C)
    assert made.own.tps == {A, C}
    assert made.own.state_value(A) is kept
    assert kept.position == 7
    assert not made.own.state_value(C).has_valid_position
    assert made.fetcher._records == {A: "records"}
    assert made.acts == ["assigned", "waiter"]


async def test_answers_that_are_under_way_for_what_goes_find_no_position(made: Made) -> None:
    """The old state is detached, and its pause ends."""
    old = made.own.state_value(B)
    old.pause()
    made.to(A)
    assert made.own.state_value(B) is not old
    assert not made.own.state_value(B).has_valid_position
    assert not old.paused


async def test_who_waits_for_a_committed_offset_of_what_goes_goes_on(made: Made) -> None:
    """Else the partition's node stays "in flight" for ever; an answered wait keeps its answer."""
    loop = asyncio.get_running_loop()
    waiting, answered = loop.create_future(), loop.create_future()
    answered.set_result("committed")
    made.own.state_value(B)._committed_futs.extend([answered, waiting])
    made.to(A)
    assert waiting.result().offset == UNKNOWN_OFFSET
    assert answered.result() == "committed"


async def test_a_partition_that_comes_back_begins_without_a_position(made: Made) -> None:
    """The next owner may have processed records meanwhile."""
    made.to(A)
    made.to(A, B)
    assert not made.own.state_value(B).has_valid_position
