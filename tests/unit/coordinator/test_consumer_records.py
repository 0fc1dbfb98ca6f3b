"""The records of a consumer group are its state: each record makes a change that can be undone."""

from __future__ import annotations

import struct

import pytest

from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.consumer.book import Book
from faust_assigner.coordinator.errors import CoordinatorBug
from faust_assigner.coordinator.events import Protocol
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
    Value,
)
from tests.support.coordination.consumer_bench import GROUP, topic_id
from tests.support.coordination.consumer_script import Stage

A = topic_id("a")
STOOD = CurrentAssignment(3, 2, MemberState.UNREVOKED, {A: {0: 1}}, {A: {1: 1}})
SAID = MemberMetadata(
    "i1",
    "r",
    "c",
    "h",
    1,
    frozenset({"a"}),
    "b.*",
    "range",
    ClassicSide(1, (Protocol("range", b""),)),
)
CASES: list[tuple[Kind, str, Value, Value]] = [
    (Kind.EPOCH, "", GroupEpoch(4, 7), GroupEpoch(5, 8)),
    (Kind.TARGET_EPOCH, "", TargetEpoch(4), TargetEpoch(5)),
    (Kind.MEMBER, "m1", SAID, MemberMetadata(topic_names=frozenset({"b"}))),
    (Kind.TARGET, "m1", TargetAssignment({A: (0, 1)}), TargetAssignment({A: (1,)})),
    (Kind.CURRENT, "m1", STOOD, CurrentAssignment(4, 3, MemberState.STABLE, {A: {0: 1}}, {})),
]


def state(book: Book) -> dict[str, object]:
    """Return the complete state of a book, without partitions that have no owner."""
    fields = dict(vars(book))
    fields["owners"] = {t: owners for t, owners in book.owners.items() if owners}
    return {name: repr(value) for name, value in fields.items()}


@pytest.mark.parametrize(
    ("kind", "member_id", "value", "other"), CASES, ids=[c[0].value for c in CASES]
)
def test_each_kind_of_record_makes_its_change_and_can_be_undone(
    kind: Kind, member_id: str, value: Value, other: Value
) -> None:
    """A record is put, replaced and deleted, and each step is undone to the same state."""
    book = Book("g")
    before, undo = [state(book)], []
    for change in (value, other, None):
        undo.append(book.apply(Record(book.key(kind, member_id), change)))
        before.append(state(book))
        shown = {record.key: record.value for record in book.records()}
        assert shown.get(book.key(kind, member_id)) == change
    assert before[0] == before[3]
    for record, expected in zip(reversed(undo), reversed(before[:-1]), strict=True):
        book.apply(record)
        assert state(book) == expected


def test_a_partition_held_by_two_is_our_own_bug() -> None:
    """The book refuses the second record."""
    book = Book("g")
    book.apply(Record(book.key(Kind.CURRENT, "m1"), STOOD))
    with pytest.raises(CoordinatorBug, match="held by m1"):
        book.apply(Record(book.key(Kind.CURRENT, "m2"), STOOD))


def test_a_record_of_another_kind_of_group_is_our_own_bug() -> None:
    """A book accepts only records of its own kinds."""
    book = Book("g")
    with pytest.raises(CoordinatorBug, match="does not belong"):
        book.apply(Record(book.key(Kind.MEMBER, "m1"), TargetEpoch(1)))


@pytest.mark.parametrize("version", [0, 1, 3])
def test_a_group_turned_classic_stores_each_assignment_in_its_members_version(version: int) -> None:
    """A client reads no assignment newer than its subscription's version."""
    stage = Stage()
    for command in ("join m1", f"cjoin - new=c1 version={version}", "leave m1"):
        stage.play(command)
    record = stage.bench.disk[Key(Kind.CLASSIC, GROUP)]
    assert isinstance(record, fx.GroupRecord)
    assert [struct.unpack(">h", member.assignment[:2]) for member in record.members] == [(version,)]
