"""An overlay's waiting changes: the changes ready for the file, and the limit of their room."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.app.tables.changes import NO_RECORD, OVERHEAD, Change, Overlay, Usage
from faust_assigner.app.tables.read_back import ReadBackOverlay
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
    """Two partitions share the room; written and dropped changes free it."""
    usage = Usage(most_bytes, most_changes)
    one, other = Overlay(usage), Overlay(usage)
    change = one.put(b"a", b"1")
    other.put(b"b", b"2")
    assert usage.is_full == is_full
    one.acknowledge(change, 7)
    one.remove_written(one.ready())
    other.drop()
    assert (usage.bytes, usage.changes) == (0, 0)


@pytest.mark.parametrize(
    ("offset", "beyond"), [(NO_RECORD, None), (6, 6), (7, 7), (8, None), (None, None)]
)
def test_a_file_is_wrongly_beyond_a_new_change_from_its_own_offset_on(
    offset: int | None, beyond: int | None
) -> None:
    """The file at 7 has another record there; changes made before its restore raise no doubt."""
    overlay = Overlay(Usage(10**9, 9))
    old, new = overlay.put(b"a", b"1"), None
    overlay.acknowledge(old, 3)
    overlay.note_restore_end()
    new = overlay.put(b"b", b"2")
    if offset is not None:
        overlay.acknowledge(new, offset)
    assert overlay.beyond(7, [old, new]) == beyond


async def test_a_change_waits_for_another_producers_that_was_made_before_its_answer() -> None:
    """An unanswered change may be earlier in the changelog; later changes are after the answer."""
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


# -- a single producer


def overlay_of(*rows: tuple[bytes, bytes | None]) -> tuple[Overlay, list[Change], Usage]:
    """Return an overlay with these changes outside transactions, the changes, and their room."""
    usage = Usage(10**9, 99)
    overlay = Overlay(usage)
    return overlay, [overlay.put(key, value) for key, value in rows], usage


def test_changes_land_in_their_order_up_to_the_first_unanswered_one() -> None:
    """Each key then shows its last waiting change, and the room holds only waiting changes."""
    rows = [(b"a", b"1"), (b"bb", None), (b"a", b""), (b"c", b"333"), (b"bb", b"4")]
    overlay, changes, usage = overlay_of(*rows)
    sizes = [OVERHEAD + size for size in (2, 2, 1, 4, 3)]
    assert [change.size for change in changes] == sizes
    assert (usage.bytes, usage.changes, len(overlay)) == (sum(sizes), 5, 5)
    assert overlay.ready() == []
    for number, offset in ((1, 8), (0, 7), (3, 10)):
        overlay.acknowledge(changes[number], offset)
    assert overlay.ready() == changes[:2]
    overlay.remove_written(changes[:2])
    assert (usage.bytes, usage.changes, len(overlay)) == (sum(sizes[2:]), 3, 3)
    assert [overlay.get(key) for key in (b"a", b"bb", b"c", b"d")] == [
        changes[2],
        changes[4],
        changes[3],
        None,
    ]
    assert not overlay.is_out_of_order
    overlay.acknowledge(changes[2], 9)
    assert overlay.ready() == changes[2:4]
    overlay.remove_written(changes[2:4])
    assert [overlay.get(key) for key in (b"a", b"bb", b"c")] == [None, changes[4], None]


def test_a_deletion_is_no_row_and_an_empty_value_is_one() -> None:
    """The last change of a key decides."""
    overlay, _, _ = overlay_of(
        (b"a", b"1"), (b"b", b"2"), (b"a", None), (b"c", None), (b"c", b""), (b"d", None)
    )
    assert sorted(overlay.rows()) == [b"b", b"c"]


async def test_changes_that_are_dropped_show_the_rows_before_them() -> None:
    """Only the transaction's changes are dropped: an earlier change is visible again."""
    share, usage = Share("one", begun=True), Usage(10**9, 99)
    overlay = Overlay(usage)
    first = overlay.put(b"a", b"1")
    for key in (b"a", b"b", b"a"):
        overlay.put(key, b"of the share", share)
    last = overlay.put(b"c", b"5")
    assert overlay.is_out_of_order
    assert overlay.drop(share) == {b"a", b"b"}
    assert [overlay.get(key) for key in (b"a", b"b", b"c")] == [first, None, last]
    assert (usage.bytes, usage.changes) == (first.size + last.size, 2)
    assert not overlay.is_out_of_order
    assert overlay.drop(share) == set()
    assert overlay.drop() == {b"a", b"c"}
    assert (usage.bytes, usage.changes, len(overlay)) == (0, 0, 0)


