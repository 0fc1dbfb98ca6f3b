"""OffsetCommit, OffsetFetch, OffsetDelete: each partition's error, and the stored fields."""

from __future__ import annotations

import asyncio
import datetime
import itertools
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from faust_assigner.broker.api import offset_commit
from faust_assigner.broker.storage.store import StoreFailed
from faust_assigner.broker.throttle import Throttle
from faust_assigner.coordinator.events import DeleteGroup, LeaveGroup, Leaver
from faust_assigner.coordinator.offsets import Committed
from tests.support.asking import ask
from tests.support.clients.raw_client import request_frame
from tests.support.hall import Hall, in_hall

COMMIT, FETCH, DELETE, JOIN, SYNC = 8, 9, 47, 11, 14
UNKNOWN_PARTITION, TOO_LARGE, NOT_COORDINATOR = 3, 12, 16
ILLEGAL_GENERATION, UNKNOWN_MEMBER, FENCED_INSTANCE, SUBSCRIBED = 22, 25, 82, 86
NON_EMPTY, UNKNOWN_TOPIC_ID, GROUP_NOT_FOUND, STALE_EPOCH = 68, 100, 69, 113
NOW = 1_700_000_000_000
SECOND = datetime.timedelta(seconds=1)


def place(number: int, *, note: str = "", epoch: int = -1) -> dict[str, Any]:
    """Return a partition of a commit of offset 5."""
    return {
        "partition_index": number,
        "committed_offset": 5,
        "committed_leader_epoch": epoch,
        "committed_metadata": note,
    }


async def committed(
    hall: Hall, *parts: dict[str, Any], version: int = 8, topic: Any = "t", **member: Any
) -> list[int]:
    """Commit to group "g", by default without a member; return the error of each partition."""
    who = {
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        **member,
    }
    named = {"topic_id": topic} if version >= 10 else {"name": topic}
    answer = await ask(
        hall, COMMIT, version, group_id="g", topics=[{**named, "partitions": parts}], **who
    )
    return [int(part.error_code) for part in answer.topics[0].partitions]


async def member_of(hall: Hall, *, instance: str | None = None, topic: str = "t") -> str:
    """Join group "g" as its only member, which reads a topic; return the member id."""
    name = topic.encode()
    metadata = b"\0\1\0\0\0\1" + len(name).to_bytes(2, "big") + name + b"\xff\xff\xff\xff"
    values = {
        "group_id": "g",
        "session_timeout": 10 * SECOND,
        "rebalance_timeout": SECOND,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": metadata}],
        "group_instance_id": instance,
    }
    member_id = ""
    while True:
        asked = asyncio.ensure_future(ask(hall, JOIN, 5, member_id=member_id, **values))
        for _ in range(20):
            await asyncio.sleep(0)
        hall.node.groups.tick("g")  # end the join phase
        answer = await asked
        member_id = str(answer.member_id)
        if not answer.error_code:
            break  # a member with the id of the first answer
    await ask(
        hall, SYNC, 3, group_id="g", generation_id=1, member_id=member_id,
        group_instance_id=instance, assignments=[],
    )  # fmt: skip
    return member_id


# -- commits -----------------------------------------------------------------------------------


def test_a_group_that_refuses_the_member_says_so_for_a_long_note_too() -> None:
    """The member must learn that the group does not know it, even with a too long note."""

    async def story(hall: Hall) -> list[int]:
        hall.node.catalogue.create("t", 2, {})
        await member_of(hall)
        parts = place(0, note="x" * 5_000), place(1), place(7)
        return await committed(hall, *parts, generation_id_or_member_epoch=1, member_id="stranger")

    assert in_hall(story) == [UNKNOWN_MEMBER, UNKNOWN_MEMBER, UNKNOWN_PARTITION]


def test_a_stranger_whose_notes_are_all_too_long_is_refused_by_the_group() -> None:
    """No offset of the commit could be stored, but the member must learn about its removal."""

    async def story(hall: Hall) -> list[int]:
        hall.node.catalogue.create("t", 2, {})
        await member_of(hall)
        part = place(0, note="x" * 5_000)
        return await committed(hall, part, generation_id_or_member_epoch=1, member_id="stranger")

    assert in_hall(story) == [UNKNOWN_MEMBER]


def test_a_long_note_is_refused_alone_where_the_group_admits_the_member() -> None:
    """The second partition's offset is stored."""

    async def story(hall: Hall) -> list[int]:
        hall.node.catalogue.create("t", 2, {})
        return await committed(hall, place(0, note="x" * 5_000), place(1))

    assert in_hall(story) == [TOO_LARGE, 0]


