"""The event of each member's request, and the whole answer for each reply of its group."""

from __future__ import annotations

import asyncio
import datetime
import uuid
from types import SimpleNamespace
from typing import Any, cast

import pytest

from faust_assigner.broker.api import consumer_groups, membership
from faust_assigner.broker.api.consumer_groups import _partitions_once
from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import (
    CommitOffsets,
    ConsumerGroupHeartbeat,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Leaver,
    Protocol,
    SyncGroup,
)
from tests.support.asking import ask
from tests.support.hall import Hall, in_hall
from tests.unit.broker.api.test_membership import told_by

COMMIT, FETCH_OFFSETS, JOIN, HEARTBEAT, LEAVE, SYNC, BEAT = 8, 9, 11, 12, 13, 14, 68
SECOND = datetime.timedelta(seconds=1)
T, U = uuid.UUID(int=7), uuid.UUID(int=5)


@pytest.mark.parametrize("member_id", ["", "m"])
@pytest.mark.parametrize("instance", [None, "i", ""])
@pytest.mark.parametrize("version", [3, 4, 5, 9])
def test_a_join_carries_every_field(version: int, instance: str | None, member_id: str) -> None:
    """A static member needs no second join; its random id begins with its instance id, even an empty one."""
    protocols = [{"name": name, "metadata": name.encode() * 2} for name in ("b", "a")]
    event = told_by(
        JOIN, version, session_timeout=11 * SECOND, rebalance_timeout=13 * SECOND,
        member_id=member_id, protocol_type="connect", protocols=protocols, reason="why",
        group_instance_id=instance,
    )  # fmt: skip
    known = instance if version >= 5 else None
    assert event.new_member_id[:-36] == ("raw-" if known is None else f"{known}-")
    assert event == JoinGroup(
        1,
        member_id,
        event.new_member_id,
        (Protocol("b", b"bb"), Protocol("a", b"aa")),
        "connect",
        11_000,
        13_000,
        known,
        "raw",
        "/127.0.0.1",
        "why" if version >= 8 else None,
        needs_known_id=version >= 4 and known is None,
        can_skip_assignment=version >= 9,
    )


@pytest.mark.parametrize("given", ["i", ""])
@pytest.mark.parametrize("version", [2, 3, 5])
def test_a_sync_carries_every_field(version: int, given: str) -> None:
    """The second of the two assignments is empty."""
    assignments = [{"member_id": n, "assignment": data} for n, data in (("m", b"x"), ("n", b""))]
    event = told_by(
        SYNC, version, generation_id=3, member_id="m", group_instance_id=given,
        protocol_type="connect", protocol_name="range", assignments=assignments,
    )  # fmt: skip
    names = ("connect", "range") if version >= 5 else (None, None)
    instance = given if version >= 3 else None
    assert event == SyncGroup(1, "m", 3, instance, *names, {"m": b"x", "n": b""})


def test_a_heartbeat_and_a_leave_carry_every_field() -> None:
    """The second of the two leaving members has only an instance id."""
    beat = told_by(HEARTBEAT, 4, generation_id=3, member_id="m", group_instance_id="i")
    assert beat == Heartbeat(-1, "m", 3, "i")
    members = [
        {"member_id": "m", "group_instance_id": None, "reason": "one"},
        {"member_id": "", "group_instance_id": "i", "reason": None},
    ]
    beat = told_by(HEARTBEAT, 3, generation_id=0, member_id="", group_instance_id="")
    assert beat == Heartbeat(-1, "", 0, "")
    left = told_by(LEAVE, 5, members=members)
    assert left == LeaveGroup(1, (Leaver("m", None, "one"), Leaver("", "i", None)))
    assert told_by(LEAVE, 2, member_id="m") == LeaveGroup(1, (Leaver("m"),))


@pytest.mark.parametrize("names", [None, (), ("u", "t")])
@pytest.mark.parametrize("version", [0, 1])
def test_a_heartbeat_of_the_consumer_protocol_carries_every_field(
    version: int, names: tuple[str, ...] | None
) -> None:
    """A null list keeps the subscription, an empty list clears it."""
    owned = [
        {"topic_id": T, "partitions": (3, 1)},
        {"topic_id": U, "partitions": (2,)},
        {"topic_id": T, "partitions": (1, 2)},
    ]
    event = told_by(
        BEAT, version, member_id="m", member_epoch=9, instance_id="i", rack_id="r",
        rebalance_timeout=17 * SECOND, subscribed_topic_names=names, server_assignor="uniform",
        topic_partitions=owned, **({"subscribed_topic_regex": "a.*"} if version else {}),
    )  # fmt: skip
    assert event == ConsumerGroupHeartbeat(
        1, "m", 9, "i", "r", 17_000, names, "a.*" if version else None, "uniform",
        {T.bytes: (1, 2, 3), U.bytes: (2,)}, "raw", "/127.0.0.1", "", version, "User:ANONYMOUS",
    )  # fmt: skip


