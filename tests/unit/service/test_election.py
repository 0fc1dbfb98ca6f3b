"""A lost election leaves no key and no lease behind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from faust_assigner.service.errors import StoreUnavailable
from faust_assigner.service.leading.election import Election
from faust_assigner.service.store.base import Compare, KeyValue, TxnResult, Write
from faust_assigner.service.store.memory import MemoryStore
from faust_assigner.service.tasks import cancel_and_wait
from faust_assigner.settings.service import ServiceSettings
from tests.support.assigning.consumers import LoopClock
from tests.unit.service.stories import ALL


class LateRead(MemoryStore):
    """Returns no key on reads, like a read before the winner's write."""

    async def get(self, key: str) -> KeyValue | None:
        """Return None."""
        return None


async def test_who_loses_the_race_for_the_key_gives_its_lease_back() -> None:
    """Otherwise each campaign would leave a lease, and the store's capacity is limited."""
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


class SlowAnswer(MemoryStore):
    """Writes, but answers an hour later."""

    async def txn(self, compares: Sequence[Compare], writes: Sequence[Write]) -> TxnResult:
        """Write, then delay the answer."""
        result = await super().txn(compares, writes)
        await asyncio.sleep(3_600.0)
        return result


async def test_a_stop_beside_a_won_campaign_leaves_no_key_behind() -> None:
    """The term has not begun, so no other code deletes the key."""
    store = SlowAnswer(clock=LoopClock())
    anything: Any = None
    election = Election(store, ALL, ServiceSettings(), LoopClock(), "a", anything, anything)
    running = asyncio.create_task(election.run())
    while await store.get(ALL.leader) is None:
        await asyncio.sleep(0)
    await cancel_and_wait(running)
    await election.resign()
    assert await store.get(ALL.leader) is None
    await store.close()


class LostAnswer(MemoryStore):
    """Writes, but loses the answer."""

    async def txn(self, compares: Sequence[Compare], writes: Sequence[Write]) -> TxnResult:
        """Write, then lose the connection."""
        await super().txn(compares, writes)
        raise StoreUnavailable("the answer was lost")


async def test_a_campaign_without_an_answer_leaves_no_key_behind() -> None:
    """The campaign may have been won; a stale key would block elections until its lease ends."""
    store = LostAnswer(clock=LoopClock())
    anything: Any = None
    election = Election(store, ALL, ServiceSettings(), LoopClock(), "a", anything, anything)
    with pytest.raises(StoreUnavailable):
        await election._campaign()
    assert await store.get(ALL.leader) is None
    assert not store._leases
    await store.close()
