"""The open windows of a table, from a memory table's changes or from the rows of files."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.app.tables import open_windows
from faust_assigner.app.tables.open_windows import OpenWindows
from faust_assigner.app.tables.store import WriteBehindStore
from tests.support.waiting import PATIENCE_S


class Table(SimpleNamespace):
    """The window-related parts of a table in memory."""

    def __init__(self) -> None:
        super().__init__(
            data=SimpleNamespace(data={}),
            _partition_latest_timestamp=defaultdict(int),
            _to_key=lambda key: key,
        )


def remembered(windows: OpenWindows) -> int:
    """Return the number of window ends and row sets kept for partition 0."""
    return len(windows._ends[0]) + len(windows._keys)


def changed(key: str, begin: float, value: bytes | None) -> Any:
    """Return a changelog record of the window with this begin."""
    message = SimpleNamespace(partition=0, value=value)
    return SimpleNamespace(key=(key, (begin, begin + 10.0)), message=message)


def test_a_copy_in_memory_forgets_windows_whose_rows_were_deleted() -> None:
    """A standby closes no window; its heap must not grow with the windows that its owner closes."""
    table = Table()
    windows = OpenWindows(table)
    for number in range(100):
        begin = number * 10.0
        windows.applied([changed("a", begin, b"1"), changed("b", begin, b"1")])
        windows.applied([changed("a", begin, None), changed("b", begin, None)])
    assert remembered(windows) == 0


def test_a_row_that_is_deleted_and_set_again_is_in_the_heap_once() -> None:
    """An older window with a row stays first in the heap."""
    table = Table()
    windows = OpenWindows(table)
    windows.applied([changed("old", 0.0, b"1")])
    for _ in range(100):
        windows.applied([changed("a", 10.0, b"1"), changed("a", 10.0, None)])
    assert remembered(windows) <= 4
    windows.applied([changed("a", 10.0, b"1"), changed("old", 0.0, None)])
    assert (windows.first(0), windows.some(0, 20.0, 5)) == (20.0, [("a", (10.0, 20.0))])


# -- revoked and restored partitions


def test_a_partition_that_goes_leaves_nothing_and_takes_no_other_along() -> None:
    """The rows of a table in memory are removed too: the next owner changes them."""
    table = Table()
    windows = OpenWindows(table)
    for partition, key in ((0, "a"), (1, "b")):
        row = (key, (0.0, 10.0))
        windows.add(row, partition)
        table.data.data[row] = 1
    windows.forget(0)
    assert (windows.first(0), windows.first(1)) == (None, 10.0)
    assert list(table.data.data) == [("b", (0.0, 10.0))]
    assert list(windows._ends) == [1]


@pytest.mark.parametrize("part", ["restored", "forget"])
def test_the_time_of_relative_to_now_never_goes_back(part: str) -> None:
    """Each eager round restores the kept partitions too; an agent may read before its next write."""
    table = Table()
    table.data = Files(Database())
    windows = OpenWindows(table)
    windows.add(("a", (0.0, 10.0)), 0)
    getattr(windows, part)(0)
    assert windows.first(0) is None
    assert table._partition_latest_timestamp[0] == 10.0


def test_the_latest_window_stays_the_latest() -> None:
    """A late record may open an earlier window."""
    table = Table()
    windows = OpenWindows(table)
    for begin in (10.0, 0.0):
        windows.add(("a", (begin, begin + 10.0)), 0)
    assert table._partition_latest_timestamp[0] == 20.0
    assert windows.first(0) == 10.0


def test_what_was_replayed_into_memory_is_known_when_it_was_restored() -> None:
    """The replay already passed its changes to the windows."""
    windows = OpenWindows(Table())
    windows.applied([changed("a", 0.0, b"1")])
    windows.restored(0)
    assert windows.first(0) == 10.0


# -- rows of files


class Database:
    """Keys in order; ``meanwhile`` runs after each piece."""

    def __init__(self, *begins: float) -> None:
        self.rows = [f"{begin:08.1f}".encode() for begin in sorted(begins)]
        self.pieces = list[bytes | None]()
        self.meanwhile: Any = lambda: None

    def keys(self, from_key: bytes | None) -> Any:
        """Return the keys from ``from_key`` on."""
        self.pieces.append(from_key)
        self.meanwhile()
        return iter([row for row in self.rows if from_key is None or row >= from_key])


class Files(WriteBehindStore):
    """A store with a single database."""

    offset_key = b"offset"  # type: ignore[assignment]

    def __init__(self, database: Database) -> None:
        self._dbs, self.waiting = {0: database}, list[bytes]()

    def check_end(self, db: Any, last: bytes | None) -> None:
        """Every block is readable."""

    def waiting_rows(self, partition: int) -> Any:
        """Return rows that wait for their changelog record."""
        return iter(self.waiting)

    def _db_for_partition(self, partition: int) -> Any:
        return self._dbs[partition]

    def key_of(self, raw: bytes | None) -> Any:
        """Return the key of a window of 10 seconds."""
        begin = float(raw or b"")
        return "a", (begin, begin + 10.0)


def in_files(*begins: float) -> tuple[OpenWindows, Files, Any]:
    """Return the windows of a table with files."""
    table = Table()
    table.data = Files(Database(*begins))
    table.name = "counts"
    return OpenWindows(table), table.data, table.data._dbs[0]


async def look(windows: OpenWindows, *, goes_on: bool = True) -> bool:
    """Scan partition 0."""
    return await asyncio.wait_for(windows.look_through(0, lambda: goes_on), PATIENCE_S)


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 4, 5])
async def test_all_rows_are_looked_through_some_at_a_time(
    monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """Each row is scanned once per restore."""
    monkeypatch.setattr(open_windows, "ROWS", 2)
    windows, _files, database = in_files(*(10.0 * row for row in range(rows)))
    assert await look(windows)
    assert sorted(windows._ends.get(0, [])) == [10.0 * row + 10 for row in range(rows)]
    assert len(database.pieces) == rows // 2 + 1
    assert await look(windows)
    assert len(database.pieces) == rows // 2 + 1
    windows.restored(0)
    assert windows.first(0) is None
    assert await look(windows)
    assert len(database.pieces) == 2 * (rows // 2 + 1)
    assert len(windows._ends.get(0, [])) == rows


async def test_rows_that_wait_for_their_changelog_are_looked_through_as_well() -> None:
    """The offset and undecodable keys are no window rows and are skipped."""
    windows, files, _database = in_files(20.0)
    files.waiting = [b"5.0", b"offset", b"\xff"]
    assert await look(windows)
    assert sorted(windows._ends[0]) == [15.0, 30.0]


@pytest.mark.parametrize("reason", ["goes", "another database"])
async def test_a_look_ends_where_the_partition_goes(
    monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    """The scan's result is discarded, and the next scan starts again."""
    monkeypatch.setattr(open_windows, "ROWS", 1)
    windows, files, database = in_files(0.0, 10.0, 20.0)
    if reason == "another database":
        database.meanwhile = lambda: files._dbs.update({0: Database()})
    assert not await look(windows, goes_on=reason != "goes")
    assert len(database.pieces) == 1
    files._dbs[0] = Database(30.0)
    assert await look(windows)