@pytest.mark.parametrize(
    ("start", "stop", "rows"),
    [
        (None, None, "a1 b9 d8 e5 g7"),
        (b"b", None, "b9 d8 e5 g7"),
        (None, b"e", "a1 b9 d8"),
        (b"aa", b"f", "b9 d8 e5"),
        (b"d", b"d", ""),
        (b"h", None, ""),
    ],
)
def test_changes_are_laid_over_the_rows_of_a_range(
    start: bytes | None, stop: bytes | None, rows: str
) -> None:
    """New rows come in key order, changed rows have the new value, deleted rows are missing."""
    overlay, _, _ = overlay_of(
        (b"b", b"9"), (b"c", None), (b"d", b"8"), (b"f", None), (b"g", b"7"), (b"0", None)
    )
    file = [(b"a", b"1"), (b"b", b"2"), (b"c", b"3"), (b"e", b"5"), (b"f", b"6")]
    found = " ".join((key + value).decode() for key, value in overlay.over(file, start, stop))
    assert found == rows


def test_only_changes_after_the_restore_put_a_file_in_doubt() -> None:
    """The first such change in the given order counts; a second restore covers earlier changes."""
    overlay, changes, _ = overlay_of((b"a", b"1"), (b"b", b"2"), (b"c", b"3"))
    for change, offset in zip(changes, (4, 0, 3), strict=True):
        overlay.acknowledge(change, offset)
    assert overlay.beyond(9, changes) == 4
    assert overlay.beyond(3, changes) == 0
    overlay.note_restore_end()
    assert overlay.beyond(9, changes) is None
    late = overlay.put(b"d", b"4")
    overlay.acknowledge(late, 2)
    assert overlay.beyond(9, [*changes, late]) == 2
    assert overlay.beyond(1, [*changes, late]) is None


# -- several producers

ONE, OTHER = "one", "other"


class Mixed:
    """An overlay with begun transactions, committed or open."""

    def __init__(self) -> None:
        self.overlay = Overlay(Usage(10**9, 99))

    def put(self, line: str, offset: int | None = None, *, commits: bool = True) -> Change:
        """Add a change of this producer, answered at once with ``offset``."""
        share: Any = SimpleNamespace(transactional_id=line, committed=commits)
        change = self.overlay.put(line.encode(), b"v", share)
        if offset is not None:
            self.overlay.acknowledge(change, offset)
        return change


def test_changes_of_several_producers_land_by_their_offsets() -> None:
    """Neither the order of creation nor an uncommitted change before them matters."""
    it = Mixed()
    first, second, third = it.put(ONE, 10), it.put(OTHER, 8), it.put(ONE, 12)
    assert it.overlay.ready() == [second, first, third]
    open_ = it.put(OTHER, 11, commits=False)
    assert it.overlay.ready() == [second, first]
    it.put(OTHER, 9, commits=False)
    assert it.overlay.ready() == [second]
    it.overlay.remove_written([second])
    it.overlay.drop(open_.transaction)
    assert it.overlay.ready() == []


def test_an_unanswered_change_holds_back_later_ones_of_its_producer() -> None:
    """Changes before the producer's first unanswered change are written; later ones wait."""
    it = Mixed()
    before = it.put(ONE, 5)
    other = it.put(OTHER, 6)
    it.put(ONE)
    after = it.put(ONE, 7)
    unanswered = it.put(ONE)
    assert it.overlay.ready() == [before, other]
    it.overlay.acknowledge(unanswered, 9)
    assert it.overlay.ready() == [before, other]
    assert after.counts


def test_an_unanswered_change_of_another_producer_holds_back_what_was_answered_after_it() -> None:
    """A change answered before the other change was made is earlier in the changelog."""
    it = Mixed()
    early = it.put(ONE, 5)
    it.put(OTHER)
    late = it.put(ONE, 7)
    assert it.overlay.ready() == [early]
    it.overlay.acknowledge(early, 5)
    assert it.overlay.ready() == [], "answered once more, now after the other one"
    assert late.known_at == 3


