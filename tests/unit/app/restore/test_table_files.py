"""Files that are set aside: once for each damage."""

from __future__ import annotations

from pathlib import Path

from faust.types import TP

from faust_assigner.app.restore.table_files import ASIDE, is_damage
from tests.support.made_up_tables import MadeUp


def test_files_that_were_set_aside_are_not_set_aside_again(tmp_path: Path) -> None:
    """What replaced them is good: a flag that stays throws away each database that is opened anew."""
    it = MadeUp(tmp_path, "counts")
    try:
        store = it.tables["counts"].data
        damage = OSError("Corruption: block checksum mismatch")
        assert is_damage(damage)
        store._db_for_partition(0)[b"k"] = b"damaged"
        store._condemned.add(0)
        store.close_partition(0)
        store._db_for_partition(0)[b"k"] = b"replayed"
        assert store.set_aside == {0: 1}
        assert store.partition_path(0).with_name(store.partition_path(0).name + ASIDE).is_dir()
        store.close_partition(0)
        assert store._db_for_partition(0)[b"k"] == b"replayed"
        assert store.set_aside == {0: 1}
    finally:
        it.close()


def test_an_error_that_names_no_file_is_about_each_partition_of_the_batch(tmp_path: Path) -> None:
    """Which of them lacks a change is not known; one that names a file is about that file alone."""
    it = MadeUp(tmp_path, "counts")
    try:
        store = it.tables["counts"].data
        assert [store._is_about(Exception("No space left on device"), p) for p in (0, 1)] == [
            True,
            True,
        ]
        named = Exception(f"IO error: {store.partition_path(1)}/000004.log")
        assert [store._is_about(named, p) for p in (0, 1)] == [False, True]
    finally:
        it.close()


def test_a_database_that_is_opened_anew_takes_records_and_offsets_again(tmp_path: Path) -> None:
    """What it lacked is replayed into it: a mark that stays would replay it at every start."""
    it = MadeUp(tmp_path, "counts")
    try:
        table = it.tables["counts"]
        store, tp = table.data, TP(table.changelog_topic.get_topic_name(), 0)
        store._lacking.add(0)
        store.set_persisted_offset(tp, 5)
        assert store.persisted_offset(tp) is None
        store.close_partition(0)
        store.set_persisted_offset(tp, 5)
        assert store.persisted_offset(tp) == 5
    finally:
        it.close()
