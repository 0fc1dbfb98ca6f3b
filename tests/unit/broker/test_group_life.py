"""A group in the service: its alarms, its deletion, its size on disk, and its metrics."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from faust_assigner.broker.groups import GroupService, group_store
from faust_assigner.broker.groups.computing import Outcome
from faust_assigner.broker.housekeeping import expire_offsets
from faust_assigner.broker.storage.store import MemoryStore, Store, StoreFailed
from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.assignors import GroupSpec, compute
from faust_assigner.coordinator.catalogue import Catalogue, Topic
from faust_assigner.coordinator.classic import ClassicGroup
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import (
    CommitOffsets,
    ConsumerGroupHeartbeat,
    DeleteGroup,
    JoinGroup,
    LeaveGroup,
    Leaver,
    Protocol,
)
from faust_assigner.coordinator.offsets import Committed
from faust_assigner.coordinator.records import Key, Kind, Record
from faust_assigner.coordinator.settings import ConsumerLimits
from tests.unit.broker.test_groups import LIMITS, Desk

SESSION_MS = 45_000


class Sized(Desk):
    """A desk whose consumer groups have limits set by the test."""

    consumer = ConsumerLimits()

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.service._consumer_limits = lambda group_id: self.consumer


def heartbeat(token: int, epoch: int = 0) -> ConsumerGroupHeartbeat:
    """Return a join or a leave of a member of the consumer protocol."""
    return ConsumerGroupHeartbeat(
        token,
        "m",
        epoch,
        rebalance_timeout_ms=1_000 if epoch == 0 else -1,
        subscribed_topic_names=("t",) if epoch == 0 else None,
        owned={} if epoch == 0 else None,
    )


def left_in(service: GroupService, group_id: str) -> list[str]:
    """Return the parts of the service that still know a group."""
    parts = {
        "machine": service._groups,
        "topics": service._topics._delivered,
        "offsets": service.books._books,
        "account": service._quota._entries,
        "meter": service.meter._unsettled,
    }
    return [name for name, part in parts.items() if group_id in part]


def full(*arguments: object, **more: object) -> None:
    """Refuse a write."""
    raise StoreFailed("no space")


def test_each_kind_of_request_that_may_begin_a_deadline_sets_the_alarm() -> None:
    """The requests are a join, a sync, a leave and a consumer heartbeat."""
    desk = Desk(MemoryStore())
    seen = []
    for ask in (
        lambda: desk.join(),
        lambda: desk.ask(lambda t: LeaveGroup(t, (Leaver("m"),))),
        lambda: desk.ask(heartbeat, "new"),
    ):
        desk.alarms.clear()
        ask()
        seen.append(bool(desk.alarms))
        desk.join("", group_id="g")
    assert seen == [True, True, True]


def test_a_commit_sets_no_alarm() -> None:
    """A commit only extends a session, and commits are frequent."""
    desk = Desk(MemoryStore())
    desk.stable()
    desk.alarms.clear()
    assert desk.ask(lambda t: CommitOffsets(t, "m", 1))[0].error is Code.NONE
    assert desk.alarms == []


@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_a_deleted_group_leaves_nothing_in_memory_or_on_disk(kind: str) -> None:
    """The group had members and offsets before."""
    store = MemoryStore()
    desk = Desk(store)
    if kind == "classic":
        desk.stable()
        desk.ask(lambda t: LeaveGroup(t, (Leaver("m"),)))
        desk.service.tick("g")
    else:
        desk.ask(heartbeat)
        desk.ask(lambda t: heartbeat(t, -1))
    desk.service.books.commit("g", {("t", 0): Committed(1)})
    assert left_in(desk.service, "g")[:3] == ["machine", "topics", "offsets"]
    assert desk.ask(DeleteGroup)[0].error is Code.NONE
    assert left_in(desk.service, "g") == []
    assert list(store.scan(b"")) == []


def test_a_target_of_a_deleted_group_is_not_that_of_its_successor() -> None:
    """Both groups number their requests from 1 on; the new group keeps waiting for its own target."""
    desk = Sized(MemoryStore())
    desk.consumer = ConsumerLimits(inline_size=-1)
    topics = Catalogue.of([Topic("t", bytes(16), 1)])
    desk.service._topics._current = lambda: topics
    waiting: list[tuple[GroupSpec, Outcome]] = []
    desk.service._compute = lambda spec, done: waiting.append((spec, done))

    def join(member_id: str) -> None:
        event = replace(heartbeat(0), member_id=member_id, subscribed_topic_names=("t",))
        desk.ask(lambda token: replace(event, token=token))

    def state() -> tuple[str, list[int]]:
        view = desk.service.get("g").describe()  # type: ignore[union-attr]
        return view.state, [len(member.target) for member in view.members]

    join("old")
    desk.ask(lambda t: replace(heartbeat(t, -1), member_id="old"))
    assert desk.ask(DeleteGroup)[0].error is Code.NONE
    join("new")
    (old, old_done), (new, new_done) = waiting
    assert (list(old.members), list(new.members)) == (["old"], ["new"])
    old_done(compute(old), "")
    assert state() == ("Assigning", [0])
    new_done(compute(new), "")
    assert state() == ("Reconciling", [1])


@pytest.mark.parametrize("kind", ["classic", "consumer", "offsets alone"])
def test_a_group_stays_whole_if_the_store_refuses_its_deletion(kind: str) -> None:
    """The answer is an error that clients retry; the next deletion succeeds."""
    store = MemoryStore()
    desk = Desk(store)
    if kind == "classic":
        desk.stable()
        desk.ask(lambda t: LeaveGroup(t, (Leaver("m"),)))
        desk.service.tick("g")
    elif kind == "consumer":
        desk.ask(heartbeat)
        desk.ask(lambda t: heartbeat(t, -1))
    else:
        desk.ask(lambda t: CommitOffsets(t, "", -1))
    books = desk.service.books
    books.commit("g", {("t", 0): Committed(1)})
    books.store_pending("g", 7, {("t", 1): Committed(2)})
    before, write = list(store.scan(b"")), store.write
    for fails in (True, False):
        store.write = full if fails else write  # type: ignore[method-assign]
        error = desk.ask(DeleteGroup)[0].error
        if fails:
            assert (error, list(store.scan(b""))) == (Code.NOT_COORDINATOR, before)
            assert books.offsets("g").entries == {("t", 0): Committed(1)}
            assert books.pending.is_pending("g", ("t", 1))
            assert desk.service.get("g").state_name == "Empty"  # type: ignore[union-attr]
        else:
            assert (error, list(store.scan(b"")), left_in(desk.service, "g")) == (Code.NONE, [], [])


def test_offsets_expire_later_if_the_store_refuses_their_deletion() -> None:
    """Otherwise the offsets would be back after the next start, and their group would be gone.

    A failure ends the round: with a full disk, each of many groups would fail and log it.
    """
    desk = Desk(MemoryStore())
    for group_id in ("g", "h"):
        desk.ask(lambda t: CommitOffsets(t, "", -1), group_id)
        desk.service.books.commit(group_id, {("t", 0): Committed(1)})
    store = desk.service.books._store
    write = store.write
    desk.now += 10_000
    store.write = full  # type: ignore[method-assign]
    with pytest.raises(StoreFailed, match="the expired offsets of group g are not deleted"):
        list(expire_offsets(desk.service, 1))
    assert (len(list(desk.service)), desk.counters["offsets_expired"]) == (2, 0)
    store.write = write  # type: ignore[method-assign]
    desk.ask(lambda t: CommitOffsets(t, "", -1), "empty")
    assert list(itertools.islice(expire_offsets(desk.service, 1), 2)) == [1, 1]
    store.write = full  # type: ignore[method-assign]
    with pytest.raises(StoreFailed, match="the empty group empty is not deleted"):
        list(expire_offsets(desk.service, 1))
    store.write = write  # type: ignore[method-assign]
    assert list(expire_offsets(desk.service, 1)) == [0]
    assert (list(desk.service), desk.counters["offsets_expired"]) == ([], 2)


@pytest.mark.parametrize("way", ["commit", "transaction", "deletion", "topic"])
def test_offsets_of_a_deleted_topic_do_not_return_if_the_store_refused_their_deletion(
    way: str,
) -> None:
    """The next write of offsets deletes them, but not the offset of a new topic of the same name."""
    store = MemoryStore()
    desk = Desk(store)
    books = desk.service.books
    for group_id in ("g", "h"):
        desk.ask(lambda t: CommitOffsets(t, "", -1), group_id)
        books.commit(group_id, {(topic, n): Committed(9) for topic in "tu" for n in range(2)})
        books.store_pending(group_id, 7, {("t", 3): Committed(9)})
    write = store.write
    store.write = full  # type: ignore[method-assign]
    assert list(books.topic_deleted("t"))
    store.write = write  # type: ignore[method-assign]
    left = {("u", 0): Committed(9), ("u", 1): Committed(9)}
    mine = dict(left)
    if way == "transaction":
        books.store_pending("g", 8, {("u", 2): Committed(4)})
        books.store_pending("g", 9, {("t", 0): Committed(5)})
        books._owed.add(group_store.offset_key("g", "t", 0))  # of a deletion during the transaction
        puts, deletes, stored = books.end_transaction("g", 9, commits=True)
        store.write(puts, deletes)
        stored()
        books.delete_offsets("g", [("u", 2)])
        mine[("t", 0)] = Committed(5)
    elif way == "commit":
        assert books.commit("g", {("t", 0): Committed(5)}) is Code.NONE
        mine[("t", 0)] = Committed(5)
    elif way == "deletion":
        assert books.delete_offsets("g", [("u", 1)]) is Code.NONE
        del mine[("u", 1)]
    else:
        assert sorted(books.topic_deleted("u")) == ["g", "h"]
        mine = left = {}
    again = Desk(store).service.books
    for found in (books, again):
        assert (found.offsets("g").entries, found.offsets("h").entries) == (mine, left)
        assert (found.pending.count("g"), found.pending.count("h")) == (0, 0)


def test_groups_that_are_gone_leave_no_trace_in_the_index_of_their_topics() -> None:
    """The offsets expired, were deleted, belonged to a transaction, or went with their group."""
    desk = Desk(MemoryStore())
    books = desk.service.books
    for group_id in ("expired", "deleted", "pending", "whole"):
        desk.ask(lambda t: CommitOffsets(t, "", -1), group_id)
        if group_id != "pending":
            books.commit(group_id, {("t", 0): Committed(1)})
    books.store_pending("pending", 7, {("u", 0): Committed(1)})
    books.end_transaction("pending", 7, commits=False)[2]()
    books.delete_offsets("deleted", [("t", 0)])
    desk.ask(DeleteGroup, "whole")
    desk.now += 10_000
    assert sorted(books.topics()) == ["t", "u"]
    assert list(expire_offsets(desk.service, 1)) == [1, 0, 0]
    assert (list(desk.service), books.topics(), books._books) == ([], (), {})


@pytest.mark.parametrize(("generation", "error"), [(-1, Code.NONE), (0, Code.ILLEGAL_GENERATION)])
def test_only_a_commit_without_a_generation_creates_a_group(generation: int, error: Code) -> None:
    """A member's late commit must not create its deleted group again."""
    desk = Desk(MemoryStore())
    assert desk.ask(lambda t: CommitOffsets(t, "", generation))[0].error is error
    assert [group.group_id for group in desk.service] == (["g"] if error is Code.NONE else [])


