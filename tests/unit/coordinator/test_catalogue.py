"""Topics in the group coordinator's view: digests kept on disk, and existing names."""

from __future__ import annotations

from dataclasses import replace

from faust_assigner.coordinator.catalogue import Catalogue, Topic, nothing_hidden

A = Topic("a", b"A" * 16, 3, (frozenset({"r2", "r1"}), frozenset({"r1"}), frozenset()))
B = Topic("b", b"B" * 16, 2)
C = Topic("c", b"C" * 16, 1)
TOPICS = Catalogue.of([B, A, C])


def test_the_digest_of_a_topic_is_the_same_in_every_process_and_release() -> None:
    """A group's record has a number derived from digests; a change would cause a rebalance."""
    assert A.digest().hex() == "8bc828748b53fa6a"
    assert B.digest().hex() == "1dedc137d46a74cd"
    changed = (
        replace(A, name="x"),
        replace(A, topic_id=b"X" * 16),
        replace(A, partitions=4),
        replace(A, racks=(frozenset({"r1"}), frozenset({"r1"}), frozenset())),
        replace(A, racks=(frozenset({"r1"}), frozenset({"r1", "r2"}), frozenset())),
    )
    assert len({topic.digest() for topic in (A, B, *changed)}) == 7
    assert {len(topic.digest()) for topic in (A, B)} == {8}


def test_the_fingerprint_of_topics_is_the_same_in_every_process_and_release() -> None:
    """Neither the names' order nor unknown names change the fingerprint."""
    assert TOPICS.fingerprint(["a", "b"]) == 2_641_655_812_193_795_911
    assert TOPICS.fingerprint(["b", "ghost", "a", "a"]) == TOPICS.fingerprint(["a", "b"])
    assert TOPICS.fingerprint(["a", "c"]) != TOPICS.fingerprint(["a", "b"])
    assert TOPICS.fingerprint(["a"]) == 5_557_875_622_456_223_892
    assert (TOPICS.fingerprint([]), TOPICS.fingerprint(["ghost"])) == (0, 0)
    assert max(TOPICS.fingerprint([name]) for name in "abc") < 1 << 63


def test_topics_are_found_by_name_and_by_id() -> None:
    """Each topic has a digest; no topic is hidden unless the broker hides it."""
    assert dict(TOPICS.by_name) == {"a": A, "b": B, "c": C}
    assert dict(TOPICS.by_id) == {A.topic_id: A, B.topic_id: B, C.topic_id: C}
    assert dict(TOPICS.digests) == {one.name: one.digest() for one in (A, B, C)}
    assert TOPICS.hidden_from is nothing_hidden
    assert nothing_hidden("User:x", "/1") == frozenset()
    hiding = replace(TOPICS, hidden_from=lambda principal, host: frozenset({principal, host}))
    assert hiding == TOPICS, "the rights are no part of the comparison"
    assert hiding.hidden_from("User:x", "/1") == {"User:x", "/1"}


def test_existing_names_are_found_from_the_smaller_side() -> None:
    """The cases have as many names as topics, one name more, and no name."""
    assert TOPICS.existing_topics({"a", "c", "x"}) == {"a", "c"}
    assert TOPICS.existing_topics({"a", "c", "x", "y"}) == {"a", "c"}
    assert TOPICS.existing_topics({"a", "b", "c", "y"}) == {"a", "b", "c"}
    assert TOPICS.existing_topics(set()) == set()
    assert TOPICS.ids(["c", "x", "a", "a"]) == {A.topic_id, C.topic_id}


def test_partitions_are_converted_by_name_and_by_id() -> None:
    """Partitions ascend without repeats; unknown topics and empty topics are left out."""
    by_id = TOPICS.partitions_of({"b": [9, 10, 1, 9], "a": (0,), "ghost": (1,), "c": ()})
    assert by_id == {B.topic_id: (1, 9, 10), A.topic_id: (0,)}
    assert TOPICS.names_of({**by_id, b"?" * 16: (1,)}) == {"b": (1, 9, 10), "a": (0,)}
