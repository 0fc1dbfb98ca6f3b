"""Installs write-behind stores in tables."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from faust import stores
from faust.stores.memory import Store as MemoryStore
from faust.stores.rocksdb import Store as RocksDBStore
from faust.tables.sets import SetTable
from faust.types.enums import ProcessingGuarantee

from faust_assigner.app.host.mixing import over
from faust_assigner.app.settings import read_or_default
from faust_assigner.app.tables import memory_rows
from faust_assigner.app.tables.changes import Usage
from faust_assigner.app.tables.disk import is_writable
from faust_assigner.app.tables.files import TableStore
from faust_assigner.app.tables.landing import FlushMode
from faust_assigner.app.tables.sets import WriteBehindSets
from faust_assigner.app.tables.store import WriteBehindStore
from faust_assigner.settings.table import OVERLAY, OVERLAY_BYTES

if TYPE_CHECKING:
    from faust.tables.table import Table
    from faust.types.app import AppT
    from faust.types.tables import CollectionT
    from faust.types.tuples import FutureMessage
    from yarl import URL

#: The maximum number of waiting changes of all tables of a worker.
MOST_CHANGES = 100_000
#: Faust's store -> the store that takes its place.
OURS = {RocksDBStore: TableStore, MemoryStore: memory_rows.MemoryRows}


def usage_of(app: AppT) -> Usage:
    """Return the memory usage of all overlays of the app; the same object at each call."""
    usage: Usage | None = vars(app.tables).get("overlay_usage")
    if usage is None:
        usage = app.tables.overlay_usage = Usage(read_or_default(app, OVERLAY_BYTES), MOST_CHANGES)
    return usage


def install_write_behind(table: CollectionT) -> None:
    """Make the table create our store instead of Faust's; call before its first store."""
    table._new_store_by_url = partial(_new_store, table, table._new_store_by_url)
    if isinstance(table, SetTable):
        table._new_store = partial(_new_set_store, table, table._new_store)


def _new_set_store(table: CollectionT, make: Callable[[], object]) -> object:
    return over(WriteBehindSets, type(make()))(table)


def _new_store(table: CollectionT, make: Callable[[URL], object], url: URL) -> object:
    kind = stores.by_url(url)
    ours = next((ours for host, ours in OURS.items() if issubclass(kind, host)), None)
    if ours is None:
        return make(url)
    store = over(ours, kind)(
        url,
        table.app,
        table,
        table_name=table.name,
        key_type=table.key_type,
        value_type=table.value_type,
        key_serializer=table.key_serializer,
        value_serializer=table.value_serializer,
        loop=table.loop,
        options=table.options,
    )
    if isinstance(store, TableStore):
        enable_overlay(table, store)
    elif not (isinstance(table, SetTable) or table.use_partitioner):
        # The record of a set is an operation, not a row. With ``use_partitioner`` the agents that use
        # a row need not own the row's partition.
        memory_rows.note_sent_rows(table, store)
    return store


def enable_overlay(table: Table, store: WriteBehindStore) -> None:
    """Let the new ``store`` of ``table`` hold changes back, if the setting and the store allow it.

    Under ``exactly_once`` the setting ``OVERLAY`` is ignored: without an overlay, rows would keep
    the changes of aborted transactions.
    """
    app = table.app
    # Do not read app.in_transaction: the app's module may read a table before the worker starts, and
    # Faust would keep the value False.
    is_exact = app.conf.processing_guarantee == ProcessingGuarantee.EXACTLY_ONCE
    wanted = is_exact or read_or_default(app, OVERLAY)
    if wanted and is_writable(store):
        if table.use_partitioner or table.synchronize_all_active_partitions:
            store.flush_mode = FlushMode.READ_BACK if table.is_global else FlushMode.APART
        store.usage, store.in_other_thread = usage_of(app), app.conf.producer_threaded
        table.send_changelog = partial(_send, table, store, table.send_changelog)
        table._on_changelog_sent = store.arrived


def _send(
    table: CollectionT,
    store: WriteBehindStore,
    send: Callable[..., FutureMessage],
    partition: int | None,
    key: object,
    *args: object,
    **kwargs: object,
) -> Any:
    if partition is None:
        # Faust asks the producer for the partition. The producer knows only topics that it has sent
        # to, and under transactions no topic.
        raw, _ = table.changelog_topic.prepare_key(key, table.key_serializer)
        partition = table.app.consumer.key_partition(table.changelog_topic.get_topic_name(), raw)
    record = send(partition, key, *args, **kwargs)
    store.sent(record)
    return record
