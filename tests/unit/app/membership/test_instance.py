"""What a static member asks and hears before it joins again."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import GroupCoordinatorNotAvailableError
from aiokafka.protocol.group import HeartbeatRequest, JoinGroupRequest, SyncGroupRequest

from faust_assigner.app.membership.instance import (
    FENCED_INSTANCE_ID,
    InstanceFenced,
    InstanceGuard,
    StaticHeartbeat,
)


class Coordinator:
    """aiokafka's, which answers with these error codes, one after the other."""

    group_id, _group_instance_id = "g", "worker-1"

    def __init__(self) -> None:
        self.codes: list[int] = []
        self.sent: list[Any] = []
        self._closing = asyncio.get_running_loop().create_future()

    async def _send_req(self, request: Any) -> Any:
        self.sent.append(request)
        code = self.codes.pop(0) if self.codes else 0
        return SimpleNamespace(error_code=code, generation_id=7, member_id="m-1")


class Made:
    """A guard, and the reasons why its worker ends."""

    def __init__(self) -> None:
        self.coordinator, self.ends = Coordinator(), list[InstanceFenced]()
        self.guard = InstanceGuard(self.coordinator, self._end)

    def _end(self, reason: InstanceFenced) -> None:
        self.ends.append(reason)
        asyncio.get_running_loop().call_later(0.01, self.coordinator._closing.set_result, None)

    async def join(self, member_id: str = "", *codes: int) -> Any:
        """One JoinGroup, as that member."""
        self.coordinator.codes = list(codes)
        request = JoinGroupRequest.__new__(JoinGroupRequest)
        request._member_id = member_id
        return await self.guard.send(request)

    @property
    def asked(self) -> list[Any]:
        """What the heartbeats carried."""
        return [one._fields for one in self.coordinator.sent if isinstance(one, StaticHeartbeat)]


@pytest.fixture
async def made() -> Made:
    """One that has not joined."""
    return Made()


async def test_a_member_that_joins_anew_asks_once_who_has_its_instance(made: Made) -> None:
    """With the ids of its last round; while nobody took it, it joins."""
    await made.join()
    await made.join("m-1")
    assert made.asked == []
    await made.join("", 0, 25)  # the heartbeat is answered well, the join refused
    await made.join()
    assert made.asked == [("g", 7, "m-1", "worker-1")]
    assert made.ends == []


async def test_a_join_that_is_refused_changes_nothing_of_what_was_joined(made: Made) -> None:
    """A member id that is told with a refusal is no member's yet."""
    await made.join("", 79)
    await made.join()
    assert made.asked == []


@pytest.mark.parametrize("at", ["the question", "the join", "the sync"])
async def test_a_replaced_member_ends_and_asks_for_nothing_more(made: Made, at: str) -> None:
    """It waits until its worker ends; its request fails then. The reason names the instance id."""
    await made.join()
    if at == "the question":
        request = made.join("", FENCED_INSTANCE_ID)
    elif at == "the join":
        request = made.join("m-1", FENCED_INSTANCE_ID)
    else:
        made.coordinator.codes = [FENCED_INSTANCE_ID]
        request = made.guard.send(SyncGroupRequest.__new__(SyncGroupRequest))
    with pytest.raises(GroupCoordinatorNotAvailableError):
        await asyncio.wait_for(request, 5.0)
    assert made.coordinator._closing.done()
    assert [str(end).count("'worker-1'") for end in made.ends] == [1]
    joins = [one for one in made.coordinator.sent if isinstance(one, JoinGroupRequest)]
    assert len(joins) == (2 if at == "the join" else 1)


async def test_answers_to_other_requests_are_passed_on(made: Made) -> None:
    """Their code means something else there."""
    made.coordinator.codes = [FENCED_INSTANCE_ID]
    answer = await made.guard.send(HeartbeatRequest.__new__(HeartbeatRequest))
    assert (answer.error_code, made.ends) == (FENCED_INSTANCE_ID, [])
