"""Small choices of the groups' service: valid ids, the reason of a rebalance, outcomes of assignors."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from faust_assigner.broker import limits
from faust_assigner.broker.groups.computing import TargetComputer
from faust_assigner.broker.groups.saving import GroupSaver
from faust_assigner.broker.storage.store import MemoryStore
from faust_assigner.coordinator.assignors import ASSIGNORS, GroupSpec
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import (
    CommitOffsets,
    ConsumerGroupHeartbeat,
    Heartbeat,
    JoinGroup,
    Protocol,
)
from faust_assigner.coordinator.records import GroupEpoch, Key, Kind, MemberMetadata, Record
from tests.support.waiting import PATIENCE_S
from tests.unit.broker.test_groups import Desk


@pytest.mark.parametrize(
    ("group_id", "commit", "beat"),
    [
        ("", Code.NONE, Code.INVALID_REQUEST),
        ("x", Code.NONE, Code.NONE),
        ("ü" * (limits.MAX_GROUP_ID // 2), Code.NONE, Code.NONE),
        ("ü" * (limits.MAX_GROUP_ID // 2) + "x", Code.INVALID_GROUP_ID, Code.INVALID_GROUP_ID),
    ],
)
def test_a_new_group_has_an_id_of_at_most_1024_bytes_in_each_protocol(
    group_id: str, commit: Code, beat: Code
) -> None:
    """A commit may create a group without a name, as in Kafka; no group may have a longer id."""
    desk = Desk(MemoryStore())
    (reply,) = desk.ask(lambda t: CommitOffsets(t, "", -1), group_id)
    assert (reply.error, desk.service.get(group_id) is not None) == (commit, commit is Code.NONE)
    other = Desk(MemoryStore())
    (reply,) = other.ask(
        lambda t: ConsumerGroupHeartbeat(
            t, "m", 0, rebalance_timeout_ms=9, subscribed_topic_names=("t",), owned={}
        ),
        group_id,
    )
    assert (reply.error, other.service.get(group_id) is not None) == (beat, beat is Code.NONE)


def test_the_reason_of_a_rebalance_is_the_first_event_besides_the_state() -> None:
    """A changed state is no reason of a rebalance that the only member begins by a second join."""
    desk = Desk(MemoryStore())
    desk.stable()
    assert desk.service.meter.rebalances == {"member_joined": 1}
    desk.join("m")
    assert desk.service.meter.rebalances == {"member_joined": 1, "generation_began": 1}


def test_targets_are_computed_at_once_then_in_a_thread_and_at_once_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A failed assignor has no target, but its error; the thread ends with the computer."""

    def assign(spec: GroupSpec, topics: Any) -> Any:
        if spec.members:
            raise LookupError("no luck")
        return {}

    monkeypatch.setitem(ASSIGNORS, "mine", assign)
    good, bad = GroupSpec("mine", {}, {}), GroupSpec("mine", {"m": None}, {})  # type: ignore[dict-item]
    outcomes: list[Any] = []

    def both(computer: TargetComputer) -> None:
        for spec in (good, bad):
            computer.compute(spec, lambda target, why: outcomes.append((target, why)))

    async def story() -> int:
        computer = TargetComputer()
        both(computer)
        computer.start(asyncio.get_running_loop())
        both(computer)
        at_once = len(outcomes)
        while len(outcomes) < 4:
            await asyncio.sleep(0.001)
        await asyncio.to_thread(computer.close)
        both(computer)
        return at_once

    assert asyncio.run(story()) == 2
    assert outcomes == [({}, ""), (None, "LookupError('no luck')")] * 3


