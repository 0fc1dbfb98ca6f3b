"""The topics that an instance is started with, beside what others have written meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from faust_assigner.service import keys as codec
from faust_assigner.service.keys import Keys
from faust_assigner.service.leading.catalogue import Catalogue
from faust_assigner.service.store.memory import MemoryStore
from tests.unit.service.stories import store

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
