"""The leader's loop: look at the view, decide, write, look again.

It is driven by the state and not by events: what happened while nobody led is found at the first look, and
what an event did not say is found at the next. Hand-offs are advanced at once; plans wait for the debounce.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence

from faust_assigner.errors import PlanInputError
from faust_assigner.service.clock import Clock
from faust_assigner.service.errors import QuotaExceeded, StoreError
from faust_assigner.service.handoff import TopicPartition
from faust_assigner.service.leading.election import Deposed, Leadership
from faust_assigner.service.leading.moves import (
    MAX_BUNDLE,
    Bundle,
    advance,
    chunks,
    rebalance,
    tidy,
    waiting,
)
from faust_assigner.service.leading.targets import Targets, choose
from faust_assigner.service.metrics import Metrics
from faust_assigner.service.mirror import RETRY_S, Mirror
from faust_assigner.service.records import Consumer
from faust_assigner.service.settings import ServiceSettings
from faust_assigner.service.view import Change, Entry

logger = logging.getLogger(__name__)


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
        self._seen: dict[TopicPartition, tuple[int, float]] = {}
        self._plan_at = 0.0
        self._waiting = 0
        self._conflict = False

    # -- when ----------------------------------------------------------------------------------------

    def heard(self, changes: Sequence[Change]) -> None:
        """A listener of the mirror: a plan is due a debounce after the first change that asks for one."""
        now = self._clock.monotonic()
        for change in changes:
            if _asks_for_plan(change):
                self._plan_at = min(self._plan_at, now + self._settings.debounce_s)
            elif change.kind == "handoffs" and change.after is None and self._waiting:
                self._plan_at = min(self._plan_at, now)
        self._wake.set()

    async def lead(self, term: Leadership) -> None:
        """One term. Raises Deposed when it is over."""
        self._seen.clear()
        self._plan_at = self._clock.monotonic() + self._settings.debounce_s
        await self._mirror.reached(term.revision)
        while True:
            self._wake.clear()
            bundles = self._decide()
            self._conflict = False
            if bundles:
                await self._write(term, bundles)
            if self._conflict or not bundles:
                await self._pause()

    async def _pause(self) -> None:
        """Until something changes, a plan is due, a hand-off is late, or it is time to look again."""
        now = self._clock.monotonic()
        late = min(
            (since + self._settings.handoff_timeout_s for _, since in self._seen.values()),
            default=float("inf"),
        )
        due = max(self._plan_at, now + RETRY_S if self._conflict else now)
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

    def _decide(self) -> list[Bundle]:
        view, now, wall = self._mirror.view, self._clock.monotonic(), self._clock.wall()
        bundles = list(advance(view, self._ages(now, wall), self._settings, wall))
        if now >= self._plan_at:
            self._plan_at = now + self._settings.reconcile_s
            busy = {change.key for bundle in bundles for change in bundle.compares}
            bundles += [
                bundle
                for bundle in self._plan(wall)
                if not busy.intersection(compare.key for compare in bundle.compares)
            ]
        return bundles

    def _plan(self, wall: float) -> Iterable[Bundle]:
        began = self._clock.monotonic()
        view = self._mirror.view
        targets = self.targets(view.ready(), wall)
        if targets is None:
            return []
        self._waiting = waiting(view, targets)
        moves = list(rebalance(view, targets, self._settings, wall))
        if moves:
            self._metrics.rebalanced(len(moves), self._clock.monotonic() - began)
        return [*moves, *tidy(view, targets, wall)]

    def targets(self, consumers: Sequence[Consumer], wall: float) -> Targets | None:
        """The plan for these consumers; ``None`` where none can be made: our own bug, logged."""
        try:
            return choose(self._mirror.view, consumers, replicas=self._settings.replicas, now=wall)
        except PlanInputError:
            logger.exception("no plan")
            return None

    def _ages(self, now: float, wall: float) -> dict[TopicPartition, float]:
        """Seconds that each hand-off has been under way, by hand-off.

        Its date gives its age when this instance sees it first, because leaders change. From then on the
        monotonic clock counts: a step of the wall clock ends no hand-off.
        """
        found: dict[TopicPartition, float] = {}
        handoffs = self._mirror.view.handoffs
        self._seen = {
            at: seen
            for at, seen in self._seen.items()
            if at in handoffs and handoffs[at].kv.create_revision == seen[0]
        }
        for at, entry in handoffs.items():
            began = now - max(wall - entry.value.started_at, 0.0)
            _, since = self._seen.setdefault(at, (entry.kv.create_revision, began))
            found[at] = now - since
        phases: dict[str, int] = {}
        for entry in handoffs.values():
            name = entry.value.phase.value
            phases[name] = phases.get(name, 0) + 1
        self._metrics.handoffs(phases, max(found.values(), default=0.0))
        return found

    # -- writing -------------------------------------------------------------------------------------

    async def _write(self, term: Leadership, bundles: Sequence[Bundle]) -> None:
        """All of them, in as few transactions as the store allows; those that do not hold any more are left.

        Returns when the view has what was written, so that nothing is decided twice.
        """
        revision = 0
        try:
            for chunk in chunks(bundles, MAX_BUNDLE):
                revision = max(revision, await self._apply(term, chunk))
        except QuotaExceeded as error:
            logger.error("%s", error)
            await self._clock.sleep(self._settings.election_retry_s)
        except StoreError as error:
            # It may be written or not: the view will tell.
            logger.info("not written: %s", error)
            self._plan_at, self._conflict = min(self._plan_at, self._clock.monotonic()), True
        await self._mirror.reached(revision)

    async def _apply(self, term: Leadership, bundles: Sequence[Bundle]) -> int:
        """Halve what does not hold until what hinders is alone; the revision of the last write."""
        result = await term.commit(
            [compare for bundle in bundles for compare in bundle.compares],
            [write for bundle in bundles for write in bundle.writes],
        )
        if result.succeeded:
            for bundle in bundles:
                logger.debug("%s", bundle.story)
                self._count(bundle)
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

    def _count(self, bundle: Bundle) -> None:
        if bundle.ended is not None:
            outcome, at = bundle.ended
            _, since = self._seen.get(at, (0, self._clock.monotonic()))
            self._metrics.handoff_ended(outcome, self._clock.monotonic() - since)


def _asks_for_plan(change: Change) -> bool:
    """A consumer that reconnects and wants what it wanted asks for nothing."""
    if change.kind == "consumers":
        return _wishes(change.before) != _wishes(change.after)
    return change.kind == "topics" or (change.kind == "assignments" and change.after is None)


def _wishes(entry: Entry[Consumer] | None) -> object:
    if entry is None:
        return None
    c = entry.value
    return c.status, c.topics, c.capacity, c.rack, c.capabilities, c.co_partitioned
