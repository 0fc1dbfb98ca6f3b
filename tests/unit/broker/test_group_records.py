"""Records of groups on disk: each kind survives, old stores are read, and changes are small."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from faust_assigner.broker.groups import GroupService
from faust_assigner.broker.groups.group_records import as_writes, load_records
from faust_assigner.broker.housekeeping import expire_offsets
from faust_assigner.broker.storage.store import MemoryStore, Range, StoreFailed
from faust_assigner.coordinator.catalogue import Catalogue, Topic
from faust_assigner.coordinator.classic import ClassicGroup, GroupLimits, State
from faust_assigner.coordinator.events import (
    CommitOffsets,
    ConsumerGroupHeartbeat,
    DeleteGroup,
    Protocol,
)
from faust_assigner.coordinator.offsets import Committed
from faust_assigner.coordinator.records import (
    ClassicSide,
    CurrentAssignment,
    GroupEpoch,
    Key,
    Kind,
    MemberMetadata,
    MemberState,
    Record,
    TargetAssignment,
    TargetEpoch,
)
from faust_assigner.coordinator.settings import ConsumerLimits
from tests.support.broker_groups import group_service

TOPIC, OTHER = b"0123456789abcdef", b"fedcba9876543210"
# A release without the consumer protocol wrote these bytes.
OLD_STORE = (
    (
        b"gold",
        b'{"generation": 7, "protocol_type": "consumer", "protocol": "range", "leader": "m-1", "since": 99, '
        b'"settled": true, "members": [{"id": "m-1", "instance": "i-1", "client": "client", '
        b'"host": "/127.0.0.1", "session": 10000, "rebalance": 60000, "assignment": "AAEC", '
        b'"protocols": [["range", "AAAAAAABAAFhAAAAAA=="]]}]}',
    ),
    (
        b"gbegun",
        b'{"generation": 3, "protocol_type": "consumer", "protocol": "range", "leader": "m-1", "since": 98, '
        b'"settled": false, "members": [{"id": "m-1", "instance": "i-1", "client": "client", '
        b'"host": "/127.0.0.1", "session": 10000, "rebalance": 60000, "assignment": "AAEC", '
        b'"protocols": [["range", "AAAAAAABAAFhAAAAAA=="]]}]}',
    ),
    (
        b"o\x00\x03old\x00\x01a\x00\x00\x00\x02",
        b"\x00\x00\x00\x00\x00\x00\x00)\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00M\xff\xff\xff\xff\xff\xff\xff\xffnote",
    ),
    (
        b"o\x00\x05alone\x00\x01a\x00\x00\x00\x00",
        b"\x00\x00\x00\x00\x00\x00\x00\x05\xff\xff\xff\xff\x00\x00\x00\x00\x00\x00\x00N\x00\x00\x00\x00\x00\x00\x03\xe8",
    ),
)


EMPTY = Catalogue()


def service(
    store: MemoryStore, topics: Catalogue = EMPTY, clock: Callable[[], int] = lambda: 1_000
) -> GroupService:
    """Return the groups of a store."""
    return group_service(
        store,
        clock=clock,
        consumer_limits=lambda group: ConsumerLimits(assignment_interval_ms=0),
        catalogue=lambda: topics,
    )


def key(kind: Kind, member_id: str = "") -> Key:
    """Return a key of a group with a name outside ASCII."""
    return Key(kind, "gruppe-ü", member_id)


RECORDS = (
    Record(key(Kind.EPOCH), GroupEpoch(7, 2**62)),
    Record(key(Kind.TARGET_EPOCH), TargetEpoch(6)),
    Record(key(Kind.MEMBER, "m-ü"), MemberMetadata()),
    Record(
        key(Kind.MEMBER, "m-2"),
        MemberMetadata(
            "i", "rack", "client", "/host", 300_000, frozenset({"a", "b"}), "a.*", "range",
            ClassicSide(10_000, (Protocol("range", bytes(range(256))),)), "User:ä",
        ),
    ),
    Record(key(Kind.TARGET, "m-2"), TargetAssignment({TOPIC: (0, 2), OTHER: ()})),
    Record(key(Kind.TARGET, "m-3"), TargetAssignment({})),
    Record(
        key(Kind.CURRENT, "m-2"),
        CurrentAssignment(-2, 5, MemberState.UNREVOKED, {TOPIC: {0: 3, 2: 5}}, {TOPIC: {1: 4}}),
    ),
)  # fmt: skip


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.key.kind.value)
def test_a_record_survives_its_bytes(record: Record) -> None:
    """The records have names outside ASCII, opaque bytes and negative epochs."""
    store = MemoryStore()
    store.write(*as_writes([record]))
    assert list(load_records(store)) == [record]


def test_a_tombstone_deletes_and_the_last_word_counts() -> None:
    """A record is put and deleted in a single write, in both orders."""
    store = MemoryStore()
    epoch, target = RECORDS[0], RECORDS[1]
    store.write(*as_writes([epoch]))
    store.write(*as_writes([target, Record(epoch.key, None)]))
    assert list(load_records(store)) == [target]
    store.write(*as_writes([Record(target.key, None), target]))
    assert list(load_records(store)) == [target]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (b"gg", b'{"kind": "classic", "v": 2, "members": []}'),
        (b"gg", b'{"kind": "streams", "v": 1}'),
        (b"m\0\1g\0\5epoch", b'{"kind": "epoch", "v": 2, "epoch": 1}'),
        (b"m\0\1g\0\5epoch", b'{"kind": "epoch", "epoch": 1, "fingerprint": 0}'),
        (b"m\0\1g\0\4what", b'{"kind": "what", "v": 1}'),
    ],
)
def test_a_record_from_the_future_ends_the_start(name: bytes, value: bytes) -> None:
    """The start fails, because a broker without the unreadable record would lose state."""
    store = MemoryStore()
    store.write([(name, value)])
    with pytest.raises(StoreFailed, match="later version"):
        list(load_records(store))


def test_a_store_of_the_earlier_broker_is_read() -> None:
    """Groups, members, generations, an unfinished rebalance and offsets are read."""
    store = MemoryStore()
    store.write(OLD_STORE)
    groups = service(store)
    old, begun, alone = (groups.get(name) for name in ("old", "begun", "alone"))
    assert isinstance(old, ClassicGroup)
    assert isinstance(begun, ClassicGroup)
    assert isinstance(alone, ClassicGroup)
    assert (old.state, old.generation, old.roster.leader) == (State.STABLE, 7, "m-1")
    assert (old.roster["m-1"].assignment, old.subscribed_topics()) == (b"\0\1\2", frozenset("a"))
    assert (begun.state, begun.generation) == (State.PREPARING, 3)
    assert (alone.state, alone.is_unproven) == (State.EMPTY, True)
    assert groups.books.offsets("old").entries == {("a", 2): Committed(41, 3, "note", 77, None)}
    assert groups.books.offsets("alone").entries == {("a", 0): Committed(5, -1, "", 78, 1_000)}


class CountingStore(MemoryStore):
    """A store that keeps the size of each write."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def write(
        self,
        puts: Iterable[tuple[bytes, bytes]],
        deletes: Iterable[bytes] = (),
        *,
        ranges: Iterable[Range] = (),
    ) -> None:
        """Note the size, then write."""
        pairs, gone = list(puts), list(deletes)
        self.sizes.append(sum(len(k) + len(v) for k, v in pairs) + sum(map(len, gone)))
        super().write(pairs, gone, ranges=ranges)


