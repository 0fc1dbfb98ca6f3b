"""The base of a group's epochs in the store: it rises, so that epochs never fall.

An epoch is the sum of this base and a revision of the store. A store that was replaced, or restored from a
snapshot, has lower revisions; then the base is raised.
"""

from __future__ import annotations

import logging
from typing import Protocol

from faust_assigner.service import values as codec
from faust_assigner.service.keys import Keys
from faust_assigner.service.store.base import KeyValue, Put, Store
from faust_assigner.service.store.rewrite import rewritten

logger = logging.getLogger(__name__)

#: The margin by which the base of epochs is raised: a different instance may have seen later
#: revisions.
AHEAD = 1_000_000
#: A consumer's epoch this many milliseconds ahead of the clock is ignored. Otherwise a hostile
#: consumer could raise the epochs repeatedly, which interrupts all consumers.
MOST_AHEAD = 10 * AHEAD


class Copy(Protocol):
    """The copy of the group's keys, which has the base of epochs, too."""

    #: The store's revision up to which the copy is complete.
    revision: int

    @property
    def dated(self) -> int:
        """The base plus the revision."""

    async def reached(self, revision: int) -> None:
        """Return when the copy's revision is at least ``revision``."""


class Epochs:
    """Raises the base of epochs; ``mirror`` reads the base with all other keys."""

    def __init__(self, mirror: Copy, store: Store, keys: Keys) -> None:
        self._mirror = mirror
        self._store = store
        self._keys = keys

    async def raise_above(self, seen: int) -> int:
        """Raise the base of epochs above ``seen``; return a revision that contains the base."""
        return await self._put_base(seen, seen + AHEAD)

    async def _put_base(self, least: int, base: int) -> int:
        """Write ``base`` if the stored base is below ``least``; return a revision with the base.

        A different instance may have raised the base already.
        """

        async def above(kv: KeyValue | None) -> Put | None:
            known = codec.readable(codec.load_base, kv) or 0
            return None if known >= least else Put(self._keys.epochs, codec.dump_base(base))

        return await rewritten(self._store, self._keys.epochs, above)

    async def begin(self, wall_s: float) -> None:
        """Raise the base of epochs so that epochs are at least ``wall_s`` in milliseconds.

        Called when a group's first consumer registers. The group may have used a different store
        before, in memory or in etcd, with unrelated revisions.
        """
        await self._put_base(least := int(wall_s * 1000) - self._mirror.revision, least)

    async def surpass(self, epoch: int, wall_s: float) -> None:
        """Raise the base of epochs above ``epoch``, which a consumer had, if epochs have fallen.

        Call this method after the mirror has seen a write of this consumer: unless epochs have
        fallen, the mirror has then seen every grant to the consumer. Epochs fall if the store has
        lost all its data and the former base was ahead of the clock. An epoch far ahead of the
        clock is a client's fault. Return when the copy has the raised base, before the next grants.
        """
        if epoch <= self._mirror.dated:
            return
        if epoch > wall_s * 1000 + MOST_AHEAD:
            logger.warning(
                "a consumer reports the epoch %d, far ahead of the clock; the epoch is ignored. If "
                "sinks remember such epochs, set the key %s above them",
                epoch,
                self._keys.epochs,
            )
            return
        logger.error(
            "a consumer reports epoch %d, the store has only epoch %d: the store has lost its data; "
            "raising the epochs of all consumers",
            epoch,
            self._mirror.dated,
        )
        await self._mirror.reached(await self.raise_above(epoch))
