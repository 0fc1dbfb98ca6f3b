"""A follow-up round: a task that was promoted away from its place is brought there once it is warm there.

The leader tells each member which of its standbys are awaited. This service of the worker compares them
with the ends of their changelogs, as the broker knows them, and when all have caught up asks for one round.
A round stops the whole group for a moment, so one is never asked for within ``FAUST_ASSIGNER_FOLLOW_UP_S``
of the last, whoever caused that, nor twice for one assignment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from faust.types import TP
from mode import Service, get_logger

from faust_assigner.app import settings
from faust_assigner.settings.table import FOLLOW_UP_S

logger = get_logger(__name__)

#: Seconds between two looks.
LOOK_INTERVAL_S = 1.0
MARK = "_faust_assigner_follow_up"


@dataclass(frozen=True)
class Awaited:
    """Of the assignment of ``generation``, the standbys that a follow-up round waits for."""

    generation: int = -1
    tps: frozenset[TP] = frozenset()


class FollowUp(Service):  # type: ignore[misc]
    """Watches one worker's awaited standbys; started after the first recovery, ends with the app."""

    def __init__(self, app: Any, cool_down_s: float, **kwargs: Any) -> None:
        self.app = app
        self.cool_down_s = cool_down_s
        self._seen = Awaited()
        self._since = 0.0
        self._asked = False
        self._ends: Mapping[TP, int | None] = {}
        super().__init__(**kwargs)

    @Service.task  # type: ignore[untyped-decorator]
    async def _watch(self) -> None:
        while not self.should_stop:
            await self.sleep(LOOK_INTERVAL_S)
            try:
                await self.look(asyncio.get_running_loop().time())
            except Exception as exc:  # a broker that does not answer; there is another look
                logger.debug("No look at the awaited standbys: %r", exc)

    async def look(self, now: float) -> None:
        """One look at ``now``, in seconds of any clock that only goes forward."""
        awaited: Awaited = self.app.assignor.awaited
        if awaited is not self._seen:
            self._seen, self._since, self._asked, self._ends = awaited, now, False, {}
        if self._asked or not awaited.tps or not self._at_rest() or now - self._since < self.cool_down_s:
            return
        if await self._caught_up(awaited) and self._at_rest() and self.app.assignor.awaited is awaited:
            self._asked = True
            await self._ask(awaited)

    def _at_rest(self) -> bool:
        """No rebalance is under way and no table is being restored."""
        recovery = self.app.tables.recovery
        return not (self.app.rebalancing or recovery.in_recovery or self.app.should_stop
                    or getattr(recovery, "is_taking_on", False))

    async def _caught_up(self, awaited: Awaited) -> bool:
        """Whether each standby has all that its changelog held at the last look: the end itself runs away."""
        before = self._ends
        read = {tp: await self._read_to(tp) for tp in sorted(awaited.tps)}
        self._ends = await self.app.consumer.highwaters(*sorted(awaited.tps))
        ends = {tp: before.get(tp) for tp in awaited.tps}
        return all(end is not None and read[tp] >= end for tp, end in ends.items())

    async def _read_to(self, tp: TP) -> int:
        """The offset up to which ``tp`` has been read; what is no record at the end is read as well."""
        tables = self.app.tables
        offset = tables.recovery.standby_offsets.get(tp)
        applied = 0 if offset is None else offset + 1
        position = await self.app.consumer.position(tp)
        return applied if position is None or not tables.changelog_queue.empty() else max(applied, position)

    async def _ask(self, awaited: Awaited) -> None:
        if not await self.app.consumer._thread.call_thread(_rejoin, self.app, awaited.generation):
            return
        self.app.assignor.counters["follow_ups"] += 1
        logger.info("Asked for a follow-up round after generation %d: %d standbys have caught up, their "
                    "tasks can move here warm", awaited.generation, len(awaited.tps))


async def _rejoin(app: Any, generation: int) -> bool:
    """On the consumer's thread: leave ``generation`` for the next, unless that has happened.

    A follower's JoinGroup starts a round because its metadata names the generation of its claims, and so
    differs from what it said before.
    """
    coordinator = app.consumer._thread._consumer._coordinator
    if coordinator.generation != generation or coordinator._rejoin_needed_fut.done():
        return False
    coordinator.request_rejoin()
    return True


def install(app: Any) -> FollowUp | None:
    """Add the service to ``app``, to be called before that starts; None where the setting is 0."""
    cool_down_s = settings.read_or_default(app, FOLLOW_UP_S)
    present: FollowUp | None = getattr(app, MARK, None)
    if present is not None or cool_down_s <= 0:
        return present
    service = FollowUp(app, cool_down_s)
    setattr(app, MARK, service)
    app._extra_services.append(service)
    return service
