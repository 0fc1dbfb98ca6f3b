"""A store restored from a snapshot: epochs, which are revisions, rise above all earlier epochs."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from faust_assigner.service import values as codec
from faust_assigner.service.commands import Assignment
from faust_assigner.service.epochs import Epochs
from faust_assigner.service.errors import StoreUnavailable
from faust_assigner.service.handoff import TopicPartition
from faust_assigner.service.records import Ended
from faust_assigner.service.store.base import Batch, Put
from faust_assigner.service.store.memory import MemoryStore
from tests.support.assigning.consumers import Bench, Helper, LoopClock, eventually, virtually
from tests.unit.service.stories import ALL


class Restorable(MemoryStore):
    """A store whose watches break when an earlier state replaces its state."""

    def __init__(self) -> None:
        super().__init__(clock=LoopClock())
        self._broken = asyncio.Event()

    async def watch(self, prefix: str, start_revision: int) -> AsyncIterator[Batch]:
        """Watch the store until the connection breaks."""
        broken, batches = self._broken, super().watch(prefix, start_revision)
        while True:
            steps = (asyncio.ensure_future(anext(batches)), asyncio.ensure_future(broken.wait()))
            try:
                await asyncio.wait(steps, return_when=asyncio.FIRST_COMPLETED)
                if broken.is_set():
                    raise StoreUnavailable("the connection broke")
                batch = await steps[0]
            finally:
                for step in steps:
                    step.cancel()
                await asyncio.gather(*steps, return_exceptions=True)
            yield batch

    def saved(self) -> tuple[Any, ...]:
        """Take a snapshot."""
        return dict(self._keys), copy.deepcopy(self._leases), self.revision

    async def restore(self, saved: tuple[Any, ...], upto: int, *, breaks: bool = True) -> None:
        """Replace the state by the snapshot; then write up to this revision."""
        self._keys, self._leases, self.revision = dict(saved[0]), copy.deepcopy(saved[1]), saved[2]
        self._log = []
        while self.revision < upto:
            await self.txn([], [Put("/others/x", b"")])
        if breaks:
            self._broken.set()
            self._broken = asyncio.Event()


@dataclass
class Group:
    """Two instances, their consumers, and the highest epoch of each partition."""

    b: Bench
    kept: Restorable
    seen: dict[TopicPartition, int] = field(default_factory=dict)
    saved: tuple[Any, ...] = ()

    async def lives(self, upto: int, *, breaks: bool = True) -> None:
        """Let a third consumer join; then restore the store to the state before."""
        nodes = [await self.b.node({"t": 6}), await self.b.node()]
        for name, node in zip("ab", nodes, strict=True):
            await self.b.consumer(node, name)
        await self.b.settles(3, 3)
        self.saved = self.kept.saved()
        await self.b.consumer(nodes[0], "c")
        await self.b.settles(2, 2, 2)
        await self.goes_back(upto, breaks=breaks)

    async def goes_back(self, upto: int, *, breaks: bool = True) -> None:
        """Restore the earlier state, and add this many revisions above the current one."""
        self.seen = {
            at: max(helper.owned.get(at, 0) for helper in self.b.helpers) for at in self.b.owners()
        }
        for helper in self.b.helpers:
            helper.told.clear()
        await self.kept.restore(self.saved, self.kept.revision + upto, breaks=breaks)

    async def rejoin_after_idle(self) -> None:
        """Register the lost consumer again; all consumers work under epochs above all earlier ones."""
        c: Helper = self.b.helpers[2]
        await eventually(lambda: c.ended is Ended.LEASE_LOST)
        await c.disconnect()
        await c.connect()
        c.ended = None
        await self.b.settles(2, 2, 2)
        assert not self.refused()

    def refused(self) -> list[TopicPartition]:
        """Partitions in use under an epoch that a sink would refuse."""
        return [
            at
            for helper in self.b.helpers
            for at, epoch in helper.owned.items()
            if epoch <= self.seen[at]
        ]

    def low(self) -> list[tuple[str, TopicPartition, int]]:
        """Grants since the restore that a sink would refuse."""
        return [
            (helper.name, owned.at, owned.epoch)
            for helper in self.b.helpers
            for command in helper.told
            if isinstance(command, Assignment)
            for owned in command.assigned
            if owned.epoch <= self.seen[owned.at]
        ]


@pytest.mark.parametrize("upto", [-1000, 0, 1, 50])
@pytest.mark.parametrize("raises", [True, False])
def test_epochs_rise_over_a_restored_snapshot(
    raises: bool, upto: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of revisions does not matter; the naive service grants epochs that sinks refuse."""

    async def nothing(epochs: Epochs, seen: int) -> None:
        pass

    if not raises:
        monkeypatch.setattr(Epochs, "raise_above", nothing)

    async def story() -> None:
        kept = Restorable()
        async with Bench(lambda: kept) as b:
            group = Group(b, kept)
            await group.lives(upto)
            if raises:
                await group.rejoin_after_idle()
            else:
                await asyncio.sleep(5.0)
            assert (group.low() == []) is raises
        await kept.close()

    virtually(story)


