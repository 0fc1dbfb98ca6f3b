"""The topics that an instance is started with, beside what others have written meanwhile."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.service import keys as codec
from faust_assigner.service.keys import Keys
from faust_assigner.service.leading.catalogue import Catalogue
from faust_assigner.service.leading.election import Deposed
from faust_assigner.service.settings import ServiceSettings
from faust_assigner.service.store.memory import MemoryStore
from tests.support.assigning.consumers import LoopClock, virtually
from tests.unit.service.stories import store, view_of

KEYS = Keys("/x/")


def catalogue(kept: MemoryStore, **topics: int) -> Catalogue:
    """An instance's, started with ``topics``."""
    anything: Any = None
    return Catalogue(kept, KEYS, anything, anything, anything, topics, None)


async def count(kept: MemoryStore) -> int:
    """The partitions of ``orders`` as every instance reads them."""
    found = await kept.get(KEYS.topic("orders"))
    assert found is not None
    return codec.load_topic(found.value).partition_count


@pytest.mark.parametrize(("grown", "started", "after"), [(5, 2, 5), (5, 5, 5), (5, 7, 7)])
async def test_an_instance_that_starts_shrinks_no_topic(
    grown: int, started: int, after: int
) -> None:
    """The topic grew since its command line was written: its last partitions lost their owners."""
    kept = store()
    await catalogue(kept, orders=2).write()
    await catalogue(kept).set("orders", grown)
    await catalogue(kept, orders=started).write()
    assert await count(kept) == after


async def test_an_operator_may_shrink_one() -> None:
    """By name, with the number."""
    kept = store()
    await catalogue(kept, orders=5).write()
    await catalogue(kept).set("orders", 2)
    assert await count(kept) == 2


def test_a_leader_that_was_deposed_asks_kafka_no_more() -> None:
    """Its successor does: each topic would be asked for twice, for ever."""
    asked: list[str] = []

    async def partitions(topic: str) -> int:
        asked.append(topic)
        return 9

    class Term:
        async def commit(self, compares: object, writes: object) -> None:
            raise Deposed

    async def story() -> None:
        anything: Any = None
        term: Any = Term()
        mirror: Any = SimpleNamespace(view=view_of(topics={"a": 1, "b": 1}))
        settings = ServiceSettings(topic_refresh_s=60.0)
        found = Catalogue(anything, KEYS, settings, LoopClock(), mirror, {}, partitions)
        await asyncio.wait_for(found.refresh(term), 200.0)
        assert asked == ["a"]

    virtually(story)