def test_a_commit_is_refused_where_only_a_part_of_it_could_be_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client regards an offset without an error as stored."""
    monkeypatch.setattr(offset_commit, "COMMITTED_AT_ONCE", 1)

    async def story(hall: Hall) -> list[int]:
        hall.node.catalogue.create("t", 3, {})
        write, times = hall.node.store.write, iter([False, True])

        def once(*arguments: Any, **more: Any) -> None:
            if next(times, False):
                raise StoreFailed("no space")
            write(*arguments, **more)

        hall.node.store.write = once  # type: ignore[method-assign]
        return await committed(hall, *map(place, range(3)))

    assert in_hall(story) == [NOT_COORDINATOR] * 3


@pytest.mark.parametrize("turn", [1, 4])
def test_a_topic_that_is_deleted_during_a_commit_keeps_none_of_its_offsets(
    monkeypatch: pytest.MonkeyPatch, turn: int
) -> None:
    """The deletion comes after the check of a partition, or between two writes."""
    monkeypatch.setattr(offset_commit, "COMMITTED_AT_ONCE", 1)

    async def story(hall: Hall) -> list[tuple[str, int]]:
        topic = hall.node.catalogue.create("t", 3, {})
        turns = 0

        async def turned(throttle: Throttle, size: int = 0) -> None:
            nonlocal turns
            turns += 1
            if turns == turn:
                hall.node.catalogue.delete(topic)
                await hall.node.drop_topic_offsets("t")
                hall.node.catalogue.create("t", 3, {})

        monkeypatch.setattr(Throttle, "checkpoint", turned)
        assert await committed(hall, *map(place, range(3))) == [0, 0, 0]
        return list(hall.node.groups.books.offsets("g").entries)

    assert in_hall(story) == []


def between_slices(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Store each of three offsets in its own write, and act after the first of these writes."""
    monkeypatch.setattr(offset_commit, "COMMITTED_AT_ONCE", 1)
    turns = itertools.count(1)

    async def turned(throttle: Throttle, size: int = 0) -> None:
        if next(turns) == 4:
            act()

    monkeypatch.setattr(Throttle, "checkpoint", turned)


def test_the_rest_of_a_commit_whose_group_is_deleted_belongs_to_a_new_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Earlier, these offsets belonged to no group: they were neither listed nor expired, nor deletable."""

    async def story(hall: Hall) -> tuple[list[int], bool, int]:
        hall.node.catalogue.create("t", 3, {})
        replies: list[Any] = []
        between_slices(monkeypatch, lambda: hall.node.groups.ask("g", DeleteGroup, replies.append))
        errors = await committed(hall, *map(place, range(3)))
        assert [int(reply.error) for reply in replies] == [0]
        groups = hall.node.groups
        return errors, groups.get("g") is not None, len(groups.books.offsets("g"))

    assert in_hall(story) == ([0, 0, 0], True, 2)


def test_a_member_that_loses_its_place_during_its_commit_stores_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The partitions may belong to a next owner, whose offsets would be overwritten."""

    async def story(hall: Hall) -> tuple[list[int], int]:
        hall.node.catalogue.create("t", 3, {})
        member_id = await member_of(hall)
        leave = partial(LeaveGroup, leavers=(Leaver(member_id),))
        between_slices(monkeypatch, lambda: hall.node.groups.ask("g", leave, lambda reply: None))
        errors = await committed(
            hall, *map(place, range(3)), generation_id_or_member_epoch=1, member_id=member_id
        )
        return errors, len(hall.node.groups.books.offsets("g"))

    assert in_hall(story) == ([UNKNOWN_MEMBER] * 3, 1)


@pytest.mark.parametrize(("retention_ms", "expires"), [(-1, None), (0, NOW), (500, NOW + 500)])
def test_a_clients_own_retention_is_kept_with_the_offset(
    retention_ms: int, expires: int | None
) -> None:
    """The retention counts in milliseconds from now; -1 is the broker's setting, 0 is immediate."""

    async def story(hall: Hall) -> tuple[int, int | None]:
        hall.node.clock = lambda: NOW
        hall.node.catalogue.create("t", 1, {})
        span = datetime.timedelta(milliseconds=retention_ms)
        part = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
        assert await committed(hall, part, version=2, retention_time=span) == [0]
        (entry,) = hall.node.groups.books.offsets("g").entries.values()
        return entry.committed_at_ms, entry.expires_at_ms

    assert in_hall(story) == (NOW, expires)


def test_the_leader_epoch_of_a_commit_is_read_back() -> None:
    """KIP-320: the reader compares the epoch with the leader's epoch."""

    async def story(hall: Hall) -> list[int]:
        hall.node.catalogue.create("t", 2, {})
        await committed(hall, place(0, epoch=3), place(1))
        topics = [{"name": "t", "partition_indexes": (0, 1)}]
        answer = await ask(hall, FETCH, 7, group_id="g", topics=topics, require_stable=False)
        return [part.committed_leader_epoch for part in answer.topics[0].partitions]

    assert in_hall(story) == [3, -1]


