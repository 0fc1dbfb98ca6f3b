"""A leader at work with a fake view and term, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.service import values as codec
from faust_assigner.service.handoff import Handoff, Phase, TopicPartition
from faust_assigner.service.leading import rebalancer
from faust_assigner.service.leading.rebalancer import Rebalancer
from faust_assigner.service.leading.targets import Targets
from faust_assigner.service.records import Assigned, Consumer, TopicConfig
from faust_assigner.service.store.base import Event, KeyValue, Put, TxnResult, Write
from faust_assigner.service.tasks import cancel_and_wait
from faust_assigner.service.view import View
from faust_assigner.settings.service import ServiceSettings
from tests.support.assigning.consumers import LoopClock, virtually
from tests.unit.service.stories import ALL

SETTINGS = ServiceSettings(
    prefix="/g/",
    debounce_s=2.0,
    reconcile_s=40.0,
    handoff_timeout_s=300.0,
    release_timeout_s=60.0,
    cooldown_s=7.0,
    election_retry_s=3.0,
    replicas=2,
)
A = Consumer(name="a", incarnation="a1")
B = Consumer(name="b", incarnation="b1")
T0, T1, T2, T3 = (TopicPartition("t", n) for n in range(4))
#: The virtual loop's time at the start.
BEGIN = 1_000.0


class Heard:
    """Metrics that record each call."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *values: self.calls.append((name, *values))

    def of(self, name: str) -> list[tuple[Any, ...]]:
        """The values of all calls of one name."""
        return [values for called, *values in self.calls if called == name]  # type: ignore[misc]


@dataclass
class Stage:
    """A leader, its view and its term: commits change the view at once."""

    settings: ServiceSettings = SETTINGS
    metrics: Heard = field(default_factory=Heard)
    commits: list[tuple[float, int, int]] = field(default_factory=list)
    leases: list[float] = field(default_factory=list)
    waited: list[int] = field(default_factory=list)
    plans: list[float] = field(default_factory=list)
    owners: dict[TopicPartition, str] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    error: Exception | None = None
    is_deposed: bool = False
    given_up: bool = False
    plan_s: float = 0.0
    revision: int = 100

    def __post_init__(self) -> None:
        self.view = View(ALL)
        self.clock = LoopClock()
        self.offset = 0.0
        mirror: Any = SimpleNamespace(view=self.view, reached=self._reached)
        clock: Any = SimpleNamespace(
            monotonic=lambda: self.clock.monotonic() + self.offset,
            wall=lambda: 5_000.0,
            sleep=asyncio.sleep,
        )
        metrics: Any = self.metrics
        self.rebalancer = Rebalancer(mirror, self.settings, clock, metrics)
        self.term: Any = SimpleNamespace(
            revision=77,
            commit=self._commit,
            timed=self._timed,
            lease=SimpleNamespace(give_up=self._give_up),
        )

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return asyncio.get_running_loop().time() - BEGIN

    async def _reached(self, revision: int) -> None:
        self.waited.append(revision)

    async def _timed(self, seconds: float) -> int:
        self.leases.append(seconds)
        return 900 + len(self.leases)

    def _give_up(self) -> None:
        self.given_up = True

    async def _commit(self, compares: Sequence[Any], writes: Sequence[Write]) -> TxnResult:
        self.commits.append((self.now, len(compares), len(writes)))
        error, self.error = self.error, None
        if error is not None:
            raise error
        if self.is_deposed or any(compare.key in self.refused for compare in compares):
            return TxnResult(False, self.revision)
        if writes:
            self.write(*writes)
        return TxnResult(True, self.revision)

    def write(self, *writes: Write) -> None:
        """Apply writes at one revision, and pass the changes to the leader."""
        self.revision += 1
        changes = []
        for write in writes:
            kv = None
            if isinstance(write, Put):
                before = self.view.raw.get(write.key)
                created = before.create_revision if before else self.revision
                kv = KeyValue(write.key, write.value, created, self.revision, 1, write.lease)
            change = self.view.apply(Event(write.key, self.revision, kv))
            if change is not None:
                changes.append(change)
        self.rebalancer.on_changes(changes)

    def consumers(self, *consumers: Consumer) -> None:
        """Register these consumers, each under its own lease."""
        for number, consumer in enumerate(consumers):
            key = ALL.consumer(consumer.name)
            self.write(Put(key, codec.dump_consumer(consumer), 50 + number))

    def topic(self, count: int, name: str = "t") -> None:
        """Set the topic's partition count."""
        self.write(Put(ALL.topic(name), codec.dump_topic(TopicConfig(name, count))))

    def handoff(self, handoff: Handoff) -> None:
        """Start the hand-off, with its partition assigned to the old owner."""
        at = handoff.at
        owned = Assigned(at, handoff.old_owner, incarnation=handoff.old_incarnation)
        self.write(Put(ALL.assignment(at), codec.dump_assigned(owned)))
        self.write(Put(ALL.handoff(at), codec.dump_handoff(handoff)))

    def owner_of(self, at: TopicPartition) -> str | None:
        """Return the partition's owner."""
        entry = self.view.assignments.get(at)
        return None if entry is None else entry.value.owner

    def choose(self, view: View, consumers: Sequence[Consumer], **options: Any) -> Targets:
        """Return the stage's plan: its ``owners``."""
        self.plans.append(self.now)
        self.offset += self.plan_s
        return Targets(dict(self.owners), {})


Play = Callable[..., Stage]


def warming(at: TopicPartition = T0, **more: Any) -> Handoff:
    """A hand-off from "a" to "b"."""
    made = Handoff(at, "a", "b", Phase.WARMING, 1.0, old_incarnation="a1", new_incarnation="b1")
    return replace(made, **more)


def played(monkeypatch: pytest.MonkeyPatch) -> Play:
    """Return a function that runs a scenario beside the leader's loop and returns its stage."""

    def run(story: Callable[[Stage], Awaitable[None]], **options: Any) -> Stage:
        found: list[Stage] = []

        async def leading() -> None:
            stage = Stage(**options)
            found.append(stage)
            monkeypatch.setattr(rebalancer, "choose", stage.choose)
            stage.topic(4)
            stage.consumers(A, B)
            task = asyncio.create_task(stage.rebalancer.lead(stage.term))
            stage.task = task  # type: ignore[attr-defined]
            try:
                await story(stage)
            finally:
                if not task.done():
                    await cancel_and_wait(task)

        virtually(leading)
        return found[0]

    return run
