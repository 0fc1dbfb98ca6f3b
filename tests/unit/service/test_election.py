"""A lost race for the leader's key leaves nothing behind."""

from __future__ import annotations

from typing import Any

from faust_assigner.service.leading.election import Election
from faust_assigner.service.settings import ServiceSettings
from faust_assigner.service.store.base import KeyValue
from faust_assigner.service.store.memory import MemoryStore
from tests.support.assigning.consumers import LoopClock
from tests.unit.service.stories import ALL


class LateRead(MemoryStore):
    """Read before another instance wrote: the key looks free."""

    async def get(self, key: str) -> KeyValue | None:
        """Nothing is there yet."""
        return None


async def test_who_loses_the_race_for_the_key_gives_its_lease_back() -> None:
    """Else each campaign of each instance leaves a lease to the store, which has room for so many."""
    store = LateRead(clock=LoopClock())
    anything: Any = None

    def instance(name: str) -> Election:
        return Election(store, ALL, ServiceSettings(), LoopClock(), name, anything, anything)

    won = await instance("a")._campaign()
    assert won is not None
    for _ in range(3):
        assert await instance("b")._campaign() is None
    assert list(store._leases) == [won.lease.lease_id]
    await store.close()
