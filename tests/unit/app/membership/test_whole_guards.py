"""The guard of changelogs over several generations, with and without a group."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from faust_assigner.app.membership.cooperative_member import CooperativeMember
from tests.support.waiting import PATIENCE_S
from tests.unit.app.membership.test_fence import CHANGES, Consumer
from tests.unit.app.membership.test_fence import made as made


@pytest.mark.parametrize("is_member", [True, False])
async def test_each_generation_discards_the_rows_of_its_lost_changes_once(
    made: Consumer, is_member: bool
) -> None:
    """A consumer without a group has stores as well."""
    for number in (1, 2):
        lost, late = made.change(), made.change()
        lost.set_exception(RuntimeError("no broker"))
        await asyncio.sleep(0)
        assert not await asyncio.wait_for(made._commit({CHANGES: number}), PATIENCE_S)
        made.changes.begin_generation(is_member=is_member)
        assert made.discarded == number
        assert made.changes._unwritten_problem() is None
        assert made.changes._under_way == set()
        late.set_result(None)
        made.changes.begin_generation(is_member=is_member)
        assert made.discarded == number
        assert await asyncio.wait_for(made._commit({CHANGES: 10 + number}), PATIENCE_S)
    assert made.committed == [{CHANGES: 11}, {CHANGES: 12}]


async def test_a_lost_change_is_a_problem_of_a_member_that_has_no_answer(made: Consumer) -> None:
    """Only a lost membership ends it: that member begins again at its committed offsets."""
    assert made.changes._unwritten_problem() is None
    made.change().cancel()
    await asyncio.sleep(0)
    made.fence._session_s = 0.0
    assert not made.fence.is_sure()
    problem = "a change of a table did not reach its changelog"
    assert made.changes._unwritten_problem() == problem
    made.fence.lose()
    assert made.changes._unwritten_problem() is None
    made.fence.join()
    assert made.changes._unwritten_problem() == problem


@pytest.mark.parametrize("how", ["open", "answered", "cancelled", "none"])
async def test_the_end_of_a_round_wakes_its_waiters_once(how: str) -> None:
    """A round that has ended already, or that never began, is no error."""
    member: Any = CooperativeMember(None, None, None, None, None)  # type: ignore[arg-type]
    under_way: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    if how == "answered":
        under_way.set_result(None)
    elif how == "cancelled":
        under_way.cancel()
    member.round = None if how == "none" else under_way
    member.end_round()
    member.end_round()
    assert member.round is None
    assert (under_way.done(), under_way.cancelled()) == (how != "none", how == "cancelled")
