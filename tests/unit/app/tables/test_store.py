"""Changes over files, and the conditions for writing them; real RocksDB, no broker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from faust_assigner.app.consumer import back_pressure as overlay_consumer
from faust_assigner.app.consumer.back_pressure import BackPressure
from faust_assigner.app.tables import flushing
from faust_assigner.app.tables.changes import Usage
from faust_assigner.app.tables.write_behind import install_write_behind, usage_of
from faust_assigner.app.transactions.shares import Share
from tests.support.made_up_tables import MadeUp, answer, done, process
from tests.support.waiting import PATIENCE_S

LOG = TP("overlaid-counts-changelog", 0)


@pytest.fixture
def it(tmp_path: Path) -> Iterator[MadeUp]:
    """A table with partition 0 restored."""
    made = MadeUp(tmp_path, "counts")
    made.tables["counts"].data.flushing.resume(0)
    yield made
    made.close()
    done()


def rows(it: MadeUp) -> dict[bytes, bytes]:
    """The file's rows of partition 0, including the offset."""
    return dict(it.tables["counts"].data._db_for_partition(0).items())


OFFSET = b"__faust\0offset__"


async def test_a_row_and_its_offset_are_on_disk_once_the_changelog_has_it(it: MadeUp) -> None:
    """The file does not change before; readers see the change at once."""
    counts = it.tables["counts"]
    process(0)
    counts["a"] = 1
    assert (counts["a"], rows(it)) == (1, {})
    await answer((it.sent[0], 7))
    assert rows(it) == {b'"a"': b"1", OFFSET: b"7"}


async def test_a_change_waits_for_the_restore_of_its_partition(it: MadeUp) -> None:
    """Before the restore the file lacks records of the changelog; the restore writes the change."""
    counts = it.tables["counts"]
    process(1)
    counts["a"] = 1
    await answer((it.sent[0], 7))
    file = counts.data._db_for_partition(1)
    assert dict(file.items()) == {}
    counts.data.flushing.resume(1)
    assert dict(file.items()) == {b'"a"': b"1", OFFSET: b"7"}


async def test_what_is_acknowledged_out_of_turn_waits(it: MadeUp) -> None:
    """A record may be sent again; the file never has the second change without the first."""
    counts = it.tables["counts"]
    process(0)
    counts["a"], counts["b"] = 1, 2
    await answer((it.sent[1], 8))
    assert rows(it) == {}
    await answer((it.sent[0], 7))
    assert rows(it) == {b'"a"': b"1", b'"b"': b"2", OFFSET: b"8"}


async def test_what_is_acknowledged_is_written_before_a_store_stops(it: MadeUp) -> None:
    """Unacknowledged changes are not written."""
    counts = it.tables["counts"]
    process(0)
    counts["a"], counts["b"] = 1, 2
    it.sent[0].set_result(SimpleNamespace(offset=7))
    counts.data._arrived(it.sent[0])
    await counts.data.stop()
    assert rows(it) == {b'"a"': b"1", OFFSET: b"7"}


async def test_a_table_that_is_reset_has_no_rows(it: MadeUp) -> None:
    """The rows in the file and the waiting changes are removed."""
    counts = it.tables["counts"]
    process(0)
    counts["a"] = 1
    await answer((it.sent[0], 7))
    counts["b"] = 1
    it.close()
    counts.data.reset_state()
    assert (rows(it), counts.data._get(b'"b"'), len(counts.data.overlays[0])) == ({}, None, 0)


async def test_a_partition_given_up_lands_what_counts_and_nothing_that_comes_late(
    it: MadeUp,
) -> None:
    """Other workers may have written in between; the next owner's file counts."""
    counts = it.tables["counts"]
    process(0)
    counts["a"], counts["b"] = 1, 2
    it.sent[0].set_result(SimpleNamespace(offset=7))
    counts.data._arrived(it.sent[0])
    flushing.discard(it.app)
    await answer((it.sent[1], 9))
    counts["c"] = 3
    await answer((it.sent[2], 10))
    assert rows(it) == {b'"a"': b"1", OFFSET: b"7"}
    assert usage_of(it.app).changes == 1
    flushing.retain_partitions(it.app, set(), set())
    assert (usage_of(it.app).changes, usage_of(it.app).bytes) == (0, 0)


async def test_only_the_partitions_of_these_numbers_rest(it: MadeUp) -> None:
    """The other partitions continue to write."""
    counts = it.tables["counts"]
    process(0)
    counts.data.flushing.resume(1)
    for partition in range(2):
        process(partition)
        counts["a"] = partition
    flushing.pause(it.app, {1})
    await answer((it.sent[0], 0), (it.sent[1], 0))
    found = [counts.data.persisted_offset(TP(LOG.topic, partition)) for partition in range(2)]
    assert found == [0, None]
    flushing.resume(it.app, {TP(LOG.topic, 1)})
    assert counts.data.persisted_offset(TP(LOG.topic, 1)) == 0


