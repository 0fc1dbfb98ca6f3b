"""Committed offsets: reading, dropping, and expiry after KIP-211."""

from __future__ import annotations

import struct

import pytest

from faust_assigner.coordinator.classic import ClassicGroup
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import Leaver, Protocol
from faust_assigner.coordinator.offsets import NO_OFFSET, Committed, OffsetBook
from faust_assigner.coordinator.protocol import subscribed_topics
from tests.support.coordination.classic_bench import NO_DELAY, Bench

RETENTION_MS = 60_000


def _subscription(*topics: str) -> tuple[Protocol, ...]:
    names = b"".join(struct.pack(">h", len(t)) + t.encode() for t in topics)
    return (Protocol("range", struct.pack(">hi", 1, len(topics)) + names + struct.pack(">i", -1)),)


def _book(*topics: str, at: int = 1_000) -> OffsetBook:
    offsets = OffsetBook()
    offsets.commit({(topic, 0): Committed(5, committed_at_ms=at) for topic in topics})
    return offsets


def _stable_group(*topics: str) -> Bench:
    bench = Bench()
    token = bench.join(protocols=_subscription(*topics))
    bench.pass_time(0)
    bench.sync(bench.joined(token).member_id)
    return bench


def test_a_partition_without_a_commit_reads_minus_one() -> None:
    """The read has no error: consumers then follow auto.offset.reset."""
    assert dict(_book("t").read([("t", 0), ("t", 1)]))[("t", 1)].offset == NO_OFFSET


def test_a_later_commit_wins_even_with_a_smaller_offset() -> None:
    """A reset commits a smaller offset."""
    offsets = _book("t")
    offsets.commit({("t", 0): Committed(2)})
    assert offsets.entries[("t", 0)].offset == 2


def test_offsets_of_subscribed_topics_do_not_expire_while_the_group_lives() -> None:
    """The age of the last commit does not matter."""
    bench = _stable_group("read")
    assert _book("read").expired(bench.group, retention_ms=RETENTION_MS, now_ms=10**9) == ()
    offsets = OffsetBook()
    offsets.commit({("read", 0): Committed(1, committed_at_ms=0, expires_at_ms=10)})
    assert offsets.expired(bench.group, retention_ms=RETENTION_MS, now_ms=10**9) == ()


def test_offsets_of_topics_no_longer_subscribed_expire_after_their_last_commit() -> None:
    """An offset expires at the retention time and not a millisecond earlier."""
    bench = _stable_group("read")
    offsets = _book("read", "dropped")
    late = 1_000 + RETENTION_MS
    assert offsets.expired(bench.group, retention_ms=RETENTION_MS, now_ms=late - 1) == ()
    assert offsets.expired(bench.group, retention_ms=RETENTION_MS, now_ms=late) == (("dropped", 0),)


def test_offsets_of_an_empty_group_expire_counted_from_when_it_became_empty() -> None:
    """The last commit may be older than the start of the empty state."""
    bench = _stable_group("read")
    bench.pass_time(5_000)
    bench.leave(Leaver(bench.group.roster.leader or ""))
    empty_since = bench.now
    offsets = _book("read")
    assert (
        offsets.expired(
            bench.group, retention_ms=RETENTION_MS, now_ms=empty_since + RETENTION_MS - 1
        )
        == ()
    )
    assert offsets.expired(
        bench.group, retention_ms=RETENTION_MS, now_ms=empty_since + RETENTION_MS
    )


def test_offsets_of_a_group_that_never_had_members_expire_one_by_one() -> None:
    """Each offset's age counts from its own commit."""
    group = ClassicGroup("g", NO_DELAY, 0)
    offsets = _book("old", at=0)
    offsets.commit({("new", 0): Committed(1, committed_at_ms=500)})
    assert offsets.expired(group, retention_ms=RETENTION_MS, now_ms=RETENTION_MS) == (("old", 0),)


def test_a_retention_asked_for_by_an_old_client_overrules_the_brokers() -> None:
    """OffsetCommit v2-4 has a retention time."""
    group = ClassicGroup("g", NO_DELAY, 0)
    offsets = OffsetBook()
    offsets.commit({("t", 0): Committed(1, committed_at_ms=0, expires_at_ms=10)})
    assert offsets.expired(group, retention_ms=RETENTION_MS, now_ms=10) == (("t", 0),)


def test_nothing_expires_while_a_group_rebalances() -> None:
    """The group's subscriptions are about to change."""
    bench = _stable_group("read")
    bench.join(protocols=_subscription("other"))
    assert _book("gone").expired(bench.group, retention_ms=RETENTION_MS, now_ms=10**9) == ()


def test_a_group_whose_metadata_does_not_parse_keeps_its_offsets() -> None:
    """An unknown subscription counts as a subscription to every topic."""
    bench = _stable_group("read")
    bench.group.roster[bench.group.roster.leader or ""].protocols = (Protocol("range", b"junk"),)
    assert bench.group.subscribed_topics() is None
    assert _book("x").expired(bench.group, retention_ms=RETENTION_MS, now_ms=10**9) == ()


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        b"\0",
        b"\0\1\xff\xff\xff\xff",
        b"\0\1\x7f\xff\xff\xff",
        b"\0\1\0\0\0\1\0\5ab",
        b"\0\1\0\0\0\1\xff\xff",
        b"\0\1\0\0\0\1\0\1\xff",
    ],
)
def test_hostile_subscription_bytes_read_as_unknown(metadata: bytes) -> None:
    """Truncated, negative and huge counts and lengths and bad text return None immediately."""
    assert subscribed_topics(metadata) is None


def test_topics_of_all_members_count() -> None:
    """The result is the union of the members' topics."""
    bench = Bench()
    first = bench.join(protocols=_subscription("a"))
    bench.pass_time(0)
    member = bench.joined(first).member_id
    bench.join(protocols=_subscription("b", "c"))
    bench.join(member, protocols=_subscription("a"))
    assert bench.group.subscribed_topics() == {"a", "b", "c"}


def test_an_empty_group_takes_commits_without_a_generation_alone() -> None:
    """The group knows no member of generation 0 or later, whatever its id."""
    bench = Bench()
    assert bench.commit(generation=-1) is Code.NONE
    assert {bench.commit("m1", generation) for generation in (0, 1)} == {Code.UNKNOWN_MEMBER_ID}
    assert bench.commit("", 0) is Code.UNKNOWN_MEMBER_ID
