"""The stores that hold changes back, and the calls that reach them; no file is opened."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import faust
import pytest
from faust.stores.rocksdb import RocksDBOptions
from faust.types.enums import ProcessingGuarantee

from faust_assigner.app.tables import write_behind
from faust_assigner.app.tables.landing import FlushMode
from faust_assigner.app.tables.store import WriteBehindStore
from faust_assigner.settings.table import OVERLAY, OVERLAY_BYTES


class Store(WriteBehindStore):
    """A store that records its calls in ``acts``; it has overlays of these partitions."""

    def __init__(self, *partitions: int, usage: Any = None) -> None:
        self.acts: list[Any] = []
        self.overlays = dict.fromkeys(partitions)  # type: ignore[misc]
        self.usage = usage
        self.rocksdb_options, self.read_only = RocksDBOptions(use_rocksdict=True), False
        self.flushing: Any = SimpleNamespace(
            **{name: partial(self._note, name) for name in ("pause", "hold", "discard", "resume")}
        )

    def _note(self, *act: Any) -> None:
        self.acts.append(act)

    def sent(self, record: Any) -> None:
        """Note the record."""
        self._note("sent", record)


class Table(SimpleNamespace):
    """A stub of Faust's table with the changelog ``topic``."""

    def __init__(self, app: Any, topic: str = "log", **flags: bool) -> None:
        super().__init__(
            app=app,
            use_partitioner=False,
            synchronize_all_active_partitions=False,
            is_global=False,
            key_serializer="raw",
            changelog_topic=SimpleNamespace(
                get_topic_name=lambda: topic,
                prepare_key=lambda key, serializer: (f"{key} as {serializer}", None),
            ),
            sends=[],
        )
        vars(self).update(flags)

    def send_changelog(self, *given: Any, **how: Any) -> Any:
        """Record the send."""
        self.sends.append((given, how))
        return "record"


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Any:
    """An app with the overlay and a producer in its own thread."""
    said = {OVERLAY: True, OVERLAY_BYTES: 777}
    monkeypatch.setattr(write_behind, "read_or_default", lambda app, setting: said[setting])
    made = SimpleNamespace(
        conf=SimpleNamespace(
            producer_threaded=True, processing_guarantee=ProcessingGuarantee.AT_LEAST_ONCE
        ),
        tables=Tables(),
        consumer=SimpleNamespace(key_partition=lambda topic, key: (topic, key)),
        said=said,
    )
    return made


class Tables(dict[str, Any]):
    """A stub of the table manager."""


def is_begun(store: Store) -> bool:
    """Whether the store holds changes back."""
    return store.usage is not None


@pytest.mark.parametrize(
    ("flags", "mode"),
    [
        ({}, FlushMode.OWN),
        ({"is_global": True}, FlushMode.OWN),
        ({"use_partitioner": True}, FlushMode.APART),
        ({"synchronize_all_active_partitions": True}, FlushMode.APART),
        ({"use_partitioner": True, "is_global": True}, FlushMode.READ_BACK),
        ({"synchronize_all_active_partitions": True, "is_global": True}, FlushMode.READ_BACK),
    ],
    ids=str,
)
def test_a_change_is_written_as_the_changelog_s_writers_require(
    app: Any, flags: dict[str, bool], mode: FlushMode
) -> None:
    """All stores of a worker share a limit; the producer's thread passes answers to the loop."""
    table, store = Table(app, **flags), Store()
    write_behind.enable_overlay(table, store)
    assert (store.flush_mode, store.in_other_thread) == (mode, True)
    usage = write_behind.usage_of(app)
    assert store.usage is usage is app.tables.overlay_usage
    assert (usage.most_bytes, usage.most_changes) == (777, write_behind.MOST_CHANGES)
    assert table._on_changelog_sent == store.arrived


@pytest.mark.parametrize("setting", [True, False])
@pytest.mark.parametrize("is_exact", [True, False])
@pytest.mark.parametrize("files", ["ours", "python-rocksdb", "read only"])
def test_changes_are_held_back_where_the_app_wants_it_or_needs_it(
    app: Any, setting: bool, is_exact: bool, files: str
) -> None:
    """Only files that this app alone writes through rocksdict are covered."""
    app.said[OVERLAY] = setting
    if is_exact:
        app.conf.processing_guarantee = ProcessingGuarantee.EXACTLY_ONCE
    table, store = Table(app), Store()
    store.rocksdb_options = RocksDBOptions(use_rocksdict=files != "python-rocksdb")
    store.read_only = files == "read only"
    write_behind.enable_overlay(table, store)
    assert is_begun(store) == ((setting or is_exact) and files == "ours")
    assert hasattr(table, "_on_changelog_sent") == is_begun(store)


def test_a_table_that_is_read_before_the_worker_starts_leaves_transactions_on(
    tmp_path: Path,
) -> None:
    """An app's module may read a table; Faust stores its first answer whether it is in a worker."""
    app = faust.App(
        "early", datadir=str(tmp_path), store="rocksdb://", processing_guarantee="exactly_once"
    )
    table = app.Table("counts", default=int)
    write_behind.install_write_behind(table)
    assert len(table) == 0
    assert is_begun(table.data)
    app.in_worker = True
    assert app.in_transaction


def test_each_record_is_reported_to_the_store_after_it_was_sent(app: Any) -> None:
    """A record without a partition gets the partition of its key."""
    table, store = Table(app, topic="shop-log"), Store()
    write_behind.enable_overlay(table, store)
    assert table.send_changelog(3, "k", "v", extra=1) == "record"
    assert table.send_changelog(None, "k", "v") == "record"
    key = ("shop-log", "k as raw")
    assert table.sends == [((3, "k", "v"), {"extra": 1}), ((key, "k", "v"), {})]
    assert store.acts == [("sent", "record")] * 2
