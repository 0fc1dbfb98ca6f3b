"""The leader's loop: read the view, decide, write, read again.

Each pass decides from the whole state, not from events. The first pass of a new leader therefore
finds changes from the time without a leader. A later pass finds changes whose event was lost. The
loop advances hand-offs at once; a plan waits for ``debounce_s`` after a change.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeVar

from faust_assigner.errors import PlanInputError
from faust_assigner.service.clock import Clock
from faust_assigner.service.errors import QuotaExceeded, StoreError
from faust_assigner.service.handoff import TopicPartition
from faust_assigner.service.heap import without_collections
from faust_assigner.service.leading.advance import advance
from faust_assigner.service.leading.bundles import MAX_BUNDLE, Bundle, chunks
from faust_assigner.service.leading.election import Leadership
from faust_assigner.service.leading.moves import rebalance, waiting
from faust_assigner.service.leading.record import NEUTRAL, Record, Suitability
from faust_assigner.service.leading.targets import Targets, choose
from faust_assigner.service.leading.tidying import tidy
from faust_assigner.service.leading.writer import Writer
from faust_assigner.service.metrics import Metrics
from faust_assigner.service.mirror import RETRY_S, Mirror
from faust_assigner.service.questions import is_idle
from faust_assigner.service.records import Consumer
from faust_assigner.service.view import Change, Entry, View
from faust_assigner.settings.service import ServiceSettings

logger = logging.getLogger(__name__)
T = TypeVar("T")
#: From this number of partitions and assignments on, a worker thread plans. Below this number a
#: plan takes less than 50 ms.
LARGE = 4_000
#: While consumers join an idle group, the first plan waits for at most this many ``debounce_s``.
GATHERING = 10.0
#: After a plan the leader makes no plan for this many times the plan's duration. A higher number
#: would delay each batch of hand-offs, which needs a new plan.
REST = 0.5


class Rebalancer:
    """The leader's work of one instance; the election runs :meth:`lead` during each term."""

    def __init__(
        self, mirror: Mirror, settings: ServiceSettings, clock: Clock, metrics: Metrics
    ) -> None:
        self._mirror = mirror
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._writer = Writer(settings, metrics, refused=self._plan_again)
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

    # -- timing --------------------------------------------------------------------------------------

    def on_changes(self, changes: Sequence[Change]) -> None:
        """Schedule a plan ``debounce_s`` after the first relevant change; called by the mirror."""
        now = self._clock.monotonic()
        for change in changes:
            self._record.on_changes(self._mirror.view, change, now)
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
        """Return the time of the next plan; in an idle group, ``debounce_s`` after the last join.

        Without this wait the first consumer gets all partitions, and must hand most of them over.
        The wait is at most :data:`GATHERING` times ``debounce_s``.
        """
        until = min(self._joined_at + self._settings.debounce_s, self._gathers_until)
        return until if until > self._plan_at and is_idle(view) else self._plan_at

    async def lead(self, term: Leadership) -> None:
        """Lead for one term. Raises Deposed when the term is over."""
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
        """Wait for a change, for a due plan, for a late hand-off or for the next periodic pass."""
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

    # -- deciding ------------------------------------------------------------------------------------

    async def _decide(self) -> list[Bundle]:
        view, now, wall = self._mirror.view, self._clock.monotonic(), self._clock.wall()
        self._report_ages(now)
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
        """Update each consumer's suitability as a new owner; return whether any has changed."""
        before, self._standing = self._standing, self._record.standing(view, now)
        for name in sorted(self._standing.stuck - before.stuck):
            logger.warning(
                "%s got no partition ready in time: until it does, it has one hand-off at a "
                "time and gets no partitions of leaving consumers; check its log",
                name,
            )
        self._metrics.stuck(len(self._standing.stuck))
        return self._standing != before

    async def _plan(self, wall: float, busy: Collection[str]) -> Sequence[Bundle]:
        """Return a plan's bundles, without bundles that compare a key in ``busy``.

        A worker thread plans for a large group from a copy of the view, while this instance answers
        calls. Each bundle compares the keys on which its decision depends. If such a key has
        changed, the store refuses the bundle.
        """
        began, view = self._clock.monotonic(), self._mirror.view
        settings, standing, self._planned = self._settings, self._standing, view.inputs
        made = await _run_beside_loop(
            view, lambda view: _decide_moves(view, settings, standing, wall, busy)
        )
        took = self._clock.monotonic() - began
        self._rest_until = self._clock.monotonic() + REST * took
        self._waiting = made.waiting
        if made.moves:
            self._metrics.rebalanced(made.moves, took)
        return made.bundles

    async def targets(self, consumers: Sequence[Consumer]) -> Targets | None:
        """Plan for these consumers; return None if the planner fails, which is logged as a bug."""
        replicas, standing = self._settings.replicas, self._standing
        return await _run_beside_loop(
            self._mirror.view, lambda view: _targets(view, consumers, replicas, standing)
        )

    def age_s(self, at: TopicPartition) -> float:
        """Return the seconds since this instance first saw the partition's hand-off."""
        return self._record.age_s(at, self._clock.monotonic())

    def _report_ages(self, now: float) -> None:
        """Report the hand-offs' ages by phase, since this instance first saw each hand-off."""
        ages: dict[str, list[float]] = {}
        for at, entry in self._mirror.view.handoffs.items():
            ages.setdefault(entry.value.phase.value, []).append(self._record.age_s(at, now))
        self._metrics.handoffs(ages)

    # -- writing -------------------------------------------------------------------------------------

    async def _write(self, term: Leadership, bundles: Sequence[Bundle]) -> None:
        """Write the bundles in few transactions, and skip bundles whose compares fail.

        Return when the view contains the writes, so that the leader makes no decision twice.
        """
        revision, now = 0, self._clock.monotonic()
        # Read the ages first: the record drops a hand-off when the mirror reports its end, which
        # may come before the store's answer.
        ages = {at: self._record.age_s(at, now) for one in bundles for _, at in one.ended}
        try:
            for chunk in chunks(bundles, MAX_BUNDLE):
                revision = max(revision, await self._writer.write(term, chunk, ages))
        except QuotaExceeded as error:
            logger.error("%s", error)
            self._planned = -1
            await self._clock.sleep(self._settings.election_retry_s)
        except StoreError as error:
            # The store may or may not have carried out the write. The next pass finds the result
            # in the view.
            logger.info("Could not write the hand-offs to the store, planning again: %s", error)
            self._plan_again()
        await self._mirror.reached(revision)

    def _plan_again(self) -> None:
        """Plan again at the next pass, after a failed write."""
        self._plan_at, self._conflict = min(self._plan_at, self._clock.monotonic()), True


@dataclass(frozen=True)
class _Decided:
    """A plan's bundles.

    ``moves``    the number of bundles that change an owner or a hand-off
    ``waiting``  the number of partitions that must move and have no hand-off yet
    """

    bundles: Sequence[Bundle] = ()
    moves: int = 0
    waiting: int = 0


def _decide_moves(
    view: View, settings: ServiceSettings, standing: Suitability, wall: float, busy: Collection[str]
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
    view: View, consumers: Sequence[Consumer], replicas: int, standing: Suitability
) -> Targets | None:
    try:
        return choose(view, consumers, replicas=replicas, standing=standing)
    except PlanInputError:
        logger.exception("Could not compute the target; owners stay")
        return None


async def _run_beside_loop(view: View, work: Callable[[View], T]) -> T:
    """Run ``work`` on the view; for a large group in a worker thread, on a copy of the view."""
    size = len(view.assignments) + sum(e.value.partition_count for e in view.topics.values())
    if size < LARGE:
        return work(view)
    with without_collections():
        return await asyncio.to_thread(work, view.frozen())


def _asks_for_plan(change: Change) -> bool:
    """Whether a change needs a plan; a registration with unchanged requests does not."""
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
