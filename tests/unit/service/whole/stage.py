"""Instances, consumers and operators of one group in virtual time, and the lines of their story."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Self

import grpc
import pytest

from faust_assigner.service.digest import Held, digest_of
from faust_assigner.service.node import AssignerNode
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from faust_assigner.service.server import servicer as servicer_module
from faust_assigner.service.server.admin_servicer import AdminServicer
from faust_assigner.service.server.auth import Authenticator, NoAuthentication
from faust_assigner.service.server.frequent import FrequentEvent
from faust_assigner.service.server.groups import Groups
from faust_assigner.service.server.servicer import ConsumerServicer
from faust_assigner.settings.service import ServiceSettings
from tests.property.service_sim.loop import VirtualLoop
from tests.unit.service.whole.recorded import (
    PREFIX,
    Lines,
    RecordedMetrics,
    RecordedStore,
    SharedStore,
    worded,
)

WALL_LEAD_S = 1_700_000_000.0
MONOTONIC_LEAD_S = 50_000.0
SETTINGS: dict[str, Any] = {
    "prefix": PREFIX,
    "consumer_ttl_s": 9.0,
    "consumer_keepalive_s": 2.5,
    "leader_ttl_s": 8.0,
    "leader_keepalive_s": 3.0,
    "election_retry_s": 2.0,
    "debounce_s": 0.5,
    "handoff_timeout_s": 20.0,
    "release_timeout_s": 6.0,
    "cooldown_s": 10.0,
    "rebalance_delay_s": 7.0,
    "reconcile_s": 5.0,
    "topic_refresh_s": 4.0,
}


class Aborted(Exception):
    """A call that ended with a status."""


class Context:
    """The context of a call with the caller's token."""

    def __init__(self, token: str) -> None:
        self._token = token

    def invocation_metadata(self) -> Sequence[tuple[str, str]]:
        """Return the caller's metadata."""
        return [("authorization", f"Bearer {self._token}")] if self._token else []

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        """End the call."""
        raise Aborted(f"{code.name}: {details}")


class StageClock:
    """An instance's clocks, which have different origins."""

    def __init__(self) -> None:
        self.wall_skew_s = 0.0

    def monotonic(self) -> float:
        """Return the loop's time, ahead by a number of hours."""
        return asyncio.get_running_loop().time() + MONOTONIC_LEAD_S

    def wall(self) -> float:
        """Return unix time."""
        return asyncio.get_running_loop().time() + WALL_LEAD_S + self.wall_skew_s

    async def sleep(self, seconds: float) -> None:
        """Sleep as asyncio does."""
        await asyncio.sleep(seconds)


@dataclass(eq=False)
class Instance:
    """One instance: its node, its connection to the store, its servicers and its clock."""

    name: str
    node: AssignerNode
    store: RecordedStore
    calls: ConsumerServicer
    orders: AdminServicer
    clock: StageClock

    async def start(self) -> Self:
        """Start the node."""
        await self.node.start()
        return self