def test_empty_texts_of_a_heartbeat_are_no_missing_ones() -> None:
    """Each field is carried as it is; an empty member id in version 1 gets no new id before its refusal."""
    event = told_by(
        BEAT, 1, member_id="m", member_epoch=0, instance_id="", rack_id="",
        rebalance_timeout=0 * SECOND, subscribed_topic_names=(), server_assignor="",
        topic_partitions=[], subscribed_topic_regex="",
    )  # fmt: skip
    assert event == ConsumerGroupHeartbeat(
        1, "m", 0, "", "", 0, (), "", "", {}, "raw", "/127.0.0.1", "", 1, "User:ANONYMOUS"
    )


def test_partitions_that_a_member_reports_twice_count_once() -> None:
    """Partitions are sorted, topics are in the request's order, and empty topics are left out."""
    listed = [(T, (900, 1)), (None, (4,)), (U, ()), (T, (64, 1)), (None, (0,))]
    topics = [SimpleNamespace(topic_id=one, partitions=numbers) for one, numbers in listed]
    found = _partitions_once(topics)
    assert list(found.items()) == [(T.bytes, (1, 64, 900)), (bytes(16), (0, 4))]


@pytest.mark.parametrize("version", [6, 7, 9])
def test_a_commit_carries_every_field(version: int) -> None:
    """The known partitions are in the request's order."""

    async def story(hall: Hall) -> Any:
        for name in ("t", "u"):
            hall.node.catalogue.create(name, 3, {})
        events: list[Any] = []

        def asked(group_id: str, event_for: Any, answer: Any, creator: Any = None) -> None:
            events.append((group_id, event_for(6), creator.address))
            answer(fx.CommitReply(6, Code.ILLEGAL_GENERATION))

        hall.node.groups.ask = asked  # type: ignore[method-assign]
        parts = [
            {"partition_index": n, "committed_offset": 5, "committed_metadata": "",
             "committed_leader_epoch": -1}
            for n in (2, 0, 9)
        ]  # fmt: skip
        answer = await ask(
            hall, COMMIT, version, group_id="g", generation_id_or_member_epoch=4, member_id="m",
            group_instance_id="i", topics=[{"name": n, "partitions": parts} for n in ("u", "t")],
        )  # fmt: skip
        errors = [
            (t.name, p.partition_index, int(p.error_code))
            for t in answer.topics
            for p in t.partitions
        ]
        return events, errors

    places = (("u", 2), ("u", 0), ("t", 2), ("t", 0))
    instance = "i" if version >= 7 else None
    event = CommitOffsets(6, "m", 4, instance, version, partitions=places)
    refused = 69 if version >= 9 else 22
    expected = [(name, n, 3 if n == 9 else refused) for name in "ut" for n in (2, 0, 9)]
    assert in_hall(story) == ([("g", event, "127.0.0.1")], expected)


@pytest.mark.parametrize("version", [8, 9])
def test_a_fetch_of_offsets_carries_the_member_since_version_9(version: int) -> None:
    """Each group of the request has its own event."""

    async def story(hall: Hall) -> Any:
        events: list[Any] = []

        def asked(group_id: str, event_for: Any, answer: Any, creator: Any = None) -> None:
            events.append((group_id, event_for(6)))
            answer(fx.FetchReply(6, Code.STALE_MEMBER_EPOCH if group_id == "g" else Code.NONE))

        hall.node.groups.ask = asked  # type: ignore[method-assign]
        groups = [
            {"group_id": g, "member_id": "m" + g, "member_epoch": e, "topics": None}
            for g, e in (("g", 4), ("h", 5))
        ]
        if version < 9:
            groups = [{"group_id": one["group_id"], "topics": None} for one in groups]
        answer = await ask(hall, FETCH_OFFSETS, version, groups=groups, require_stable=False)
        return events, [(one.group_id, int(one.error_code)) for one in answer.groups]

    members = [("mg", 4), ("mh", 5)] if version >= 9 else [(None, -1)] * 2
    events = [(g, FetchOffsets(6, *who)) for g, who in zip("gh", members, strict=True)]
    assert in_hall(story) == (events, [("g", 113), ("h", 0)])


