"""The group's state and dry runs for operators, read from this instance's copy of the store."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from faust_assigner.service.errors import BadRequest, NotFound
from faust_assigner.service.keys import checked_consumer
from faust_assigner.service.leading.moves import planned
from faust_assigner.service.leading.rebalancer import Rebalancer
from faust_assigner.service.mirror import Mirror
from faust_assigner.service.records import (
    Assigned,
    Consumer,
    Leader,
    OpenHandoff,
    PlannedMove,
    TopicConfig,
)
from faust_assigner.service.serving.claims import check_claims
from faust_assigner.service.view import Change


@dataclass(eq=False, repr=False)
class Overview:
    """Reads the state of one group."""

    mirror: Mirror
    rebalancer: Rebalancer

    async def consumers(self) -> tuple[Consumer, ...]:
        """List all registered consumers, by name."""
        view = self.mirror.view
        return tuple(view.consumers[name].value for name in sorted(view.consumers))

    async def assignments(self) -> tuple[Assigned, ...]:
        """List all partitions with a present or former owner, by topic and number."""
        view = self.mirror.view
        found = (view.dated(view.assignments[at].value) for at in sorted(view.assignments))
        return tuple(
            one if view.is_registered(*one.process) else replace(one, absent=True) for one in found
        )

    async def handoffs(self) -> tuple[OpenHandoff, ...]:
        """List all hand-offs in progress, by topic and number."""
        return tuple(
            OpenHandoff(entry.value, entry.kv.create_revision, self.rebalancer.age_s(at))
            for at, entry in sorted(self.mirror.view.handoffs.items())
        )

    async def topics(self) -> tuple[TopicConfig, ...]:
        """List the topics of the service, by name."""
        view = self.mirror.view
        return tuple(view.topics[topic].value for topic in sorted(view.topics))

    async def leader(self) -> Leader | None:
        """Return the leader, or None."""
        entry = self.mirror.view.leader
        return entry.value if entry else None

    async def plan(
        self, *, without: Sequence[str] = (), extra: Sequence[Consumer] = ()
    ) -> tuple[PlannedMove, ...]:
        """Return the moves that the leader would plan now; no partition moves.

        ``without``: consumers to regard as gone. ``extra``: consumers to regard as registered.
        """
        for consumer in extra:
            checked_consumer(consumer.name)
            check_claims(consumer)
        if len({consumer.name for consumer in extra}) < len(extra):
            raise BadRequest("a dry run adds each consumer once; two added consumers share a name")
        for name in without:
            if checked_consumer(name) not in self.mirror.view.consumers:
                raise NotFound(f"no consumer {name}")
        gone = {*without, *(consumer.name for consumer in extra)}
        there = [consumer for consumer in self.mirror.view.ready() if consumer.name not in gone]
        targets = await self.rebalancer.targets(sorted([*there, *extra], key=lambda c: c.name))
        return tuple(planned(self.mirror.view, targets, without)) if targets else ()

    @contextlib.contextmanager
    def changes(self) -> Iterator[asyncio.Event]:
        """Yield an event that is set at every change of the store until the context ends."""
        changed = asyncio.Event()

        def on_changes(changes: Sequence[Change]) -> None:
            changed.set()

        self.mirror.listeners.append(on_changes)
        try:
            yield changed
        finally:
            self.mirror.listeners.remove(on_changes)
