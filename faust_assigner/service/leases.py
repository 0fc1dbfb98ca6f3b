"""A lease of this process: renewed periodically, and regarded as lost before the store ends it."""

from __future__ import annotations

import logging

from faust_assigner.service.clock import Clock
from faust_assigner.service.errors import LeaseLost, StoreError
from faust_assigner.service.store.base import Store

logger = logging.getLogger(__name__)

#: A holder without a renewal stops acting after this share of the TTL. The store counts the TTL
#: from a later moment than the holder. Running work therefore has at least a third of the TTL to
#: end before a successor starts.
FENCE_AT = 2 / 3
MIN_RETRY_S = 0.05


class HeldLease:
    """A granted lease, timed by this process's monotonic clock.

    The time runs from the moment this process *sent* the last successful renewal. The store counts
    from the moment it received this renewal, which is later.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        lease_id: int,
        *,
        granted_s: float,
        ttl_s: float,
        sent: float,
    ) -> None:
        self.lease_id = lease_id
        self.granted_s = granted_s
        self._store = store
        self._clock = clock
        self._ttl_s = min(granted_s, ttl_s)
        self._sent = sent
        self._lost = False

    @classmethod
    async def grant(cls, store: Store, clock: Clock, ttl_s: float) -> HeldLease:
        """Grant a new lease, whose TTL is the shorter of the requested and the granted TTL."""
        sent = clock.monotonic()
        lease = await store.grant(ttl_s)
        return cls(store, clock, lease.lease_id, granted_s=lease.ttl_s, ttl_s=ttl_s, sent=sent)

    @classmethod
    async def adopt(cls, store: Store, clock: Clock, lease_id: int, ttl_s: float) -> HeldLease:
        """Renew a lease granted by a different instance. Raises LeaseLost if the lease is gone."""
        sent = clock.monotonic()
        granted_s = await store.keep_alive(lease_id)
        if granted_s <= 0:
            raise LeaseLost(lease_id)
        return cls(store, clock, lease_id, granted_s=granted_s, ttl_s=ttl_s, sent=sent)

    @property
    def renewed_s(self) -> float:
        """Seconds since this process sent the last successful renewal."""
        return self._clock.monotonic() - self._sent

    @property
    def left_s(self) -> float:
        """Seconds until the holder must stop acting; at 0 or less the holder must stop now."""
        return -1.0 if self._lost else self._sent + self._ttl_s * FENCE_AT - self._clock.monotonic()

    @property
    def is_lost(self) -> bool:
        """Whether the lease is gone: reported by the store, given up or revoked."""
        return self._lost

    @property
    def is_held(self) -> bool:
        """Whether the holder may act under the lease now."""
        return self.left_s > 0

    async def hold(self, every_s: float) -> None:
        """Renew the lease periodically; return when the holder may no longer act."""
        pause = every_s
        while self.is_held:
            await self._clock.sleep(min(pause, max(self.left_s, 0.0)))
            pause = every_s if await self.renew() else max(every_s / 5, MIN_RETRY_S)

    async def renew(self) -> bool:
        """Renew once, if time is left. Return whether the renewal succeeded."""
        sent, left = self._clock.monotonic(), self.left_s
        if left <= 0:
            return False
        try:
            ttl = await self._store.keep_alive(self.lease_id, timeout_s=left)
        except LeaseLost:
            self._lost = True
            return False
        except StoreError as error:
            logger.info("could not renew the lease %x: %s", self.lease_id, error)
            return False
        # For an expired lease etcd answers with a time to live of 0, not with an error.
        if ttl <= 0:
            self._lost = True
            return False
        self._sent = sent
        return True

    def give_up(self) -> None:
        """Treat the lease as lost: a different process has taken over."""
        self._lost = True

    async def revoke(self) -> None:
        """Revoke the lease; if the store does not answer, the lease expires after its TTL."""
        self._lost = True
        try:
            await self._store.revoke(self.lease_id)
        except StoreError as error:
            logger.info("could not revoke the lease %x, so it expires: %s", self.lease_id, error)
