"""Wait for the disk before an acknowledgement, in a thread and with one wait at a time.

A write is in RocksDB's log when it returns. A kill of the process does not undo the write, but a power loss
may. Callers that need more safety wait here. Callers that arrive during a wait share the next one. So a
thousand producers with ``flush.messages=1`` need only as many waits as the disk can do, and delay no others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from faust_assigner.broker.storage.store import Store


class Flushing:
    """The waits for the disk of one store. ``aside`` runs a function in a thread."""

    def __init__(self, store: Store, aside: Callable[[Callable[[], int]], Awaitable[int]]) -> None:
        self._store = store
        self._aside = aside
        self._under_way: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def flushed(self) -> None:
        """Wait until all writes before the call are on the disk. Raises StoreFailed."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._flush(self._under_way))
        await asyncio.shield(self._next)

    async def _flush(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait({before})
        self._under_way, self._next = (
            self._next,
            None,
        )  # this wait may not cover writes from here on, so later callers need the next one
        self._store.note_flushed(await self._aside(self._store.flush))
