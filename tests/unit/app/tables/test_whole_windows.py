"""Closing windows by two clocks, several sources and several rows, and sets of several keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.app.tables import files as module
from faust_assigner.app.tables.files import close_all
from tests.support.made_up_tables import MadeUp, done
from tests.unit.app.tables.test_sets import ADD, Sets
from tests.unit.app.tables.test_window_closing import KEY, LATER, OTHER, SOURCE, Made, made

__all__ = ["made"]


@pytest.fixture(autouse=True)
def nothing_is_processed() -> Iterator[None]:
    """End the processing of a record after each test."""
    yield
    done()


async def test_at_the_end_the_time_goes_on_from_the_newest_record(made: Made) -> None:
    """The monotonic clock counts the seconds since; the machine's clock is only the limit."""
    made.it._monotonic = lambda: made.now - 990.0
    made.change(KEY, 3, at=5.0)
    made.change(LATER, 4, at=5.0)
    made.it.times.commit({SOURCE: 5})
    made.now += 104.0
    assert await made.close() == []
    made.now += 1.0
    assert await made.close() == [(KEY, 3)]
    made.now += 9.0
    assert await made.close() == []
    made.now += 1.0
    assert await made.close() == [(LATER, 4)]
    assert made.table == {}


async def test_the_source_with_the_greatest_committed_offset_covers_the_close(made: Made) -> None:
    """The names of the topics decide only between equal offsets."""
    made.consumer._active_partitions.add(OTHER)
    offsets = []
    for orders, payments in ((9, 3), (3, 9), (7, 7)):
        made.consumer._committed_offset = {SOURCE: orders, OTHER: payments}
        made.change(KEY, 2)
        made.change(KEY, 2, OTHER)
        made.change(LATER, 2, at=115.0)
        made.it.times.commit({SOURCE: 5, OTHER: 5})
        made.table.meanwhile = lambda: offsets.extend(
            (message.tp, message.offset) for message in made.consumer._unacked_messages
        )
        assert await made.close() == [(KEY, 2)]
    assert offsets == [(SOURCE, 8), (OTHER, 8), (OTHER, 6)]


async def test_a_row_that_is_gone_keeps_no_other_window_open(made: Made) -> None:
    """Code that bypasses the table has deleted it; its window is forgotten."""
    keys = [(name, (0.0, 9.9)) for name in "abc"]
    for key in keys:
        made.change(key, 3)
    for key in keys[:2]:
        dict.pop(made.table, key)
    made.change(LATER, 4, at=115.0)
    made.it.times.commit({SOURCE: 5})
    assert await made.close() == [(keys[2], 3)]
    assert (set(made.table), made.it.windows.first(0)) == ({LATER}, 19.9)


async def test_a_bug_in_a_callback_is_raised_though_the_partition_went_meanwhile(
    made: Made,
) -> None:
    """Only a refused send of a revoked partition leaves the window to the next owner."""
    made.change(KEY, 3)
    made.change(LATER, 4, at=115.0)
    made.it.times.commit({SOURCE: 5})
    made.table.error, made.table.meanwhile = ValueError("a bug"), made.restored.clear
    with pytest.raises(ValueError, match="a bug"):
        await made.close()
    assert set(made.table) == {KEY, LATER}
    assert made.consumer._unacked_messages == set()


def test_each_database_is_closed_whatever_the_others_do(caplog: pytest.LogCaptureFixture) -> None:
    """RocksDB's errors are plain exceptions; a database that was never open is passed over."""
    closed: list[Any] = []

    def database(name: str, error: Exception | None = None) -> Any:
        def close() -> None:
            closed.append(name)
            if error is not None:
                raise error

        return SimpleNamespace(close=close)

    close_all(
        [database("a", Exception("IO error")), None, database("b", OSError(5)), database("c")]
    )
    assert closed == ["a", "b", "c"]
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]


def test_an_empty_row_is_found_in_the_partitions_of_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first partition with a row answers, also with an empty one; no partition has no row."""
    it = MadeUp(tmp_path, "counts")
    store = it.tables["counts"].data
    store._db_for_partition(0).put(b"k", b"second")
    store._db_for_partition(1).put(b"k", b"")
    scopes = iter([[1, 0], [1, 0], [0, 1], [0, 1], [], []])
    monkeypatch.setattr(module, "partitions_in_scope", lambda store, key: next(scopes))
    found = [(store._contains(b"k"), store._get(b"k")) for _ in range(3)]
    assert found == [(True, b""), (True, b"second"), (False, None)]
    it.close()


async def test_each_set_whose_change_was_dropped_is_read_again(tmp_path: Path) -> None:
    """The sets of other keys stay as they are."""
    it = Sets(tmp_path)
    for number, key in enumerate("abc"):
        it.table.apply_changelog_batch(
            [
                SimpleNamespace(
                    key=[ADD, key],
                    value=number,
                    message=SimpleNamespace(tp=it.log, partition=0, offset=number),
                )
            ]
        )
    sets = [it.table[key].data for key in "abc"]
    for found in sets:
        found.add(99)
    it.table.data.dropped(0, {b'"a"', b'"c"'})
    assert [set(it.table[key].data) for key in "abc"] == [{0}, {1, 99}, {2}]
    it.close()