async def test_changes_of_files_that_are_replayed_open_no_windows() -> None:
    """Files are scanned after the restore; before, the owner closes the windows."""
    windows, _files, _ = in_files()
    windows.applied([changed("a", 0.0, b"1")])
    assert windows.first(0) is None


def test_windows_of_partitions_with_equal_ends_are_apart() -> None:
    """Rows are kept per partition and counted once; a window is open until its last row."""
    table = Table()
    windows = OpenWindows(table)
    a, b, later = ("a", (0.0, 10.0)), ("b", (0.0, 10.0)), ("a", (5.0, 15.0))
    for key, partition in ((a, 0), (b, 0), (a, 1), (a, 0), (later, 0)):
        windows.add(key, partition)
    assert windows._ends == {0: [10.0, 15.0], 1: [10.0]}
    assert sorted(windows.some(0, 10.0, 9)) == [a, b]
    assert len(windows.some(0, 10.0, 1)) == 1
    assert windows.some(0, 11.0, 9) == windows.some(2, 10.0, 9) == []
    windows.discard(a, 0)
    windows.discard(("x", (0.0, 10.0)), 0)
    windows.discard(("x", (0.0, 99.0)), 0)
    assert (windows.first(0), windows.some(0, 10.0, 9), windows.some(1, 10.0, 9)) == (
        10.0,
        [b],
        [a],
    )
    windows.discard(b, 0)
    assert (windows.first(0), windows.first(1), windows.first(2)) == (15.0, 10.0, None)
    assert sorted(windows._ends) == [0, 1]


def test_a_batch_of_several_partitions_is_noted_record_by_record() -> None:
    """A deletion removes the row; other keys are skipped, and an empty value is a row."""
    windows = OpenWindows(Table())
    events = [changed("a", 0.0, b"1"), changed("b", 0.0, b""), changed("a", 0.0, None)]
    other, plain = changed("c", 20.0, b"1"), changed("d", 0.0, b"1")
    other.message.partition, plain.key = 3, "d"
    windows.applied(iter([*events, plain, other]))
    assert windows.some(0, 10.0, 9) == [("b", (0.0, 10.0))]
    assert windows.some(3, 30.0, 9) == [("c", (20.0, 30.0))]


@pytest.mark.parametrize(
    ("key", "is_so"),
    [
        (("a", (0.0, 1.0)), True),
        ((None, (0.0, 1.0)), True),
        (["a", (0.0, 1.0)], False),
        (("a", [0.0, 1.0]), False),
        (("a", (0.0, 1.0), 1), False),
        (("a", (0.0,)), False),
        (("a", (0.0, 1.0, 2.0)), False),
        ("ab", False),
    ],
    ids=repr,
)
def test_a_window_s_key_is_a_key_with_a_begin_and_an_end(key: Any, is_so: bool) -> None:
    """A row with any other key belongs to no window."""
    assert open_windows.is_window(key) is is_so


async def test_a_partition_that_goes_is_looked_through_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Other partitions are not scanned again; a table in memory is never scanned."""
    windows, files, database = in_files(0.0, 10.0)
    other = files._dbs[1] = Database(20.0)
    for partition in (0, 1, 0, 1):
        assert await windows.look_through(partition, lambda: True)
    assert (database.pieces, other.pieces) == ([None], [None])
    windows.forget(0)
    assert (windows.first(0), windows.first(1)) == (None, 30.0)
    for partition in (0, 1):
        assert await windows.look_through(partition, lambda: True)
    assert (database.pieces, other.pieces) == ([None, None], [None])
    assert await OpenWindows(Table()).look_through(0, lambda: False)


async def test_pieces_begin_behind_the_last_row_of_the_piece_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Streams run between two pieces."""
    monkeypatch.setattr(open_windows, "ROWS", 2)
    windows, _files, database = in_files(0.0, 10.0, 20.0)
    turns: list[str] = []
    database.meanwhile = lambda: turns.append("piece")
    looking = asyncio.ensure_future(look(windows))
    while not looking.done():
        await asyncio.sleep(0)
        turns.append("stream")
    assert database.pieces == [None, b"000010.0\0"]
    assert "stream" in turns[turns.index("piece") : len(turns) - turns[::-1].index("piece")]