async def test_a_deletion_is_of_the_partition_whose_changelog_has_it(it: MadeUp) -> None:
    """Faust deletes in the partition that had the key last."""
    counts = it.tables["counts"]
    process(0)
    counts.data.flushing.resume(1)
    for partition in (0, 1):
        process(partition)
        counts["a"] = partition
    process(0)
    del counts["a"]
    await answer((it.sent[0], 0), (it.sent[2], 1), (it.sent[1], 0))
    assert rows(it) == {OFFSET: b"1"}
    assert counts.data.row_of(1, b'"a"') == b"1"


async def test_a_change_without_a_record_waits_for_those_before_it(it: MadeUp) -> None:
    """An expired window is removed from the store without a record."""
    counts = it.tables["counts"]
    process(0)
    counts["a"] = 1
    counts.data.pop("a")
    assert "a" not in counts
    await answer((it.sent[0], 7))
    flushing.resume(it.app, {LOG})
    assert rows(it) == {OFFSET: b"7"}
    counts["a"] = 1
    await answer((it.sent[1], 8))
    counts.data.pop("a")
    assert rows(it) == {OFFSET: b"8"}


@pytest.mark.parametrize("committed", [True, False])
async def test_a_transaction_counts_once_it_is_committed(tmp_path: Path, committed: bool) -> None:
    """All of its changes are written, or none."""
    share = Share("one", begun=True)
    it = MadeUp(tmp_path, "counts", share=lambda: share, faust_assigner_overlay=False)
    counts = it.tables["counts"]
    process(0)
    flushing.resume(it.app, {LOG})
    counts["a"] = 1
    await answer((it.sent[0], 7))
    assert (rows(it), counts["a"]) == ({}, 1)
    share.commit() if committed else share.abandon()
    assert rows(it) == ({b'"a"': b"1", OFFSET: b"7"} if committed else {})
    assert counts.get("a") == (1 if committed else None)
    it.close()


async def test_what_a_replay_has_brought_is_below_what_waits_of_another_transaction(
    tmp_path: Path,
) -> None:
    """Two producers change a row: the uncommitted change is later in the changelog."""
    one, other = shares = [Share(line, begun=True) for line in ("one", "other")]
    it = MadeUp(tmp_path, "counts", share=lambda: shares[0])
    counts = it.tables["counts"]
    counts.data.flushing.resume(0)
    process(0)
    counts["a"] = 0
    shares.reverse()
    counts["a"] = 1
    await answer((it.sent[1], 0))
    other.commit()
    assert (counts["a"], rows(it)) == (1, {}), "nobody knows yet which is the later one"
    counts.data.apply_changelog_batch(
        [
            SimpleNamespace(
                message=SimpleNamespace(tp=LOG, partition=0, offset=0, key=b'"a"', value=b"1")
            )
        ],
        None,
        None,
    )
    assert (counts["a"], rows(it)) == (0, {b'"a"': b"1", OFFSET: b"0"})
    one.abandon()
    assert counts["a"] == 1
    it.close()
    done()


async def test_an_abort_lets_the_committed_changes_behind_it_into_the_file(tmp_path: Path) -> None:
    """They waited because the aborted record might have been earlier in the changelog."""
    one, other = shares = [Share(line, begun=True) for line in ("one", "other")]
    it = MadeUp(tmp_path, "counts", share=lambda: shares[0])
    counts = it.tables["counts"]
    counts.data.flushing.resume(0)
    process(0)
    counts["a"] = 0
    shares.reverse()
    counts["a"] = 1
    await answer((it.sent[1], 0))
    other.commit()
    assert rows(it) == {}
    one.abandon()
    assert (rows(it), len(counts.data.overlays[0])) == ({b'"a"': b"1", OFFSET: b"0"}, 0)
    it.close()
    done()


async def test_a_change_of_an_abandoned_transaction_holds_no_later_change_back(
    tmp_path: Path,
) -> None:
    """A record that ends after its partition has moved: its change reaches no changelog."""
    gone, share = shares = [Share(line, begun=True) for line in ("gone", "share")]
    gone.abandon()
    it = MadeUp(tmp_path, "counts", share=lambda: shares[0])
    counts = it.tables["counts"]
    counts.data.flushing.resume(0)
    process(0)
    counts["a"] = 0
    assert "a" not in counts
    shares.reverse()
    counts["a"] = 1
    await answer((it.sent[1], 0))
    share.commit()
    assert rows(it) == {b'"a"': b"1", OFFSET: b"0"}
    it.close()
    done()


async def test_without_the_overlay_rows_are_written_at_once(tmp_path: Path) -> None:
    """The app has no transactions, and the setting turns the overlay off."""
    it = MadeUp(tmp_path, "counts", faust_assigner_overlay=False)
    counts = it.tables["counts"]
    process(0)
    counts["a"] = 1
    assert rows(it) == {b'"a"': b"1"}
    assert list(flushing.write_behind_stores(it.app)) == []
    it.close()


class Consumer:
    """A stub of the app's consumer."""

    in_transaction = should_stop = False

    def __init__(self, app: Any) -> None:
        self.app, self.commits = app, 0

    async def commit(self) -> None:
        """Count the commit."""
        self.commits += 1


