"""Which tables' rows wait for their changelog, and how the tables tell their stores."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any

from faust.types import TP

from faust_assigner.app.settings import read_or_default
from faust_assigner.app.tables.changes import Usage
from faust_assigner.app.tables.store import FlushMode, WriteBehindStore
from faust_assigner.settings.table import OVERLAY, OVERLAY_BYTES

#: Changes of all tables of a worker that wait at a time.
MOST_CHANGES = 100_000


def usage_of(app: Any) -> Usage:
    """What the app's overlays take together; the same object at each call."""
    usage: Usage | None = vars(app.tables).get("overlay_usage")
    if usage is None:
        usage = app.tables.overlay_usage = Usage(read_or_default(app, OVERLAY_BYTES), MOST_CHANGES)
    return usage


def begin(table: Any, store: WriteBehindStore) -> None:
    """Let ``store``, just made for ``table``, hold changes back where that is possible.

    Under ``exactly_once`` whatever the setting says: a row would keep what an aborted transaction did.
    """
    app = table.app
    wanted = app.in_transaction or read_or_default(app, OVERLAY)
    if wanted and store.use_rocksdict and not store.read_only:
        if table.use_partitioner or table.synchronize_all_active_partitions:
            store.flush_mode = FlushMode.READ_BACK if table.is_global else FlushMode.APART
        store.usage, store.in_other_thread = usage_of(app), app.conf.producer_threaded
        table.send_changelog = partial(_send, table, store, table.send_changelog)
        table._on_changelog_sent = store.arrived


def _send(
    table: Any,
    store: WriteBehindStore,
    send: Callable[..., Any],
    partition: int | None,
    key: Any,
    *args: Any,
    **kwargs: Any,
) -> Any:
    if partition is None:
        # Stock asks the producer, which knows no topic that it has not sent to; with transactions never.
        raw, _ = table.changelog_topic.prepare_key(key, table.key_serializer)
        partition = table.app.consumer.key_partition(table.changelog_topic.get_topic_name(), raw)
    record = send(partition, key, *args, **kwargs)
    store.sent(record)
    return record


def overlaid(app: Any) -> Iterator[tuple[str, WriteBehindStore]]:
    """Changelog and store of each table whose rows wait for their changelog."""
    for table in app.tables.values():
        data = table.data
        store = getattr(data, "storage", data)
        if isinstance(store, WriteBehindStore) and store.usage is not None:
            yield table.changelog_topic.get_topic_name(), store


def pause(app: Any, partitions: Collection[int] | None = None) -> None:
    """Flush what counts, and nothing more until ``resume()``; of all partitions, or of these numbers."""
    for _, store in overlaid(app):
        store.pause(partitions)


def hold(app: Any) -> None:
    """Flush nothing until ``resume()``: files cannot be written, or are about to be replayed."""
    for _, store in overlaid(app):
        store.hold()


def discard(app: Any) -> None:
    """Flush what counts of all partitions, and drop the rest."""
    for _, store in overlaid(app):
        store.discard()


def keep(app: Any, actives: Collection[Any], complete: Collection[Any]) -> None:
    """Discard all changelog partitions but ``actives``; resume those that are ``complete``."""
    for topic, store in overlaid(app):
        store.discard([p for p in store.overlays if TP(topic, p) not in actives])
    resume(app, complete)


def resume(app: Any, actives: Collection[Any]) -> None:
    """The files of ``actives`` have all of their changelogs; from here on their owner is this worker."""
    for topic, store in overlaid(app):
        for tp in sorted(actives):
            if tp.topic == topic:
                store.resume(tp.partition)
