"""A copy of the group's keys that misses nothing: list, watch from the next revision, list again.

A broken watch goes on at the revision after the last one seen; before that, and every few seconds besides,
the copy is compared with a fresh listing: the history may be compacted away, and a watch may hang. A store
that was restored from a snapshot is found out by it too: its revisions begin again where they have been. A
watch from the last one seen would wait for the day on which there are as many again, and epochs, which are
revisions, would be below those that sinks have seen: they are raised above them before the listing is taken.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence

from faust_assigner.service import keys as codec
from faust_assigner.service.clock import Clock
from faust_assigner.service.errors import StoreError, StoreUnavailable
from faust_assigner.service.heap import Grown
from faust_assigner.service.keys import Keys
from faust_assigner.service.store.base import Event, KeyValue, Listing, Put, Store
from faust_assigner.service.store.rewrite import rewritten
from faust_assigner.service.view import Change, View, differences

logger = logging.getLogger(__name__)

Listener = Callable[[Sequence[Change]], None]
RETRY_S = 0.5
#: Changes that wait for an operator's screen; it looks at the state anyway.
MAX_UNREAD = 10_000
#: Unreadable keys that one line of the log names.
NAMED = 10
#: Keys from which another thread compares a listing with the copy.
LARGE = 4_000
#: No listing follows for so many times what the last one took.
REST = 20.0
#: Epochs are raised by so much more: another instance may have seen what this one had not heard of.
AHEAD = 1_000_000


class Mirror:
    """The copy: ``view`` as of ``revision``. Listeners are told of changes once the view has them all."""

    def __init__(self, store: Store, keys: Keys, clock: Clock, *, reconcile_s: float) -> None:
        self.view = View(keys)
        self.revision = 0
        self.heard_at = -float("inf")
        self.listeners: list[Listener] = []
        self._store = store
        self._keys = keys
        self._prefix = keys.prefix
        self._clock = clock
        self._reconcile_s = reconcile_s
        self._moved = asyncio.Event()
        self._times_restored = 0
        self._is_over = False
        self._listening: asyncio.Task[None] | None = None
        self._comparing = asyncio.Lock()
        self._unreadable: set[str] = set()
        self._grown = Grown()

    @property
    def dated(self) -> int:
        """The revision on the scale of epochs: it rises over a restored store, too."""
        return self.view.base + self.revision

    async def load(self) -> None:
        """The first listing."""
        listing = await self._store.list(self._prefix)
        self._take(listing, differences(self.view.raw, listing))

    async def follow(self) -> None:
        """Watch for ever."""
        while True:
            self._listening = asyncio.get_running_loop().create_task(self._listen(), name="watch")
            try:
                await self._listening
            except asyncio.CancelledError:
                if (task := asyncio.current_task()) is None or task.cancelling():
                    raise  # else it was ended because its revision never comes
            except StoreError as error:
                # It may be compacted, or restored: nothing new is taken before that is known.
                logger.info("the watch broke: %s: listing again", error)
                while not await self._relist():
                    await self._clock.sleep(RETRY_S)
            await self._clock.sleep(RETRY_S)

    async def _listen(self) -> None:
        async with contextlib.aclosing(
            self._store.watch(self._prefix, self.revision + 1)
        ) as batches:  # type: ignore[type-var]
            async for batch in batches:
                self._heard()
                self._apply(batch.events, batch.revision)

    async def reconcile(self) -> None:
        """Compare with a listing every few seconds, for ever; a large group less often, so that listings take
        a twentieth of the time at most. In between the store is only asked whether it answers."""
        rest_until = -float("inf")
        while True:
            await self._clock.sleep(self._reconcile_s)
            began = self._clock.monotonic()
            if began < rest_until:
                await self._greet()
                continue
            await self._relist()
            ended = self._clock.monotonic()
            rest_until = ended + REST * (ended - began)

    async def _greet(self) -> None:
        try:
            await self._store.get(self._keys.leader)
            self._heard()
        except StoreError as error:
            logger.info("the store does not answer: %s", error)

    async def _relist(self) -> bool:
        """Compare with a listing; whether there was one."""
        async with self._comparing:  # one after the other: a store is found to be restored once
            asked = self.revision
            try:
                listing = await self._store.list(self._prefix)
                changed = await self._differences(listing)
                if self._is_of_another_past(listing, changed, asked):
                    logger.error(
                        "the store's past up to revision %d, of now %d, is not what it was: "
                        "was it restored from a snapshot?",
                        self.revision,
                        listing.revision,
                    )
                    await self._raise_epochs(self.view.base + self.revision)
                    listing = await self._store.list(self._prefix)
                    self._forget()
                    changed = differences(self.view.raw, listing)
                self._take(listing, changed)
            except StoreError as error:
                logger.info("listing failed: %s", error)
                return False
        return True

    async def _differences(self, listing: Listing) -> list[Event]:
        """As those of the view; of a large group another thread finds them, by a copy, while the watch goes
        on, and those that the watch has told meanwhile are none any more."""
        if len(listing.items) < LARGE:
            return differences(self.view.raw, listing)
        found = await asyncio.to_thread(differences, dict(self.view.raw), listing)
        return [event for event in found if self.view.raw.get(event.key) != event.kv]

    def _heard(self) -> None:
        self.heard_at = self._clock.monotonic()

    def _is_of_another_past(
        self, listing: Listing, differences: Sequence[Event], asked: int
    ) -> bool:
        """Whether what was written up to our revision is not what we have seen there. ``asked``: our
        revision when we asked; only that of a store that went back is older."""
        if self.revision > listing.revision >= asked:
            return False  # the watch is ahead of the listing
        return listing.revision < asked or any(
            event.kv is not None and event.kv.mod_revision <= self.revision for event in differences
        )

    async def _raise_epochs(self, seen: int) -> None:
        """Epochs begin above ``seen`` from now on, whichever instance says so first."""
        await self._put_base(seen, seen + AHEAD)

    async def _put_base(self, least: int, base: int) -> None:
        """Write ``base`` where what is written is below ``least``."""

        async def above(kv: KeyValue | None) -> Put | None:
            known = (kv and codec.readable(codec.load_base, kv.value)) or 0
            return None if known >= least else Put(self._keys.epochs, codec.dump_base(base))

        await rewritten(self._store, self._keys.epochs, above)

    async def begin_epochs(self, wall_s: float) -> None:
        """Let epochs be at least the milliseconds of ``wall_s``; they only rise.

        With a group's first consumer, on any store: it may have had another store before, in memory or in
        etcd, whose revisions say nothing of this one's.
        """
        await self._put_base(least := int(wall_s * 1000) - self.revision, least)

    def _forget(self) -> None:
        """The next listing counts, whatever its revision; nothing is heard of the other past any more."""
        self.revision, self._times_restored = 0, self._times_restored + 1
        if self._listening is not None:
            self._listening.cancel()

    def _take(self, listing: Listing, differences: Sequence[Event]) -> None:
        self._heard()
        if listing.revision > self.revision:
            self._apply(differences, listing.revision, known=True)

    def _apply(self, events: Sequence[Event], revision: int, *, known: bool = False) -> None:
        """Events at or below our revision came by a listing already."""
        fresh = events if known else [event for event in events if event.revision > self.revision]
        changes = [change for event in fresh if (change := self.view.apply(event)) is not None]
        self._grown.look(len(self.view.raw))
        if revision > self.revision:
            self.revision = revision
            moved, self._moved = self._moved, asyncio.Event()
            moved.set()
        self._tell_unreadable()
        if changes:
            for listener in tuple(self.listeners):
                listener(changes)

    def _tell_unreadable(self) -> None:
        """Log the keys whose values cannot be read, each once."""
        new = sorted(self.view.unreadable - self._unreadable)
        self._unreadable = set(self.view.unreadable)
        if new:
            logger.warning(
                "%d values in the store cannot be read and count as not there: %s%s; delete these keys, or "
                "upgrade this instance if a newer release wrote them",
                len(new),
                ", ".join(new[:NAMED]),
                ", ..." if len(new) > NAMED else "",
            )

    async def watched(self) -> AsyncIterator[Change]:
        """Every change from now on, of those that wait to be read the newest :data:`MAX_UNREAD`."""
        unread: deque[Change] = deque(maxlen=MAX_UNREAD)
        wake = asyncio.Event()

        def heard(changes: Sequence[Change]) -> None:
            unread.extend(changes)
            wake.set()

        self.listeners.append(heard)
        try:
            while True:
                wake.clear()
                while unread:
                    yield unread.popleft()
                await wake.wait()
        finally:
            with contextlib.suppress(ValueError):
                self.listeners.remove(heard)

    async def past(self, revision: int, known: int) -> None:
        """Return once the copy has a write of that revision; ``known``: the copy's own before the write.

        Raises as :meth:`reached`. Where the store went back the copy is of another past: who has registered
        anew by that write is in it under the session of before.
        """
        if revision <= known and not await self._relist():
            raise StoreUnavailable("the store was restored and is not read yet")
        await self.reached(revision)

    def end(self) -> None:
        """Nothing is heard any more: nobody waits for it."""
        self._is_over = True
        self._moved.set()

    async def reached(self, revision: int) -> None:
        """Return once the copy is at least that new; StoreUnavailable where that will not be: the store went
        back, or this instance stops."""
        before = self._times_restored
        while self.revision < revision:
            await self._moved.wait()
            if self._is_over:
                raise StoreUnavailable("this instance is stopping")
            if self._times_restored != before:
                raise StoreUnavailable(
                    "the store was restored: what was written just now may be lost"
                )
