"""The order of a cooperative member's steps: heartbeats, the second round, a commit that is lost."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import errors
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.consumer.subscription_state import Assignment
from aiokafka.protocol.group import JoinGroupRequest

from tests.support.waiting import PATIENCE_S
from tests.unit.app.membership.test_coordinator import A, B, C, Made, commit
from tests.unit.app.membership.test_coordinator import made as made


async def test_each_heartbeat_beside_a_round_finds_the_coordinator_first(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator may move while the round waits."""

    async def known(_: object) -> None:
        made.acts.append("find")

    monkeypatch.setattr(GroupCoordinator, "ensure_coordinator_known", known)
    made.beats, made.it.heartbeat_s = 2, 0.001
    request = JoinGroupRequest.__new__(JoinGroupRequest)
    request._group_protocols = []
    await made.it._send_req(request)
    assert made.acts[:5] == [
        ("send", "JoinGroupRequest", "rounds"),
        "find",
        "heartbeat",
        "find",
        "heartbeat",
    ]


async def test_a_second_round_is_asked_for_although_nothing_is_revoked(made: Made) -> None:
    """The member that gains partitions joins the second round at once, too."""
    made.assignor.follows = True
    await made.complete(A, B, C)
    assert made.acts == [
        "_start_heartbeat_task",
        "on assignment",
        "request_rejoin",
        ("assigned", {A, B, C}, set(), {C}, ({A, B}, {C}), 7),
    ]


async def test_an_answer_that_equals_the_assignment_changes_nothing(made: Made) -> None:
    """The app is notified of the generation, with the same partitions."""
    await made.complete(A, B)
    assert made.acts == [
        "_start_heartbeat_task",
        "on assignment",
        ("assigned", {A, B}, set(), set(), ({A, B}, {C}), 7),
    ]


async def test_a_commit_of_a_member_that_is_lost_meanwhile_waits_for_no_round(
    made: Made, caplog: pytest.LogCaptureFixture
) -> None:
    """The answer to the round belongs to a new membership."""
    made.member.round = asyncio.get_running_loop().create_future()

    def lose() -> None:
        made.member.lost = True

    made.meanwhile, made.refusals = lose, [errors.UnknownMemberIdError()]
    with pytest.raises(errors.CommitFailedError, match="has already rebalanced"):
        await commit(made, a=5, b=7)
    assert made.acts == [("commit", {A: 5, B: 7})]
    assert "so the commit is dropped" in caplog.text


async def test_a_member_that_gave_up_prepares_again_for_a_new_subscription(made: Made) -> None:
    """The former assignment is not the assignment that the member gave up."""
    made.member.gave_up = True
    previous = Assignment({A})
    await made.it._on_join_prepare(previous)
    assert made.acts == ["gives up", "_on_join_prepare"]
    assert made.given["_on_join_prepare"] == (previous,)


@pytest.mark.parametrize(("actives", "everything"), [(set(), True), ({A}, False)])
async def test_a_leaving_member_with_standbys_alone_has_given_everything_away(
    made: Made, actives: set[object], everything: bool
) -> None:
    """The partitions of the answer may be standbys; no round is requested, and no app notified."""
    made.assignor.leaves, made.assignor.follows = True, True
    made.assignor.actives, made.assignor.standbys = actives, {C}  # type: ignore[assignment]
    await made.complete(A, C)
    assert made.acts == [
        "_start_heartbeat_task",
        ("let go", {B}),
        "on assignment",
        ("gave away", everything),
    ]
    assert made.own.tps == {A, C}


async def test_a_coordinator_that_closes_stops_no_streams(
    made: Made, caplog: pytest.LogCaptureFixture
) -> None:
    """The group may be silent then; the consumer stops its streams itself."""
    watching = asyncio.ensure_future(made.it._watch())
    await asyncio.sleep(0)
    made.fence.sure = False
    made.it._closing.set_result(None)
    await asyncio.wait_for(watching, PATIENCE_S)
    assert (made.acts, made.member.lost, caplog.text) == ([], False, "")
