"""The leader's loop: look at the view, decide, write, look again.

It is driven by the state and not by events: what happened while nobody led is found at the first look, and
what an event did not say is found at the next. Hand-offs are advanced at once; plans wait for the debounce.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from faust_assigner.errors import PlanInputError
from faust_assigner.service.clock import Clock
from faust_assigner.service.errors import QuotaExceeded, StoreError
from faust_assigner.service.heap import without_collections
from faust_assigner.service.leading.advance import advance
from faust_assigner.service.leading.bundles import (
    COOLDOWN_LEASE,
    EXPELLED_LEASE,
    MAX_BUNDLE,
    Bundle,
    chunks,
    lines,
)
from faust_assigner.service.leading.election import Deposed, Leadership
from faust_assigner.service.leading.moves import rebalance, tidy, waiting
from faust_assigner.service.leading.record import NEUTRAL, Record, Standing
from faust_assigner.service.leading.targets import Targets, choose
from faust_assigner.service.metrics import Metrics
from faust_assigner.service.mirror import RETRY_S, Mirror
from faust_assigner.service.records import EXPELLED_S, Consumer
from faust_assigner.service.settings import ServiceSettings
from faust_assigner.service.store.base import Put, Write
from faust_assigner.service.view import Change, Entry, View, is_idle

logger = logging.getLogger(__name__)
T = TypeVar("T")
#: Partitions and assignments from which a plan is made in another thread: below it takes less than 50 ms.
LARGE = 4_000
#: While consumers join a group in which none owns anything, the first plan waits for so many debounces.
GATHERING = 10.0
#: The leader rests for so many times what a plan took: each wave of hand-offs needs a plan, and waits for it.
REST = 0.5


class Rebalancer:
    """One instance's leader work; :meth:`lead` is run during each term."""

    def __init__(
        self, mirror: Mirror, settings: ServiceSettings, clock: Clock, metrics: Metrics
    ) -> None:
        self._mirror = mirror
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._wake = asyncio.Event()
        self._record = Record(settings)
        self._standing = NEUTRAL
        self._plan_at = 0.0
        self._waiting = 0
        self._conflict = False
        self._planned = -1
        self._rest_until = 0.0
        self._joined_at = -float("inf")
        self._gathers_until = -float("inf")

    # -- when ----------------------------------------------------------------------------------------

    def heard(self, changes: Sequence[Change]) -> None:
        """A listener of the mirror: a plan is due a debounce after the first change that asks for one."""
        now = self._clock.monotonic()
        for change in changes:
            self._record.heard(self._mirror.view, change, now)
            if _asks_for_plan(change):
                self._plan_at = min(self._plan_at, now + self._settings.debounce_s)
                if change.kind == "consumers" and change.before is None:
                    self._join(now)
            elif change.kind == "handoffs" and change.after is None and self._waiting:
                self._plan_at = min(self._plan_at, now)
        self._wake.set()

    def _join(self, now: float) -> None:
        debounce_s = self._settings.debounce_s
        if now > max(self._joined_at + debounce_s, self._gathers_until):
            self._gathers_until = now + GATHERING * debounce_s
        self._joined_at = now

    def _gathering_until(self, view: View) -> float:
        """A group begins with a plan for all that join one after the other: the first of them would be given
        everything, to be handed over partition by partition."""
        until = min(self._joined_at + self._settings.debounce_s, self._gathers_until)
        return until if until > self._plan_at and is_idle(view) else self._plan_at

    async def lead(self, term: Leadership) -> None:
        """One term. Raises Deposed when it is over."""
        self._plan_at = self._clock.monotonic() + self._settings.debounce_s
        self._planned = -1
        await self._mirror.reached(term.revision)
        while True:
            self._wake.clear()
            bundles = await self._decide()
            self._conflict = False
            if bundles:
                await self._write(term, bundles)
            if self._conflict or not bundles:
                await self._pause()

    async def _pause(self) -> None:
        """Until something changes, a plan is due, a hand-off is late, or it is time to look again."""
        now = self._clock.monotonic()
        late = self._record.next_over_at()
        due = max(self._plan_at, self._rest_until, now + RETRY_S if self._conflict else now)
        until = min(max(late, now + RETRY_S), due, now + self._settings.reconcile_s)
        timer = asyncio.get_running_loop().create_task(self._ring(until - now), name="timer")
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    async def _ring(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._wake.set()

    # -- what ----------------------------------------------------------------------------------------

    async def _decide(self) -> list[Bundle]:
        view, now, wall = self._mirror.view, self._clock.monotonic(), self._clock.wall()
        self._tell_ages(now)
        bundles = list(advance(view, self._record.late(now), self._settings, wall))
        if now >= self._plan_at:
            self._plan_at = self._gathering_until(view)
        if now >= max(self._plan_at, self._rest_until):
            self._plan_at = now + self._settings.reconcile_s
            is_new = self._judge(view, now)
            if self._conflict or view.inputs != self._planned or is_new:
                busy = {change.key for bundle in bundles for change in bundle.compares}
                bundles += await self._plan(wall, busy)
        return bundles

    def _judge(self, view: View, now: float) -> bool:
        """Look at how consumers do as new owners; whether that has changed."""
        before, self._standing = self._standing, self._record.standing(view, now)
        for name in sorted(self._standing.stuck - before.stuck):
            logger.warning(
                "%s got no partition ready in time: until it does, it has one hand-off at a time and gets "
                "no partitions of consumers that leave; look into its log",
                name,
            )
        self._metrics.stuck(len(self._standing.stuck))
        return self._standing != before

    async def _plan(self, wall: float, busy: Collection[str]) -> Sequence[Bundle]:
        """A plan's bundles, without those that compare a key in ``busy``.

        A large group's plan is made by another thread from a copy of the view, while this instance answers.
        Each bundle compares the keys that it was decided by: where one has changed, it is not carried out.
        """
        began, view = self._clock.monotonic(), self._mirror.view
        settings, standing, self._planned = self._settings, self._standing, view.inputs
        made = await _beside(view, lambda view: _decided(view, settings, standing, wall, busy))
        took = self._clock.monotonic() - began
        self._rest_until = self._clock.monotonic() + REST * took
        self._waiting = made.waiting
        if made.moves:
            self._metrics.rebalanced(made.moves, took)
        return made.bundles

    async def targets(self, consumers: Sequence[Consumer]) -> Targets | None:
        """The plan for these consumers; ``None`` where none can be made: our own bug, logged."""
        replicas, standing = self._settings.replicas, self._standing
        return await _beside(
            self._mirror.view, lambda view: _targets(view, consumers, replicas, standing)
        )

    def _tell_ages(self, now: float) -> None:
        """The ages of the hand-offs under way, by phase, as long as this instance has known them."""
        ages: dict[str, list[float]] = {}
        for at, entry in self._mirror.view.handoffs.items():
            ages.setdefault(entry.value.phase.value, []).append(self._record.age_s(at, now))
        self._metrics.handoffs(ages)

    # -- writing -------------------------------------------------------------------------------------

    async def _write(self, term: Leadership, bundles: Sequence[Bundle]) -> None:
        """All of them, in as few transactions as the store allows; those that do not hold any more are left.

        Returns when the view has what was written, so that nothing is decided twice.
        """
        revision = 0
        try:
            for chunk in chunks(bundles, MAX_BUNDLE):
                revision = max(revision, await self._apply(term, await self._leased(term, chunk)))
        except QuotaExceeded as error:
            logger.error("%s", error)
            self._planned = -1
            await self._clock.sleep(self._settings.election_retry_s)
        except StoreError as error:
            # It may be written or not: the view will tell.
            logger.info("not written: %s", error)
            self._plan_at, self._conflict = min(self._plan_at, self._clock.monotonic()), True
        await self._mirror.reached(revision)

    async def _leased(self, term: Leadership, bundles: Sequence[Bundle]) -> Sequence[Bundle]:
        """Marks bound to a lease of their time: the store ends them, by its own clock."""
        times = {COOLDOWN_LEASE: self._settings.cooldown_s, EXPELLED_LEASE: EXPELLED_S}
        wanted = {
            write.lease for bundle in bundles for write in bundle.writes if isinstance(write, Put)
        }
        leases = {mark: await term.timed(times[mark]) for mark in sorted(wanted & times.keys())}
        if not leases:
            return bundles
        return [
            replace(bundle, writes=tuple(_bound(write, leases) for write in bundle.writes))
            for bundle in bundles
        ]

    async def _apply(self, term: Leadership, bundles: Sequence[Bundle]) -> int:
        """Halve what does not hold until what hinders is alone; the revision of the last write."""
        result = await term.commit(
            [compare for bundle in bundles for compare in bundle.compares],
            [write for bundle in bundles for write in bundle.writes],
        )
        if result.succeeded:
            self._tell(bundles)
            return result.revision
        if len(bundles) == 1:
            # Somebody was faster, or we lead no more: the view will tell once it is where the store is.
            self._plan_at, self._conflict = min(self._plan_at, self._clock.monotonic()), True
            await self._check(term)
            return 0
        half = len(bundles) // 2
        first = await self._apply(term, bundles[:half])
        return max(first, await self._apply(term, bundles[half:]))

    async def _check(self, term: Leadership) -> None:
        """Raises Deposed where the leader's key is not ours any more."""
        if not (await term.commit([], [])).succeeded:
            term.lease.give_up()
            raise Deposed("another one leads")

    def _tell(self, written: Sequence[Bundle]) -> None:
        """Log and count what was written."""
        now = self._clock.monotonic()
        for line in lines(written):
            logger.info("%s", line)
        for bundle in written:
            if bundle.warning:
                logger.warning("%s", bundle.warning)
            for outcome, at in bundle.ended:
                self._metrics.handoff_ended(outcome, self._record.age_s(at, now))


@dataclass(frozen=True)
class _Decided:
    """A plan's bundles; ``moves`` of them move a partition, and ``waiting`` partitions wait for a slot."""

    bundles: Sequence[Bundle] = ()
    moves: int = 0
    waiting: int = 0


def _decided(
    view: View, settings: ServiceSettings, standing: Standing, wall: float, busy: Collection[str]
) -> _Decided:
    targets = _targets(view, view.ready(), settings.replicas, standing)
    if targets is None:
        return _Decided()
    moves = list(rebalance(view, targets, settings, wall, standing))
    free = [
        bundle
        for bundle in (*moves, *tidy(view, targets))
        if not busy or not any(compare.key in busy for compare in bundle.compares)
    ]
    return _Decided(free, len(moves), waiting(view, targets))


def _targets(
    view: View, consumers: Sequence[Consumer], replicas: int, standing: Standing
) -> Targets | None:
    try:
        return choose(view, consumers, replicas=replicas, standing=standing)
    except PlanInputError:
        logger.exception("no plan")
        return None


async def _beside(view: View, work: Callable[[View], T]) -> T:
    """``work`` on the view; where that takes long, in another thread, on a copy."""
    size = len(view.assignments) + sum(e.value.partition_count for e in view.topics.values())
    if size < LARGE:
        return work(view)
    with without_collections():
        return await asyncio.to_thread(work, view.frozen())


def _bound(write: Write, leases: Mapping[int, int]) -> Write:
    if isinstance(write, Put) and write.lease in leases:
        return replace(write, lease=leases[write.lease])
    return write


def _asks_for_plan(change: Change) -> bool:
    """A consumer that reconnects and wants what it wanted asks for nothing."""
    if change.kind == "consumers":
        return _wishes(change.before) != _wishes(change.after)
    return change.kind in ("topics", "pins", "pauses") or (
        change.kind in ("assignments", "fences", "awaiting") and change.after is None
    )


def _wishes(entry: Entry[Consumer] | None) -> object:
    if entry is None:
        return None
    c = entry.value
    return (
        *(c.incarnation, c.status, c.topics, c.capacity, c.rack, c.capabilities, c.co_partitioned),
        c.former,
    )
