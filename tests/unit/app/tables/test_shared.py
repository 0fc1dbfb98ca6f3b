"""Changelogs with several writers: rows wait until they are read back; real RocksDB, no broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from faust_assigner.app.tables import flushing
from faust_assigner.app.tables.write_behind import install_write_behind, usage_of
from faust_assigner.app.transactions.shares import Share
from tests.support.made_up_tables import MadeUp, answer, done, process

OFFSET = b"__faust\0offset__"


@pytest.fixture(autouse=True)
def nothing_is_processed() -> Iterator[None]:
    """End the processing of a record after each test."""
    yield
    done()


class Shared(MadeUp):
    """An app with a table whose records always go to partition 1."""

    def __init__(self, folder: Path, *, is_global: bool, **settings: Any) -> None:
        super().__init__(folder, **settings)
        self.app._consumer.key_partition = lambda topic, key: 1
        make = self.app.GlobalTable if is_global else self.app.Table
        self.table = make(
            "prices", key_type=str, value_type=int, partitions=2, use_partitioner=True
        )
        install_write_behind(self.table)
        self.tables["prices"] = self.table
        flushing.resume(self.app, {self.log(0), self.log(1)})

    def log(self, partition: int) -> TP:
        """Return a changelog partition of the table."""
        return TP(self.table.changelog_topic.get_topic_name(), partition)

    def rows(self, partition: int) -> dict[bytes, bytes]:
        """Return a file's rows, including the offset."""
        return dict(self.table.data._db_for_partition(partition).items())

    def read(self, *records: tuple[int, str, int]) -> None:
        """Apply records of changelog partition 1: offset, key, value."""
        self.table.data.apply_changelog_batch(
            [
                SimpleNamespace(
                    message=SimpleNamespace(
                        tp=self.log(1),
                        partition=1,
                        offset=offset,
                        key=b'"%s"' % key.encode(),
                        value=b"%d" % value,
                    )
                )
                for offset, key, value in records
            ],
            None,
            None,
        )


async def test_a_change_is_over_the_file_until_it_is_read_back(tmp_path: Path) -> None:
    """Stock writes at once, to another partition's file, with an offset beyond unread records."""
    it = Shared(tmp_path, is_global=True)
    process(0)
    it.table["a"] = 1
    await answer((it.sent[0], 7))
    assert (it.table["a"], it.rows(0), it.rows(1)) == (1, {}, {})
    it.read((6, "b", 2), (7, "a", 1))
    assert (it.rows(0), it.rows(1)) == ({}, {b'"a"': b"1", b'"b"': b"2", OFFSET: b"7"})
    assert usage_of(it.app).changes == 0
    it.close()


async def test_the_last_in_the_changelog_is_what_readers_see(tmp_path: Path) -> None:
    """The order of the answers does not matter, nor the writer."""
    it = Shared(tmp_path, is_global=True)
    process(0)
    it.table["a"], it.table["b"] = 1, 1
    it.read((5, "a", 2))
    assert it.table["a"] == 1
    await answer((it.sent[0], 6))
    it.read((6, "a", 1), (7, "a", 3), (8, "b", 1), (9, "b", 4))
    assert it.table["a"] == 3
    await answer((it.sent[1], 8))
    assert it.table["b"] == 4
    assert (usage_of(it.app).changes, usage_of(it.app).bytes) == (0, 0)
    it.close()


async def test_what_is_given_up_and_answered_late_is_forgotten_once(tmp_path: Path) -> None:
    """Its record is read from the changelog."""
    it = Shared(tmp_path, is_global=True)
    process(0)
    it.table["a"] = 1
    flushing.discard(it.app)
    await answer((it.sent[0], 6))
    it.read((6, "a", 1))
    it.table["a"] = 2
    assert (it.table["a"], usage_of(it.app).changes) == (2, 1)
    it.close()


@pytest.mark.parametrize("is_global", [True, False])
async def test_an_aborted_change_reaches_no_file(tmp_path: Path, is_global: bool) -> None:
    """Readers see the previous row."""
    share = Share("one", begun=True)
    it = Shared(tmp_path, is_global=is_global, share=lambda: share)
    process(0)
    it.table["a"] = 1
    await answer((it.sent[0], 7))
    assert it.table["a"] == 1
    share.abandon()
    assert (it.table.get("a"), it.rows(0), it.rows(1)) == (None, {}, {})
    it.close()


async def test_what_nobody_reads_back_lands_as_in_stock_without_an_offset(tmp_path: Path) -> None:
    """Its changelog record is in another partition, whose file must not count it as written."""
    it = Shared(tmp_path, is_global=False)
    process(0)
    it.table["a"] = 1
    assert it.rows(0) == {}
    await answer((it.sent[0], 7))
    assert (it.table["a"], it.rows(0), it.rows(1)) == (1, {b'"a"': b"1"}, {})
    it.close()


async def test_a_row_without_a_record_is_in_the_file_at_once_where_others_write_too(
    tmp_path: Path,
) -> None:
    """The change has no record to read back, so it would wait forever."""
    it = Shared(tmp_path, is_global=True)
    process(1)
    it.table["a"] = 1
    it.table.data._set(b'"b"', b"2")
    assert it.rows(1) == {b'"b"': b"2"}
    it.close()


class Apart(Shared):
    """A worker that owns changelog partition 1 and source partition 5."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        super().__init__(folder, is_global=False, **settings)
        flushing.discard(self.app)
        self.table.data.overlays.clear()
        self.owned = {self.log(1), TP("orders", 5)}
        vars(self.app)["assignor"] = SimpleNamespace(assigned_actives=lambda: self.owned)
        self.app.tables._changelogs[self.log(1).topic] = self.table
        flushing.resume(self.app, {self.log(1)})
        process(5)

    async def count(self, key: str, value: int) -> None:
        """Change a row; the changelog has the change."""
        self.table[key] = value
        await answer((self.sent.popleft(), 0))

    def round(self) -> None:
        """Begin to restore after a round."""
        actives = {tp for tp in self.owned if tp.topic != "orders"}
        flushing.retain_partitions(self.app, actives, actives)


async def test_a_row_is_in_the_file_of_a_source_partition_without_a_changelog_partition(
    tmp_path: Path,
) -> None:
    """The changelog may have fewer partitions than the source."""
    it = Apart(tmp_path)
    await it.count("a", 1)
    assert (it.rows(5), usage_of(it.app).changes) == ({b'"a"': b"1"}, 0)
    flushing.hold(it.app)
    await it.count("a", 2)
    assert (it.rows(5), it.table["a"]) == ({b'"a"': b"1"}, 2), "its file cannot be written"
    it.round()
    assert (it.rows(5), it.table["a"]) == ({b'"a"': b"2"}, 2)
    it.table["a"] = 3
    it.round()
    assert (it.rows(5), it.table["a"]) == ({b'"a"': b"2"}, 3), "the changelog has not got it yet"
    await answer((it.sent.popleft(), 0))
    assert it.rows(5) == {b'"a"': b"3"}
    it.close()


async def test_changes_of_a_revoked_source_partition_are_dropped(tmp_path: Path) -> None:
    """Its next owner processes their records again."""
    it = Apart(tmp_path)
    await it.count("a", 1)
    it.table["a"] = 2
    it.owned -= {TP("orders", 5)}
    it.round()
    assert (it.rows(5), it.table["a"], usage_of(it.app).changes) == ({b'"a"': b"1"}, 1, 0)
    it.close()
