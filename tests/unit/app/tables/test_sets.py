"""Tables of sets: the file equals the changelog, and sets equal the file's rows; real RocksDB."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from faust_assigner.app.tables import flushing
from faust_assigner.app.tables.memory_rows import revoked
from faust_assigner.app.tables.write_behind import install_write_behind
from faust_assigner.app.transactions.shares import Share
from tests.support.made_up_tables import MadeUp, answer, done, process

OFFSET = b"__faust\0offset__"
ADD, DISCARD, UPDATE = 0x1, 0x2, 0xF


@pytest.fixture(autouse=True)
def nothing_is_processed() -> Iterator[None]:
    """End the processing of a record after each test."""
    yield
    done()


class Sets(MadeUp):
    """An app with a table of sets whose first partition is restored."""

    #: Whether every worker has the table; Faust's SetGlobalTable needs this option, too.
    is_global = False

    def __init__(self, folder: Path, store: str = "rocksdb://", **settings: Any) -> None:
        super().__init__(folder, **settings)
        self.table = self.app.SetTable(
            "seen",
            key_type=str,
            value_type=int,
            partitions=2,
            store=store,
            is_global=self.is_global,
        )
        install_write_behind(self.table)
        self.tables["seen"] = self.table
        self.log = TP(self.table.changelog_topic.get_topic_name(), 0)
        vars(self.app)["assignor"] = SimpleNamespace(assigned_actives=lambda: {self.log})
        process(0)
        flushing.resume(self.app, {self.log})

    def rows(self) -> dict[bytes, bytes]:
        """Return the file's rows, including the offset."""
        return dict(self.table.data.storage._db_for_partition(0).items())

    def read(self, *records: tuple[int, int, Any]) -> None:
        """Apply changelog records of a single key: offset, operation, value."""
        self.table.apply_changelog_batch(
            [
                SimpleNamespace(
                    key=[operation, "k"],
                    value=value,
                    message=SimpleNamespace(tp=self.log, partition=0, offset=offset),
                )
                for offset, operation, value in records
            ]
        )

    def close(self) -> None:
        """Close the databases, like an ending process."""
        for database in self.table.data.storage._dbs.values():
            database.close()
        self.table.data.storage._dbs.clear()


async def test_a_row_is_the_set_after_the_operation_whose_offset_it_has(tmp_path: Path) -> None:
    """In stock the row is the set before it: a restart with files lost the last operations."""
    it = Sets(tmp_path)
    it.table["k"].add(1)
    it.table["k"].update({2, 3})
    it.table["k"].discard(1)
    await answer(*((record, number) for number, record in enumerate(it.sent)))
    assert it.rows() == {b'"k"': b"[2,3]", OFFSET: b"2"}
    it.close()


async def test_what_was_replayed_is_in_the_file_and_stays_in_the_set(tmp_path: Path) -> None:
    """Stock stores only the offset, and replaces the set by the older row."""
    it = Sets(tmp_path)
    it.read((0, ADD, 1), (1, ADD, 2), (2, UPDATE, [[3], [1]]))
    it.read((3, DISCARD, 2), (4, ADD, 4))
    assert it.rows() == {b'"k"': b"[3,4]", OFFSET: b"4"}
    await it.table.data.on_recovery_completed(set(), set())
    assert it.table["k"].data == {3, 4}
    it.close()
    again = Sets(tmp_path)
    again.read((4, ADD, 4), (5, ADD, 5))
    await again.table.data.on_recovery_completed(set(), set())
    assert again.table["k"].data == {3, 4, 5}
    again.close()


@pytest.mark.parametrize("store", ["rocksdb://", "memory:///"])
async def test_the_end_of_a_recovery_takes_nothing_from_sets_that_were_kept(
    tmp_path: Path, store: str
) -> None:
    """The store's rows replace all sets at this point."""
    it = Sets(tmp_path, store)
    for number in range(3):
        it.table["k"].add(number)
    await it.table.data.on_recovery_completed(set(), set())
    assert it.table["k"].data == {0, 1, 2}
    if store == "rocksdb://":
        it.close()


async def test_what_was_replayed_stays_in_a_set_in_memory(tmp_path: Path) -> None:
    """The partition was on another worker meanwhile."""
    it = Sets(tmp_path, "memory:///")
    it.table["k"].add(1)
    await it.table.data.on_recovery_completed(set(), set())
    it.read((0, ADD, 1), (1, ADD, 7))
    await it.table.data.on_recovery_completed(set(), set())
    assert it.table["k"].data == {1, 7}


