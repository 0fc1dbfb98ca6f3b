"""Changelog records on their way into tables, to the last one that can be read.

The recovery counts offsets until it has seen the last one. A record that does not decode never comes, and
neither does the marker at the end of a transaction. So once everything up to the end has been fetched,
handed over and applied, the recovery is over, whatever the last offset held.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Any

from faust.exceptions import DecodeError
from faust.utils.tracing import finish_span
from mode import Service, get_logger
from mode.utils.queues import ThrowableQueue

from faust_assigner.app.recovery.unreadable import unreadable_of
from faust_assigner.app.retry import RateLimitedLog

if TYPE_CHECKING:
    from faust_assigner.app.host.bases import RecoveryBase
else:
    RecoveryBase = object

logger = get_logger(__name__)

#: Seconds without a changelog record after which the loop looks whether any is still to come.
IDLE_S = 0.25


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
        return message.generation_id in (None, self.app.consumer_generation_id) and (
            message.tp in recovery.active_tps or message.tp in recovery.standby_tps
        )


class ReplayLoop(RecoveryBase):
    """Of the table manager's recovery: the loop that applies changelog records."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        #: Partition -> the fetch round in which all of its records had been fetched.
        self._fetched: dict[Any, int] = {}
        self._said = RateLimitedLog()
        super().__init__(*args, **kwargs)
        self.unreadable = unreadable_of(self.app)

    def _set_recovery_started(self) -> None:
        super()._set_recovery_started()
        self._fetched.clear()
        # Stock clears it before each record, and with it the end of a recovery nobody waits for yet.
        self.signal_recovery_end.clear()

    @Service.task  # type: ignore[untyped-decorator]
    async def _slurp_changelogs(self) -> None:
        """Apply records as they come; between two of them nothing of this loop is under way."""
        queue = self.tables.changelog_queue
        while not self.should_stop:
            try:
                async with asyncio.timeout(IDLE_S):
                    event = await queue.get()
            except TimeoutError:
                await self._look_for_the_end()
            except DecodeError:
                pass  # named where it was decoded, see name_unreadable()
            else:
                await self._take(event)
            self._maybe_end()

    async def _take(self, event: Any) -> None:
        message, tp = event.message, event.message.tp
        active = tp in self.active_tps
        offsets = self.active_offsets if active else self.standby_offsets
        seen, now = offsets.get(tp), monotonic()
        (self._active_events_received_at if active else self._standby_events_received_at)[tp] = now
        if seen is not None and message.offset <= seen:
            return
        table, buffer = self.tp_to_table[tp], self.buffers[self.tp_to_table[tp]]
        offsets[tp] = message.offset
        buffer.append(event)
        try:
            await table.on_changelog_event(event)
        except Exception as error:  # the app's own callback
            if self._said.due(table.name):
                logger.exception("Table %s: on_changelog_event: %r", table.name, error)
        if len(buffer) >= (table.recovery_buffer_size if active else table.standby_buffer_size):
            self.flush_buffers()
        if active:
            self._count(now)

    def _count(self, now: float) -> None:
        """For stock's estimate of the time that remains."""
        last: float | None = self._last_active_event_processed_at
        if last is not None:
            self._processing_times.append(monotonic() - last)
            if len(self._processing_times) > self.num_samples_required_for_estimate:
                self._processing_times.popleft()
        self._last_active_event_processed_at: float | None = now

    async def name_unreadable(self, error: Exception, message: Any) -> None:
        """A changelog record did not decode."""
        self.unreadable(message.tp, [(message.offset, message.key, message.value, error)])

    def _maybe_end(self) -> None:
        if self.in_recovery and not self.need_recovery():
            self.flush_buffers()
        # Not if the flush failed: that begins the recovery again.
        if self.in_recovery and not self.need_recovery():
            self._set_recovery_ended()
            if self._actives_span is not None:
                self._actives_span.set_tag("Actives-Ready", True)
            self.signal_recovery_end.set()
        if (
            (self._standbys_span is not None or not self.tables.standbys_ready)
            and self.standby_tps
            and not self.in_recovery
            and not self.standby_remaining_total()
        ):
            finish_span(self._standbys_span)
            self._standbys_span: Any = None
            self.tables.on_standbys_ready()

    async def _look_for_the_end(self) -> None:
        """Declare restored what has been fetched to its end, each record of it applied.

        Asked by the loop itself when its queue has been empty for a while. A position at the end says that
        the last batch was handed out in this round of the fetcher or before; in a later round that batch
        has reached the queue, and the queue is empty.
        """
        consumer = self.app.consumer
        if not self.in_recovery:
            return
        began, rounds = self._recovery_started_at, consumer.fetch_rounds
        for tp, stats in sorted(self.active_stats().items()):
            if tp in self._fetched:
                if self._fetched[tp] < rounds and self.tables.changelog_queue.empty():
                    self._restored_without(tp, stats.offset, stats.highwater)
            elif consumer.may_fetch(tp) and await self._is_fetched(tp, stats.highwater):
                if self._recovery_started_at != began:
                    return
                self._fetched[tp] = consumer.fetch_rounds

    async def _is_fetched(self, tp: Any, highwater: int) -> bool:
        """Whether the fetcher stands behind ``highwater``; no, where the partition was lost meanwhile."""
        try:
            position = await self.app.consumer.position(tp)
        except Exception as error:
            logger.debug("%s: no position, %r", tp, error)
            return False
        return position is not None and position > highwater

    def _restored_without(self, tp: Any, offset: int, highwater: int) -> None:
        """The offsets up to the end held no record, or only such as did not decode and were named."""
        log = logger.error if self.unreadable.counts[tp] else logger.info
        log(
            "Changelog %s: no readable record between offset %s and the end, %s; restored",
            tp,
            offset,
            highwater,
        )
        self.active_offsets[tp] = highwater
