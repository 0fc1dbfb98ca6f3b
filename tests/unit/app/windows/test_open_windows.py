"""The open windows of a table in memory, where a copy follows its changelog for long."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

from faust_assigner.app.windows.open_windows import OpenWindows


class Table(SimpleNamespace):
    """What of a table in memory has to do with windows."""

    def __init__(self) -> None:
        super().__init__(
            data=SimpleNamespace(data={}),
            _partition_timestamp_keys=defaultdict(set),
            _partition_timestamps=defaultdict(list),
            _partition_latest_timestamp=defaultdict(int),
            _to_key=lambda key: key,
        )

    @property
    def remembered(self) -> int:
        """Ends of windows and sets of rows that are kept for partition 0."""
        return len(self._partition_timestamps[0]) + len(self._partition_timestamp_keys)


def changed(key: str, begin: float, value: bytes | None) -> Any:
    """A changelog record of the window that begins then."""
    message = SimpleNamespace(partition=0, value=value)
    return SimpleNamespace(key=(key, (begin, begin + 10.0)), message=message)


def test_a_copy_in_memory_forgets_windows_whose_rows_were_deleted() -> None:
    """A copy closes no window itself; its heap must not grow with every window that its owner closes."""
    table = Table()
    windows = OpenWindows(table)
    for number in range(100):
        begin = number * 10.0
        windows.applied([changed("a", begin, b"1"), changed("b", begin, b"1")])
        windows.applied([changed("a", begin, None), changed("b", begin, None)])
    assert table.remembered == 0


def test_a_row_that_is_deleted_and_set_again_is_in_the_heap_once() -> None:
    """An older window, which has a row, comes first in the heap all the while."""
    table = Table()
    windows = OpenWindows(table)
    windows.applied([changed("old", 0.0, b"1")])
    for _ in range(100):
        windows.applied([changed("a", 10.0, b"1"), changed("a", 10.0, None)])
    assert table.remembered <= 4
    windows.applied([changed("a", 10.0, b"1"), changed("old", 0.0, None)])
    assert (windows.first(0), windows.some(0, 20.0, 5)) == (20.0, [("a", (10.0, 20.0))])