@pytest.mark.parametrize("upto", [-1000, 0, 50])
def test_who_registers_before_that_is_noticed_is_not_sent_away(upto: int) -> None:
    """The instance's copy shows a successor, but from before the restore."""

    async def story() -> None:
        kept = Restorable()
        async with Bench(lambda: kept) as b:
            group = Group(b, kept)
            await group.lives(upto, breaks=False)
            c = b.helpers[2]
            await c.disconnect()
            await c.connect()
            c.ended = None
            await eventually(
                lambda: b.loads() == [2, 2, 2] and not group.refused(), "above all before"
            )
            assert [helper.ended for helper in b.helpers] == [None] * 3
        await kept.close()

    virtually(story)


def test_an_ordinary_life_raises_no_epochs() -> None:
    """Listings older or newer than the watch belong to the same history, so no owner is interrupted."""

    async def story() -> None:
        kept = Restorable()
        async with Bench(lambda: kept) as b:
            nodes = [await b.node({"t": 6}, reconcile_s=0.05) for _ in range(2)]
            for number in range(4):
                await b.consumer(nodes[number % 2], f"c{number}")
                await asyncio.sleep(0.3)
            began = await kept.get(ALL.epochs)
            await b.settles(1, 1, 2, 2)
            await nodes[0].drain("c0")
            await b.settles(2, 2, 2)
            assert await kept.get(ALL.epochs) == began
        await kept.close()

    virtually(story)


@pytest.mark.parametrize("upto", [-1000, 50])
def test_epochs_rise_over_the_same_snapshot_a_second_time(upto: int) -> None:
    """The snapshot does not contain the first raise; two instances raise the base once each time."""

    async def story() -> None:
        kept = Restorable()
        async with Bench(lambda: kept) as b:
            group = Group(b, kept)
            await group.lives(upto)
            await group.rejoin_after_idle()
            await group.goes_back(upto)
            await group.rejoin_after_idle()
            base = await kept.get(ALL.epochs)
            assert base is not None
            assert (group.low(), base.version) == ([], 2), "once at the beginning, once each time"
        await kept.close()

    virtually(story)


def test_epochs_may_be_raised_by_hand() -> None:
    """Without an instance that knows the old epochs, an operator raises the base for all owners."""

    async def story() -> None:
        kept = Restorable()
        async with Bench(lambda: kept) as b:
            one = await b.consumer(await b.node({"t": 2}), "a")
            await b.settles(2)
            before = dict(one.owned)
            base = b.nodes[0]._mirror.view.base
            await kept.txn([], [Put(ALL.epochs, codec.dump_base(base + 5_000))])
            await eventually(
                lambda: one.owned == {at: epoch + 5_000 for at, epoch in before.items()}
            )
            assert {said.epoch for said in await b.nodes[0].overview.assignments()} == set(
                one.owned.values()
            )
        await kept.close()

    virtually(story)