def test_changes_without_records_land_with_all_that_was_made_before_them() -> None:
    """They are written at once at the front; otherwise they wait for earlier changes."""
    it = Mixed()
    front = it.put(ONE, NO_RECORD)
    middle = it.put(OTHER, 7)
    behind = it.put(ONE, NO_RECORD)
    assert it.overlay.ready() == [front, middle]
    it.overlay.remove_written([front, middle])
    assert it.overlay.ready() == [behind]
    it = Mixed()
    it.put(ONE, NO_RECORD, commits=False)
    other = it.put(OTHER, 4)
    assert it.overlay.ready() == [other]


def test_what_was_read_is_no_longer_waiting_where_several_write() -> None:
    """The file's own offset counts as read; open, unanswered and recordless changes stay."""
    it = Mixed()
    counted, same = it.put(ONE, 5), it.put(OTHER, 6)
    later, recordless = it.put(OTHER, 7), it.put(ONE, NO_RECORD)
    open_, unanswered = it.put(OTHER, 2, commits=False), it.put(ONE)
    it.overlay.read(6)
    left = [later, recordless, open_, unanswered]
    assert list(it.overlay._pending) == left
    assert it.overlay._usage.changes == 4
    overlay, changes, _ = overlay_of((b"a", b"1"))
    overlay.acknowledge(changes[0], 3)
    overlay.read(9)
    assert len(overlay) == 1, "with one producer its changes land in their order"
    assert counted.counts
    assert same.counts


# -- changes that are read back


def test_changes_that_are_read_back_are_forgotten_by_their_offsets() -> None:
    """Answers come in any order; a change read before its answer waits for the next read."""
    usage = Usage(10**9, 99)
    overlay = ReadBackOverlay(usage)
    a, b, again, c = (
        overlay.put(key, value)
        for key, value in ((b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"c", b"4"))
    )
    assert (overlay.ready(), overlay.is_out_of_order, len(overlay)) == ([], True, 4)
    overlay.acknowledge(again, 9)
    overlay.acknowledge(a, 7)
    overlay.read(6)
    assert len(overlay) == 4
    overlay.read(7)
    assert (len(overlay), overlay.get(b"a"), usage.changes) == (3, again, 3)
    overlay.read(9)
    assert (overlay.get(b"a"), overlay.get(b"b"), overlay.get(b"c")) == (None, b, c)
    overlay.acknowledge(b, 8)
    assert overlay.get(b"b") is b
    overlay.read(9)
    assert (overlay.get(b"b"), usage.bytes, len(overlay)) == (None, c.size, 1)
    assert list(overlay._pending) == [c]
    overlay.read(10**6)
    assert overlay.get(b"c") is c, "its offset is not known"


async def test_a_dropped_change_is_not_forgotten_twice() -> None:
    """Its answer may be late; changes that were read stay forgotten."""
    share, usage = Share("one", begun=True), Usage(10**9, 99)
    overlay = ReadBackOverlay(usage)
    kept, read = overlay.put(b"a", b"1"), overlay.put(b"b", b"2")
    dropped = overlay.put(b"a", b"3", share)
    overlay.acknowledge(read, 4)
    overlay.read(4)
    assert overlay.drop(share) == {b"a"}
    assert (overlay.get(b"a"), overlay.get(b"b"), usage.changes) == (kept, None, 1)
    overlay.acknowledge(dropped, 5)
    overlay.read(5)
    assert (overlay.get(b"a"), usage.changes, usage.bytes, len(overlay)) == (kept, 1, kept.size, 1)
    assert overlay.drop() == {b"a"}
    assert (usage.changes, usage.bytes, len(overlay)) == (0, 0, 0)


async def test_a_read_forgets_the_changes_after_a_dropped_one() -> None:
    """Otherwise the later change hides the file's row for ever."""
    share, usage = Share("one", begun=True), Usage(10**9, 99)
    overlay = ReadBackOverlay(usage)
    dropped, later = overlay.put(b"a", b"1", share), overlay.put(b"b", b"2")
    overlay.acknowledge(dropped, 3)
    overlay.acknowledge(later, 4)
    assert overlay.drop(share) == {b"a"}
    overlay.read(4)
    assert (overlay.get(b"b"), usage.changes, usage.bytes, len(overlay)) == (None, 0, 0, 0)


