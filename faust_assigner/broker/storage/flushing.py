"""What must be on the disk before it is acknowledged: one wait for the disk at a time, beside the event loop.

A write is in the log of RocksDB when it returns, which a kill of the process does not undo; a power loss may.
Whoever wants more waits here. Those who come while the disk is busy share the next wait, so a thousand
producers with ``flush.messages=1`` cost as many waits as the disk can do, and nobody else waits with them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from faust_assigner.broker.storage.store import Store


class Flushing:
    """The waits for one store's disk. ``aside`` runs a function in a thread."""

    def __init__(self, store: Store, aside: Callable[[Callable[[], int]], Awaitable[int]]) -> None:
        self._store = store
        self._aside = aside
        self._under_way: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def flushed(self) -> None:
        """All that was written before the call is on the disk. Raises StoreFailed."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._flush(self._under_way))
        await asyncio.shield(self._next)

    async def _flush(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait({before})
        self._under_way, self._next = (
            self._next,
            None,
        )  # who comes from here on has written too late for this
        self._store.note_flushed(await self._aside(self._store.flush))