async def test_an_operation_that_the_file_has_is_not_applied_again(tmp_path: Path) -> None:
    """The set may have lost the element without a record; the next operation is applied."""
    it = Sets(tmp_path)
    it.read((4, ADD, 1))
    it.table.data.storage._db_for_partition(0)[b'"k"'] = b"[]"
    it.read((4, ADD, 1))
    assert it.rows() == {b'"k"': b"[]", OFFSET: b"4"}
    it.read((4, ADD, 1), (5, ADD, 2))
    assert it.rows() == {b'"k"': b"[2]", OFFSET: b"5"}
    it.close()


async def test_a_record_makes_the_change_of_one_row(tmp_path: Path) -> None:
    """A row stored without a record has no record to acknowledge it."""
    it = Sets(tmp_path)
    it.table["k"].add(1)
    (record,) = it.sent
    it.table.data.storage._set(b'"other"', b"[9]")
    await answer((record, 0))
    assert it.rows() == {b'"k"': b"[1]", b'"other"': b"[9]", OFFSET: b"0"}
    it.close()


@pytest.mark.parametrize("store", ["rocksdb://", "memory:///"])
async def test_the_sets_of_a_revoked_partition_are_empty_until_it_returns(
    tmp_path: Path, store: str
) -> None:
    """The next owner changes them; an agent may hold a set over its partition's absence."""
    it = Sets(tmp_path, store)
    held = it.table["k"]
    it.read((5, ADD, 3))
    it.table["mine"].add(1)
    process(1)
    it.table["other"].add(9)
    revoked({it.log: it.table}, {it.log})
    found = {key: set(elements) for key, elements in it.table.items()}
    assert found == {"k": set(), "mine": set(), "other": {9}}
    if store == "memory:///":
        assert it.table.data.storage.data == {"other": {9}}
    process(0)
    it.read((6, DISCARD, 3), (7, ADD, 4))
    await it.table.data.on_recovery_completed(set(), set())
    assert held is it.table["k"]
    assert held.data == {4}
    assert it.table["other"].data == {9}
    if store == "rocksdb://":
        it.close()


async def test_a_set_that_was_loaded_from_its_row_goes_with_its_partition(tmp_path: Path) -> None:
    """After a restart neither a record nor an agent names the set's partition."""
    it = Sets(tmp_path)
    it.read((0, ADD, 1))
    it.close()
    again = Sets(tmp_path)
    again.table.data.storage._db_for_partition(0)
    await again.table.data.on_recovery_completed(set(), set())
    assert again.table["k"].data == {1}
    revoked({again.log: again.table}, {again.log})
    assert again.table["k"].data == set()
    again.close()


async def test_a_set_that_an_agent_holds_has_what_was_replayed_at_once(tmp_path: Path) -> None:
    """The agent may read the set before the recovery ends."""
    it = Sets(tmp_path)
    held = it.table["k"]
    it.read((0, ADD, 1), (1, ADD, 7), (2, DISCARD, 1))
    assert held.data == {7}
    it.close()


async def test_what_an_aborted_transaction_added_is_added_again(tmp_path: Path) -> None:
    """Otherwise the set would send no record, and the changelog would never have the element."""
    share = Share("one", begun=True)
    it = Sets(tmp_path, share=lambda: share)
    seen = it.table["k"]
    seen.add(1)
    share.commit()
    await answer((it.sent.popleft(), 0))
    share = Share("one", begun=True)
    seen.add(2)
    await answer((it.sent.popleft(), 2))
    share.abandon()
    assert (seen.data, it.rows()) == ({1}, {b'"k"': b"[1]", OFFSET: b"0"})
    seen.add(2)
    assert [record.message.value for record in it.sent] == [b"2"]
    it.close()


async def test_what_others_did_meanwhile_is_in_a_set_that_comes_back(tmp_path: Path) -> None:
    """A change discarded before its acknowledgement is not in the set."""
    it = Sets(tmp_path)
    it.table["k"].add(1)
    await answer((it.sent[0], 0))
    it.table["k"].add(2)
    flushing.discard(it.app)
    assert it.table["k"].data == {1}
    it.read((1, ADD, 7), (2, DISCARD, 1))
    await it.table.data.on_recovery_completed(set(), set())
    assert (it.table["k"].data, it.rows()) == ({7}, {b'"k"': b"[7]", OFFSET: b"2"})
    it.close()
