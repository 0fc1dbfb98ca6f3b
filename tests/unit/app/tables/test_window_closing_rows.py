"""Rows that callbacks change while windows are closed, and the partitions whose windows are closed."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from faust.streams import _current_event
from faust.types import TP

from tests.unit.app.tables.test_window_closing import KEY, LOG, SOURCE, Made
from tests.unit.app.tables.test_window_closing import made as made

FIRST, SECOND, THIRD = ((name, KEY[1]) for name in "abc")


async def test_a_row_that_an_earlier_callback_changes_is_closed_once_with_its_new_value(
    made: Made,
) -> None:
    """A row that a later callback changes stays, and its window is closed again."""
    for key in (FIRST, SECOND, THIRD):
        made.row(key, 1)
    event, seen = SimpleNamespace(), list[Any]()

    async def on_close(key: Any, value: Any) -> None:
        seen.append((key, value))
        if key == SECOND:
            for changed, new in ((FIRST, 7), (THIRD, 9)):
                made.table[changed] = new
                made.it._changed(changed, 0)

    made.table.on_window_close = on_close  # type: ignore[method-assign]
    with made.it._under_way(SOURCE, 5):
        assert await made.it._close([FIRST, SECOND, THIRD], 0, event)
    assert seen == [(FIRST, 1), (SECOND, 1), (THIRD, 9)]
    assert dict(made.table) == {FIRST: 7}
    assert made.it.windows.some(0, 9.9, 9) == [FIRST]


async def test_windows_of_the_tables_own_partitions_are_closed_in_order(made: Made) -> None:
    """Partitions of other tables are not looked through; a partition that is elsewhere ends nothing."""
    made.app.tables.recovery.active_tps = {
        TP("other", 1),
        TP("log", 11),
        TP("log", 2),
        LOG,
        TP("other", 0),
        TP("log", 3),
    }
    made.restored = {LOG, TP("log", 3), TP("log", 11), TP("log", 1)}
    made.consumer._active_partitions |= {TP("orders", number) for number in (1, 2, 3, 11)}
    looked: list[int] = []

    async def look_through(partition: int, goes_on: Callable[[], bool]) -> bool:
        looked.append(partition)
        return goes_on()

    made.it.windows.look_through = look_through  # type: ignore[method-assign]
    await made.close()
    assert looked == [0, 3, 11]


async def test_rows_closed_before_the_partition_goes_are_deleted_and_no_more_is_due(
    made: Made,
) -> None:
    """The next owner closes the rest."""
    for key in (FIRST, SECOND, THIRD):
        made.row(key, 1)
    seen = list[Any]()

    async def on_close(key: Any, value: Any) -> None:
        seen.append(key)
        if key == SECOND:
            made.restored.clear()

    made.table.on_window_close = on_close  # type: ignore[method-assign]
    with made.it._under_way(SOURCE, 5):
        assert await made.it._close([FIRST, SECOND, THIRD], 0, SimpleNamespace()) is False
    assert (seen, dict(made.table)) == ([FIRST, SECOND], {THIRD: 1})


def test_without_a_record_under_way_no_row_is_deleted(made: Made) -> None:
    """The record of a closing that has ended is gone."""
    made.row(FIRST, 1)
    token = _current_event.set(lambda: None)  # type: ignore[arg-type]
    try:
        assert made.it._delete([FIRST]) is False
    finally:
        _current_event.reset(token)
    assert dict(made.table) == {FIRST: 1}


@pytest.mark.parametrize("reason", [None, "not here", "not due", "no offset"])
async def test_no_record_is_under_way_without_a_window_to_close(
    made: Made, reason: str | None
) -> None:
    """Under transactions a closing needs the offset of a committed record."""
    made.row(FIRST, 1)
    made.app.in_transaction = True
    if reason == "not here":
        made.restored.clear()
    elif reason == "no offset":
        made.consumer._committed_offset[SOURCE] = 0
    until = 109.8 if reason == "not due" else 109.9
    await made.it._close_some(0, until)
    assert made.table.closed == ([] if reason else [(FIRST, 1)])
    assert made.consumer.ended == ([] if reason else [SOURCE])
    assert made.consumer._unacked_messages == set()
