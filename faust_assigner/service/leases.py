"""A lease that is kept alive, and that knows when it may no longer be trusted."""

from __future__ import annotations

import logging

from faust_assigner.service.clock import Clock
from faust_assigner.service.errors import LeaseLost, StoreError
from faust_assigner.service.store.base import Store

logger = logging.getLogger(__name__)

#: Of the TTL: whoever has not renewed by then acts no more. The store's clock begins later than ours, so
#: that a third of the TTL is left for what is under way to end before anybody else is let in.
FENCE_AT = 2 / 3
MIN_RETRY_S = 0.05


class HeldLease:
    """A granted lease. Its time is counted by our monotonic clock from when we *sent* the last renewal that
    succeeded: the store counts from when it got it, which is later.
    """

    def __init__(
        self, store: Store, clock: Clock, lease_id: int, ttl_s: float, sent: float
    ) -> None:
        self.lease_id = lease_id
        self._store = store
        self._clock = clock
        self._ttl_s = ttl_s
        self._sent = sent
        self._lost = False

    @classmethod
    async def grant(cls, store: Store, clock: Clock, ttl_s: float) -> HeldLease:
        """A new one. The shorter counts of what was asked for and what the store granted."""
        sent = clock.monotonic()
        lease = await store.grant(ttl_s)
        return cls(store, clock, lease.lease_id, min(lease.ttl_s, ttl_s), sent)

    @classmethod
    async def adopt(cls, store: Store, clock: Clock, lease_id: int, ttl_s: float) -> HeldLease:
        """One that another instance granted, renewed now. Raises LeaseLost where it is gone."""
        sent = clock.monotonic()
        granted_s = await store.keep_alive(lease_id)
        if granted_s <= 0:
            raise LeaseLost(lease_id)
        return cls(store, clock, lease_id, min(granted_s, ttl_s), sent)

    @property
    def renewed_s(self) -> float:
        """Seconds since the last renewal that succeeded was sent."""
        return self._clock.monotonic() - self._sent

    @property
    def left_s(self) -> float:
        """Seconds until we fence ourselves; 0 or less: we have to."""
        return -1.0 if self._lost else self._sent + self._ttl_s * FENCE_AT - self._clock.monotonic()

    @property
    def is_lost(self) -> bool:
        """Whether the store said that it is gone."""
        return self._lost

    @property
    def is_held(self) -> bool:
        """Whether it may be trusted now."""
        return self.left_s > 0

    async def hold(self, every_s: float) -> None:
        """Renew it until it is lost, and return then."""
        pause = every_s
        while self.is_held:
            await self._clock.sleep(min(pause, max(self.left_s, 0.0)))
            pause = every_s if await self.renew() else max(every_s / 5, MIN_RETRY_S)

    async def renew(self) -> bool:
        """Renew once, if there is time left. False where that did not succeed."""
        sent, left = self._clock.monotonic(), self.left_s
        if left <= 0:
            return False
        try:
            ttl = await self._store.keep_alive(self.lease_id, timeout_s=left)
        except LeaseLost:
            self._lost = True
            return False
        except StoreError as error:
            logger.info("lease %x: not renewed: %s", self.lease_id, error)
            return False
        # An expired lease is answered on an open stream, with a time to live of 0: that is no success.
        if ttl <= 0:
            self._lost = True
            return False
        self._sent = sent
        return True

    def give_up(self) -> None:
        """Somebody else has it by now."""
        self._lost = True

    async def revoke(self) -> None:
        """End it; if the store does not answer, time ends it."""
        self._lost = True
        try:
            await self._store.revoke(self.lease_id)
        except StoreError as error:
            logger.info("lease %x: not revoked: %s", self.lease_id, error)
