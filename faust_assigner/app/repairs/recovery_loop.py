"""Repairs Faust's recovery loop: every changelog record that can be read is applied, and no other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from faust.tables.recovery import Recovery
from mode import Service, get_logger
from mode.utils.queues import ThrowableQueue

from faust_assigner.app.repairs.fetching import mixed

if TYPE_CHECKING:
    from faust_assigner.app.host.bases import RecoveryBase
    from faust_assigner.app.host.bases import TablesBase as TableManager
else:
    RecoveryBase = TableManager = object


logger = get_logger(__name__)

#: Seconds between two looks at a recovery that may wait for a record that never comes.
LOOK_INTERVAL_S = 0.5

#: How old, in seconds, a standby's database may be when its worker is killed.
STANDBY_FLUSH_INTERVAL_S = 1.0


class Missing(NamedTuple):
    """Changelog records up to ``highwater`` were fetched, those after ``offset`` never came."""

    offset: int
    highwater: int
    fetch_rounds: int


class ChangelogQueue(ThrowableQueue):  # type: ignore[misc]
    """Changelog records on their way into tables; one of a former generation is left out.

    Its offset would pass for progress of this generation, and the records before it as applied.
    """

    def __init__(self, app: Any, **kwargs: Any) -> None:
        self.app = app
        super().__init__(**kwargs)

    async def get(self) -> Any:
        """The next record of this generation for a partition this worker replays."""
        while True:
            event = await super().get()
            if self._belongs(event.message):
                return event

    def _belongs(self, message: Any) -> bool:
        recovery = self.app.tables.recovery
        return (message.generation_id in (None, self.app.consumer_generation_id)
                and (message.tp in recovery.active_tps or message.tp in recovery.standby_tps))


class SteadyRecovery(RecoveryBase):
    """Of the table manager's recovery: sources resume after their seek, and the end is always reached."""

    async def on_rebalance(self, assigned: set[Any], revoked: set[Any], newly_assigned: set[Any],
                           generation_id: int = 0) -> None:
        """Take the new partitions; from here on this generation's recovery may resume them."""
        await super().on_rebalance(assigned, revoked, newly_assigned, generation_id)
        if self.signal_recovery_start.is_set():
            self.app.consumer.begin_generation()

    async def on_recovery_completed(self, generation_id: int = 0) -> None:
        """Seek to the committed offsets, then let the source partitions flow; stock does it the other way."""
        with self.app.consumer.sources_held():
            await super().on_recovery_completed(generation_id)

    @Service.task  # type: ignore[untyped-decorator]
    async def _keep_standbys_on_disk(self) -> None:
        """Write what standbys have read; stock waits for 1,000 records and a kill loses them."""
        while not self.should_stop:
            await self.sleep(STANDBY_FLUSH_INTERVAL_S)
            if not self.in_recovery and not self.app.rebalancing and any(self.buffers.values()):
                self.flush_buffers()

    @Service.task  # type: ignore[untyped-decorator]
    async def _pass_over_unreadable(self) -> None:
        """End a recovery whose last records can never arrive: undecodable ones, transaction markers."""
        seen: dict[Any, Missing] = {}
        while not self.should_stop:
            await self.sleep(LOOK_INTERVAL_S)
            missing = await self._fetched_yet_missing()
            rounds = self.app.consumer.fetch_rounds
            # The first sight counts: everything fetched by then has arrived once the fetcher asked again.
            seen = {tp: seen[tp] if tp in seen and seen[tp][:2] == now[:2] else now
                    for tp, now in missing.items()}
            gone = {tp: gap for tp, gap in sorted(seen.items()) if rounds > gap.fetch_rounds}
            for tp, gap in gone.items():
                logger.error("Changelog %s: no readable record between offset %s and the end, %s; "
                             "the table is restored without them", tp, gap.offset, gap.highwater)
                self.active_offsets[tp] = gap.highwater
            if gone and not self.need_recovery():
                self.flush_buffers()
                self._set_recovery_ended()
                self.signal_recovery_end.set()

    async def _fetched_yet_missing(self) -> dict[Any, Missing]:
        """Lagging actives all of whose records have been fetched, while none waits to be applied."""
        consumer, queue = self.app.consumer, self.tables.changelog_queue
        if not self.in_recovery:
            return {}
        # Only a recovery that fetches has built its offsets; before, they are of the last generation.
        lagging = [tp for tp in self.active_stats() if consumer.may_fetch(tp)]
        missing = {}
        for tp in lagging:
            position = await consumer.position(tp)
            offset, highwater = self.active_offsets[tp], self.active_highwaters[tp]
            if position is not None and offset is not None and offset < highwater < position:
                missing[tp] = Missing(offset, highwater, consumer.fetch_rounds)
        return missing if queue.empty() and self.in_recovery else {}


class SteadyTables(TableManager):
    """Of the app's table manager: it makes the recovery and the changelog queue of this room."""

    _changelog_queue: ChangelogQueue | None
    _recovery: Any

    @property
    def changelog_queue(self) -> ChangelogQueue:
        """Queue between the fetcher and the tables."""
        if self._changelog_queue is None:
            self._changelog_queue = ChangelogQueue(
                self.app, maxsize=self.app.conf.stream_buffer_maxsize,
                flow_control=self.app.flow_control, clear_on_resume=True)
        return self._changelog_queue

    @property
    def recovery(self) -> Any:
        """The recovery service, made at first use."""
        if self._recovery is None:
            kind = mixed(SteadyRecovery, into=Recovery)
            self._recovery = kind(self.app, self, beacon=self.beacon, loop=self.loop)
        return self._recovery