async def test_the_close_waits_for_no_assignor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plug-in may never end; its late outcome reaches no group, because the store is closed."""
    begun, go_on = threading.Event(), threading.Event()
    computed: list[str] = []

    def slow(spec: GroupSpec, topics: object) -> dict[str, Any]:
        computed.append(spec.assignor)
        begun.set()
        assert go_on.wait(PATIENCE_S)
        return {}

    for name in ("slow", "next"):
        monkeypatch.setitem(ASSIGNORS, name, slow)
    computer, outcomes = TargetComputer(), []
    computer.start(asyncio.get_running_loop())
    for name in ("slow", "next"):
        computer.compute(GroupSpec(name, {}, {}), lambda *outcome: outcomes.append(outcome))
    assert await asyncio.to_thread(begun.wait, PATIENCE_S)
    [thread] = [one for one in threading.enumerate() if one.name == "broker-assign"]
    computer.close()
    assert (thread.is_alive(), thread.daemon) == (True, True)
    go_on.set()
    await asyncio.to_thread(thread.join, PATIENCE_S)
    for _ in range(9):
        await asyncio.sleep(0)
    assert (computed, outcomes) == (["slow"], [])


async def test_a_plug_in_that_raises_anything_ends_no_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The outcome is the error, and the next target is computed."""
    errors = {"exits": SystemExit(3), "cancels": asyncio.CancelledError()}

    def assign(spec: GroupSpec, topics: object) -> dict[str, Any]:
        raise errors[spec.assignor]

    computer, outcomes = TargetComputer(), asyncio.Queue[Any]()
    computer.start(asyncio.get_running_loop())
    for name in errors:
        monkeypatch.setitem(ASSIGNORS, name, assign)
        computer.compute(GroupSpec(name, {}, {}), lambda *outcome: outcomes.put_nowait(outcome))
    found = [await outcomes.get() for _ in errors]
    computer.close()
    assert found == [(None, "SystemExit(3)"), (None, "CancelledError()")]


def test_a_heartbeat_of_a_classic_member_in_a_consumer_group_is_answered_at_once() -> None:
    """The event of a repeated heartbeat has no token; each answer belongs to its own request."""
    desk = Desk(MemoryStore())
    desk.ask(
        lambda t: ConsumerGroupHeartbeat(
            t, "m", 0, rebalance_timeout_ms=9, subscribed_topic_names=("t",), owned={}
        )
    )
    beat = Heartbeat(-1, "stranger", 1)
    assert [desk.service.heartbeat("g", beat) for _ in range(3)] == [Code.UNKNOWN_MEMBER_ID] * 3
    assert desk.service.meter.fenced == {"UNKNOWN_MEMBER_ID": 3}


def test_all_records_of_each_group_are_loaded_and_only_one_groups_are_dropped() -> None:
    """A group with the name of a longer group's beginning keeps its records apart."""
    store = MemoryStore()
    saver = GroupSaver(store, 10**6)
    records = {
        group_id: [
            Record(Key(Kind.MEMBER, group_id, "m1"), MemberMetadata(client_id=f"{group_id}-1")),
            Record(Key(Kind.MEMBER, group_id, "m2"), MemberMetadata(client_id=f"{group_id}-2")),
            Record(Key(Kind.EPOCH, group_id), GroupEpoch(7, len(group_id))),
        ]
        for group_id in ("a", "ab", "b")
    }
    for group_id, those in records.items():
        assert saver.save(group_id, those) is Code.NONE

    def loaded(*group_ids: str) -> dict[str, set[Record]]:
        return {group_id: set(those) for group_id, those in saver.load(group_ids).items()}

    every = {group_id: set(those) for group_id, those in records.items()}
    assert loaded("offsets alone", "b") == {"offsets alone": set(), **every}
    saver.drop("a", [])
    assert loaded() == {"ab": every["ab"], "b": every["b"]}


def test_a_join_with_an_id_of_an_unknown_group_takes_no_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The only place belongs to a group that no member has joined yet; a newcomer would get it."""
    desk = Desk(MemoryStore())

    def join(group_id: str, member_id: str) -> Code:
        protocols = (Protocol("range", b"meta"),)
        (reply,) = desk.ask(lambda t: JoinGroup(t, member_id, "new", protocols), group_id)
        return Code(reply.error)

    assert join("g", "") is Code.MEMBER_ID_REQUIRED
    monkeypatch.setattr(limits, "MAX_GROUPS", 1)
    assert join("h", "old member") is Code.UNKNOWN_MEMBER_ID
    assert [group.group_id for group in desk.service] == ["g"]
    assert join("h", "") is Code.MEMBER_ID_REQUIRED
    assert [group.group_id for group in desk.service] == ["h"]
    assert desk.counters["groups_forgotten"] == 1
