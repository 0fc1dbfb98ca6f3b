"""Several groups, topics and transactions: only the right one changes."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from faust_assigner.broker import limits
from faust_assigner.broker.api.group_offsets import subscribed
from faust_assigner.broker.groups import GroupService, group_store
from faust_assigner.broker.groups.pending import PendingOffsets
from faust_assigner.broker.storage.store import MemoryStore, StoreFailed
from faust_assigner.broker.transactions.transaction_store import load_transactions, transaction_key
from faust_assigner.coordinator.catalogue import Catalogue, Topic
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import (
    CatalogueChanged,
    CommitOffsets,
    ConsumerGroupHeartbeat,
    DeleteGroup,
    Event,
    Heartbeat,
    LeaveGroup,
    Leaver,
)
from faust_assigner.coordinator.offsets import Committed
from tests.unit.broker.test_group_life import heartbeat
from tests.unit.broker.test_groups import Desk
from tests.unit.broker.test_transactions import Bench


def read(service: GroupService, group_id: str) -> dict[tuple[str, int], int]:
    """Return the committed offsets of a group."""
    return {key: entry.offset for key, entry in service.books.offsets(group_id).entries.items()}


# -- topics ------------------------------------------------------------------------------------


def with_topics(desk: Desk, *names: str) -> None:
    """Replace all topics with these."""
    topics = Catalogue.of(Topic(name, name.encode().ljust(16), 1) for name in names)
    desk.service._topics._current = lambda: topics


def seen_by(desk: Desk, group_id: str) -> list[type[Event]]:
    """Record the kinds of events that a group gets from now on."""
    group: Any = desk.service.get(group_id)
    events: list[type[Event]] = []
    step = group.step

    class Noting:
        def __getattr__(self, name: str) -> Any:
            return getattr(group, name)

        def step(self, event: Event, *times: int) -> Any:
            events.append(type(event))
            return step(event, *times)

    desk.service._groups[group_id] = Noting()  # type: ignore[assignment]
    return events


def test_a_heartbeat_brings_changed_topics_to_its_own_group_once() -> None:
    """The change precedes the heartbeat; the second group gets it with the check of all groups."""
    desk = Desk(MemoryStore())
    with_topics(desk, "t")
    for group_id in ("g", "h"):
        desk.ask(lambda token: heartbeat(token), group_id)
    seen = {group_id: seen_by(desk, group_id) for group_id in ("g", "h")}
    beat = lambda token: ConsumerGroupHeartbeat(token, "m", 1)  # noqa: E731
    desk.ask(beat)
    with_topics(desk, "t", "u")
    desk.ask(beat)
    desk.ask(beat)
    beats = [one for one in seen["g"] if one in (CatalogueChanged, ConsumerGroupHeartbeat)]
    assert beats == [ConsumerGroupHeartbeat, CatalogueChanged, *[ConsumerGroupHeartbeat] * 2]
    assert seen["h"] == []
    assert list(desk.service.catalogue_changed()) == ["g", "h"]
    assert seen["h"] == [CatalogueChanged]
    assert seen["g"].count(CatalogueChanged) == 1


def test_a_group_that_goes_while_all_are_told_is_told_no_more() -> None:
    """The group and its topics are dropped; a new group knows the topics already."""
    desk = Desk(MemoryStore())
    with_topics(desk, "t")
    for group_id in ("g", "h", "i"):
        desk.ask(CommitOffsets, group_id)
    with_topics(desk, "t", "u")
    telling = desk.service.catalogue_changed()
    assert next(telling) == "g"
    desk.ask(DeleteGroup, "h")
    desk.ask(CommitOffsets, "j")
    assert list(telling) == ["h", "i"]
    assert sorted(desk.service._topics._delivered) == ["g", "i", "j"]
    assert all(
        told is desk.service._topics._current() for told in desk.service._topics._delivered.values()
    )


def test_fenced_requests_are_all_counted_and_their_lines_are_limited_by_the_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The timers' clock is in milliseconds; a second later the same minute continues."""
    desk = Desk(MemoryStore())
    why = "is refused with UNKNOWN_MEMBER_ID: it is not a member (generation 1, Stable)"
    line = f"group g: Heartbeat of stranger with epoch 3 {why}"

    def fence(count: int) -> int:
        caplog.clear()
        for _ in range(count):
            beat = Heartbeat(-1, "stranger", 3)
            assert desk.service.heartbeat("g", beat) is Code.UNKNOWN_MEMBER_ID
        return caplog.messages.count(line)

    desk.stable()
    with caplog.at_level(logging.INFO):
        lines = [fence(12)]
        desk.timer += 1_000
        lines.append(fence(3))
        desk.timer += 60_000
        lines.append(fence(2))
    assert lines == [10, 0, 2]
    assert desk.service.meter.fenced == {"UNKNOWN_MEMBER_ID": 17}


