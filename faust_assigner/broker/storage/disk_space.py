"""Give the space of deleted data back to the disk, in a thread, if free space is short."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from faust_assigner.broker.storage.rocks_store import RocksStore
from faust_assigner.broker.storage.store import Store

logger = logging.getLogger(__name__)


class DiskSpace:
    """The space of one store; ``aside`` runs a function in a thread. One reclaim runs at a time."""

    def __init__(
        self, store: Store, aside: Callable[[Callable[[], None]], asyncio.Future[None]]
    ) -> None:
        self._store = store
        self._aside = aside
        self.is_open = False  # whether the event loop runs, so that there are threads
        self.is_owed = False  # whether deleted data still takes space
        self.reclaiming: asyncio.Future[None] | None = None

    def freed(self) -> None:
        """Record that deleted data still takes disk space."""
        self.is_owed = True
        self.give_back()

    def give_back(self) -> None:
        """Reclaim the disk space of deleted data in a thread, if free space is short."""
        store = self._store
        if not isinstance(store, RocksStore) or self.reclaiming is not None or not self.is_open:
            return
        if self.is_owed and store.is_low:
            self.is_owed = False
            self.reclaiming = self._aside(store.reclaim)
            self.reclaiming.add_done_callback(self._reclaimed)

    def _reclaimed(self, done: asyncio.Future[None]) -> None:
        self.reclaiming = None
        if not done.cancelled() and done.exception() is not None:
            logger.error("could not free disk space: %s", done.exception())
        self.give_back()