@pytest.mark.parametrize(("instance", "error"), [("mine", 0), ("yours", UNKNOWN_MEMBER)])
def test_a_commit_is_weighed_by_the_instance_that_it_names(instance: str, error: int) -> None:
    """The member id alone would admit a replaced process (KIP-345)."""

    async def story(hall: Hall) -> list[int]:
        hall.node.catalogue.create("t", 1, {})
        member = await member_of(hall, instance="mine")
        return await committed(
            hall, place(0), generation_id_or_member_epoch=1, member_id=member,
            group_instance_id=instance,
        )  # fmt: skip

    assert in_hall(story) == [error]


def test_a_replaced_instance_is_fenced() -> None:
    """The instance id now belongs to a new member."""

    async def story(hall: Hall) -> list[int]:
        hall.node.catalogue.create("t", 1, {})
        await member_of(hall, instance="mine")
        return await committed(
            hall, place(0), generation_id_or_member_epoch=1, member_id="old",
            group_instance_id="mine",
        )  # fmt: skip

    assert in_hall(story) == [FENCED_INSTANCE]


@pytest.mark.parametrize(
    ("topic", "partition", "error"),
    [("known", 0, 0), ("known", 1, UNKNOWN_PARTITION), ("unknown", 0, UNKNOWN_TOPIC_ID)],
)
def test_a_commit_by_topic_id_tells_an_unknown_id_from_an_unknown_partition(
    topic: str, partition: int, error: int
) -> None:
    """Version 10 names topics only by id."""

    async def story(hall: Hall) -> list[int]:
        known = hall.node.catalogue.create("t", 1, {}).topic_id
        named = known if topic == "known" else uuid.uuid4()
        return await committed(hall, place(partition), version=10, topic=named)

    assert in_hall(story) == [error]


# -- reads -------------------------------------------------------------------------------------


def reader(**more: Any) -> dict[str, Any]:
    """Return a request for partition 0 of "t" in group "g"."""
    return {
        "group_id": "g",
        "member_id": None,
        "member_epoch": -1,
        "topics": [{"name": "t", "partition_indexes": (0,)}],
        **more,
    }


def test_a_member_that_may_not_read_is_given_no_topics() -> None:
    """Offset -1 would mean no commit, and the member would start from the beginning."""

    async def story(hall: Hall) -> tuple[int, int]:
        hall.node.catalogue.create("t", 1, {})
        await ask(
            hall, 68, 1, group_id="g", member_id="m", member_epoch=0, instance_id=None,
            rack_id=None, subscribed_topic_regex=None, server_assignor=None,
            subscribed_topic_names=["t"], rebalance_timeout=SECOND, topic_partitions=[],
        )  # fmt: skip
        asked = reader(member_id="m", member_epoch=9)
        answer = await ask(hall, FETCH, 9, groups=[asked], require_stable=False)
        (group,) = answer.groups
        return int(group.error_code), len(group.topics)

    assert in_hall(story) == (STALE_EPOCH, 0)


def test_a_group_that_is_named_twice_is_answered_once() -> None:
    """The answer has the topics of both entries."""

    async def story(hall: Hall) -> list[tuple[str, list[tuple[str, int]]]]:
        for name in ("t", "u"):
            hall.node.catalogue.create(name, 1, {})
            await committed(hall, place(0), topic=name)
        asked = [reader(), reader(topics=[{"name": "u", "partition_indexes": (0,)}])]
        answer = await ask(hall, FETCH, 9, groups=asked, require_stable=False)
        return [
            (
                group.group_id,
                [(one.name, one.partitions[0].committed_offset) for one in group.topics],
            )
            for group in answer.groups
        ]

    assert in_hall(story) == [("g", [("t", 5), ("u", 5)])]


def test_an_unknown_topic_id_has_no_offset() -> None:
    """Each partition has UNKNOWN_TOPIC_ID, beside the offsets of a known topic."""

    async def story(hall: Hall) -> list[tuple[int, int]]:
        known = hall.node.catalogue.create("t", 1, {}).topic_id
        await committed(hall, place(0))
        topics = [{"topic_id": i, "partition_indexes": (0,)} for i in (known, uuid.uuid4())]
        answer = await ask(hall, FETCH, 10, groups=[reader(topics=topics)], require_stable=False)
        parts = [topic.partitions[0] for topic in answer.groups[0].topics]
        return [(int(part.error_code), part.committed_offset) for part in parts]

    assert in_hall(story) == [(0, 5), (UNKNOWN_TOPIC_ID, -1)]


