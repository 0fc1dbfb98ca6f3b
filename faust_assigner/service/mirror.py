"""A complete copy of the group's keys: list, watch from the next revision, list again.

The mirror compares its copy with a fresh listing after a broken watch, and every few seconds: the
history may be compacted, and a watch may hang. Then the watch resumes at the revision after the
last seen.

The comparison also detects a store restored from a snapshot, whose revisions repeat earlier
numbers. A watch from the last seen revision would miss all changes below that revision. Epochs are
a base plus a revision, and would be lower than epochs that sinks have seen. The mirror therefore
raises the base before it applies the listing of a restored store.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence

from faust_assigner.concurrency.cancellation import is_cancelled
from faust_assigner.service.clock import Clock
from faust_assigner.service.epochs import Epochs
from faust_assigner.service.errors import StoreError, StoreUnavailable
from faust_assigner.service.heap import GrowthFreezer
from faust_assigner.service.keys import Keys
from faust_assigner.service.store.base import Event, Listing, Store
from faust_assigner.service.view import Change, View, differences

logger = logging.getLogger(__name__)

Listener = Callable[[Sequence[Change]], None]
RETRY_S = 0.5
#: Maximum number of unreadable keys that a log line names.
NAMED = 10
#: From this number of keys on, a worker thread compares a listing with the copy.
LARGE = 4_000
#: After a listing the mirror requests no listing for this many times the listing's duration.
REST = 20.0


class Mirror:
    """Keeps ``view``, the copy of the keys as of ``revision``.

    After each batch of changes to the view, the mirror calls each listener with the batch.
    """

    def __init__(self, store: Store, keys: Keys, clock: Clock, *, reconcile_s: float) -> None:
        self.view = View(keys)
        self.revision = 0
        self.heard_at = -float("inf")
        self.listeners: list[Listener] = []
        self._store = store
        self._keys = keys
        self._clock = clock
        self._reconcile_s = reconcile_s
        self.epochs = Epochs(self, store, keys)
        self._moved = asyncio.Event()
        self._times_restored = 0
        self._is_over = False
        self._listening: asyncio.Task[None] | None = None
        self._comparing = asyncio.Lock()
        self._unreadable: set[str] = set()
        self._grown = GrowthFreezer()

    @property
    def dated(self) -> int:
        """The base plus the revision, as in epochs; it rises even if the store is restored."""
        return self.view.base + self.revision

    async def load(self) -> None:
        """Fill the view from a first listing."""
        listing = await self._store.list(self._keys.prefix)
        self._take(listing, differences(self.view.raw, listing))

    async def follow(self) -> None:
        """Watch the store forever."""
        while True:
            self._listening = asyncio.get_running_loop().create_task(self._listen(), name="watch")
            try:
                await self._listening
            except asyncio.CancelledError:
                if is_cancelled():
                    raise  # this task was cancelled; otherwise _forget has ended the old watch
            except StoreError as error:
                # The history may be compacted, or the store restored. A new listing brings the
                # copy up to date before the watch resumes.
                logger.info("the watch of the store failed: %s; reading all keys again", error)
                while not await self._relist():
                    await self._clock.sleep(RETRY_S)
            await self._clock.sleep(RETRY_S)

    async def _listen(self) -> None:
        watch = self._store.watch(self._keys.prefix, self.revision + 1)
        async with contextlib.aclosing(watch) as batches:  # type: ignore[type-var]
            async for batch in batches:
                self._note_answer()
                self._apply(batch.events, batch.revision)

    async def reconcile(self) -> None:
        """Compare the copy with a listing every few seconds, forever.

        Listings take at most about a twentieth of the time, so a large group is listed less often.
        Between listings the mirror reads one key to check that the store answers.
        """
        rest_until = -float("inf")
        while True:
            await self._clock.sleep(self._reconcile_s)
            began = self._clock.monotonic()
            if began < rest_until:
                await self._check_store()
                continue
            if await self._relist():
                ended = self._clock.monotonic()
                rest_until = ended + REST * (ended - began)

    async def _check_store(self) -> None:
        try:
            await self._store.get(self._keys.leader)
            self._note_answer()
        except StoreError as error:
            logger.info("the store does not answer, so this copy may be outdated: %s", error)

    def _note_answer(self) -> None:
        self.heard_at = self._clock.monotonic()

    async def _relist(self) -> bool:
        """Compare the copy with a listing, and return whether the store answered."""
        async with self._comparing:  # so that a restored store is detected only once
            asked = self.revision
            try:
                listing = await self._store.list(self._keys.prefix)
                changed = await self._differences(listing)
                if self._is_of_restored_store(listing, changed, asked):
                    logger.error(
                        "the store's history up to revision %d (now %d) has changed; check "
                        "whether the store was restored from a snapshot",
                        self.revision,
                        listing.revision,
                    )
                    await self.epochs.raise_above(self.dated)
                    listing = await self._store.list(self._keys.prefix)
                    self._forget()
                    changed = differences(self.view.raw, listing)
                self._take(listing, changed)
            except StoreError as error:
                logger.info("could not list the keys of the store, trying again: %s", error)
                return False
        return True

    async def _differences(self, listing: Listing) -> list[Event]:
        """List the differences between the view and a listing.

        For a large group, a worker thread compares a copy of the view while the watch continues.
        Differences that the watch has applied meanwhile are left out. If the watch has added a key
        that is not in the listing, the key was deleted before the listing.
        """
        if len(listing.items) < LARGE:
            return differences(self.view.raw, listing)
        before, known = dict(self.view.raw), self.view.raw
        found = await asyncio.to_thread(differences, before, listing)
        changed = {event.key for event in found}
        added = sorted(known.keys() - before.keys() - changed)
        gone = [key for key in added if known[key].mod_revision <= listing.revision]
        return [
            *(event for event in found if known.get(event.key) != event.kv),
            *(Event(key, listing.revision, None) for key in gone),
        ]

    def _is_of_restored_store(
        self, listing: Listing, differences: Sequence[Event], asked: int
    ) -> bool:
        """Whether the store's history differs from the history that this mirror has seen.

        ``asked``: the mirror's revision before the listing. Only a restored store answers with a
        lower revision.
        """
        if self.revision > listing.revision >= asked:
            return False  # the watch is ahead of the listing
        return listing.revision < asked or any(
            event.kv is not None and event.kv.mod_revision <= self.revision for event in differences
        )

    def _forget(self) -> None:
        """Prepare for a restored store's listing: accept any revision, and end the old watch."""
        self.revision, self._times_restored = 0, self._times_restored + 1
        if self._listening is not None:
            self._listening.cancel()

    def _take(self, listing: Listing, differences: Sequence[Event]) -> None:
        self._note_answer()
        if listing.revision > self.revision:
            self._apply(differences, listing.revision, known=True)

    def _apply(self, events: Sequence[Event], revision: int, *, known: bool = False) -> None:
        """Apply events to the view and call the listeners.

        Events of the watch at or below the mirror's revision are skipped: a listing has already
        delivered them. ``known``: the events are the differences of a listing; all are applied.
        """
        fresh = events if known else [event for event in events if event.revision > self.revision]
        changes = [change for event in fresh if (change := self.view.apply(event)) is not None]
        self._grown.freeze_if_grown(len(self.view.raw))
        if revision > self.revision:
            self.revision = revision
            moved, self._moved = self._moved, asyncio.Event()
            moved.set()
        self._log_unreadable()
        if changes:
            for listener in tuple(self.listeners):
                listener(changes)

    def _log_unreadable(self) -> None:
        """Log each key with an unreadable value once."""
        new = sorted(self.view.unreadable - self._unreadable)
        self._unreadable = set(self.view.unreadable)
        if new:
            logger.warning(
                "%d values in the store cannot be read and count as absent: %s%s; delete these "
                "keys, or upgrade this instance if a newer release wrote them",
                len(new),
                ", ".join(new[:NAMED]),
                ", ..." if len(new) > NAMED else "",
            )

    async def reached_write(self, revision: int, known: int) -> None:
        """Return when the copy contains the write of ``revision``.

        ``known``: the copy's revision before the write. A write at or below ``known`` shows that
        the store was restored. The copy may then still have the writer's registration from before
        the restore, so the mirror lists the store again first. Raises the errors of
        :meth:`reached`, and StoreUnavailable if the new listing fails.
        """
        if revision <= known and not await self._relist():
            raise StoreUnavailable("the store was restored, and this instance has not read it yet")
        await self.reached(revision)

    def end(self) -> None:
        """End all waits for revisions, because the mirror no longer follows the store."""
        self._is_over = True
        self._moved.set()

    async def reached(self, revision: int) -> None:
        """Return when the copy's revision is at least ``revision``.

        Raises StoreUnavailable if the store was restored, or if this instance stops.
        """
        before = self._times_restored
        while self.revision < revision:
            await self._moved.wait()
            if self._is_over:
                raise StoreUnavailable("this instance is stopping")
            if self._times_restored != before:
                raise StoreUnavailable("the store was restored: the last writes may be lost")