def test_a_group_whose_topics_are_unknown_is_taken_to_read_all_of_them() -> None:
    """Its members' metadata is unreadable; a group without members reads no topic."""
    desk = Desk(MemoryStore())
    desk.stable(metadata=b"opaque")
    group = desk.service.get("g")
    assert group is not None
    assert subscribed(group)("any")
    desk.ask(lambda token: LeaveGroup(token, (Leaver("m"),)))
    assert not subscribed(group)("any")
    desk.ask(lambda token: heartbeat(token), "consumers")
    consumers = desk.service.get("consumers")
    assert consumers is not None
    assert [subscribed(consumers)(name) for name in "tu"] == [True, False]


# -- offsets -------------------------------------------------------------------------------------


def test_offsets_of_several_groups_go_with_their_topic_alone() -> None:
    """Committed and pending offsets are deleted in memory and on disk; the second topic's stay."""
    store = MemoryStore()
    desk = Desk(store)
    for number, group_id in enumerate("gh"):
        desk.service.books.commit(group_id, {("t", 0): Committed(number), ("u", 1): Committed(5)})
        desk.service.books.store_pending(
            group_id, 7, {("t", 2): Committed(8), ("u", 3): Committed(9)}
        )
    desk.service.books.commit("i", {("u", 0): Committed(1)})
    assert sorted(desk.service.books.topic_deleted("t")) == ["g", "h"]
    assert list(desk.service.books.topic_deleted("t")) == []
    for service in (desk.service, Desk(store).service):
        assert [read(service, group_id) for group_id in "ghi"] == [
            {("u", 1): 5}, {("u", 1): 5}, {("u", 0): 1}
        ]  # fmt: skip
        pending = [service.books.pending.is_pending("g", key) for key in (("t", 2), ("u", 3))]
        assert (pending, service.books.pending.count("h")) == ([False, True], 1)


def test_offsets_of_a_new_topic_stay_while_those_of_its_predecessor_are_deleted() -> None:
    """All groups are used after the first group's deletion; on disk are the new offsets alone."""
    store = MemoryStore()
    books = Desk(store).service.books
    for group_id in "ghij":
        books.commit(group_id, {("t", 0): Committed(90), ("t", 1): Committed(91)})
    books.store_pending("j", 7, {("t", 1): Committed(92)})
    deletion = books.topic_deleted("t")
    next(deletion)
    assert books.commit("g", {("t", 0): Committed(1)}) is Code.NONE
    assert books.store_pending("h", 7, {("t", 0): Committed(2)}) is Code.NONE
    assert len(books.offsets("i")) == 0
    puts, _, stored = books.end_transaction("j", 7, commits=True)
    stored()
    assert (puts, len(list(deletion))) == ([], 0)
    again = Desk(store).service
    assert [read(again, group_id) for group_id in "ghij"] == [{("t", 0): 1}, {}, {}, {}]
    pending = again.books.pending
    assert (list(pending), pending.is_pending("h", ("t", 0))) == (["h"], True)


