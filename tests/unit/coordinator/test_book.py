"""The facts derived from a consumer group's records and kept beside them."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from faust_assigner.coordinator.consumer.book import Book
from faust_assigner.coordinator.errors import CoordinatorBug
from faust_assigner.coordinator.events import Protocol
from faust_assigner.coordinator.records import (
    ClassicSide,
    CurrentAssignment,
    Kind,
    MemberMetadata,
    MemberState,
    Record,
)

NAMES = ("a", "b", "c", "d")
MEMBERS = ("m1", "m2", "m3", "m4")


def any_member(draw: random.Random, member_id: str) -> MemberMetadata | None:
    """Return a random member, or None."""
    if draw.random() < 0.2:
        return None
    classic = ClassicSide(
        session_timeout_ms=1, protocols=tuple(Protocol(name, b"") for name in draw.sample(NAMES, 2))
    )
    return MemberMetadata(
        instance_id=f"i-{member_id}" if draw.random() < 0.5 else None,
        topic_names=frozenset(draw.sample(NAMES, draw.randrange(4))),
        topic_regex=draw.choice(("", *NAMES)),
        client_host=draw.choice(("", "/10.0.0.1")),
        principal=draw.choice(("", "User:alice")),
        server_assignor=draw.choice((None, *NAMES)),
        classic=classic if draw.random() < 0.5 else None,
    )


def check(book: Book) -> None:
    """Check that the stored counts equal new counts over the records."""
    members = book.members
    said = members.values()
    assert book.names == Counter(name for one in said for name in one.topic_names)
    assert book.patterns == Counter(one.pattern for one in said if one.topic_regex)
    assert book.votes == Counter(one.server_assignor for one in said if one.server_assignor)
    assert book.classic_members == {m for m, one in members.items() if one.classic is not None}
    assert book.classic_protocols == Counter(
        protocol.name
        for one in said
        if one.classic is not None
        for protocol in one.classic.protocols
    )
    assert book.instances == {one.instance_id: m for m, one in members.items() if one.instance_id}
    assert book.behind == set(members)  # no member has the target's epoch


def test_what_members_say_is_counted_as_they_come_change_and_go() -> None:
    """Each change may be undone: names, patterns, votes, protocols and instances stay correct."""
    draw = random.Random(1)
    book, undo = Book("g"), list[Record]()
    for _ in range(300):
        if undo and draw.random() < 0.3:
            book.apply(undo.pop())
        else:
            member_id = draw.choice(MEMBERS)
            record = Record(book.key(Kind.MEMBER, member_id), any_member(draw, member_id))
            undo.append(book.apply(record))
        check(book)


@pytest.mark.parametrize("other", ["m1", "m2"])
def test_a_partition_has_one_holder_and_is_held_once(other: str) -> None:
    """Two members cannot hold it, nor can a member hold it as assigned and as revoked."""
    book, held = Book("g"), {bytes(16): {0: 1}}
    if other == "m1":
        whole = CurrentAssignment(1, 1, MemberState.STABLE, held, held)
        with pytest.raises(CoordinatorBug, match="held by m1"):
            book.apply(Record(book.key(Kind.CURRENT, "m1"), whole))
        return
    current = CurrentAssignment(1, 1, MemberState.STABLE, held, {})
    book.apply(Record(book.key(Kind.CURRENT, "m1"), current))
    with pytest.raises(CoordinatorBug, match="held by m1"):
        book.apply(Record(book.key(Kind.CURRENT, other), current))
