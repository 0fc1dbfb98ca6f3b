"""The copy of a store: how epochs are raised, and how much of the time listings may take."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from faust_assigner.service import keys as codec
from faust_assigner.service.mirror import AHEAD, REST, Mirror
from faust_assigner.service.store.base import Listing
from faust_assigner.service.store.memory import MemoryStore
from tests.support.assigning.consumers import LoopClock, virtually
from tests.unit.service.stories import ALL, put, store


def test_epochs_are_raised_far_above_what_this_instance_has_seen() -> None:
    """Another one may have seen more; and none ever lowers them."""

    async def story() -> None:
        kept = store()
        mirror = Mirror(kept, ALL, LoopClock(), reconcile_s=5.0)
        for seen, base in ((10, 10 + AHEAD), (20, 10 + AHEAD), (10 + AHEAD + 1, 11 + 2 * AHEAD)):
            await mirror._raise_epochs(seen)
            kv = await kept.get(ALL.epochs)
            assert kv is not None
            assert codec.load_base(kv.value) == base

    virtually(story)


class Slow(MemoryStore):
    """A listing takes three seconds; keeps when each began."""

    def __init__(self) -> None:
        super().__init__(clock=LoopClock())
        self.began: list[float] = []

    async def list(self, prefix: str) -> Listing:
        """As the store, later."""
        self.began.append(asyncio.get_running_loop().time())
        await asyncio.sleep(3.0)
        return await super().list(prefix)


def test_listings_of_a_large_group_take_a_twentieth_of_the_time_at_most() -> None:
    """After one of three seconds none follows for a minute; the store is asked for its leader instead."""

    async def story() -> None:
        kept = Slow()
        await put(kept, ALL.leader, b"{}")
        mirror = Mirror(kept, ALL, LoopClock(), reconcile_s=1.0)
        task = asyncio.create_task(mirror.reconcile())
        await asyncio.sleep(50.0)
        heard_at = mirror.heard_at
        assert heard_at > 48.0, "it answers"
        await asyncio.sleep(100.0)
        task.cancel()
        gaps = [later - sooner for sooner, later in pairwise(kept.began)]
        assert gaps
        assert all(3.0 + REST * 3.0 <= gap < 3.0 + REST * 3.0 + 3.0 for gap in gaps)

    virtually(story)