JOIN = ConsumerGroupHeartbeat(
    0, "one", 0, rebalance_timeout_ms=60_000, subscribed_topic_names=("a",), owned={}
)


def _join(groups: GroupService, member_id: str) -> None:
    groups.ask(
        "g", lambda token: replace(JOIN, token=token, member_id=member_id), lambda reply: None
    )


def test_a_members_own_change_writes_as_little_in_a_group_of_three_hundred() -> None:
    """A change writes its epoch and partitions: the same bytes beside 3 and beside 300 members."""
    sizes = []
    for members in (3, 300):
        store = CountingStore()
        groups = service(store, Catalogue.of([Topic("a", TOPIC, 3)]))
        for number in range(members):
            _join(groups, f"member-{number:04}")
        group = groups.get("g")
        assert group is not None
        (epoch,) = (m.epoch for m in group.describe().members if m.member_id == "member-0001")
        store.sizes.clear()
        groups.ask(
            "g",
            lambda token, epoch=epoch: ConsumerGroupHeartbeat(
                token, "member-0001", epoch, server_assignor="range", owned={}
            ),
            lambda reply: None,
        )
        sizes.append(max(store.sizes))
    assert 0 < sizes[1] <= sizes[0] + 100


def test_a_deleted_consumer_group_leaves_nothing() -> None:
    """A single write deletes every record and every offset."""
    store = MemoryStore()
    groups = service(store, Catalogue.of([Topic("a", TOPIC, 3)]))
    _join(groups, "one")
    groups.books.commit("g", {("a", 0): Committed(1)})
    groups.ask("g", lambda token: ConsumerGroupHeartbeat(token, "one", -1), lambda reply: None)
    groups.ask("g", DeleteGroup, lambda reply: None)
    assert groups.get("g") is None
    assert list(store.scan(b"")) == []


