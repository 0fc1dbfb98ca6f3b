"""The callbacks of ``@table.on_recover``: each runs to its end, whatever rounds come meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from time import monotonic
from typing import Any

from mode import get_logger

from faust_assigner.app.retry import SAY_EVERY_S

logger = get_logger(__name__)


class RecoverCallbacks:
    """Which tables' callbacks are due, and which run.

    A round neither cancels a callback nor forgets one that is due: whoever restores tables is interrupted by
    each round, and what was restored by then is not restored again. As in Faust a callback that fails does
    not end the worker, but here it is logged.
    """

    def __init__(self) -> None:
        #: Tables of which something was restored since their callbacks began last; in this order.
        self._due: dict[Any, None] = {}
        self._running: dict[Any, asyncio.Task[None]] = {}
        #: All tasks: of a table that was restored again meanwhile, those that wait for their turn as well.
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def running(self) -> frozenset[Any]:
        """Tables whose callbacks run."""
        return frozenset(self._running)

    def owe(self, tables: Iterable[Any]) -> None:
        """Something of ``tables`` has been restored, or is about to be."""
        self._due.update(dict.fromkeys(tables))

    def begin(self, is_restored: Callable[[Any], bool]) -> None:
        """Begin the callbacks that are due of tables of which all is restored; all at once, as Faust does."""
        for table in [table for table in self._due if is_restored(table)]:
            del self._due[table]
            task = asyncio.ensure_future(self._call(table, self._running.get(table)))
            self._running[table] = task
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(partial(self._ended, table))

    async def _call(self, table: Any, before: asyncio.Task[None] | None) -> None:
        """Call them, after those of the recovery before: a table's never run twice at a time."""
        if before is not None:
            await asyncio.wait({before})
        try:
            await table.call_recover_callbacks()
        except Exception:
            logger.exception(
                "Table %s: a callback of on_recover failed; the worker goes on without it",
                table.name,
            )

    def _ended(self, table: Any, task: asyncio.Task[None]) -> None:
        if self._running.get(table) is task:
            del self._running[table]

    async def over(self) -> None:
        """Wait for those that run; cancelled, it leaves them running."""
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
        """Cancel those that run: the worker stops."""
        tasks = set(self._tasks)
        self._due.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
