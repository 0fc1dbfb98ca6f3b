"""Disk work in threads: wait until writes are on the disk, and reclaim the space of deleted data.

A write returns when RocksDB's log has it. A kill of the process does not undo the write, but a power loss
may. Callers that need more safety call :class:`Flushing`. Callers that arrive during a wait share the next
wait. So a thousand producers with ``flush.messages=1`` cause no more waits than the disk can do, and do not
delay other producers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from faust_assigner.broker.storage.rocks_store import RocksStore
from faust_assigner.broker.storage.store import Store, StoreFailed

logger = logging.getLogger(__name__)
#: Seconds after which a wait for the disk is logged, and after which a caller gets an error. A producer
#: gives its request up after 30 s by default.
SLOW_S: Final = 10.0
LONGEST_S: Final = 25.0


class Flushing:
    """Waits until writes are on the disk, one wait at a time. ``aside`` runs a function in a thread."""

    def __init__(self, store: Store, aside: Callable[[Callable[[], int]], Awaitable[int]]) -> None:
        self._store = store
        self._aside = aside
        self._under_way: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def flushed(self) -> None:
        """Wait until all writes before the call are on the disk.

        Raises StoreFailed, also after LONGEST_S seconds; the disk may then still confirm the writes.
        """
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._flush(self._under_way))
            self._next.add_done_callback(_retrieve_error)
        flush = self._next
        await asyncio.wait({flush}, timeout=LONGEST_S)
        if not flush.done():
            raise StoreFailed(f"the disk has not confirmed the write for {LONGEST_S:g} s")
        flush.result()

    async def _flush(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait({before})
        # This wait may not cover later writes, so later callers need the next wait.
        self._under_way, self._next = self._next, None
        slow = asyncio.get_running_loop().call_later(SLOW_S, _log_slow_disk)
        try:
            self._store.note_flushed(await self._aside(self._store.flush))
        finally:
            slow.cancel()


def _retrieve_error(flush: asyncio.Task[None]) -> None:
    """Retrieve the error of a wait whose callers are gone; asyncio would log it."""
    if not flush.cancelled():
        flush.exception()


def _log_slow_disk() -> None:
    logger.warning(
        "the disk has not confirmed the last writes for %g s: the broker acknowledges no further records of "
        "topics with flush.messages until the disk answers, and refuses them after %g s; check the disk",
        SLOW_S,
        LONGEST_S,
    )


class DiskSpace:
    """Reclaims the space of deleted data, one run at a time. ``aside`` runs a function in a thread."""

    def __init__(
        self, store: Store, aside: Callable[[Callable[[], None]], asyncio.Future[None]]
    ) -> None:
        self._store = store
        self._aside = aside
        self.is_open = False  # whether the broker runs, and so has threads
        self.needs_reclaim = False  # whether deleted data still takes space
        self.reclaiming: asyncio.Future[None] | None = None

    def freed(self) -> None:
        """Record that deleted data still takes disk space."""
        self.needs_reclaim = True
        self.reclaim_if_low()

    def reclaim_if_low(self) -> None:
        """Reclaim the disk space of deleted data in a thread, if free space is short."""
        store = self._store
        if not isinstance(store, RocksStore) or self.reclaiming is not None or not self.is_open:
            return
        if self.needs_reclaim and store.is_low:
            self.needs_reclaim = False
            self.reclaiming = self._aside(store.reclaim)
            self.reclaiming.add_done_callback(self._reclaimed)

    def _reclaimed(self, done: asyncio.Future[None]) -> None:
        self.reclaiming = None
        if not done.cancelled() and done.exception() is not None:
            logger.error("could not free disk space: %s", done.exception())
        self.reclaim_if_low()
