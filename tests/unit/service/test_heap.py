"""Objects that are hidden from the garbage collector, as collections block the event loop.

No test may call ``gc.unfreeze``: it would add the collected tests and modules to each later collection.
"""

from __future__ import annotations

import gc
import weakref

import pytest

from faust_assigner.service import heap
from faust_assigner.service.heap import GROWN_BY, MANY, GrowthFreezer, without_collections
from faust_assigner.service.leading import rebalancer
from faust_assigner.service.leading.rebalancer import _run_beside_loop
from faust_assigner.service.mirror import Mirror
from tests.support.assigning.consumers import LoopClock, virtually
from tests.unit.service.stories import ALL, put, store, view_of


def test_a_copy_that_grows_is_hidden_once_for_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each hiding costs a collection of young objects, and may hide a few cycles forever."""
    hidden: list[int] = []
    monkeypatch.setattr(heap, "freeze_all", lambda: hidden.append(1))
    grown = GrowthFreezer()
    for keys in (10, GROWN_BY - 1, GROWN_BY, GROWN_BY + 1, 2 * GROWN_BY - 1, 10):
        grown.freeze_if_grown(keys)
    assert len(hidden) == 1
    grown.freeze_if_grown(2 * GROWN_BY)
    assert len(hidden) == 2


def test_young_garbage_is_freed_before_the_rest_is_hidden() -> None:
    """A hidden cycle would never be freed."""

    class Node:
        itself: Node

    node = Node()
    node.itself = node
    freed = weakref.ref(node)
    del node
    before = gc.get_freeze_count()
    heap.freeze_all()
    assert freed() is None
    assert gc.get_freeze_count() > before


def test_the_mirror_hides_a_large_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collection of 100,000 partitions blocks the loop for 400 ms."""
    monkeypatch.setattr(heap, "GROWN_BY", 3)

    async def story() -> None:
        kept = store()
        for number in range(4):
            await put(kept, f"/g/other/{number}", b"")
        before = gc.get_freeze_count()
        await Mirror(kept, ALL, LoopClock(), reconcile_s=5.0).load()
        assert gc.get_freeze_count() > before
        await kept.close()

    virtually(story)


async def test_a_large_plan_is_made_without_collections(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collection in the planning thread would block the loop."""
    monkeypatch.setattr(rebalancer, "LARGE", 1)
    assert await _run_beside_loop(view_of(topics={"t": 2}), lambda view: gc.isenabled()) is False
    assert gc.isenabled()


@pytest.mark.parametrize(("objects", "is_hidden"), [(10, False), (2 * MANY, True)])
def test_only_many_new_objects_are_hidden(objects: int, *, is_hidden: bool) -> None:
    """A small plan would hide the garbage of the moment forever."""
    gc.collect()
    before = gc.get_freeze_count()
    with without_collections():
        made = [[number] for number in range(objects)]
    assert (gc.get_freeze_count() > before) is is_hidden
    assert len(made) == objects
