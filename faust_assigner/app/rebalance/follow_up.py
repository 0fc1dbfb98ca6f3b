"""Follow-up rounds (Kafka: probing rebalances), which move tasks to standbys that have caught up.

The target member of a task is the member to which the balanced plan assigns the task. As long as
this member lacks the task's state, a different member owns the task. The target member's standby is
then called awaited. The leader's answer lists each member's awaited standbys. This service of the
worker compares the awaited standbys with the ends of their changelogs at the broker. When all
awaited standbys have caught up, the service requests a round.

An eager round stops the whole group for a moment, and a cooperative round costs requests. So the
service waits ``FAUST_ASSIGNER_FOLLOW_UP_S`` after each round (the cool-down). The default is
shorter after a cooperative round. The service requests at most one round for each assignment. If
the last requested round changed nothing, the wait doubles.

With warm-ups a round moves only tasks whose copy has caught up. If some standbys have caught up and
the other standbys take long, the service requests a round after a while. A standby that has not
caught up is reported as overdue if no awaited standby has come closer to its changelog's end for
``FAUST_ASSIGNER_WARMUP_DEADLINE_S``. The leader then looks for a different task to move. While any
awaited standby comes closer, no standby is overdue: a worker restores two at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from faust.types.tuples import TP
from mode import Service, get_logger

from faust_assigner.app import settings
from faust_assigner.app.rebalance import copy_offsets
from faust_assigner.app.rebalance.awaited import Awaited, Deadlines
from faust_assigner.app.rebalance.positions import is_doubtful
from faust_assigner.app.rebalance.unplanned import UnplannedPartitions
from faust_assigner.settings.table import FOLLOW_UP_S, WARMUP_DEADLINE_S, WARMUPS

if TYPE_CHECKING:
    from faust.types.app import AppT

logger = get_logger(__name__)

#: Seconds between two checks of the awaited standbys.
LOOK_INTERVAL_S = 1.0
#: The default cool-down in seconds after a cooperative round and after an eager round.
COOPERATIVE_S, EAGER_S = 5.0, 30.0
#: Seconds between two log lines about the awaited standbys.
TELL_S = 60.0
MARK = "_faust_assigner_follow_up"
#: After this number of cool-downs the service requests a round even if only some standbys have
#: caught up.
PATIENCE = 4
#: A requested round that changes nothing doubles the wait before the next round, up to this factor.
MOST_PATIENCE = 32


class FollowUp(Service):  # type: ignore[misc]
    """The service that watches one worker's awaited standbys, from the first recovery on.

    If ``cool_down_s`` is None, the cool-down depends on whether the last round was cooperative.
    ``deadline_s`` limits the wait without progress. Without warm-ups ``deadline_s`` is None. Then a
    round moves all awaited tasks, even to standbys that are behind, so the service requests a round
    only when all standbys have caught up.
    """

    def __init__(
        self,
        app: AppT,
        cool_down_s: float | None,
        *,
        deadline_s: float | None = None,
        **kwargs: object,
    ) -> None:
        self.app = app
        self.cool_down_s = cool_down_s
        self.deadlines = Deadlines(deadline_s)
        self.unplanned = UnplannedPartitions(app)
        self._slower = 1
        self._seen = Awaited()
        self._since = 0.0
        #: The standbys that the requested round should move; None before a request.
        self._asked_for: frozenset[TP] | None = None
        #: The standbys whose tasks the last requested round should have moved and did not.
        self._in_vain: frozenset[TP] = frozenset()
        #: The standbys that had caught up at the last request.
        self._was_done: frozenset[TP] = frozenset()
        self._ends: Mapping[TP, int] | None = None
        self._told, self._behind = 0.0, 0  # time of the last log line; number of missing records
        super().__init__(**kwargs)

    @Service.task  # type: ignore[untyped-decorator]
    async def _watch(self) -> None:
        while not self.should_stop:
            await self.sleep(LOOK_INTERVAL_S)
            try:
                await self.look(asyncio.get_running_loop().time())
            except Exception as exc:  # the broker did not answer; the next check tries again
                logger.debug("Could not check the awaited standbys: %r", exc)

    async def look(self, now: float) -> None:
        """Check the awaited standbys once; ``now`` is in seconds of any monotonic clock."""
        awaited: Awaited = self.app.assignor.awaited
        if awaited.follows:
            return
        if await self._ask_for_changes(awaited.generation, now):
            return
        if awaited is not self._seen:
            self._begin(awaited, now)
        waited, cool_down_s = now - self._since, self._cool_down_s() * self._slower
        if (
            self._asked_for is not None
            or not awaited.tps
            or not self._at_rest()
            or waited < cool_down_s
        ):
            return
        is_first = self._ends is None
        read = await self._caught_up(awaited, now)
        if is_first:
            return  # the first check only fetches ends, with which the next check compares
        # Request nothing more for an overdue standby that the leader did not move after its end.
        given_up = self.app.assignor.overdue & self._in_vain & self._was_done
        done = awaited.whole(frozenset(read)) - given_up
        # A standby that has caught up is late as well if the last round did not move its task.
        behind = awaited.tps - (done - self._in_vain) - self.app.assignor.overdue
        late = self.deadlines.late(behind, now)
        enough = (
            (bool(done) and done == awaited.tps - given_up)
            or bool(late)
            or (
                self.deadlines.deadline_s is not None
                and bool(done)
                and waited >= PATIENCE * cool_down_s
            )
        )
        if not enough and now - self._told >= TELL_S:
            self._told = now
            logger.info(
                "%d of %d awaited standbys have caught up; the remaining standbys lack %d records",
                len(read),
                len(awaited.tps),
                self._behind,
            )
        if enough and self._at_rest() and self.app.assignor.awaited is awaited:
            is_asked = await self._ask(awaited, {tp: read[tp] for tp in done}, late)
            self._asked_for = done | late if is_asked else frozenset()
            self._was_done = done

    def _cool_down_s(self) -> float:
        if self.cool_down_s is not None:
            return self.cool_down_s
        return COOPERATIVE_S if self.app.assignor.stops_nobody else EAGER_S

    def _begin(self, awaited: Awaited, now: float) -> None:
        """Start with a new assignment; the wait of a standby that stays awaited continues."""
        asked_for = self._asked_for or frozenset()
        if asked_for or not awaited.tps <= self._seen.tps:
            self._in_vain = asked_for if asked_for <= awaited.tps else frozenset()
            self._slower = min(2 * self._slower, MOST_PATIENCE) if self._in_vain else 1
        # Otherwise a different worker requested the round. Keep the longer wait: after a reset, two
        # workers that request rounds in turn would never slow down.
        self.deadlines.keep(awaited.tps, now)
        self._seen, self._since, self._asked_for, self._ends, self._told = (
            awaited,
            now,
            None,
            None,
            now,
        )
        if awaited.tps:
            logger.info(
                "%d standbys are awaited: when they have caught up, in %g s at the earliest, "
                "this worker requests a round that moves their tasks here",
                len(awaited.tps),
                self._cool_down_s() * self._slower,
            )

    def _at_rest(self) -> bool:
        """Return whether the app is running, without a current rebalance, restore or stop."""
        recovery = self.app.tables.recovery
        return not (
            self.app.rebalancing
            or recovery.in_recovery
            or self.app.should_stop
            or getattr(recovery, "is_taking_on", False)
        )

    async def _caught_up(self, awaited: Awaited, now: float) -> Mapping[TP, int]:
        """Return standby -> offset read, for the standbys that have reached the last check's end.

        The end of a changelog keeps moving, so a standby has caught up if it reached the previous
        end.
        """
        ends = self._ends or {}
        read = await copy_offsets.read_to(self.app, ends)
        self._ends = await copy_offsets.ends_of(self.app, sorted(awaited.tps))
        recovery = self.app.tables.recovery
        done = {
            tp: read[tp]
            for tp, end in ends.items()
            if read[tp] >= end and not is_doubtful(recovery, tp)
        }
        self.deadlines.note_progress(
            {tp: end - self._position(tp, read[tp]) for tp, end in ends.items()}, now
        )
        lacks = {tp: end - read.get(tp, 0) for tp, end in self._ends.items() if tp not in done}
        self._behind = sum(max(0, lack) for lack in lacks.values())
        return done

    def _position(self, tp: TP, read: int) -> int:
        """Return the next offset of a standby, also during a restore in batches."""
        restored = getattr(self.app.tables.recovery, "progress", None)
        return read if restored is None else max(read, restored.next_offset(tp))

    async def _ask_for_changes(self, generation: int, now: float) -> bool:
        """Request a round for changes that the leader reads only in a round; return whether any exist.

        A static member that restarted rejoins without a round, so its capacity, rack or subscription
        may have changed. A topic may have new partitions that no leader has noticed.
        """
        assignor, change = self.app.assignor, ""
        if assignor.is_unheard:
            change = (
                "this static member restarted with a changed capacity, rack or subscription, which the "
                "leader reads only in a round"
            )
        elif grown := self.unplanned.unnoticed(now):
            change = (
                "the partition counts of these topics have changed, and no leader has noticed it: "
                + ", ".join(grown)
            )
        if not change or not self._at_rest():
            return False
        if await self._rejoin(generation, {}):
            if assignor.is_unheard:
                assignor.is_unheard = False
            else:
                self.unplanned.asked()
            logger.info("Requested a round after generation %d: %s", generation, change)
        return True

    async def _ask(self, awaited: Awaited, done: Mapping[TP, int], late: frozenset[TP]) -> bool:
        if late:
            self.app.assignor.overdue |= late
        if not await self._rejoin(awaited.generation, done):
            return False
        self.app.assignor.counters["follow_ups"] += 1
        logger.info(
            "Requested a follow-up round after generation %d: %d standbys have caught up, so "
            "their tasks can move here warm%s",
            awaited.generation,
            len(done),
            f"; {len(late)} took too long and are no longer awaited" if late else "",
        )
        return True

    async def _rejoin(self, generation: int, read: Mapping[TP, int]) -> bool:
        """Request a rejoin on the consumer's thread; return False as :func:`_rejoin` does."""
        return bool(
            await self.app.consumer._thread.call_thread(_rejoin, self.app, generation, read)
        )


