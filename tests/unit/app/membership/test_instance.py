"""The checks of a static member before it joins again."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from aiokafka.errors import GroupCoordinatorNotAvailableError
from aiokafka.protocol.group import HeartbeatRequest, JoinGroupRequest, SyncGroupRequest

from faust_assigner.app.membership.instance import (
    FENCED_INSTANCE_ID,
    InstanceFenced,
    InstanceGuard,
    StaticHeartbeat,
    guard_instance,
)
from tests.support.waiting import PATIENCE_S


class Coordinator:
    """aiokafka's coordinator; it answers with these error codes in turn."""

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
    """A guard; ``ends`` lists the reasons for the worker's end."""

    def __init__(self) -> None:
        self.coordinator, self.ends = Coordinator(), list[InstanceFenced]()
        self.guard = InstanceGuard(self.coordinator, self._end)

    def _end(self, reason: InstanceFenced) -> None:
        self.ends.append(reason)
        asyncio.get_running_loop().call_later(0.01, self.coordinator._closing.set_result, None)

    async def join(self, member_id: str = "", *codes: int) -> Any:
        """Send a JoinGroup with this member id."""
        self.coordinator.codes = list(codes)
        request = JoinGroupRequest.__new__(JoinGroupRequest)
        request._member_id = member_id
        return await self.guard.send(request)

    @property
    def asked(self) -> list[Any]:
        """Return the fields of the sent heartbeats."""
        return [one._fields for one in self.coordinator.sent if isinstance(one, StaticHeartbeat)]


@pytest.fixture
async def made() -> Made:
    """A guard before its first join."""
    return Made()


async def test_a_member_that_joins_anew_asks_once_who_has_its_instance(made: Made) -> None:
    """The heartbeat has the ids of the last round; without a replacement the member joins."""
    await made.join()
    await made.join("m-1")
    assert made.asked == []
    await made.join("", 0, 25)  # the heartbeat succeeds, and the join is refused
    await made.join()
    assert made.asked == [("g", 7, "m-1", "worker-1")]
    assert made.ends == []


async def test_the_instance_is_asked_for_with_the_member_id_of_the_answer(made: Made) -> None:
    """The group may give another id than the one of the request; a second join asks no more."""
    await made.join("m-0")
    await made.join("m-0")
    assert made.asked == []
    await made.join("")
    assert made.asked == [("g", 7, "m-1", "worker-1")]
    await made.join("m-0")
    await made.join("")
    assert made.asked == 2 * [("g", 7, "m-1", "worker-1")]


async def test_a_join_that_is_refused_changes_nothing_of_what_was_joined(made: Made) -> None:
    """The member id in a refusal belongs to no member yet."""
    await made.join("", 79)
    await made.join()
    assert made.asked == []


@pytest.mark.parametrize("at", ["the question", "the join", "the sync"])
async def test_a_replaced_member_ends_and_asks_for_nothing_more(made: Made, at: str) -> None:
    """Its request fails at the worker's end; the reason names the instance id."""
    await made.join()
    if at == "the question":
        request = made.join("", FENCED_INSTANCE_ID)
    elif at == "the join":
        request = made.join("m-1", FENCED_INSTANCE_ID)
    else:
        made.coordinator.codes = [FENCED_INSTANCE_ID]
        request = made.guard.send(SyncGroupRequest.__new__(SyncGroupRequest))
    with pytest.raises(GroupCoordinatorNotAvailableError):
        await asyncio.wait_for(request, PATIENCE_S)
    assert made.coordinator._closing.done()
    assert [str(end).count("'worker-1'") for end in made.ends] == [1]
    joins = [one for one in made.coordinator.sent if isinstance(one, JoinGroupRequest)]
    assert len(joins) == (2 if at == "the join" else 1)


async def test_answers_to_other_requests_are_passed_on(made: Made) -> None:
    """The code has a different meaning there."""
    made.coordinator.codes = [FENCED_INSTANCE_ID]
    answer = await made.guard.send(HeartbeatRequest.__new__(HeartbeatRequest))
    assert (answer.error_code, made.ends) == (FENCED_INSTANCE_ID, [])


class Joined(Coordinator):
    """A coordinator whose consumer subscribes to ``orders``; ``taken`` lists its answers."""

    def __init__(self, instance_id: str | None = "worker-1") -> None:
        super().__init__()
        self._group_instance_id = instance_id  # type: ignore[assignment]
        self.taken: list[Any] = []
        self._subscription = SimpleNamespace(subscription=SimpleNamespace(topics={"orders"}))

    async def _on_join_complete(self, *answer: Any) -> None:
        self.taken.append(answer)


def packed(*topics: str) -> bytes:
    """Return the group's answer with partition 3 of each topic."""
    said = ConsumerProtocolMemberAssignment(1, [(topic, [3]) for topic in topics], b"ours")
    return bytes(said.encode())


async def test_a_static_member_takes_what_it_still_subscribes_to(caplog: Any) -> None:
    """A restart returns the old assignment; aiokafka would end at the unsubscribed topic."""
    caplog.set_level("INFO")
    coordinator: Any = Joined()
    guard_instance(SimpleNamespace(_coordinator=coordinator), SimpleNamespace())
    await coordinator._on_join_complete(7, "m-1", "faust", packed("orders", "clicks"))
    assert coordinator.taken == [(7, "m-1", "faust", packed("orders"))]
    assert "they are left out: ['clicks']" in caplog.text
    caplog.clear()
    whole = packed("orders")
    await coordinator._on_join_complete(8, "m-1", "faust", whole)
    assert coordinator.taken[1][3] is whole
    assert caplog.text == ""


async def test_a_replaced_member_ends_its_app_on_the_apps_own_loop() -> None:
    """The guard runs on the consumer's thread."""
    ended: list[Any] = []

    async def crash(reason: InstanceFenced) -> None:
        ended.append(reason)
        coordinator._closing.set_result(None)

    coordinator: Any = Joined()
    app = SimpleNamespace(crash=crash, loop=asyncio.get_running_loop())
    guard_instance(SimpleNamespace(_coordinator=coordinator), app)
    coordinator.codes = [FENCED_INSTANCE_ID]
    with pytest.raises(GroupCoordinatorNotAvailableError):
        await coordinator._send_req(SyncGroupRequest.__new__(SyncGroupRequest))
    assert [type(reason) for reason in ended] == [InstanceFenced]


@pytest.mark.parametrize("coordinator", [Joined, SimpleNamespace], ids=["dynamic", "no group"])
async def test_a_member_without_an_instance_id_is_not_guarded(coordinator: Any) -> None:
    """No worker can take the place of a dynamic member."""
    made = coordinator(None) if coordinator is Joined else coordinator()
    guard_instance(SimpleNamespace(_coordinator=made), SimpleNamespace())
    assert not {"_send_req", "_on_join_complete"} & vars(made).keys()


async def test_a_good_answer_to_another_request_is_no_join(made: Made) -> None:
    """Before the first join the member has no id to check."""
    for kind in (SyncGroupRequest, HeartbeatRequest):
        answer = await made.guard.send(kind.__new__(kind))
        assert answer.error_code == 0
    await made.join()
    assert made.asked == []