def test_changed_limits_reach_the_groups_of_both_protocols() -> None:
    """A classic group uses them after its conversion to a consumer group."""
    desk = Sized(MemoryStore())
    desk.join(group_id="classic")
    desk.ask(heartbeat, "consumer")
    desk.consumer = ConsumerLimits(session_timeout_ms=123)
    for name in ("classic", "consumer", "unknown"):
        desk.service.limits_changed(name)
    classic, consumer = desk.service.get("classic"), desk.service.get("consumer")
    assert isinstance(classic, ClassicGroup)
    assert classic.consumer_limits.session_timeout_ms == 123
    assert consumer.limits.session_timeout_ms == 123  # type: ignore[union-attr]


def test_a_rebalance_is_counted_under_the_first_event_that_began_it() -> None:
    """A later join in the same rebalance, and its end, do not count as rebalances."""
    desk = Desk(MemoryStore())
    desk.ask(lambda t: JoinGroup(t, "", "a", (Protocol("range", b""),), needs_known_id=False))
    desk.ask(lambda t: JoinGroup(t, "", "b", (Protocol("range", b""),), needs_known_id=False))
    assert dict(desk.service.meter.rebalances) == {"member_joined": 1}
    desk.service.tick("g")
    assert dict(desk.service.meter.rebalances) == {"member_joined": 1}
    assert desk.counters["group_member_joined"] == 2


