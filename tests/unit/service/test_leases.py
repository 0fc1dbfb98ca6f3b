"""A lease's time: the shorter of two limits, and the retry after a failed renewal."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from faust_assigner.service.errors import StoreUnavailable
from faust_assigner.service.leases import FENCE_AT, HeldLease
from faust_assigner.service.store.base import Lease


class Store:
    """A store that grants leases of ``ttl_s`` and answers no renewal."""

    def __init__(self, ttl_s: float) -> None:
        self.ttl_s, self.asked = ttl_s, []  # type: tuple[float, list[float]]
        self.now = 0.0

    async def grant(self, ttl_s: float) -> Lease:
        """Grant for the store's own time."""
        return Lease(7, self.ttl_s)

    async def keep_alive(self, lease_id: int, *, timeout_s: float | None = None) -> float:
        """Fail."""
        self.asked.append(self.now)
        raise StoreUnavailable("no answer")

    # -- the clock

    def monotonic(self) -> float:
        """Return the time, which advances only on sleep."""
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Advance the time."""
        self.now += seconds
        await asyncio.sleep(0)


@pytest.mark.parametrize(("granted", "left"), [(30.0, 9.0), (6.0, 6.0)])
async def test_the_shorter_time_to_live_counts(granted: float, left: float) -> None:
    """etcd grants at least its minimum, and a caller may ask for more than is granted."""
    store: Any = Store(granted)
    lease = await HeldLease.grant(store, store, 9.0)
    assert lease.left_s == pytest.approx(left * FENCE_AT)


async def test_a_renewal_that_failed_is_tried_again_before_the_lease_is_over() -> None:
    """One lost answer must not cost the leadership, so retries come faster than renewals."""
    store: Any = Store(9.0)
    lease = await HeldLease.grant(store, store, 9.0)
    await lease.hold(2.5)
    assert store.asked[:4] == pytest.approx([2.5, 3.0, 3.5, 4.0])
    assert store.now == pytest.approx(9.0 * FENCE_AT)
