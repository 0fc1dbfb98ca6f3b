"""Prepares an app's windowed tables; passes rebalances and commits on to the closing of windows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from faust.tables.sets import SetTable
from mode.utils.futures import maybe_async
from mode.utils.times import want_seconds

from faust_assigner.app.settings import read_or_default
from faust_assigner.app.tables.window_closing import Closing
from faust_assigner.settings.table import WINDOW_RETENTION_S

if TYPE_CHECKING:
    from faust.app import App
    from faust.tables.table import Table
    from faust.types.topics import TopicT
    from faust.types.tuples import TP
    from mode.utils.times import Seconds


def install(app: App, table: Table) -> Closing | None:
    """Install and return the closing of windows; None for sets and tables with other writers."""
    table._new_changelog_topic = partial(_kept_longer, app, table, table._new_changelog_topic)
    call = table.on_window_close
    table.on_window_close = partial(_never_without_a_value, call)
    if table.is_global or table.use_partitioner or isinstance(table, SetTable):
        return None
    return Closing(app, table)


def _kept_longer(
    app: App,
    table: Table,
    make: Callable[..., TopicT],
    *,
    retention: Seconds | None = None,
    **how: object,
) -> TopicT:
    """Make the changelog's topic with a longer retention than Faust's, which is ``expires``.

    If a group is stopped for longer than Faust's retention, the broker removes windows that are
    still open. The topic of a table of sets is never compacted, as Faust does if the sets have windows:
    each record is an operation on a set, and compaction would remove elements.
    """
    if retention is None and table.window is not None and table.window.expires:
        retention = want_seconds(table.window.expires) + read_or_default(app, WINDOW_RETENTION_S)
    if isinstance(table, SetTable):
        how = {"compacting": False, **how}
    return make(retention=retention, **how)


async def _never_without_a_value(
    call: Callable[[object, object], object], key: object, value: object
) -> None:
    if value is not None:
        await maybe_async(call(key, value))


def restored(closings: Iterable[Closing], tps: Collection[TP]) -> None:
    """Reset partitions after their replay: other workers may have changed them."""
    for closing in closings:
        for tp in (tp for tp in tps if tp.topic == closing.changelog):
            closing.windows.restored(tp.partition)
            closing.times.forget(tp.partition)


def revoked(closings: Iterable[Closing], tp: TP) -> None:
    """Forget ``tp``, which this worker no longer has."""
    for closing in closings:
        if tp.topic == closing.changelog:
            closing.windows.forget(tp.partition)
            closing.times.forget(tp.partition)


def committed(closings: Iterable[Closing], offsets: Mapping[TP, int]) -> None:
    """Note that the records before ``offsets`` are committed."""
    for closing in closings:
        closing.times.commit(offsets)