def test_a_rebalance_takes_as_long_as_the_timers_say() -> None:
    """A step of the wall clock does not change the duration."""
    desk = Desk(MemoryStore())
    desk.join()
    desk.now += 10**9
    desk.timer += 2_000
    desk.stable()
    assert desk.service.meter.rebalance_s.total == 2.0


@pytest.mark.parametrize(("spare", "error"), [(0, Code.NONE), (-1, Code.UNKNOWN_SERVER_ERROR)])
def test_a_classic_record_counts_with_its_own_size_in_a_change_of_several_records(
    spare: int, error: Code
) -> None:
    """A downgrade writes the record beside tombstones; exactly message.max.bytes are allowed."""
    member = fx.MemberRecord("m", None, "c", "/h", 1, 2, (Protocol("p", b"x" * 500),), b"y" * 300)
    record = fx.GroupRecord("g", 1, "consumer", "p", "m", 0, (member,), True)
    size = group_store.record_size(record)
    desk = Desk(MemoryStore(), max_record_bytes=size + spare)
    records = (Record(Key(Kind.EPOCH, "g"), None), Record(Key(Kind.CLASSIC, "g"), record))
    assert desk.service._saver.save("g", records) is error
    assert desk.service._saver.save("g", records[1:]) is error


def test_a_record_counts_every_text_and_the_bytes_of_the_chosen_protocol() -> None:
    """Kafka's record leaves out the first member's second protocol."""
    one = fx.MemberRecord(
        "m" * 3, "i" * 5, "c" * 7, "h" * 11, 1, 2,
        (Protocol("other", b"o" * 500), Protocol("p", b"p" * 13)), b"a" * 17,
    )  # fmt: skip
    two = fx.MemberRecord("m", None, "c", "h", 1, 2, (Protocol("other", b"o" * 500),), b"a")
    record = fx.GroupRecord("g", 1, "consumer", "p", "m", 0, (one, two), True)
    assert group_store.record_size(record) == (3 + 5 + 7 + 11 + 24 + 13 + 17) + (3 + 24 + 1)


