"""Groups and offsets around a store: replay, failed writes, caps, alarms."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from faust_assigner.broker import limits
from faust_assigner.broker.groups.group_records import dump_record
from faust_assigner.broker.groups.group_store import dump_group, load_groups
from faust_assigner.broker.housekeeping import expire_offsets
from faust_assigner.broker.storage.rocks_store import RocksStore
from faust_assigner.broker.storage.store import MemoryStore, Store, StoreFailed
from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.classic import GroupLimits, State
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import (
    CommitOffsets,
    DeleteGroup,
    Event,
    JoinGroup,
    LeaveGroup,
    Leaver,
    Protocol,
    SyncGroup,
    Token,
)
from faust_assigner.coordinator.offsets import Committed
from tests.support.broker_groups import group_service

LIMITS = GroupLimits(initial_rebalance_delay_ms=0)


class Desk:
    """A group service with a clock set by hand; each request has a list for its answer."""

    def __init__(self, store: Store, *, max_record_bytes: int = 10**6, timer: int = 1_000) -> None:
        self.now = 1_000
        self.timer = timer
        self.alarms: list[tuple[str, int]] = []
        self.counters: Counter[str] = Counter()
        self.service = group_service(
            store,
            clock=lambda: self.now,
            timer=lambda: self.timer,
            max_record_bytes=max_record_bytes,
            set_timer=lambda group, when: self.alarms.append((group, when)),
            counters=self.counters,
        )

    def ask(self, event_for: Callable[[Token], Event], group_id: str = "g") -> list[Any]:
        """Send an event and return a list that gets the answer later."""
        answers: list[fx.Reply] = []
        self.service.ask(group_id, event_for, answers.append)
        return answers

    def join(
        self, member_id: str = "", *, metadata: bytes = b"meta", group_id: str = "g"
    ) -> list[Any]:
        """Send a JoinGroup of a client that needs no second join."""
        return self.ask(
            lambda t: JoinGroup(
                t, member_id, "m", (Protocol("range", metadata),), needs_known_id=False
            ),
            group_id,
        )

    def stable(self, *, metadata: bytes = b"meta", assignment: bytes = b"all") -> list[Any]:
        """Make a stable group of a member with an assignment; return the answer to the sync."""
        joined = self.join(metadata=metadata)
        self.service.tick("g")
        generation = joined[0].generation
        return self.ask(lambda t: SyncGroup(t, "m", generation, assignments={"m": assignment}))


def test_groups_and_offsets_come_back_from_disk(tmp_path: Path) -> None:
    """Members, assignment, generation and offsets survive; an old commit is still fenced."""
    store = RocksStore(tmp_path)
    desk = Desk(store)
    assert desk.stable()[0].assignment == b"all"
    assert desk.service.books.commit("g", {("t", 3): Committed(7, 2, "note", 5, None)}) is Code.NONE
    store.close()
    again = Desk(RocksStore(tmp_path))
    group = again.service.get("g")
    assert group is not None
    assert (group.state, group.generation, group.roster["m"].assignment) == (
        State.STABLE,
        1,
        b"all",
    )
    assert again.service.books.offsets("g").entries == {("t", 3): Committed(7, 2, "note", 5, None)}
    assert again.ask(lambda t: CommitOffsets(t, "m", 0))[0].error is Code.ILLEGAL_GENERATION
    assert again.ask(lambda t: CommitOffsets(t, "m", 1))[0].error is Code.NONE
    assert again.alarms, "the restored member's session runs"


def test_a_group_record_survives_its_bytes() -> None:
    """The record has opaque bytes and names outside ASCII."""
    store = MemoryStore()
    member = fx.MemberRecord(
        "m-ü", "i", "client", "/host", 1, 2, (Protocol("p", bytes(range(256))),), b"\0\xff"
    )
    record = fx.GroupRecord("gruppe-ü", 7, "consumer", "p", "m-ü", 99, (member,), False)
    store.write([("ggruppe-ü".encode(), dump_group(record))])
    assert list(load_groups(store)) == [record]
    assert dump_record(record) == dump_group(record)


def test_a_group_that_cannot_be_written_is_not_acknowledged() -> None:
    """The sync fails, the member owns no partition, and the group recovers with the disk."""
    store = MemoryStore()
    desk = Desk(store)
    write = store.write

    def full(*arguments: object, **more: object) -> None:
        raise StoreFailed("No space left on device")

    store.write = full  # type: ignore[method-assign]
    assert desk.stable()[0].error is Code.NOT_COORDINATOR
    assert desk.service.books.commit("g", {("t", 0): Committed(1)}) is Code.NOT_COORDINATOR
    assert desk.service.books.offsets("g").entries == {}
    store.write = write  # type: ignore[method-assign]
    joined = desk.join("m")
    assert desk.ask(lambda t: SyncGroup(t, "m", joined[0].generation))[0].error is Code.NONE


def test_a_group_record_above_the_message_limit_fails_its_sync_as_in_kafka() -> None:
    """Kafka also answers UNKNOWN_SERVER_ERROR for a record beyond message.max.bytes."""
    desk = Desk(MemoryStore(), max_record_bytes=10_000)
    assert (
        desk.stable(metadata=b"x" * 6_000, assignment=b"y" * 6_000)[0].error
        is Code.UNKNOWN_SERVER_ERROR
    )


def test_offsets_of_groups_with_similar_names_stay_apart(tmp_path: Path) -> None:
    """The groups are 'a' and 'ab', the topics 'bc' and 'c'."""
    store = RocksStore(tmp_path)
    desk = Desk(store)
    for group, topic, offset in (("a", "bc", 1), ("ab", "c", 2)):
        desk.service.books.commit(group, {(topic, 0): Committed(offset)})
    store.close()
    again = Desk(RocksStore(tmp_path)).service
    assert again.books.offsets("a").entries.keys() == {("bc", 0)}
    assert again.books.offsets("ab").entries.keys() == {("c", 0)}


def test_an_expired_group_is_gone_from_disk_too() -> None:
    """The group is removed with its last offset."""
    store = MemoryStore()
    desk = Desk(store)
    assert desk.ask(lambda t: CommitOffsets(t))[0].error is Code.NONE
    desk.service.books.commit("g", {("t", 0): Committed(1, committed_at_ms=desk.now)})
    desk.now += 500
    assert sum(expire_offsets(desk.service, 500)) == 1
    assert desk.service.get("g") is None
    assert list(store.scan(b"")) == []


def test_the_age_of_an_empty_group_is_kept_over_a_start_with_another_timer() -> None:
    """Its offsets expire by the wall clock since the last leave; the timers' clock starts anew."""
    store = MemoryStore()
    desk = Desk(store, timer=5_000_000)
    desk.stable()
    desk.service.books.commit("g", {("t", 0): Committed(5, committed_at_ms=1_000)})
    desk.now = 20_000
    desk.ask(lambda t: LeaveGroup(t, (Leaver("m"),)))
    desk.service.tick("g")
    again = Desk(store, timer=3)
    again.now = 29_999
    assert sum(expire_offsets(again.service, 10_000)) == 0
    again.now = 30_000
    assert sum(expire_offsets(again.service, 10_000)) == 1