def test_a_request_that_founds_nothing_leaves_no_group() -> None:
    """A join without a subscription is refused, and no list of groups has its name."""
    groups = service(MemoryStore())
    answers = []
    groups.ask("g", lambda token: ConsumerGroupHeartbeat(token, "m", 0), answers.append)
    assert answers[0].error.name == "INVALID_REQUEST"
    assert list(groups) == []


def test_offsets_of_a_consumer_group_age_from_their_commit_once_nobody_reads_the_topic() -> None:
    """As in Kafka, they expire one retention time after the commit, and the group with them."""
    now = [1_000]
    groups = service(MemoryStore(), Catalogue.of([Topic("a", TOPIC, 3)]), lambda: now[0])
    _join(groups, "one")
    groups.books.commit(
        "g", {(topic, 0): Committed(1, committed_at_ms=1_000) for topic in ("a", "b")}
    )
    now[0] += 20_000
    assert sum(expire_offsets(groups, 10_000)) == 1
    assert groups.books.offsets("g").entries.keys() == {("a", 0)}
    groups.books.commit("g", {("a", 0): Committed(3, committed_at_ms=now[0])})
    groups.ask("g", lambda token: ConsumerGroupHeartbeat(token, "one", -1), lambda reply: None)
    now[0] += 9_999
    assert sum(expire_offsets(groups, 10_000)) == 0
    now[0] += 1
    assert sum(expire_offsets(groups, 10_000)) == 1
    assert groups.get("g") is None


def test_a_join_that_cannot_be_stored_is_refused() -> None:
    """The join is stored before its answer: without a disk the member is not added."""
    store = MemoryStore()
    groups = service(store, Catalogue.of([Topic("a", TOPIC, 3)]))

    def full(*arguments: object, **more: object) -> None:
        raise StoreFailed("No space left on device")

    store.write = full  # type: ignore[method-assign]
    answers = []
    groups.ask("g", lambda token: replace(JOIN, token=token), answers.append)
    assert answers[0].error.name == "NOT_COORDINATOR"
    assert answers[0].assignment is None


def test_a_heartbeat_knows_the_topics_of_this_moment() -> None:
    """A client that created a topic gets its partitions with its next heartbeat."""
    topics = [Catalogue()]
    groups = group_service(
        MemoryStore(),
        group_limits=GroupLimits(),
        consumer_limits=lambda group: ConsumerLimits(assignment_interval_ms=0),
        catalogue=lambda: topics[0],
    )
    answers = []
    groups.ask("g", lambda token: replace(JOIN, token=token), answers.append)
    assert not answers[0].assignment
    topics[0] = Catalogue.of([Topic("a", TOPIC, 3)])
    groups.ask(
        "g",
        lambda token: ConsumerGroupHeartbeat(token, "one", answers[0].member_epoch),
        answers.append,
    )
    assert answers[1].assignment == {TOPIC: (0, 1, 2)}


def test_the_topics_of_a_member_are_stored_in_order_and_old_members_have_no_principal() -> None:
    """Equal members have equal bytes; the first records with ``v`` had no principal."""
    names = [f"topic-{number}" for number in range(20)]
    member = MemberMetadata(
        "i", "r", "c", "/h", 7, frozenset(names), "x", "uniform", None, "User:u"
    )
    key = Key(Kind.MEMBER, "g", "m")
    ((stored_key, value),), _ = as_writes([Record(key, member)])
    saved = json.loads(value)
    assert saved["topics"] == sorted(names)
    del saved["principal"]
    store = MemoryStore()
    store.write([(stored_key, json.dumps(saved).encode())])
    assert list(load_records(store)) == [Record(key, replace(member, principal=""))]


def test_a_group_that_gets_a_consumer_during_an_expiry_keeps_its_offsets() -> None:
    """The expiry has dealt with the first group when a member joins the second, empty group."""
    now = [1_000]
    groups = service(MemoryStore(), Catalogue.of([Topic("a", TOPIC, 3)]), lambda: now[0])
    for group_id in ("f", "g"):
        groups.ask(group_id, CommitOffsets, lambda reply: None)
        groups.books.commit(group_id, {("a", 0): Committed(1, committed_at_ms=now[0])})
    now[0] += 20_000
    expiry = expire_offsets(groups, 10_000)
    assert next(expiry) == 1
    _join(groups, "one")
    assert list(expiry) == [0]
    assert groups.books.offsets("g").entries.keys() == {("a", 0)}
