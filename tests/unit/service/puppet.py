"""A client of the simulated service in virtual time, with one bug at a time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from faust_assigner.service.conformance import rules, stage
from faust_assigner.service.conformance import simulated_service as part_module
from faust_assigner.service.conformance.simulated_service import SimulatedService, Write, at
from faust_assigner.service.conformance.subjects import Subject
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from tests.support.assigning.consumers import virtually

BEAT_S = 0.5
WORK_S = 0.1


class Refused(Exception):
    """The simulated service ended a call with a status."""


class Context:
    """The context of a call."""

    async def abort(self, status: grpc.StatusCode, _: str) -> None:
        """End the call."""
        raise Refused(status)


class Puppet:
    """A correct client; each word of ``bugs`` makes one step wrong."""

    def __init__(self, part: Any, name: str, bugs: frozenset[str]) -> None:
        self.work: list[Write] = []
        self.owned: dict[int, int] = {}
        self.until = -float("inf")
        self.session = ""
        self.heard_at = 0.0
        self.pulse_s = 0.0
        self.count = 0
        self.ended = False
        self.frozen_until = 0.0
        self._part, self._name, self._bugs = part, name, bugs
        self._fresh: dict[int, int] = {}
        self._first: dict[int, int] = {}
        self._late = 2 * self.has("two late writes") + self.has("one write after the stop")
        self._stream: asyncio.Task[None] | None = None

    @property
    def now(self) -> float:
        """The time of the virtual loop."""
        return asyncio.get_running_loop().time()

    def has(self, bug: str) -> bool:
        """Whether the client has the bug."""
        return bug in self._bugs

    async def freeze(self, seconds: float) -> None:
        """Do nothing for this time."""
        self.frozen_until = self.now + seconds
        await asyncio.sleep(seconds)

    def _who(self) -> dict[str, Any]:
        name = "other" if self.has("other name") and self.count > 1 else self._name
        incarnation = f"i{self.count}" if self.has("new incarnation") else "i"
        return {
            "consumer_name": name,
            "incarnation": "" if self.has("no incarnation") else incarnation,
        }

    async def call(self, method: str, **said: Any) -> Any:
        """Make one call."""
        request = getattr(pb, f"{method}Request")(**self._who(), **said)
        return await getattr(self._part, method)(request, Context())

    async def register(self) -> None:
        """Hold one stream after another."""
        while not self.ended:
            self.count += 1
            self._stream = asyncio.create_task(self._hold())
            await asyncio.wait((self._stream,))
            await asyncio.sleep(0.05)

    async def _hold(self) -> None:
        sent_at, self.session, self.pulse_s = self.now, "", 0.0
        self.heard_at = sent_at
        returns = self.count > 1 or self.has("first returns")
        request = pb.RegisterRequest(
            **self._who(),
            heartbeats=not self.has("no heartbeats set"),
            returns=returns and not self.has("never returns"),
        )
        try:
            async with contextlib.aclosing(self._part.Register(request, Context())) as messages:
                async for message in messages:
                    while self.now < self.frozen_until:
                        await asyncio.sleep(0.01)
                    self.heard_at = self.now
                    await self._take(message, sent_at)
        except Refused as refused:
            if refused.args[0] in (grpc.StatusCode.ALREADY_EXISTS, grpc.StatusCode.ABORTED):
                self.ended = not self.has("registers after its end")
                self.owned = self.owned if self.has("works after its end") else {}

    async def _take(self, message: pb.AssignmentCommand, sent_at: float) -> None:
        kind = message.WhichOneof("command")
        if kind is None and self.has("leaves at an unknown command"):
            raise Refused(None)
        if kind is None and self.has("registers again at an unknown command"):
            asyncio.get_running_loop().call_later(0.4, self._leave)
        if kind == "assignment":
            self._assigned(message.assignment, sent_at)
        elif kind == "warm":
            if self.has("works while it warms"):
                self.owned[message.warm.partition.partition] = 1
            await self._answer("PartitionReady", message.warm)
        elif kind == "release":
            await self._release(message.release)

    def _assigned(self, said: pb.AssignmentUpdate, sent_at: float) -> None:
        granted = {one.partition.partition: one.epoch for one in said.grants}
        if self.has("takes no second snapshot") and self.count > 1:
            granted = {}
        if any(one.keep for one in said.grants) and self.has("believes no keep"):
            granted = {}
        if said.grants and not said.session_id and self.has("takes no grants"):
            granted = {}
        if said.grants and not said.session_id and self.has("drops the rest"):
            self.owned = {}
        if said.session_id:
            self.session, self.pulse_s = said.session_id, said.pulse_ms / 1000
            self.until = max(self.until, sent_at + said.lives_ms / 1000)
        gone = {one.partition for one in said.unassigned}
        if said.snapshot:
            self._fresh = {}
        if said.snapshot or self._fresh:
            self._fresh |= granted
            if not said.more:
                kept = self.owned if self.has("adds snapshots") else {}
                whole = granted if self.has("only the last part") else self._fresh
                whole = self._first if self.has("only the first part") else whole
                self.owned, self._fresh = kept | whole, {}
            else:
                self._first = granted
            return
        if self.has("first epoch"):
            granted = {n: self.owned.get(n, epoch) for n, epoch in granted.items()}
        if self.has("keeps what is taken"):
            gone = set()
        self.owned = {n: e for n, e in self.owned.items() if n not in gone} | granted
        if self.has("drops all") and gone:
            self.owned = {}

    async def _release(self, said: pb.ReleasePartition) -> None:
        number = said.partition.partition
        epoch = self.owned.get(number)
        if not self.has("works on after its release"):
            self.owned.pop(number, None)
        if self.has("stops all at a release"):
            self.owned = {}
        await self._answer("PartitionReleased", said)
        if self.has("one late write") and epoch is not None:
            await asyncio.sleep(0.02)
            self._write(number, epoch)

    async def _answer(self, method: str, said: Any) -> None:
        if self.has("silent about hand-offs"):
            return
        handoff_id = 0 if self.has("no hand-off id") else said.handoff_id
        number = 0 if self.has("other partition") else said.partition.partition
        partition = pb.TopicPartition(topic=said.partition.topic, partition=number)
        await self.call(method, partition=partition, handoff_id=handoff_id)

    async def beat(self) -> None:
        """Send heartbeats; leave a silent stream."""
        while not self.ended and not self.has("never beats"):
            await asyncio.sleep(BEAT_S)
            if self.now < self.frozen_until or not self.session:
                continue
            sent_at, session = self.now, self.session
            try:
                async with asyncio.timeout(BEAT_S):
                    answer = await self.call("Heartbeat", session_id=session)
            except (Refused, TimeoutError):
                if self.now > self.until:
                    self._leave()
                continue
            if answer.known or self.has("believes"):
                self.until = max(self.until, sent_at + (answer.lives_ms or 3000) / 1000)
            else:
                self.until = -float("inf")
                self._leave()
            silent_s = self.now - self.heard_at
            if self.pulse_s and silent_s > 1.5 and not self.has("patient"):
                self._leave()

    def _leave(self) -> None:
        if self._stream is not None:
            self._stream.cancel()

    async def toil(self) -> None:
        """Write on each owned partition ten times a second."""
        while True:
            await asyncio.sleep(WORK_S)
            if self.now < self.frozen_until:
                continue
            if self.now >= self.until and not self.has("timeless"):
                self.owned = {}
            for number, epoch in self.owned.items():
                self._write(number, epoch)
                if self.has("both epochs"):
                    self._write(number, 5)
                if self.has("writes of the neighbour"):
                    self._write(1, epoch)
            if self.frozen_until and self._late > 0:
                self._late -= 1
                self._write(0, 5)
            if self.ended and self.has("wakes up later") and self.now > self.until - 0.5:
                self._write(0, 5)

    def _write(self, number: int, epoch: int) -> None:
        self.work.append(Write(self.now, at(number), epoch))


def conforms(
    monkeypatch: pytest.MonkeyPatch,
    rule: str,
    *bugs: str,
    watch: Callable[[SimulatedService], None] | None = None,
) -> str:
    """Return how a puppet with these bugs breaks the rule, in virtual time."""
    found: list[str] = []
    parts: list[SimulatedService] = []

    @contextlib.asynccontextmanager
    async def served(part: SimulatedService) -> AsyncIterator[str]:
        parts.append(part)
        yield "the service"

    @contextlib.asynccontextmanager
    async def start(target: str, name: str) -> AsyncIterator[Subject]:
        assert (target, name) == ("the service", f"conformance-{rule}")
        puppet = Puppet(parts[-1], name, frozenset(bugs))
        works = [puppet.register(), puppet.beat(), puppet.toil()]
        tasks = [asyncio.create_task(work) for work in works]
        try:
            yield puppet
        finally:
            puppet._leave()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def story() -> None:
        clock = SimpleNamespace(monotonic=asyncio.get_running_loop().time)
        monkeypatch.setattr(part_module, "time", clock)
        monkeypatch.setattr(rules, "time", clock)
        monkeypatch.setattr(stage, "time", clock)
        monkeypatch.setattr(stage, "served", served)
        found.append(await rules.broken(rule, start, patience_s=7.0))
        if watch is not None:
            watch(parts[-1])

    virtually(story)
    return found[0]
