"""A simulated consumer: warms up, releases, commits, crashes, returns, sometimes answers falsely."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from faust_assigner.service.commands import AbortWarm, Assignment, Command, Owned, Release, Warm
from faust_assigner.service.digest import digest_of
from faust_assigner.service.errors import Expelled, Replaced, ServiceRefused, StoreError
from faust_assigner.service.handoff import HandoffEvent, TopicPartition
from faust_assigner.service.node import AssignerNode
from faust_assigner.service.records import HEARTBEATS, Action, Consumer, Ended
from faust_assigner.service.serving.acks import Answer
from faust_assigner.service.serving.registry import Stream
from tests.property.service_sim.process import Process
from tests.property.service_sim.sink import Sink
from tests.support.assigning.rules import Said

T = TypeVar("T")
HEARTBEAT_S = 0.5
PATIENCE_S = 6.0
DEAF_S = 2.5  # an idle stream sends a sign of life at least every two thirds of a second


class Broken(Exception):
    """The connection to the instance broke."""


@dataclass
class Instance:
    """An instance of the service from the consumer's side."""

    node: AssignerNode
    process: Process


@dataclass(eq=False)
class SimConsumer:
    """A consumer with faults of its own.

    ``stuck``: no warm-up completes; ``failing``: each warm-up is reported as failed; ``mute``: no
    partition is released; ``unable``: each release is reported as failed.
    """

    name: str
    incarnation: str
    process: Process
    draw: random.Random
    sink: Sink
    instances: list[Instance]
    heard: list[Said]
    warm_s: float = 0.3
    stuck: bool = False
    failing: bool = False
    mute: bool = False
    unable: bool = False
    declares: tuple[tuple[str, ...], ...] = ()
    owned: dict[TopicPartition, int] = field(default_factory=dict)
    fence_at: float = 0.0
    asked_at: float = 0.0
    gone: bool = False
    drain: bool = False
    returns: bool = False
    stream: Stream | None = None
    _break: asyncio.Event = field(default_factory=asyncio.Event)
    _jobs: list[asyncio.Task[None]] = field(default_factory=list)

    # -- life ----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the consumer."""
        self._job(self._life())
        self._job(self._work())

    def _job(self, work: object) -> None:
        self._jobs = [job for job in self._jobs if not job.done()]
        job = asyncio.get_running_loop().create_task(work)  # type: ignore[arg-type]
        job.add_done_callback(_tell)
        self._jobs.append(job)

    def crash(self) -> None:
        """End like a process after SIGKILL."""
        self.gone = True
        self.owned.clear()
        for job in self._jobs:
            job.cancel()
        if self.stream is not None:
            closing, self.stream = self.stream, None
            self._jobs = [asyncio.get_running_loop().create_task(closing.close())]

    def reconnect(self) -> None:
        """Break the connection."""
        self._break.set()

    def processing(self) -> list[TopicPartition]:
        """The owned partitions, while the process runs and is not fenced."""
        if self.gone or self.process.paused or self.process.monotonic() >= self.fence_at:
            return []
        return sorted(self.owned)

    async def _work(self) -> None:
        while True:
            await self.process.sleep(0.2)
            for at in self.processing():
                if not self.sink.commit(at, self.owned[at], self.incarnation):
                    self.owned.pop(at, None)

    async def _life(self) -> None:
        while not self.gone:
            instance = self.draw.choice(self.instances)
            self._break.clear()
            try:
                await self._connected(instance)
            except (Replaced, Expelled):
                self.gone = True
                self.owned.clear()
            except (Broken, ServiceRefused, StoreError, TimeoutError):
                pass
            if not self.gone:
                await self.process.sleep(self.draw.choice((0.05, 0.3, 1.0)))

    async def _connected(self, instance: Instance) -> None:
        stream = self.stream = await self._registered(instance)
        self.returns = True
        beating: asyncio.Task[None] | None = None
        broken = asyncio.get_running_loop().create_task(_any(self._break, instance.process.dead))
        try:
            if self.drain:
                self._job(self._leave(instance))
            while True:
                reading = asyncio.get_running_loop().create_task(_next(stream))
                await asyncio.wait(
                    [reading, broken], return_when=asyncio.FIRST_COMPLETED, timeout=DEAF_S
                )
                if not reading.done():
                    reading.cancel()
                    raise Broken
                command = reading.result()
                await instance.process.runs()
                await self.process.runs()
                await asyncio.sleep(self.draw.choice((0.001, 0.01, 0.1)))
                if self._break.is_set() or instance.process.dead.is_set():
                    raise Broken
                if command is None:
                    break
                self._obey(instance, command)
                if beating is None:
                    # Not earlier: a new session does not confirm assignments of an older session.
                    beating = asyncio.get_running_loop().create_task(self._beat(instance, stream))
            if stream.ended in (Ended.DRAINED, Ended.EXPELLED):
                self.gone = True
                self.owned.clear()
        finally:
            if beating is not None:
                beating.cancel()
            broken.cancel()
            self.stream = None
            if not instance.process.dead.is_set():
                self._job(stream.close())

    async def _registered(self, instance: Instance) -> Stream:
        """Open a stream. The instance closes a stream whose answer is lost or comes too late."""
        opened: list[Stream] = []

        async def register() -> Stream:
            wishes = Consumer(
                name=self.name,
                incarnation=self.incarnation,
                returns=self.returns,
                co_partitioned=self.declares,
                capabilities=(HEARTBEATS,),
                former=self._former(),
            )
            self.asked_at = self.process.monotonic()
            opened.append(await instance.node.register(wishes))
            return opened[0]

        try:
            return await self._call(instance, register)
        except BaseException:
            for stream in opened:
                asyncio.get_running_loop().create_task(stream.close())
            raise

    def _former(self) -> dict[str, tuple[int, ...]]:
        """The partitions believed to be owned, as sent on registration."""
        found: dict[str, list[int]] = {}
        for at in sorted(self.owned):
            found.setdefault(at.topic, []).append(at.partition)
        return {topic: tuple(numbers) for topic, numbers in found.items()}

    async def _beat(self, instance: Instance, stream: Stream) -> None:
        """Send heartbeats to random instances; each answer extends the fence from the time of sending."""
        self.fence_at = max(self.fence_at, self.asked_at + stream.lives_s)
        while True:
            sent, where = self.process.monotonic(), self.draw.choice(self.instances)
            beat = self._sign_of_life(where, stream.session)
            with contextlib.suppress(Broken, ServiceRefused, StoreError, TimeoutError):
                lives = await self._call(where, beat)
                if lives is None:
                    self._break.set()
                    return
                self.fence_at = max(self.fence_at, sent + lives)
            await self.process.sleep(HEARTBEAT_S)

    def _sign_of_life(self, where: Instance, session: str) -> Callable[[], Awaitable[float | None]]:
        found = digest_of((*at, epoch) for at, epoch in self.owned.items())
        return lambda: where.node.heartbeat(
            self.name, session, held=found, incarnation=self.incarnation
        )

    def forget(self, act: int) -> None:
        """Lose an owned partition, or believe in a partition without any assignment."""
        if self.owned and act % 2:
            self.owned.pop(sorted(self.owned)[act % len(self.owned)])
        else:
            self.owned[TopicPartition(f"made-up-by-{self.incarnation}", 0)] = 1

    def _obey(self, instance: Instance, command: Command) -> None:
        if isinstance(command, Assignment):
            if command.full:
                self.owned = {}
            for at in command.unassigned:
                self.owned.pop(at, None)
            for owned in command.assigned:
                self._own(owned)
        elif isinstance(command, Warm):
            self._job(self._warm(instance, command))
        elif isinstance(command, Release) and not self.mute:
            self._job(self._release(instance, command))
        elif isinstance(command, AbortWarm):
            pass

    def _own(self, owned: Owned) -> None:
        if self.processing() or self.process.monotonic() < self.fence_at:
            self.sink.begins(owned)
        self.owned[owned.at] = owned.epoch

    async def _warm(self, instance: Instance, warm: Warm) -> None:
        if self.stuck:
            return
        await self.process.sleep(self.warm_s)
        if self.failing:
            await self._say(instance, warm.at, warm.handoff_id, HandoffEvent.GAVE_UP)
        else:
            await self._say(instance, warm.at, warm.handoff_id, HandoffEvent.WARM)

    async def _release(self, instance: Instance, release: Release) -> None:
        self.owned.pop(release.at, None)  # drained: the partition is no longer processed
        offset = self.sink.offset.get(release.at, 0)
        await self.process.sleep(self.draw.choice((0.0, 0.1, 0.5)))
        said = HandoffEvent.CANNOT if self.unable else HandoffEvent.LET_GO
        await self._say(instance, release.at, release.handoff_id, said, offset=offset)

    async def _leave(self, instance: Instance) -> None:
        with contextlib.suppress(Broken, ServiceRefused, StoreError, TimeoutError):
            action = await self._call(
                instance, lambda: instance.node.deregister(self.name, incarnation=self.incarnation)
            )
            if action is Action.SHUTDOWN_NOW:
                self.crash()

    # -- answers -------------------------------------------------------------------------------------

    async def _say(
        self,
        instance: Instance,
        at: TopicPartition,
        handoff_id: int,
        event: HandoffEvent,
        *,
        offset: int | None = None,
    ) -> None:
        """Repeat an answer until an instance accepts or refuses; sometimes send a duplicate elsewhere."""
        for attempt in range(8):
            where = instance if attempt == 0 else self.draw.choice(self.instances)
            try:
                refused = await self.say(where, at, handoff_id, event, offset=offset)
            except (Broken, StoreError, TimeoutError):
                await self.process.sleep(self.draw.choice((0.1, 0.5)))
                continue
            if refused or self.draw.random() < 0.9:
                return

    async def say(
        self,
        instance: Instance,
        at: TopicPartition,
        handoff_id: int,
        event: HandoffEvent,
        *,
        offset: int | None = None,
        name: str | None = None,
        incarnation: str | None = None,
    ) -> bool:
        """Send an answer once; return whether the instance refused."""
        name, sent = name or self.name, self.process.monotonic()
        node, own = instance.node, self.incarnation if incarnation is None else incarnation
        answer = Answer(name, at, handoff_id=handoff_id, incarnation=own)
        calls: dict[HandoffEvent, Callable[[], Awaitable[object]]] = {
            HandoffEvent.WARM: lambda: node.acks.ready(answer),
            HandoffEvent.LET_GO: lambda: node.acks.released(answer, offset),
            HandoffEvent.CANNOT: lambda: node.acks.release_failed(answer, "no"),
            HandoffEvent.GAVE_UP: lambda: node.acks.warm_failed(answer, "no"),
        }
        refused = False
        try:
            await self._call(instance, calls[event])
        except (Replaced, Expelled):
            return True  # the same in every state of the hand-off
        except ServiceRefused:
            refused = True
        self.heard.append(
            Said(at, name, event, handoff_id, sent, self.process.monotonic(), refused, own)
        )
        return refused

    async def _call(self, instance: Instance, call: Callable[[], Awaitable[T]]) -> T:
        """Call an instance over the network; the instance may be dead, or may pause meanwhile."""
        await self.process.runs()
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.sleep(self.draw.choice((0.001, 0.01, 0.1)))
            if instance.process.dead.is_set():
                raise Broken
            await instance.process.runs()
            answer = await call()
            await instance.process.runs()
            await asyncio.sleep(self.draw.choice((0.001, 0.01, 0.1)))
        await self.process.runs()
        if instance.process.dead.is_set():
            raise Broken
        return answer


def _tell(job: asyncio.Task[None]) -> None:
    """Report the error of a failed task."""
    if not job.cancelled() and (error := job.exception()) is not None:
        job.get_loop().call_exception_handler({"message": "a consumer failed", "exception": error})


async def _next(stream: Stream) -> Command | None:
    try:
        return await stream.__anext__()
    except StopAsyncIteration:
        return None


async def _any(*events: asyncio.Event) -> None:
    while not any(event.is_set() for event in events):
        await asyncio.sleep(0.05)