async def _rejoin(app: AppT, generation: int, read: Mapping[TP, int]) -> bool:
    """Request a rejoin; return False if ``generation`` is over or a rejoin is already due.

    Runs on the consumer's thread. This thread also receives each assignment, so the stored offsets
    ``read`` belong to this generation. A JoinGroup of a member that is not the leader starts a
    round only if its metadata has changed. The metadata contain the generation, so they always
    differ.
    """
    coordinator = app.consumer._thread._consumer._coordinator
    if coordinator.generation != generation:
        return False
    app.assignor.read_to = read
    if coordinator._rejoin_needed_fut.done():
        return False
    coordinator.request_rejoin()
    return True


def install(app: AppT) -> FollowUp | None:
    """Add the service to ``app`` before the app starts; return None if ``FOLLOW_UP_S`` is 0."""
    cool_down_s = settings.read_or_default(app, FOLLOW_UP_S)
    present: FollowUp | None = getattr(app, MARK, None)
    if present is not None or cool_down_s == 0:
        return present
    warming = settings.read_or_default(app, WARMUPS)
    service = FollowUp(
        app,
        cool_down_s,
        deadline_s=settings.read_or_default(app, WARMUP_DEADLINE_S) if warming else None,
    )
    setattr(app, MARK, service)
    app.service(service)
    return service