@dataclass(eq=False)
class Member:
    """A consumer's process. It obeys each command after ``warm_s`` and ``release_s``; None: never."""

    stage: Stage
    name: str
    at: Instance
    incarnation: str
    warm_s: float | None = 0.3
    release_s: float | None = 0.1
    beat_s: float | None = 1.5
    fails: bool = False
    offset: int = 100
    owned: dict[tuple[str, int], int] = field(default_factory=dict)
    session: str = ""
    digest_of: Callable[[Member], Held] | None = None
    _jobs: list[asyncio.Task[None]] = field(default_factory=list)

    def begin(self, **said: Any) -> Member:
        """Register, obey and send heartbeats from now on."""
        if self.beat_s is not None:
            said.setdefault("heartbeats", True)
            self._do(self._beat(self.beat_s))
        request = pb.RegisterRequest(consumer_name=self.name, incarnation=self.incarnation, **said)
        self._do(self._obey(request))
        return self

    def _do(self, work: Any) -> None:
        self._jobs.append(asyncio.get_running_loop().create_task(work))

    async def _obey(self, request: pb.RegisterRequest) -> None:
        self.stage.note(f"{self.name} > {self.at.name} Register {worded(request)}")
        messages = self.at.calls.Register(request, Context(""))
        try:
            async with contextlib.aclosing(messages) as stream:  # type: ignore[type-var]
                async for message in stream:
                    self.stage.note(f"{self.name} < {worded(message)}")
                    self._take(message)
        except Aborted as end:
            self.stage.note(f"{self.name} < its stream ends with {end}")
        else:
            self.stage.note(f"{self.name} < its stream ends with OK")

    def _take(self, message: pb.AssignmentCommand) -> None:
        kind = message.WhichOneof("command")
        said = getattr(message, kind or "pulse")
        if kind == "assignment":
            if said.snapshot:
                self.session = said.session_id or self.session
                self.owned = {}
            for grant in said.grants:
                self.owned[grant.partition.topic, grant.partition.partition] = grant.epoch
            for gone in said.unassigned:
                self.owned.pop((gone.topic, gone.partition), None)
        elif kind == "warm" and self.warm_s is not None:
            self._do(self._warm(said, self.warm_s))
        elif kind == "release":
            self.owned.pop((said.partition.topic, said.partition.partition), None)
            if self.release_s is not None:
                self._do(self._release(said, self.release_s))

    async def _warm(self, said: pb.WarmPartition, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if self.fails:
            await self.say("WarmFailed", said, reason="the disk is full")
        else:
            await self.say("PartitionReady", said)

    async def _release(self, said: pb.ReleasePartition, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if self.fails:
            await self.say("ReleaseFailed", said, reason="a record hangs")
        else:
            self.offset += 1
            await self.say("PartitionReleased", said, final_offset=self.offset)

    async def say(self, method: str, of: Any, **more: Any) -> Any:
        """Answer a command."""
        given = {"partition": of.partition, "handoff_id": of.handoff_id, **more}
        return await self.call(method, **given)

    async def call(self, method: str, **given: Any) -> Any:
        """Make a call under this process's names."""
        names = {"consumer_name": self.name, "incarnation": self.incarnation}
        return await self.stage.call(self.at, method, **{**names, **given})

    async def _beat(self, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            if self.session:
                mine = digest_of((t, n, epoch) for (t, n), epoch in self.owned.items())
                if self.digest_of is not None:
                    mine = self.digest_of(self)
                said = pb.Held(count=mine.count, digest=mine.digest)
                answer = await self.call("Heartbeat", session_id=self.session, held=said)
                if answer is not None and not answer.known:
                    return

    async def end(self) -> None:
        """Die: the stream and the heartbeats end without a message."""
        jobs, self._jobs = self._jobs, []
        if any(not job.done() for job in jobs):
            self.stage.note(f"{self.name} dies")
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)


class Stage:
    """A group in virtual time. ``lines`` is its story."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.clock = StageClock()
        self.store = SharedStore(self.note, clock=self.clock)
        self.instances: list[Instance] = []
        self.members: list[Member] = []
        self._watching: list[asyncio.Task[None]] = []
        self._began = asyncio.get_running_loop().time()

    def note(self, line: str) -> None:
        """Add a line, with the seconds since the begin."""
        now = asyncio.get_running_loop().time() - self._began
        self.lines.append(f"{now:8.3f} {line}")

    def act(self, line: str) -> None:
        """Add a heading."""
        self.lines.append(f"-- {line}")

    def instance(
        self,
        name: str,
        *,
        topics: dict[str, int] | None = None,
        count: Any = None,
        authenticator: Authenticator | None = None,
        store: SharedStore | None = None,
        **settings: Any,
    ) -> Instance:
        """Make an instance, which is not started."""
        kept = RecordedStore(name, store or self.store, self.note)
        clock = StageClock()
        node = AssignerNode(
            kept,
            ServiceSettings(**{**SETTINGS, **settings}),
            node_id=name,
            topics=topics,
            count_partitions=count,
            clock=clock,
            metrics=RecordedMetrics(name, self.note),
        )
        groups = Groups({"": node})
        by = authenticator or NoAuthentication()
        made = Instance(
            name, node, kept, ConsumerServicer(groups, by), AdminServicer(groups, by), clock
        )
        self.instances.append(made)
        return made

    def member(self, name: str, at: Instance, incarnation: str = "", **how: Any) -> Member:
        """Make a consumer's process."""
        made = Member(self, name, at, incarnation or f"{name}1", **how)
        self.members.append(made)
        return made

    async def call(self, at: Instance, method: str, token: str = "", **given: Any) -> Any:
        """Make a call and note request and answer; return the answer, or None after an error."""
        kind = {
            "SetTopic": "Topic",
            "Move": "PinRequest",
            "GetState": "GetStateRequest",
            "WatchState": "GetStateRequest",
        }.get(method, f"{method}Request")
        request = getattr(pb, kind)(**given)
        served = at.calls if hasattr(at.calls, method) else at.orders
        who = given.get("consumer_name", "") if served is at.calls else "operator"
        self.note(f"{who or 'caller'} > {at.name} {method} {worded(request)}")
        who = who or "caller"
        try:
            made = getattr(served, method)(request, Context(token))
            if isinstance(made, Awaitable):
                answer = await made
                self.note(f"{who} < {method} {worded(answer)}")
                return answer
            async for part in made:
                self.note(f"{who} < {method} {worded(part)}")
        except Aborted as end:
            self.note(f"{who} < {method} {end}")
        return None

    def watch(self, at: Instance, method: str, **given: Any) -> asyncio.Task[None]:
        """Make a call whose answers do not end."""
        task = asyncio.get_running_loop().create_task(self.call(at, method, **given))
        self._watching.append(task)
        return task

    async def passes(self, seconds: float) -> None:
        """Let time pass."""
        await asyncio.sleep(seconds)

    async def end(self) -> None:
        """End all parts."""
        for member in self.members:
            await member.end()
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        for instance in self.instances:
            await instance.node.stop()
            beats = instance.node._beats
            self.note(f"{instance.name} remembers {sorted(beats._leases)}, {sorted(beats._doubts)}")
        await self.store.close()


Story = Callable[[Stage], Awaitable[None]]


@contextlib.asynccontextmanager
async def _staged() -> AsyncIterator[Stage]:
    stage = Stage()
    logger = logging.getLogger("faust_assigner.service")
    handler, level = Lines(stage.note), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate, propagated = False, logger.propagate
    clock = asyncio.get_running_loop().time
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(servicer_module, "_UNANSWERED", FrequentEvent(clock=clock))
        try:
            yield stage
        finally:
            try:
                await stage.end()
            finally:
                logger.removeHandler(handler)
                logger.setLevel(level)
                logger.propagate = propagated


def told(story: Story) -> str:
    """Play a story in virtual time; return its lines."""
    loop = VirtualLoop()
    lines: list[str] = []

    async def played() -> None:
        async with _staged() as stage:
            await story(stage)
            stage.act("the end")
        lines.extend(stage.lines)

    try:
        loop.run_until_complete(played())
    finally:
        loop.close()
    return "\n".join(lines) + "\n"


def place(topic: str, partition: int) -> dict[str, Any]:
    """Return the fields of a partition."""
    return {"partition": pb.TopicPartition(topic=topic, partition=partition)}


def handoff(topic: str, partition: int, handoff_id: int = 0) -> SimpleNamespace:
    """Return a command of a hand-off, to be answered."""
    return SimpleNamespace(**place(topic, partition), handoff_id=handoff_id)
