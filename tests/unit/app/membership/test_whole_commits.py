"""Commits beside rounds: a membership that ends meanwhile, and an assignment that is replaced."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import errors
from aiokafka.consumer.group_coordinator import GroupCoordinator

from tests.unit.app.membership.test_coordinator import A, B, C, Made, commit, until
from tests.unit.app.membership.test_coordinator import made as made


@pytest.mark.parametrize("how", ["lost", "silent"])
async def test_a_membership_that_ends_while_the_coordinator_is_looked_for_commits_nothing(
    made: Made, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The look-up takes as long as the broker is away."""

    async def look_up(_: object) -> None:
        if how == "lost":
            made.member.lost = True
        else:
            made.fence.sure = False

    monkeypatch.setattr(GroupCoordinator, "ensure_coordinator_known", look_up)
    with pytest.raises(errors.CommitFailedError, match="already rebalanced"):
        await commit(made, a=5)
    assert made.acts == []


async def test_a_commit_belongs_to_the_assignment_that_it_began_with(made: Made) -> None:
    """The subscription may end meanwhile; offsets of partitions that went are left out."""
    made.member.round = asyncio.get_running_loop().create_future()
    made.refusals = [errors.IllegalGenerationError()]
    waiting = asyncio.ensure_future(commit(made, a=5, b=8))
    await until(lambda: bool(made.acts))
    for _ in range(10):
        await asyncio.sleep(0)  # until the commit waits for the round
    made.own._topic_partitions = frozenset({B, C})
    made.member.subscription.subscription = None
    made.member.end_round()
    await waiting
    assert made.acts == [("commit", {A: 5, B: 8}), ("commit", {B: 8})]


async def test_a_commit_meets_each_of_several_rounds(made: Made) -> None:
    """It is repeated after each round, in the generation of its time."""
    seen: list[int] = []
    made.meanwhile = lambda: seen.append(made.it.generation)
    made.refusals = [errors.RebalanceInProgressError(), errors.UnknownMemberIdError()]
    made.member.round = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(commit(made, a=5))
    for generation in (7, 8):
        await until(lambda count=generation - 6: len(made.acts) == count)  # type: ignore[misc]
        for _ in range(10):
            await asyncio.sleep(0)  # until the commit waits for the round
        made.it.generation = generation
        made.member.end_round()
        made.member.round = asyncio.get_running_loop().create_future()
    await waiting
    assert seen == [6, 7, 8]
    assert made.acts == [("commit", {A: 5})] * 3