def test_sessions_of_a_restored_group_run_by_the_timers_clock() -> None:
    """The first alarm after a start is a session of 45 s ahead of the new timer."""
    store = MemoryStore()
    Desk(store).stable()
    again = Desk(store, timer=3)
    assert again.alarms == [("g", 3 + 45_000)]


def test_an_empty_group_without_offsets_goes_with_the_next_look() -> None:
    """The duration of the empty state does not matter: the group has no data."""
    desk = Desk(MemoryStore())
    desk.stable()
    assert list(expire_offsets(desk.service, 10**9)) == [0]
    assert desk.service.get("g") is not None
    desk.ask(lambda t: LeaveGroup(t, (Leaver("m"),)))
    assert list(expire_offsets(desk.service, 10**9)) == [0]
    assert desk.service.get("g") is None


def test_a_deleted_group_leaves_no_offsets_on_disk() -> None:
    """The next start would restore a group from the offsets."""
    store = MemoryStore()
    desk = Desk(store)
    desk.ask(CommitOffsets)
    desk.service.books.commit("g", {("t", 0): Committed(1)})
    assert desk.ask(DeleteGroup)[0].error is Code.NONE
    assert list(store.scan(b"")) == []


def test_a_deleted_topic_takes_its_offsets_from_every_group() -> None:
    """Offsets of other topics stay."""
    desk = Desk(MemoryStore())
    for group in ("g1", "g2"):
        desk.service.books.commit(group, {("gone", 0): Committed(1), ("stays", 0): Committed(1)})
    list(desk.service.books.topic_deleted("gone"))
    assert [list(desk.service.books.offsets(g).entries) for g in ("g1", "g2")] == [
        [("stays", 0)]
    ] * 2


@pytest.mark.parametrize("is_parked", [False, True])
def test_a_request_is_kept_until_its_answer_and_then_forgotten(is_parked: bool) -> None:
    """Connection and request are freed; a tick of the clock answers the parked request."""

    class Answers(list[fx.Reply]):
        """The answers of a connection."""

    desk, answers = Desk(MemoryStore()), Answers()
    request = JoinGroup(0, "", "m", (Protocol("range", b""),), needs_known_id=False)
    group_id = "g" if is_parked else "not a group"
    event = (lambda t: replace(request, token=t)) if is_parked else (lambda t: SyncGroup(t, "m", 1))
    desk.service.ask(group_id, event, answers.append)
    kept = weakref.ref(answers)
    assert len(answers) == (0 if is_parked else 1)
    del answers
    assert (kept() is not None) == is_parked
    desk.service.tick("g")
    gc.collect()
    assert kept() is None


def test_the_number_of_groups_and_of_offsets_is_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    """GROUP_MAX_SIZE_REACHED and INVALID_REQUEST; existing groups and offsets can change."""
    monkeypatch.setattr(limits, "MAX_GROUPS", 2)
    monkeypatch.setattr(limits, "MAX_OFFSETS_PER_GROUP", 2)
    desk = Desk(MemoryStore())
    for name in ("a", "b", "c"):
        desk.join(group_id=name)
    assert {g.group_id for g in desk.service} == {"a", "b"}
    assert desk.join(group_id="c")[0].error is Code.GROUP_MAX_SIZE_REACHED
    first = {("t", 0): Committed(1), ("t", 1): Committed(1)}
    assert desk.service.books.commit("a", first) is Code.NONE
    assert desk.service.books.commit("a", {("t", 2): Committed(1)}) is Code.INVALID_REQUEST
    assert desk.service.books.commit("a", {("t", 1): Committed(9)}) is Code.NONE