# -- the answers -------------------------------------------------------------------------------


async def answered(reply: Any, handle: Any, version: int, **request: Any) -> Any:
    """Return the values of the answer for this reply."""
    groups = SimpleNamespace(ask=lambda group_id, event_for, answer, peer: answer(reply))
    settings = SimpleNamespace(serves_consumer_protocol=True, message_max_bytes=10**6)
    call = SimpleNamespace(
        version=version, client_id="c", client_host="/h", peer=SimpleNamespace(principal="p"),
        node=SimpleNamespace(groups=groups, settings=settings), may=lambda *right: True,
    )  # fmt: skip
    return await handle(cast(Any, call), SimpleNamespace(group_id="g", **request))


async def test_the_answer_to_a_join_has_every_field() -> None:
    """The first of the two members is dynamic, the second static."""
    members = (fx.JoinedMember("m", None, b"1"), fx.JoinedMember("n", "i", b"2"))
    reply = fx.JoinReply(
        1, Code.REBALANCE_IN_PROGRESS, "m", 7, "connect", "range", "n", members, True
    )
    found = await answered(
        reply, membership.join_group, 9, member_id="m", protocols=(), protocol_type="connect",
        session_timeout=SECOND, rebalance_timeout=SECOND,
    )  # fmt: skip
    assert found == {
        "error_code": 27, "generation_id": 7, "protocol_type": "connect", "protocol_name": "range",
        "leader": "n", "skip_assignment": True, "member_id": "m",
        "members": [
            {"member_id": "m", "group_instance_id": None, "metadata": b"1"},
            {"member_id": "n", "group_instance_id": "i", "metadata": b"2"},
        ],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("version", "whole", "error"),
    [
        (2, Code.NONE, Code.UNKNOWN_MEMBER_ID),
        (3, Code.NONE, Code.NONE),
        (2, Code.COORDINATOR_NOT_AVAILABLE, Code.COORDINATOR_NOT_AVAILABLE),
    ],
)
async def test_the_answer_to_a_leave_has_each_leaver_and_their_errors(
    version: int, whole: Code, error: Code
) -> None:
    """Before version 3 the single member's error is the error of the answer."""
    results = (("m", None, Code.UNKNOWN_MEMBER_ID), ("n", "i", Code.NONE))
    reply = fx.LeaveReply(1, whole, results)
    found = await answered(reply, membership.leave_group, version, member_id="m", members=())
    assert found == {
        "error_code": error,
        "members": [
            {"member_id": "m", "group_instance_id": None, "error_code": Code.UNKNOWN_MEMBER_ID},
            {"member_id": "n", "group_instance_id": "i", "error_code": Code.NONE},
        ],
    }


async def test_an_answer_that_comes_after_its_peer_has_gone_disturbs_nobody() -> None:
    """The group answers all members at the end of the round, including a lost connection."""
    answers: list[Any] = []
    groups = SimpleNamespace(ask=lambda group_id, event_for, answer, peer: answers.append(answer))
    call = cast(Any, SimpleNamespace(node=SimpleNamespace(groups=groups), peer=None))
    waiting = [
        asyncio.ensure_future(membership.apply_to_group(call, "g", cast(Any, None))) for _ in "ab"
    ]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.sleep(0)
    for number, answer in enumerate(answers):
        answer(number)
        answer(9)
    assert waiting[0].cancelled()
    assert await waiting[1] == 1


@pytest.mark.parametrize("assignment", [{}, {T.bytes: (0, 2), U.bytes: (1,)}])
async def test_an_assignment_is_answered_also_if_it_is_empty(
    assignment: dict[bytes, tuple[int, ...]],
) -> None:
    """An empty assignment revokes all partitions; a null assignment would keep them."""
    reply = fx.ConsumerHeartbeatReply(1, Code.NONE, None, "m", 5, 4_000, assignment)
    found = await answered(
        reply, consumer_groups.consumer_group_heartbeat, 1, member_id="m", member_epoch=4,
        instance_id=None, rack_id=None, rebalance_timeout=SECOND, subscribed_topic_names=None,
        server_assignor=None, topic_partitions=None,
    )  # fmt: skip
    assert found == {
        "error_code": 0, "member_id": "m", "member_epoch": 5, "heartbeat_interval": 4 * SECOND,
        "assignment": {
            "topic_partitions": [
                {"topic_id": uuid.UUID(bytes=one), "partitions": numbers}
                for one, numbers in assignment.items()
            ]
        },
    }  # fmt: skip