def test_a_deletion_of_offsets_that_ends_early_is_completed_by_the_next() -> None:
    """The second deletion includes the groups that the first one left."""
    books = Desk(MemoryStore()).service.books
    for group_id in "gh":
        books.commit(group_id, {("t", 0): Committed(1)})
    first = next(iter(books.topic_deleted("t")))
    books.commit(first, {("t", 0): Committed(2)})
    assert sorted(books.topic_deleted("t")) == ["g", "h"]
    assert books.topics() == ()


def test_a_closed_group_leaves_the_readers_of_its_topics_to_the_other_groups() -> None:
    """The later deletion of the topic removes the remaining group's offsets."""
    desk = Desk(MemoryStore())
    for group_id in "gh":
        desk.ask(CommitOffsets, group_id)
        desk.service.books.commit(group_id, {("t", 0): Committed(1)})
    desk.ask(DeleteGroup, "g")
    assert (read(desk.service, "g"), read(desk.service, "h")) == ({}, {("t", 0): 1})
    assert list(desk.service.books.topic_deleted("t")) == ["h"]
    assert read(desk.service, "h") == {}


def test_a_commit_outside_outdates_the_pending_offsets_of_every_transaction_for_its_partitions() -> (
    None
):
    """The pending offsets change in memory and on disk; other partitions and groups do not."""
    store = MemoryStore()
    desk = Desk(store)
    for producer_id in (7, 8):
        for group_id in "gh":
            changes = {("t", n): Committed(10 * producer_id + n) for n in (0, 1)}
            assert desk.service.books.store_pending(group_id, producer_id, changes) is Code.NONE
    for offset in (3, 4):
        assert desk.service.books.commit("g", {("t", 0): Committed(offset)}) is Code.NONE
    for pending in (desk.service.books.pending, PendingOffsets(store)):
        found = {
            (group_id, producer_id): {
                key: entry.offset for key, entry in pending.ending(group_id, producer_id)[0].items()
            }
            for group_id in "gh"
            for producer_id in (7, 8)
        }
        assert found == {
            ("g", 7): {("t", 1): 71},
            ("g", 8): {("t", 1): 81},
            ("h", 7): {("t", 0): 70, ("t", 1): 71},
            ("h", 8): {("t", 0): 80, ("t", 1): 81},
        }
        keys = [group_store.pending_key("g", 7, "t", n) for n in (0, 1)]
        assert pending.ending("g", 7)[1] == keys, "also the key of the outdated one goes"


def test_an_offset_is_pending_while_any_of_several_transactions_may_change_it() -> None:
    """Each transaction ends alone; a deletion removes the named partitions of all transactions."""
    desk = Desk(MemoryStore())
    pending = desk.service.books.pending
    for producer_id, numbers in ((7, (0, 1)), (8, (1, 2)), (9, (3,))):
        changes = {("t", number): Committed(producer_id) for number in numbers}
        assert desk.service.books.store_pending("g", producer_id, changes) is Code.NONE

    def waiting() -> list[int]:
        assert not pending.is_pending("h", ("t", 0))
        return [number for number in range(5) if pending.is_pending("g", ("t", number))]

    assert (waiting(), pending.count("g")) == ([0, 1, 2, 3], 5)
    pending.end("g", 7)
    pending.end("g", 99)
    assert (waiting(), pending.count("g")) == ([1, 2, 3], 3)

    def is_odd(key: tuple[str, int]) -> bool:
        return key[1] in (1, 3)

    assert pending.keys("g", is_odd) == [
        group_store.pending_key("g", 8, "t", 1), group_store.pending_key("g", 9, "t", 3)
    ]  # fmt: skip
    pending.drop("g", is_odd)
    assert (waiting(), pending.count("g"), list(pending)) == ([2], 1, ["g"])
    pending.end("g", 8)
    assert (waiting(), list(pending)) == ([], [])