@pytest.mark.parametrize(
    ("left", "is_mixed"),
    [("AA", False), ("AB", True), ("AAB", True), ("ABB", True), ("ABA", True), ("A", False)],
)
def test_the_producers_of_the_changes_left_decide_on_their_order(left: str, is_mixed: bool) -> None:
    """After a dropped transaction, a single producer's changes are written in their own order."""
    it = Mixed()
    gone = it.put("gone", 1)
    for number, line in enumerate(left):
        it.put(line, 10 + number)
    again = it.put(left[-1])
    it.overlay.acknowledge(again, 99)
    it.overlay.drop(gone.transaction)
    assert it.overlay.is_out_of_order is is_mixed
    assert it.overlay.get(left[-1].encode()) is again


def test_nothing_lands_behind_a_change_that_is_held_back() -> None:
    """It was answered before the unanswered change was made, but its offset is later."""
    it = Mixed()
    it.put(ONE, 7)
    held = it.put(OTHER)
    it.put(ONE)
    it.overlay.acknowledge(held, 5)
    assert it.overlay.ready() == []


def test_every_producer_s_unanswered_change_holds_others_back() -> None:
    """This is not limited to the first producer; an uncommitted first offset holds all back."""
    it = Mixed()
    early = it.put("third", 1)
    answered = it.put("third")
    it.put(ONE)
    it.overlay.acknowledge(answered, 2)
    it.put(ONE, 3)
    assert it.overlay.ready() == [early]
    it = Mixed()
    late = it.put("third")
    it.put("third", 9)
    it.overlay.acknowledge(late, 4)
    it.put(ONE)
    it.put(OTHER)
    assert [change.offset for change in it.overlay.ready()] == [4, 9]
    it = Mixed()
    it.put(ONE, 0, commits=False)
    it.put(OTHER, 1)
    assert it.overlay.ready() == []


def test_a_restore_covers_all_changes_made_before_it() -> None:
    """Written changes count too: a later change is recognised by its number."""
    overlay, changes, _ = overlay_of((b"a", b"1"), (b"b", b"2"), (b"c", b"3"))
    for change, offset in zip(changes[:2], (5, 6), strict=True):
        overlay.acknowledge(change, offset)
    overlay.remove_written(overlay.ready())
    overlay.note_restore_end()
    overlay.acknowledge(changes[2], 7)
    assert overlay.beyond(9, changes[2:]) is None
    late = overlay.put(b"d", b"4")
    overlay.acknowledge(late, 8)
    assert overlay.beyond(9, [late]) == 8


def test_rows_before_between_and_behind_those_of_the_file_are_seen() -> None:
    """The file's last row and the last change are visible too."""
    rows = [(b"0", b"a"), (b"00", b"b"), (b"m", b"c"), (b"mm", b"d"), (b"x", b"e"), (b"y", b"f")]
    overlay, _, _ = overlay_of(*rows)
    assert list(overlay.over([(b"c", b"1"), (b"p", b"2")])) == sorted(
        [*rows, (b"c", b"1"), (b"p", b"2")]
    )
    assert list(overlay.over([])) == rows
    assert list(overlay.over([(b"z", b"9")]))[-1] == (b"z", b"9")
    assert overlay.rows() == [key for key, _ in rows]


def test_an_own_later_change_does_not_hide_another_producer_s() -> None:
    """The producer's earlier change may be after the other's in the changelog."""
    it = Mixed()
    first = it.put(ONE)
    second = it.put(ONE)
    other = it.put(OTHER)
    it.overlay.acknowledge(first, 4)
    assert it.overlay.ready() == []
    it.overlay.acknowledge(other, 3)
    it.overlay.acknowledge(second, 5)
    assert it.overlay.ready() == [other, first, second]


def test_the_last_producer_decides_whether_the_order_is_known() -> None:
    """It is compared with the previous change's producer, not with the first."""
    it = Mixed()
    for line in (ONE, ONE, OTHER):
        it.put(line)
    assert it.overlay.is_out_of_order
    it.overlay.drop()
    assert not it.overlay.is_out_of_order
    for line in (ONE, ONE):
        it.put(line)
    assert not it.overlay.is_out_of_order
