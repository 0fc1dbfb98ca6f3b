"""The service of groups: its alarms after a start, counted fences, and refusals without room."""

from __future__ import annotations

from typing import Any

import pytest

from faust_assigner.broker import limits
from faust_assigner.broker.storage.store import MemoryStore
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import Heartbeat, JoinGroup, LeaveGroup, Leaver, Protocol
from tests.unit.broker.test_groups import Desk


def join(desk: Desk, group_id: str, **changes: Any) -> list[Any]:
    """Send a JoinGroup of a new member, and return the list with its answer."""
    return desk.ask(
        lambda t: JoinGroup(t, "", "m", (Protocol("range", b"meta"),), **changes), group_id
    )


def test_a_restored_group_has_its_sessions_in_the_time_of_the_timers() -> None:
    """The wall clock of the second broker is far from its timers; a group of offsets has no alarm."""
    store = MemoryStore()
    desk = Desk(store)
    desk.stable()
    again = Desk(store, timer=90_000)
    assert again.alarms == [("g", 90_000 + 45_000)]
    again.timer += 44_999
    again.service.tick("g")
    assert again.service.get("g").state_name == "Stable"  # type: ignore[union-attr]
    again.timer += 1
    again.service.tick("g")
    assert again.service.get("g").state_name != "Stable"  # type: ignore[union-attr]
    assert again.counters["group_member_expired"] == 1


def test_only_answers_to_members_that_lost_their_place_count_as_fenced() -> None:
    """Other errors are a part of every join, or are mistakes of the client."""
    desk = Desk(MemoryStore())
    assert join(desk, "h")[0].error is Code.MEMBER_ID_REQUIRED
    assert join(desk, "h", session_timeout_ms=1)[0].error is Code.INVALID_SESSION_TIMEOUT
    assert join(desk, "h", protocol_type="")[0].error is Code.INCONSISTENT_GROUP_PROTOCOL
    desk.stable()
    assert desk.service.meter.fenced == {}
    beats = [("m", 7, Code.ILLEGAL_GENERATION), ("n", 1, Code.UNKNOWN_MEMBER_ID)]
    for member_id, generation, error in beats:
        assert desk.service.heartbeat("g", Heartbeat(-1, member_id, generation)) is error
        answers = desk.ask(
            lambda t, m=member_id, g=generation: Heartbeat(t, m, g)  # type: ignore[misc]
        )
        assert answers[0].error is error
    assert desk.service.heartbeat("no such group", Heartbeat(-1, "m", 1)) is Code.UNKNOWN_MEMBER_ID
    assert desk.ask(lambda t: LeaveGroup(t, (Leaver("n"),)))[0].error is Code.NONE
    assert desk.service.meter.fenced == {"ILLEGAL_GENERATION": 2, "UNKNOWN_MEMBER_ID": 3}


def test_a_request_without_a_valid_group_id_takes_no_groups_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The only place belongs to a group that no member has joined yet."""
    desk = Desk(MemoryStore())
    assert join(desk, "g")[0].error is Code.MEMBER_ID_REQUIRED
    monkeypatch.setattr(limits, "MAX_GROUPS", 1)
    assert join(desk, "", session_timeout_ms=9_000)[0].error is Code.INVALID_GROUP_ID
    assert [group.group_id for group in desk.service] == ["g"]
    assert desk.counters["groups_forgotten"] == 0
    assert join(desk, "h")[0].error is Code.MEMBER_ID_REQUIRED
    assert [group.group_id for group in desk.service] == ["h"]
    assert desk.counters["groups_forgotten"] == 1
