"""ConsumerProtocol: the bytes of real consumers, read in full, and malformed bytes."""

from __future__ import annotations

import struct

import pytest

from faust_assigner.coordinator.protocol import (
    MAX_ENTRIES,
    Subscription,
    read_assignment,
    read_subscription,
    subscribed_topics,
    write_assignment,
)


def text(value: str) -> bytes:
    """Return a string after its length."""
    raw = value.encode()
    return struct.pack(">h", len(raw)) + raw


def partitions(*topics: tuple[str, tuple[int, ...]]) -> bytes:
    """Return topics with numbers, in the given order."""
    parts = [struct.pack(">i", len(topics))]
    for name, numbers in topics:
        parts += [text(name), struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)]
    return b"".join(parts)


TOPICS = struct.pack(">i", 2) + text("b") + text("\u00e4")
USER_DATA = struct.pack(">i", 5) + b"bytes"
OWNED = partitions(("b", (7, 3)), ("a", (0,)), ("b", (5, 3, -1)), ("c", ()))
RACK = struct.pack(">i", 9) + text("r1")
HELD = {"b": (3, 5, 7), "a": (0,), "c": ()}


@pytest.mark.parametrize(
    ("version", "metadata", "found"),
    [
        (0, TOPICS + USER_DATA, Subscription(0, ("b", "\u00e4"))),
        (1, TOPICS + USER_DATA + OWNED, Subscription(1, ("b", "\u00e4"), HELD)),
        (2, TOPICS + USER_DATA + OWNED + RACK[:4], Subscription(2, ("b", "\u00e4"), HELD)),
        (3, TOPICS + USER_DATA + OWNED + RACK, Subscription(3, ("b", "\u00e4"), HELD, "r1")),
        (9, TOPICS + USER_DATA + OWNED + RACK + b"more", Subscription(9, ("b", "\u00e4"), HELD, "r1")),
        (1, struct.pack(">ii", 0, -1) + partitions(), Subscription(1, ())),
        (1, struct.pack(">ii", 0, 0) + partitions(), Subscription(1, ())),
        (3, struct.pack(">ii", 0, -1) + partitions() + struct.pack(">ih", -1, -1), Subscription(3, ())),
        (3, struct.pack(">ii", 0, -1) + partitions() + struct.pack(">ih", -1, 0), Subscription(3, ())),
    ],
)  # fmt: skip
def test_a_subscription_is_read_with_every_field(
    version: int, metadata: bytes, found: Subscription
) -> None:
    """User data is skipped; a topic that is named twice has all its numbers in order."""
    raw = struct.pack(">h", version) + metadata
    assert read_subscription(raw) == found
    assert subscribed_topics(raw) == found.topics


@pytest.mark.parametrize("end", range(len(TOPICS + USER_DATA + OWNED + RACK) + 2))
def test_a_subscription_that_is_cut_off_does_not_parse(end: int) -> None:
    """The cut may be at any byte; only the topics are readable once they are complete."""
    raw = (struct.pack(">h", 3) + TOPICS + USER_DATA + OWNED + RACK)[:end]
    assert read_subscription(raw) is None
    assert subscribed_topics(raw) == (("b", "\u00e4") if end >= 2 + len(TOPICS) else None)


@pytest.mark.parametrize(
    "metadata",
    [
        struct.pack(">hii", -1, 0, -1),
        struct.pack(">hi", 0, -1),
        struct.pack(">hih", 0, 1, -1),
        struct.pack(">hi", 0, 3) + text("") * 2,
        struct.pack(">hi", 0, MAX_ENTRIES + 1) + text("") * (MAX_ENTRIES + 1),
        struct.pack(">hih1s", 0, 1, 1, b"\xff"),
    ],
    ids=["version", "count", "length", "too few", "too many", "text"],
)
def test_topics_that_are_no_list_of_texts_do_not_parse(metadata: bytes) -> None:
    """Neither the subscription nor the protection of offsets uses such topics."""
    assert read_subscription(metadata) is None
    assert subscribed_topics(metadata) is None


def test_as_many_topics_as_are_allowed_are_read() -> None:
    """The names are empty and take two bytes each."""
    raw = struct.pack(">hi", 0, MAX_ENTRIES) + text("") * MAX_ENTRIES
    assert len(subscribed_topics(raw) or ()) == MAX_ENTRIES


def test_an_assignment_is_written_in_the_order_of_its_names_and_read_back() -> None:
    """The bytes are the version, the topics and no user data."""
    given = {"b": (1, 2), "\u00e4": (0,), "a": ()}
    raw = write_assignment(3, given)
    assert raw == (
        struct.pack(">h", 3)
        + partitions(("a", ()), ("b", (1, 2)), ("\u00e4", (0,)))
        + struct.pack(">i", -1)
    )
    assert read_assignment(raw) == given
    assert write_assignment(0, {}) == bytes.fromhex("0000 00000000 ffffffff")
    assert (read_assignment(b""), read_assignment(write_assignment(0, {}))) == ({}, {})


def test_an_assignment_that_is_cut_off_or_of_a_negative_version_does_not_parse() -> None:
    """The user data at the end is not read."""
    raw = write_assignment(3, {"b": (1, 2), "c": (7,)})
    for end in range(1, len(raw) - 4):
        assert read_assignment(raw[:end]) is None, end
    assert read_assignment(raw[:-4]) == {"b": (1, 2), "c": (7,)}
    assert read_assignment(b"\xff\xff" + raw[2:]) is None