def test_a_group_that_is_too_large_is_refused_before_it_is_encoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """500 members with metadata of 200 KB stopped the broker for 4 s and took 600 MB."""
    monkeypatch.setattr(group_store, "dump_group", None)
    chosen, other = Protocol("p", b"p" * 100), Protocol("other", b"o" * 500)
    for protocols, largest in (((chosen,), 100), ((Protocol("p", b""), other, other), 200)):
        member = fx.MemberRecord("m", None, "c", "h", 1, 2, protocols, b"")
        record = fx.GroupRecord("g", 1, "consumer", "p", "m", 0, (member,), True)
        desk = Desk(MemoryStore(), max_record_bytes=largest)
        saved = desk.service._saver.save("g", (Record(Key(Kind.CLASSIC, "g"), record),))
        assert saved is Code.UNKNOWN_SERVER_ERROR


def test_the_id_of_a_group_that_cannot_be_stored_forges_no_line_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A client chooses the group id, which may contain a new line."""
    member = fx.MemberRecord("m", None, "c", "h", 1, 2, (Protocol("p", b"p" * 99),), b"")
    record = fx.GroupRecord("g\nERROR", 1, "consumer", "p", "m", 0, (member,), True)
    desk = Desk(MemoryStore(), max_record_bytes=10)
    desk.service._saver.save("g\nERROR", (Record(Key(Kind.CLASSIC, "g\nERROR"), record),))
    assert caplog.messages[0].startswith(r"Could not store group 'g\nERROR': ")


@pytest.mark.parametrize("expires_at_ms", [None, 0, 7])
def test_an_offset_survives_its_bytes(expires_at_ms: int | None) -> None:
    """The time may be absent or zero."""
    store = MemoryStore()
    entry = Committed(5, 3, "nöte", 9, expires_at_ms)
    store.write([(group_store.offset_key("g", "t", 2), group_store.dump_offset(entry))])
    assert list(group_store.load_offsets(store)) == [("g", ("t", 2), entry)]


def test_a_restored_group_with_members_is_no_group_of_offsets_alone() -> None:
    """The two kinds have separate shares of the broker's limit, even after a restart."""
    store = MemoryStore()
    desk = Desk(store)
    desk.stable()
    desk.ask(CommitOffsets, "offsets")
    desk.service.books.commit("offsets", {("t", 0): Committed(1)})
    again = Desk(store)
    kinds = {name: entry.is_simple for name, entry in again.service._quota._entries.items()}
    assert kinds == {"g": False, "offsets": True}


def test_a_session_that_ends_removes_its_member_at_the_alarm() -> None:
    """The alarm is set one session timeout after the member's last request."""
    desk = Desk(MemoryStore())
    desk.stable()
    group = desk.service.get("g")
    assert group is not None
    assert group.next_deadline_ms == desk.timer + SESSION_MS
    desk.timer += SESSION_MS - 1
    desk.service.tick("g")
    assert not group.is_empty
    desk.timer += 1
    desk.service.tick("g")
    assert group.is_empty
    assert desk.counters["group_member_expired"] == 1
    assert LIMITS.initial_rebalance_delay_ms == 0


def test_a_join_of_a_known_member_creates_no_group() -> None:
    """The group was deleted: the member is unknown, and begins anew without its id."""
    desk = Desk(MemoryStore())
    (answer,) = desk.join("ghost")
    assert answer.error is Code.UNKNOWN_MEMBER_ID
    assert (desk.service.get("g"), left_in(desk.service, "g")) == (None, [])
