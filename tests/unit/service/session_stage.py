"""An instance's registrations with a store that is followed at once, in virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from faust_assigner.service.handoff import TopicPartition
from faust_assigner.service.records import HEARTBEATS, Consumer
from faust_assigner.service.serving.registrar import Registrar
from faust_assigner.service.serving.registry import Stream
from faust_assigner.service.serving.sessions import Sessions
from faust_assigner.settings.service import ServiceSettings
from tests.support.assigning.consumers import LoopClock, virtually
from tests.unit.service.followed import Followed
from tests.unit.service.stories import ALL

SETTINGS = ServiceSettings(
    prefix="/g/",
    consumer_ttl_s=18.0,
    consumer_keepalive_s=4.0,
    rebalance_delay_s=25.0,
    reconcile_s=5.0,
    channel=2,
)
BEATS = (HEARTBEATS,)
A = Consumer(name="a", incarnation="a1", capabilities=BEATS, topics=("t",))
B = Consumer(name="b", incarnation="b1")
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Stage:
    """An instance, its store, and the calls of its metrics."""

    def __init__(self, settings: ServiceSettings = SETTINGS) -> None:
        self.store = Followed()
        self.metrics: list[tuple[Any, ...]] = []
        self.taken: list[tuple[str, str, int]] = []
        metrics: Any = SimpleNamespace(
            streams=lambda count: self.metrics.append(("streams", count)),
            stream_resynced=lambda name: self.metrics.append(("resynced", name)),
        )
        beats: Any = SimpleNamespace(
            take=lambda name, session, lease: self.taken.append((name, session, lease.lease_id))
        )
        self.beats = beats
        mirror: Any = self.store
        self.clock: Any = LoopClock()
        registrar = Registrar(self.store, ALL, settings, self.clock, mirror, "n1")
        self.sessions = Sessions(settings, self.clock, mirror, metrics, beats, registrar)
        self.store.listeners.append(self.sessions.on_changes)

    async def register(self, consumer: Consumer) -> Stream:
        """Register a consumer."""
        return await self.sessions.register(consumer)

    async def lease(self, name: str = "a") -> int:
        """Return the lease of a registration."""
        kv = await self.store.get(ALL.consumer(name))
        return 0 if kv is None else kv.lease

    def lives(self, lease: int) -> bool:
        """Whether the lease exists in the store."""
        return lease in self.store._leases

    async def fences(self) -> dict[str, tuple[bytes, int]]:
        """Map the keys of fences to their values and leases."""
        listing = await self.store.list("/g/fences/")
        return {kv.key: (kv.value, kv.lease) for kv in listing.items}


def staged(story: Callable[[Stage], Awaitable[None]], **settings: Any) -> None:
    """Run a scenario with a topic of two partitions."""

    async def whole() -> None:
        stage = Stage(replace(SETTINGS, **settings))
        await stage.store.topic("t", 2)
        await story(stage)
        await stage.sessions.stop()
        await stage.store.close()

    virtually(whole)