async def test_a_record_waits_while_too_many_changes_do(
    it: MadeUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits until changes are written, for a second at most; changelog records do not wait."""
    it.app.tables.overlay_usage = it.tables["counts"].data.usage = Usage(10**9, 2)
    counts = it.tables["counts"]
    process(0)
    consumer = Consumer(it.app)
    room = BackPressure(consumer)  # type: ignore[arg-type]

    async def deliver(tp: TP) -> None:
        if room.holds_back(SimpleNamespace(tp=tp)):  # type: ignore[arg-type]
            await room.wait_for_room()

    counts["a"] = 1
    await deliver(TP("source", 0))
    counts.data.overlays.clear()
    room._usage.changes = 2
    assert room._usage.is_full
    await deliver(LOG)
    waiting = asyncio.ensure_future(deliver(TP("source", 0)))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    room._usage.changes = 1
    await waiting
    room._usage.bytes = 10**9
    monkeypatch.setattr(overlay_consumer, "LONGEST_S", 0.05)
    consumer.in_transaction, began = True, time.monotonic()
    async with asyncio.timeout(PATIENCE_S):
        await deliver(TP("source", 0))
    assert consumer.commits == 1
    assert time.monotonic() - began >= 0.05


class Doubts:
    """A stub of the recovery's doubts."""

    def __init__(self) -> None:
        self.told: list[tuple[TP, int]] = []

    def doubt(self, tp: TP, offset: int) -> None:
        """Record a new change below the file's offset."""
        self.told.append((tp, offset))


async def test_a_new_change_below_the_file_lands_nowhere_and_is_told(it: MadeUp) -> None:
    """Its changelog was recreated: the file would wrongly count the change as written."""
    doubts = it.app.tables.recovery.consistency = Doubts()
    counts = it.tables["counts"]
    process(0)
    counts["a"] = 1
    await answer((it.sent[0], 7))
    counts["a"] = 2
    counts["b"] = 3
    await answer((it.sent[1], 0), (it.sent[2], 1))
    assert (doubts.told, counts["a"], counts["b"]) == ([(LOG, 0)], 2, 3)
    assert rows(it) == {b'"a"': b"1", OFFSET: b"7"}


async def test_a_change_that_a_replay_has_brought_is_no_doubt(it: MadeUp) -> None:
    """The change was made before the file's restore; later changes have later offsets."""
    doubts = it.app.tables.recovery.consistency = Doubts()
    counts = it.tables["counts"]
    process(0)
    counts["a"], counts["b"] = 1, 1
    flushing.hold(it.app)
    counts.data.set_persisted_offset(LOG, 9)
    flushing.resume(it.app, {LOG})
    await answer((it.sent[0], 7))
    assert (doubts.told, rows(it)) == ([], {OFFSET: b"9"})
    await answer((it.sent[1], 9))
    assert rows(it) == {OFFSET: b"9"}, "the file has this one, too"
    counts["a"] = 2
    await answer((it.sent[2], 10))
    assert (doubts.told, rows(it)) == ([], {b'"a"': b"2", OFFSET: b"10"})


def test_a_key_that_was_read_is_deleted_where_it_was_found(it: MadeUp) -> None:
    """Another partition may have a different row with the same key."""
    store = it.tables["counts"].data
    for partition in (0, 1):
        store._db_for_partition(partition)[b'"a"'] = b"%d" % partition
    store.flushing.resume(0)
    process(1)
    assert store._get(b'"a"') == b"1"
    done()
    store._del(b'"a"')
    assert (store.file_row(0, b'"a"'), store.file_row(1, b'"a"')) == (b"0", None)


@pytest.mark.parametrize(("is_global", "rows_read"), [(True, {"a", "b"}), (False, {"a"})])
def test_whoever_reads_all_rows_reads_those_of_owned_partitions(
    it: MadeUp, is_global: bool, rows_read: set[str]
) -> None:
    """Of a global table, each worker reads every partition."""
    counts = it.tables["counts"]
    for partition, key in enumerate((b'"a"', b'"b"')):
        counts.data._db_for_partition(partition)[key] = b"1"
    vars(it.app)["assignor"] = SimpleNamespace(assigned_actives=lambda: {LOG})
    counts.is_global = is_global
    assert set(counts.keys()) == rows_read


def test_a_table_that_may_only_be_read_holds_nothing_back(tmp_path: Path) -> None:
    """Another app writes its files."""
    it = MadeUp(tmp_path)
    table = it.app.Table("read", options={"read_only": True})
    install_write_behind(table)
    assert table.data.usage is None


def test_a_record_that_the_file_has_is_not_applied_again(it: MadeUp) -> None:
    """The row may have changed without a record since; the next record is applied."""
    store = it.tables["counts"].data
    database = store._db_for_partition(0)
    database[b'"a"'], database[OFFSET] = b"2", b"7"
    for offset, value in ((6, b"0"), (7, b"1"), (8, b"3")):
        message = SimpleNamespace(partition=0, offset=offset, key=b'"a"', value=value)
        before = rows(it)
        store.apply_changelog_batch([SimpleNamespace(message=message)], bytes, bytes)
        assert (rows(it) == before) is (offset < 8)
    assert rows(it) == {b'"a"': b"3", OFFSET: b"8"}
