"""Which changes of a partition may land in its file, and when no more of them fit."""

from __future__ import annotations

import pytest

from faust_assigner.app.tables.changes import NO_RECORD, OVERHEAD, Overlay, Usage
from faust_assigner.app.transactions.shares import Share


@pytest.mark.parametrize(
    ("most_bytes", "most_changes", "is_full"),
    [
        (2 * (OVERHEAD + 2), 9, True),
        (2 * (OVERHEAD + 2) + 1, 9, False),
        (10**9, 2, True),
        (10**9, 3, False),
    ],
)
def test_changes_fill_the_room_of_all_tables_up_to_either_limit(
    most_bytes: int, most_changes: int, is_full: bool
) -> None:
    """Two partitions share it; what lands or is dropped makes room again."""
    usage = Usage(most_bytes, most_changes)
    one, other = Overlay(usage), Overlay(usage)
    change = one.put(b"a", b"1")
    other.put(b"b", b"2")
    assert usage.is_full == is_full
    one.acknowledge(change, 7)
    one.landed(one.ready())
    other.drop()
    assert (usage.bytes, usage.changes) == (0, 0)


@pytest.mark.parametrize(
    ("offset", "beyond"), [(NO_RECORD, None), (6, 6), (7, 7), (8, None), (None, None)]
)
def test_a_file_is_wrongly_beyond_a_new_change_from_its_own_offset_on(
    offset: int | None, beyond: int | None
) -> None:
    """The file at 7 has another record there; changes of before its restore are no doubt."""
    overlay = Overlay(Usage(10**9, 9))
    old, new = overlay.put(b"a", b"1"), None
    overlay.acknowledge(old, 3)
    overlay.believe()
    new = overlay.put(b"b", b"2")
    if offset is not None:
        overlay.acknowledge(new, offset)
    assert overlay.beyond(7, [old, new]) == beyond


async def test_a_change_waits_for_another_producers_that_was_made_before_its_answer() -> None:
    """That one may be earlier in the changelog; a change made after the answer is later."""
    one, other = Share("one", begun=True), Share("other", begun=True)
    overlay = Overlay(Usage(10**9, 9))
    first = overlay.put(b"a", b"1", one)
    unknown = overlay.put(b"b", b"1", other)
    overlay.acknowledge(first, 5)
    one.commit()
    assert overlay.ready() == []
    overlay.drop(other)
    assert overlay.ready() == [first]
    unknown = overlay.put(b"b", b"2", other)
    assert overlay.ready() == [first]
    overlay.acknowledge(unknown, 6)
    assert overlay.ready() == [first], "its transaction is not committed"
    other.commit()
    assert overlay.ready() == [first, unknown]
