"""A plan that the store refuses, because another write came first."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from faust_assigner.service.handoff import Phase
from faust_assigner.service.leading.advance import advance
from faust_assigner.service.records import Consumer
from faust_assigner.service.store.base import Compare, Put, TxnResult, Write, absent
from faust_assigner.service.store.memory import MemoryStore
from tests.support.assigning.consumers import Bench, LoopClock, virtually
from tests.unit.service.stories import ALL, AT, HANDOFF, SETTINGS, view_of

ASSIGNMENTS = ALL.assignment(AT).rpartition("/t")[0]


class Refusing(MemoryStore):
    """Refuses the first assignments, as if a key had changed a moment before."""

    refusals = 3

    async def txn(self, compares: Sequence[Compare], writes: Sequence[Write]) -> TxnResult:
        """Nothing is written, and nothing is there to be seen."""
        if self.refusals and any(
            isinstance(write, Put) and write.key.startswith(ASSIGNMENTS) for write in writes
        ):
            self.refusals -= 1
            return TxnResult(False, self.revision)
        return await super().txn(compares, writes)


def test_a_plan_that_is_refused_is_made_again_though_nothing_has_changed() -> None:
    """Each partition finds its owner within seconds."""

    async def story() -> None:
        kept = Refusing(clock=LoopClock())
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 1}, reconcile_s=60.0)
            await b.consumer(node, "a")
            await asyncio.sleep(20.0)
            assert kept.refusals == 0
            assert b.owners() == {AT: "a"}
        await kept.close()

    virtually(story)


@pytest.mark.parametrize("phase", [Phase.WARMING, Phase.READY])
def test_a_handoffs_orphan_is_given_only_while_its_owner_is_still_gone(phase: Phase) -> None:
    """An owner that registers again meanwhile keeps the partition: it works on it."""
    handoff = replace(HANDOFF, phase=phase, strict=True)
    view = view_of(Consumer(name="new"), topics={"t": 1}, owners={AT: "old"}, handoffs=[handoff])
    [bundle] = advance(view, (), SETTINGS, 0.0)
    assert any(write.key == ALL.assignment(AT) for write in bundle.writes)
    assert absent(ALL.consumer("old")) in bundle.compares
