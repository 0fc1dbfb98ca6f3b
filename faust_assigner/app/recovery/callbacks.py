"""The callbacks of ``@table.on_recover``: each runs to its end, even if a rebalance begins.

The module also finds which of Faust's methods an app's own table class overrides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from faust.tables.base import Collection
from mode import get_logger

from faust_assigner.app.retry import SAY_EVERY_S

if TYPE_CHECKING:
    from faust.types.tables import CollectionT

    pass

logger = get_logger(__name__)


def is_overridden(table: CollectionT, *names: str) -> bool:
    """Whether the class of ``table`` overrides one of Faust's methods with these ``names``."""
    kind = type(table)
    return any(getattr(kind, name, None) not in (None, getattr(Collection, name)) for name in names)


def call_callbacks(table: CollectionT) -> Awaitable[None]:
    """Call the table's callbacks of ``@table.on_recover``."""
    called: Awaitable[None] = table.call_recover_callbacks()
    return called


class RecoverCallbacks:
    """The tables whose callbacks are due, and the tables whose callbacks run.

    A rebalance interrupts the restore, and partitions restored by then are not restored again.
    Therefore a rebalance cancels no callback, and callbacks that are due stay due. As in Faust a
    failing callback does not end the worker, but its error is logged. ``call(table)`` calls the
    table's callbacks.
    """

    def __init__(self, call: Callable[[CollectionT], Awaitable[None]] = call_callbacks) -> None:
        self._call_back = call
        #: The tables with partitions restored since the last call of their callbacks, in this order.
        self._due: dict[CollectionT, None] = {}
        self._running: dict[CollectionT, asyncio.Task[None]] = {}
        #: All tasks, including tasks that wait for an earlier task of the same table.
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def running(self) -> frozenset[CollectionT]:
        """Tables whose callbacks run."""
        return frozenset(self._running)

    def owe(self, tables: Iterable[CollectionT]) -> None:
        """Note that partitions of ``tables`` have been restored, or are about to be restored."""
        self._due.update(dict.fromkeys(tables))

    def begin(self, is_restored: Callable[[CollectionT], bool]) -> None:
        """Begin the due callbacks of completely restored tables, all at once as Faust does."""
        for table in [table for table in self._due if is_restored(table)]:
            del self._due[table]
            task = asyncio.ensure_future(self._call(table, self._running.get(table)))
            self._running[table] = task
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(partial(self._callbacks_ended, table))

    async def _call(self, table: CollectionT, before: asyncio.Task[None] | None) -> None:
        """Call the table's callbacks after its earlier task, so that no two calls overlap."""
        if before is not None:
            await asyncio.wait({before})
        try:
            await self._call_back(table)
        except Exception:
            logger.exception(
                "Table %s: a callback of on_recover failed; the worker continues", table.name
            )

    def _callbacks_ended(self, table: CollectionT, task: asyncio.Task[None]) -> None:
        if self._running.get(table) is task:
            del self._running[table]

    async def over(self) -> None:
        """Wait for the running callbacks; a cancelled wait does not cancel the callbacks."""
        began = monotonic()
        while self._running:
            _, late = await asyncio.wait(set(self._running.values()), timeout=SAY_EVERY_S)
            if late:
                logger.warning(
                    "Callbacks of on_recover of tables %s have run for %.0f s; partitions that this "
                    "worker takes over are processed when they have returned",
                    sorted(str(table.name) for table in self._running),
                    monotonic() - began,
                )

    async def stop(self) -> None:
        """Cancel the running callbacks, because the worker stops."""
        tasks = set(self._tasks)
        self._due.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
