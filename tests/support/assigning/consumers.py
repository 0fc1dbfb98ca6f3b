"""Consumers of the assigner service for tests: they obey commands at once, slowly, or never."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from faust_assigner.service.commands import Assignment, Command, Release, Replicas, Warm
from faust_assigner.service.errors import ServiceRefused
from faust_assigner.service.handoff import TopicPartition
from faust_assigner.service.metrics import Metrics
from faust_assigner.service.node import AssignerNode
from faust_assigner.service.records import Consumer, Ended
from faust_assigner.service.serving.acks import Answer
from faust_assigner.service.serving.registry import Stream
from faust_assigner.service.store.base import Store
from faust_assigner.settings.service import ServiceSettings
from tests.property.service_sim.loop import VirtualLoop

PATIENCE_S = 30.0

#: Small real times; a lease of etcd has at least one second.
QUICK: Mapping[str, Any] = {
    "consumer_ttl_s": 2.0,
    "consumer_keepalive_s": 0.3,
    "leader_ttl_s": 2.0,
    "leader_keepalive_s": 0.3,
    "election_retry_s": 0.3,
    "debounce_s": 0.2,
    "handoff_timeout_s": 20.0,
    "reconcile_s": 1.0,
    "topic_refresh_s": 0.3,
    "cooldown_s": 20.0,
    "rebalance_delay_s": 0.0,
    "strict": False,
}


def quick(prefix: str, **changes: Any) -> ServiceSettings:
    """Return short times, for tests that wait for them."""
    return ServiceSettings(prefix=prefix, **{**QUICK, **changes})


async def eventually(holds: Callable[[], Any], what: str = "") -> None:
    """Wait until ``holds`` is true; fail after half a minute."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"did not come: {what or holds}") from None


@dataclass(eq=False)
class Helper:
    """A consumer connected to an instance. ``warm_s``: seconds of a warm-up, ``None``: endless."""

    node: AssignerNode
    name: str
    consumer: Consumer | None = None
    warm_s: float | None = 0.0
    fails: bool = False
    releases: bool = True
    owned: dict[TopicPartition, int] = field(default_factory=dict)
    told: list[Command] = field(default_factory=list)
    replicas: tuple[TopicPartition, ...] = ()
    stream: Stream | None = None
    ended: Ended | None = None
    _task: asyncio.Task[None] | None = None
    _jobs: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def incarnation(self) -> str:
        """The incarnation that the process has registered."""
        return self.consumer.incarnation if self.consumer else ""

    async def connect(self) -> Helper:
        """Register, and obey commands from now on."""
        self.stream = await self.node.register(self.consumer or Consumer(name=self.name))
        self._task = asyncio.create_task(self._obey(self.stream))
        return self

    async def _obey(self, stream: Stream) -> None:
        async for command in stream:
            self.told.append(command)
            if isinstance(command, Assignment):
                self.owned = {} if command.full else self.owned
                self.owned |= {owned.at: owned.epoch for owned in command.assigned}
                for at in command.unassigned:
                    self.owned.pop(at, None)
            elif isinstance(command, Warm) and self.warm_s is not None:
                self._jobs.append(asyncio.create_task(self._warm(command)))
            elif isinstance(command, Release) and self.releases:
                self.owned.pop(command.at, None)
                self._jobs.append(asyncio.create_task(self._release(command)))
            elif isinstance(command, Replicas):
                self.replicas = command.partitions
        self.ended = stream.ended

    async def _warm(self, warm: Warm) -> None:
        await asyncio.sleep(self.warm_s or 0)
        with contextlib.suppress(ServiceRefused):
            if self.fails:
                await self.node.acks.warm_failed(self._answer(warm), "no")
            else:
                await self.node.acks.ready(self._answer(warm))

    def _answer(self, command: Warm | Release) -> Answer:
        return Answer(
            self.name, command.at, handoff_id=command.handoff_id, incarnation=self.incarnation
        )

    async def _release(self, release: Release) -> None:
        with contextlib.suppress(ServiceRefused):
            await self.node.acks.released(self._answer(release), 7)

    def of(self, kind: type[Command]) -> list[Any]:
        """Return all received commands of a kind."""
        return [command for command in self.told if isinstance(command, kind)]

    async def expire(self) -> None:
        """Revoke the consumer's lease now."""
        [entry] = [e for n, e in self.node._mirror.view.consumers.items() if n == self.name]
        await self.node._mirror._store.revoke(entry.kv.lease)

    async def disconnect(self) -> None:
        """Break the connection without a message."""
        for task in (*self._jobs, self._task):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if self.stream is not None:
            await self.stream.close()


class LoopClock:
    """The clocks of a process on the time of its event loop, real or virtual."""

    def monotonic(self) -> float:
        """Return the loop's time."""
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        """Return the loop's time, too."""
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        """Sleep as asyncio does."""
        await asyncio.sleep(seconds)


def virtually(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a story on virtual time, without real waits."""
    loop = VirtualLoop()
    try:
        loop.run_until_complete(story())
    finally:
        loop.close()


@dataclass
class Bench:
    """Instances and consumers on one store, ended together."""

    open_store: Callable[[], Store]
    prefix: str = "/g/"
    nodes: list[AssignerNode] = field(default_factory=list)
    helpers: list[Helper] = field(default_factory=list)

    async def node(
        self,
        topics: Mapping[str, int] | None = None,
        *,
        start: bool = True,
        count: Any = None,
        store: Store | None = None,
        metrics: Metrics | None = None,
        **settings: Any,
    ) -> AssignerNode:
        """Add an instance."""
        node = AssignerNode(
            store or self.open_store(),
            quick(self.prefix, **settings),
            node_id=f"n{len(self.nodes)}",
            topics=topics,
            count_partitions=count,
            clock=LoopClock(),
            metrics=metrics,
        )
        self.nodes.append(node)
        if start:
            await node.start()
        return node

    async def consumer(self, node: AssignerNode, name: str, **options: Any) -> Helper:
        """Add a connected consumer."""
        helper = Helper(node, name, **options)
        self.helpers.append(helper)
        return await helper.connect()

    async def __aenter__(self) -> Bench:
        return self

    async def __aexit__(self, *error: object) -> None:
        for helper in self.helpers:
            await helper.disconnect()
        for node in self.nodes:
            await node.stop()

    # -- state
    # ---------------------------------------------------------------------------------------

    def owners(self) -> dict[TopicPartition, str]:
        """Return partition -> owner, as the first instance sees it."""
        view = self.nodes[0]._mirror.view
        return {
            at: owned.owner
            for at, entry in view.assignments.items()
            if view.is_registered((owned := entry.value).owner, owned.incarnation)
        }

    def loads(self) -> list[int]:
        """Return how many partitions each connected consumer owns by its own account, ascending."""
        return sorted(len(helper.owned) for helper in self.helpers if helper.ended is None)

    def open_handoffs(self) -> int:
        """Return the number of open hand-offs."""
        return len(self.nodes[0]._mirror.view.handoffs)

    async def settles(self, *loads: int) -> None:
        """Wait until the consumers own these numbers of partitions and no hand-off is open."""
        await eventually(
            lambda: (
                self.loads() == sorted(loads)
                and not self.open_handoffs()
                and set(self.owners()) == self._partitions()
            ),
            f"loads {loads}",
        )

    def _partitions(self) -> set[TopicPartition]:
        return set(self.nodes[0]._mirror.view.partitions())