@pytest.mark.parametrize("later", [False, True])
def test_offsets_that_the_store_refuses_change_nothing(later: bool) -> None:
    """Neither committed nor pending offsets change, and none is outdated."""
    desk = Desk(MemoryStore())
    desk.service.books.commit("g", {("t", 0): Committed(1)})
    desk.service.books.store_pending("g", 7, {("t", 0): Committed(2)})

    def full(*arguments: object, **more: object) -> None:
        raise StoreFailed("no space")

    desk.service._saver.store.write = full  # type: ignore[method-assign]
    changes = {("t", 0): Committed(5), ("t", 1): Committed(6)}
    commits = {
        True: lambda: desk.service.books.store_pending("g", 8, changes),
        False: lambda: desk.service.books.commit("g", changes),
    }
    assert commits[later]() is Code.NOT_COORDINATOR
    assert read(desk.service, "g") == {("t", 0): 1}
    pending = desk.service.books.pending
    assert (pending.count("g"), pending.ending("g", 8)[0]) == (1, {})
    assert pending.ending("g", 7)[0] == {("t", 0): Committed(2)}


def test_a_group_has_room_for_exactly_so_many_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Committed and pending offsets count together; known partitions may exceed the limit."""
    monkeypatch.setattr(limits, "MAX_OFFSETS_PER_GROUP", 4)
    service = Desk(MemoryStore()).service

    def many(*numbers: int) -> dict[tuple[str, int], Committed]:
        return {("t", number): Committed(number) for number in numbers}

    codes = [
        service.books.commit("g", many(0, 1)),
        service.books.store_pending("g", 7, many(2)),
        service.books.commit("g", many(3, 4)),
        service.books.commit("g", many(3)),
        service.books.store_pending("g", 7, many(5)),
        service.books.commit("g", many(0, 1, 3)),
        service.books.commit("g", many(0, 5)),
        service.books.commit("h", many(0, 1, 2, 3)),
    ]
    refused = Code.INVALID_REQUEST
    assert codes == [
        Code.NONE,
        Code.NONE,
        refused,
        Code.NONE,
        refused,
        Code.NONE,
        refused,
        Code.NONE,
    ]


# -- transactions --------------------------------------------------------------------------------


@pytest.mark.parametrize("commits", [True, False])
def test_the_end_of_a_transaction_is_carried_out_in_all_its_partitions_and_groups(
    commits: bool,
) -> None:
    """Three partitions of two topics and two groups change; a second transaction does not."""
    bench = Bench()
    other = bench.node.catalogue.create("u", 1, {})
    for name in ("tx", "stays"):
        bench.begin(name, (0, 1), "g")
        bench.reopen(name, (), "h")
        for partition in (0, 1):
            bench.write(name, partition=partition)
        for offset, group_id in enumerate("gh", 5):
            bench.commit(offset, name, group_id)
    bench.commit(9, "stays", "g")
    producer = bench.of("tx").producer_id
    assert bench.end("tx", commits=commits) is Code.NONE
    assert [bench.offset(group_id) for group_id in "gh"] == ([5, 6] if commits else [-1, -1])
    pending = bench.node.groups.books.pending
    assert [pending.ending(group_id, producer) for group_id in "gh"] == [({}, [])] * 2
    assert [pending.count(group_id) for group_id in "gh"] == [1, 1]
    assert [log.end_offset for log in bench.topic.partitions] == [3, 3]
    assert [log.has_open(producer) for log in bench.topic.partitions] == [False, False]
    assert [log.stable_offset for log in bench.topic.partitions] == [1, 1]
    assert [bool(log.aborted(0, 9)) for log in bench.topic.partitions] == [not commits] * 2
    assert other.partitions[0].end_offset == 0
    touched = [log.number for _, log in bench.node.transactions.unflushed_partitions("tx")]
    assert (touched, bench.node.transactions.unflushed_partitions("stays")) == ([0, 1], ())
    counters = {
        name: bench.node.counters[f"transactions_{name}"] for name in ("committed", "aborted")
    }
    assert counters == {"committed": int(commits), "aborted": int(not commits)}
    states = {one.transactional_id: one for one in load_transactions(bench.node.store)}
    assert states == {name: bench.of(name) for name in ("tx", "stays")}
    assert bench.node.store.get(transaction_key("tx")) is not None
    bench.node.close()