@pytest.mark.parametrize("version", [2, 7, 8, 9, 10])
def test_null_is_every_committed_offset_and_an_empty_list_is_none(version: int) -> None:
    """A client that has no partitions must not get the offsets of all topics."""

    async def story(hall: Hall) -> list[int]:
        hall.node.catalogue.create("t", 1, {})
        await committed(hall, place(0))
        counts = []
        for topics in (None, []):
            values = {"require_stable": False} if version >= 7 else {}
            group = {"group_id": "g", "topics": topics}
            if version >= 8:
                answer = await ask(hall, FETCH, version, groups=[group], **values)
                counts.append(len(answer.groups[0].topics))
            else:
                counts.append(len((await ask(hall, FETCH, version, **group, **values)).topics))
        return counts

    assert in_hall(story) == [1, 0]


# -- deletions ---------------------------------------------------------------------------------


def test_all_offsets_are_listed_while_the_group_commits_a_further_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A long list gives way to other requests, such as the first commit of a partition."""

    async def story(hall: Hall) -> tuple[int, list[int]]:
        hall.node.catalogue.create("t", 3, {})
        await committed(hall, place(0), place(1))
        books = hall.node.groups.books

        async def turned(throttle: Throttle, size: int = 0) -> None:
            books.commit("g", {("t", 2): Committed(7)})

        monkeypatch.setattr(Throttle, "checkpoint", turned)
        answer = await ask(hall, FETCH, 7, group_id="g", topics=None, require_stable=False)
        found = [part.partition_index for topic in answer.topics for part in topic.partitions]
        return int(answer.error_code), found

    assert in_hall(story) == (0, [0, 1])


async def deleted(hall: Hall, topic: str, *numbers: int) -> tuple[int, list[int]]:
    """Send OffsetDelete for group "g"; return the error of the answer and of each partition."""
    parts = [{"partition_index": number} for number in numbers]
    answer = await ask(hall, DELETE, 0, group_id="g", topics=[{"name": topic, "partitions": parts}])
    errors = [int(part.error_code) for topic in answer.topics for part in topic.partitions]
    return int(answer.error_code), errors


def test_a_topic_that_is_read_is_told_from_a_partition_that_does_not_exist() -> None:
    """A member reads "t", which has a single partition."""

    async def story(hall: Hall) -> tuple[int, list[int]]:
        hall.node.catalogue.create("t", 1, {})
        await member_of(hall)
        return await deleted(hall, "t", 0, 1)

    assert in_hall(story) == (0, [SUBSCRIBED, UNKNOWN_PARTITION])


def test_offsets_of_a_group_with_members_of_another_kind_stay() -> None:
    """Such members' topics are unknown; a consumer group's subscription has its topics."""

    async def story(hall: Hall) -> tuple[int, list[int]]:
        hall.node.catalogue.create("t", 1, {})
        values = {
            "group_id": "g",
            "session_timeout": 10 * SECOND,
            "rebalance_timeout": SECOND,
            "member_id": "",
            "protocol_type": "connect",
            "protocols": [{"name": "p", "metadata": b""}],
        }
        peer, _ = hall.connect("connector")
        peer.data_received(request_frame(JOIN, 3, 1, values))
        for _ in range(20):
            await asyncio.sleep(0)
        return await deleted(hall, "t", 0)

    assert in_hall(story) == (NON_EMPTY, [])


def test_offsets_of_a_group_that_never_had_members_are_deleted() -> None:
    """A client without a group membership committed them, so the group has no protocol type."""

    async def story(hall: Hall) -> tuple[tuple[int, list[int]], list[tuple[str, int]]]:
        hall.node.catalogue.create("t", 3, {})
        await committed(hall, *map(place, range(3)))
        outcome = await deleted(hall, "t", 2, 0, 3)
        return outcome, list(hall.node.groups.books.offsets("g").entries)

    assert in_hall(story) == ((0, [0, 0, UNKNOWN_PARTITION]), [("t", 1)])


def test_offsets_that_the_store_cannot_delete_stay_and_the_answer_is_an_error() -> None:
    """With an answer without an error, the offsets would be back after the next start."""

    async def story(hall: Hall) -> tuple[tuple[int, list[int]], int]:
        hall.node.catalogue.create("t", 1, {})
        await committed(hall, place(0))

        def full(*arguments: Any, **more: Any) -> None:
            raise StoreFailed("no space")

        hall.node.store.write = full  # type: ignore[method-assign]
        outcome = await deleted(hall, "t", 0)
        return outcome, len(hall.node.groups.books.offsets("g"))

    assert in_hall(story) == ((NOT_COORDINATOR, []), 1)
