"""A member's leave and its check of its membership, with a fake coordinator."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from faust_assigner.clients import GroupMember
from faust_assigner.clients import exchange as room
from faust_assigner.clients.member import NotInGroup
from tests.unit.clients.test_member import (
    REBALANCE,
    SESSION_S,
    UNKNOWN_MEMBER,
    Alone,
    Coordinator,
    Diary,
    play,
)


class Linked(Coordinator):
    """A coordinator that keeps its link's arguments and the state of the connection at a leave."""

    def __init__(self) -> None:
        super().__init__()
        self.made_with: dict[str, Any] = {}
        self.goodbyes: list[bool] = []

    async def send(self, request: Any) -> Any:
        """Note the state of the connection at a leave, then answer as usual."""
        if type(request).__name__ == "LeaveGroupRequest":
            self.goodbyes.append(self.hung_up > 0)
        return await super().send(request)


@pytest.fixture
def linked(monkeypatch: pytest.MonkeyPatch) -> Linked:
    """Replace the coordinator of every member of a test."""
    made = Linked()

    def link(group_id: str, **more: Any) -> Linked:
        made.made_with = more
        return made

    monkeypatch.setattr(room, "CoordinatorLink", link)
    return made


def a_member(**more: Any) -> GroupMember:
    """Return a member that joins alone."""
    return GroupMember(
        "g", protocol_type="t", strategies=[Alone()], work=Diary(),
        session_timeout_s=SESSION_S, heartbeat_interval_s=1.9, **more,
    )  # fmt: skip


@pytest.mark.parametrize(("instance", "goodbyes"), [(None, [True]), ("i", [])])
def test_a_dynamic_member_says_goodbye_on_a_new_connection_and_a_static_one_says_none(
    linked: Linked, instance: str | None, goodbyes: list[bool]
) -> None:
    """A join may be parked on the old connection; the group expects the static member back."""

    async def story() -> None:
        async with a_member(instance_id=instance):
            await asyncio.sleep(3)
            linked.hung_up = 0

    play(story())
    assert linked.goodbyes == goodbyes


@pytest.mark.parametrize(
    ("answer", "is_in"), [(0, True), (REBALANCE, True), (UNKNOWN_MEMBER, False)]
)
def test_a_share_counts_until_the_group_forgets_the_member(
    linked: Linked, answer: int, is_in: bool
) -> None:
    """At the start of a round the member still owns the share: the round waits for its join."""

    async def story() -> None:
        async with a_member() as member:
            await asyncio.sleep(1)
            linked.beat = lambda: answer
            if is_in:
                await member.check()
            else:
                with pytest.raises(NotInGroup, match="UNKNOWN_MEMBER_ID"):
                    await member.check()

    play(story())


def test_a_request_may_take_as_long_as_a_round(linked: Linked) -> None:
    """The broker answers a join when all members joined, at most after the rebalance timeout."""

    async def story() -> None:
        async with a_member(rebalance_timeout_s=60.0):
            await asyncio.sleep(1)

    play(story())
    assert linked.made_with["request_timeout_ms"] > 60_000
