"""1,024 partitions of four topics on one, twenty and four consumers, with the fewest moves."""

from __future__ import annotations

from collections import Counter

import pytest

from faust_assigner.service.commands import Warm
from faust_assigner.service.records import Ended
from tests.support.assigning.consumers import Bench, virtually
from tests.unit.service.stories import store


@pytest.mark.slow
def test_from_one_to_twenty_to_four_on_1024_partitions_with_the_fewest_moves() -> None:
    """In strict mode each moving partition is warmed once, and never has two owners."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node({f"t{i}": 256 for i in range(4)}, strict=True, debounce_s=1.0)
            await b.consumer(node, "c00")
            await b.settles(1024)
            overlaps: list[object] = []

            def look(changes: object) -> None:
                held = Counter(at for helper in b.helpers for at in helper.owned)
                overlaps.extend(at for at, times in held.items() if times > 1)

            node._mirror.listeners.append(look)
            for i in range(1, 20):
                await b.consumer(node, f"c{i:02}", warm_s=0.2)
            await b.settles(*[51] * 16, *[52] * 4)
            kept_by_first = len(b.helpers[0].owned)
            assert sum(len(helper.of(Warm)) for helper in b.helpers) == 1024 - kept_by_first
            assert all(len({at.topic for at in helper.owned}) == 4 for helper in b.helpers)
            staying, leaving = b.helpers[:4], b.helpers[4:]
            warmed, stays = (
                sum(len(h.of(Warm)) for h in b.helpers),
                sum(len(h.owned) for h in staying),
            )
            for helper in leaving:
                await node.deregister(helper.name)
            await b.settles(*[256] * 4)
            assert all(helper.ended is Ended.DRAINED for helper in leaving)
            assert sum(len(helper.of(Warm)) for helper in b.helpers) - warmed == 1024 - stays
            assert overlaps == []
        await kept.close()

    virtually(story)
