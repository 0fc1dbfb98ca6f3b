"""The effect of each coordinator answer on a member's share, id, connection and next pause."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from faust_assigner.clients import GroupMember, GroupRefused, Share
from faust_assigner.clients import exchange as room
from tests.unit.clients.test_member import (
    BEAT_S,
    REBALANCE,
    SESSION_S,
    TOO_LARGE,
    Alone,
    Coordinator,
    Diary,
    play,
)

LOADING, MOVED, ILLEGAL_GENERATION, UNKNOWN_MEMBER, FENCED = 14, 16, 22, 25, 82


class Answering(Coordinator):
    """A coordinator that answers the first syncs with errors and keeps the joining member ids."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[int] = []
        self.joined_as: list[str] = []

    async def send(self, request: Any) -> Any:
        """Note the join's member id and set the sync's error, then answer as usual."""
        name = type(request).__name__
        if name == "JoinGroupRequest":
            self.joined_as.append(request._member_id)
        if name == "SyncGroupRequest":
            self.sync_error = self.errors.pop(0) if self.errors else 0
        return await super().send(request)


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Answering:
    """Replace the coordinator of every member of a test."""
    made = Answering()
    monkeypatch.setattr(room, "CoordinatorLink", lambda *_, **__: made)
    return made


def a_member(work: Diary, **more: Any) -> GroupMember:
    """Return a member that joins alone."""
    return GroupMember(
        "g", protocol_type="t", strategies=[Alone()], work=work,
        session_timeout_s=SESSION_S, heartbeat_interval_s=BEAT_S, **more,
    )  # fmt: skip


def ends(work: Diary) -> list[tuple[float, str]]:
    """Return the ends of its shares, with their times."""
    return [(at, what) for at, what in work.told if what in ("lost", "revoked")]


@pytest.mark.parametrize("answer", [None, LOADING, MOVED])
def test_a_share_without_one_answered_heartbeat_is_lost_after_one_session(
    answering: Answering, answer: int | None
) -> None:
    """A silent broker and a broker that is no coordinator do not renew the session."""
    work = Diary()

    async def story() -> None:
        if answer is None:
            answering.silent_since = 0.1
        else:
            answering.beat = lambda: answer
        async with a_member(work):
            await asyncio.sleep(1.5 * SESSION_S)

    play(story())
    at, what = ends(work)[0]
    assert what == "lost"
    assert at == pytest.approx(SESSION_S, abs=0.1)


@pytest.mark.parametrize(("answer", "hung_up"), [(None, True), (MOVED, False), (0, False)])
def test_a_coordinator_that_does_not_answer_a_heartbeat_is_looked_for_again(
    answering: Answering, answer: int | None, hung_up: bool
) -> None:
    """A silent connection may be dead; a moved coordinator is found on the same connections."""

    async def story() -> None:
        async with a_member(Diary()):
            await asyncio.sleep(1)
            if answer is None:
                answering.silent_since = 1.0
            else:
                answering.beat = lambda: answer
            await asyncio.sleep(BEAT_S + SESSION_S / 3)
            assert bool(answering.hung_up) is hung_up
            assert bool(answering.lost_times) is (answer != 0)

    play(story())


def test_the_work_of_a_replaced_static_member_ends_as_lost(answering: Answering) -> None:
    """A different process has the instance id and perhaps the share: the work must not write."""
    work = Diary()

    async def story() -> None:
        answering.beat = lambda: FENCED
        async with a_member(work, instance_id="i") as member:
            with pytest.raises(GroupRefused, match="FENCED_INSTANCE_ID"):
                await asyncio.wait_for(member.wait(), 100)

    play(story())
    assert [what for _, what in ends(work)] == ["lost"]


@pytest.mark.parametrize(
    ("error", "then"), [(ILLEGAL_GENERATION, "m"), (REBALANCE, "m"), (UNKNOWN_MEMBER, "")]
)
def test_only_a_member_that_is_unknown_gives_its_id_up(
    answering: Answering, error: int, then: str
) -> None:
    """With a new id the group would wait for the old member until its session ends."""

    async def story() -> None:
        answering.errors = [error]
        async with a_member(Diary()):
            await asyncio.sleep(1)

    play(story())
    assert answering.joined_as == ["", then]


def test_a_usual_answer_ends_the_growth_of_the_pause(answering: Answering) -> None:
    """The pause grows with unexpected answers in a row and starts anew after a usual answer."""

    async def story() -> None:
        answering.errors = [TOO_LARGE] * 4 + [REBALANCE] + [TOO_LARGE] + [0]
        async with a_member(Diary(), retry_backoff_s=1.0):
            await asyncio.sleep(100)

    play(story())
    times = answering.times("JoinGroup")[:7]
    pauses = [round(after - before) for before, after in pairwise(times)]
    assert pauses == [2, 4, 8, 16, 1, 2]


def test_the_callers_own_time_for_a_request_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The member's own timeout is only a default."""
    made: list[dict[str, Any]] = []

    def link(*_: Any, **more: Any) -> Coordinator:
        made.append(more)
        return Coordinator()

    monkeypatch.setattr(room, "CoordinatorLink", link)

    async def story() -> None:
        async with a_member(Diary(), request_timeout_ms=5):
            await asyncio.sleep(1)

    play(story())
    assert made[0]["request_timeout_ms"] == 5


@pytest.mark.parametrize(
    ("for_s", "asked"),
    [(float("inf"), [(1.9, 2.0), (5.8, 0.2)]), (3.0, [(1.9, 2.0)]), (1.5, [(1.5, 2.0)])],
)
def test_each_heartbeat_waits_for_a_third_of_the_session_and_not_beyond_its_end(
    answering: Answering, for_s: float, asked: list[tuple[float, float]]
) -> None:
    """The coordinator is silent: the second heartbeat has only the rest of the session."""
    member = a_member(Diary())
    found: list[tuple[float, float]] = []
    lost: list[bool] = []

    async def beat(share: object, timeout_s: float) -> None:
        found.append((round(asyncio.get_running_loop().time(), 6), round(timeout_s, 6)))
        await asyncio.sleep(timeout_s)

    async def story() -> None:
        member._exchange.beat = beat  # type: ignore[method-assign, assignment]
        share = Share(member_id="m", generation=1, protocol="one", is_leader=False, state=b"")
        member._lost_at = asyncio.get_running_loop().time() + SESSION_S
        lost.append(await member._watch(share, for_s=for_s))

    play(story())
    assert found == asked
    assert lost == [for_s == float("inf")]
