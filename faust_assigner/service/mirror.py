"""A copy of the group's keys that misses nothing: list, watch from the next revision, list again.

A broken watch goes on at the revision after the last one seen; where that is compacted away, and every few
seconds besides, the copy is compared with a fresh listing. A watch that hangs is found out by that, and so is
a store that was restored from a snapshot: its revisions begin again where they have been, and a watch from
the last one seen would wait for the day on which there are as many again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence

from faust_assigner.service.clock import Clock
from faust_assigner.service.errors import Compacted, StoreError, StoreUnavailable
from faust_assigner.service.keys import Keys
from faust_assigner.service.store.base import Event, Listing, Store
from faust_assigner.service.view import Change, View

logger = logging.getLogger(__name__)

Listener = Callable[[Sequence[Change]], None]
RETRY_S = 0.5


class Mirror:
    """The copy: ``view`` as of ``revision``. Listeners are told of changes once the view has them all."""

    def __init__(self, store: Store, keys: Keys, clock: Clock, *, reconcile_s: float) -> None:
        self.view = View(keys)
        self.revision = 0
        self.heard_at = -float("inf")
        self.listeners: list[Listener] = []
        self._store = store
        self._prefix = keys.prefix
        self._clock = clock
        self._reconcile_s = reconcile_s
        self._moved = asyncio.Event()
        self._times_restored = 0
        self._listening: asyncio.Task[None] | None = None

    async def load(self) -> None:
        """The first listing."""
        self._take(await self._store.list(self._prefix), self.revision)

    async def follow(self) -> None:
        """Watch for ever."""
        while True:
            self._listening = asyncio.get_running_loop().create_task(self._listen(), name="watch")
            try:
                await self._listening
            except asyncio.CancelledError:
                if (task := asyncio.current_task()) is None or task.cancelling():
                    raise  # else it was ended because its revision never comes
            except Compacted as compacted:
                logger.info("%s: listing again", compacted)
                await self._relist()
            except StoreError as error:
                logger.info("the watch broke: %s", error)
            await self._clock.sleep(RETRY_S)

    async def _listen(self) -> None:
        async with contextlib.aclosing(self._store.watch(self._prefix, self.revision + 1)) as batches:  # type: ignore[type-var]
            async for batch in batches:
                self._heard()
                self._apply(batch.events, batch.revision)

    async def reconcile(self) -> None:
        """Compare with a listing every few seconds, for ever."""
        while True:
            await self._clock.sleep(self._reconcile_s)
            await self._relist()

    async def _relist(self) -> None:
        asked = self.revision
        try:
            self._take(await self._store.list(self._prefix), asked)
        except StoreError as error:
            logger.info("listing failed: %s", error)

    def _heard(self) -> None:
        self.heard_at = self._clock.monotonic()

    def _take(self, listing: Listing, asked: int) -> None:
        """``asked``: our revision when we asked; only that of a store that went back is older."""
        self._heard()
        if listing.revision < asked:
            logger.error("the store went back from revision %d to %d: was it restored from a snapshot?",
                         asked, listing.revision)
            self.revision, self._times_restored = 0, self._times_restored + 1
            if self._listening is not None:
                self._listening.cancel()
        if listing.revision > self.revision:
            self._apply(self.view.differences(listing), listing.revision, known=True)

    def _apply(self, events: Sequence[Event], revision: int, *, known: bool = False) -> None:
        """Events at or below our revision came by a listing already."""
        fresh = events if known else [event for event in events if event.revision > self.revision]
        changes = [change for event in fresh if (change := self.view.apply(event)) is not None]
        if revision > self.revision:
            self.revision = revision
            moved, self._moved = self._moved, asyncio.Event()
            moved.set()
        if changes:
            for listener in tuple(self.listeners):
                listener(changes)

    async def reached(self, revision: int) -> None:
        """Return once the copy is at least that new; StoreUnavailable where the store went back."""
        before = self._times_restored
        while self.revision < revision:
            await self._moved.wait()
            if self._times_restored != before:
                raise StoreUnavailable("the store was restored: what was written just now may be lost")
