"""The replay loop: applies changelog records to tables, up to the last readable record.

The recovery counts offsets until the last one. A record that does not decode never arrives, and
neither does the marker at the end of a transaction. Therefore the recovery ends once everything up
to the end has been fetched, handed over and applied. The content of the last offset does not
matter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

from faust.exceptions import DecodeError
from faust.utils.tracing import finish_span
from mode import Service, get_logger
from mode.utils.queues import ThrowableQueue

from faust_assigner.app.recovery.unreadable import unreadable_of
from faust_assigner.app.retry import RateLimitedLog

if TYPE_CHECKING:
    from faust.types.app import AppT
    from faust.types.events import EventT
    from faust.types.tuples import TP, Message

    from faust_assigner.app.host.bases import RecoveryBase
else:
    RecoveryBase = object

logger = get_logger(__name__)

#: Seconds without a changelog record after which the loop checks whether more are to come.
IDLE_S = 0.25


class ChangelogQueue(ThrowableQueue):  # type: ignore[misc]
    """The queue of changelog records; records of a former generation are left out.

    Their offsets would count as progress of this generation, and earlier records as applied.
    """

    def __init__(self, app: AppT, **kwargs: object) -> None:
        self.app = app
        super().__init__(**kwargs)

    async def get(self) -> EventT[object]:
        """The next record of this generation for a partition this worker replays."""
        while True:
            event: EventT[object] = await super().get()
            if self._belongs(event.message):
                return event

    def _belongs(self, message: Message) -> bool:
        recovery = self.app.tables.recovery
        return message.generation_id in (None, self.app.consumer_generation_id) and (
            message.tp in recovery.active_tps or message.tp in recovery.standby_tps
        )


class ReplayLoop(RecoveryBase):
    """The part of the table manager's recovery that applies changelog records."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        #: Partition -> the fetch round by which all its records had been fetched.
        self._fetched: dict[TP, int] = {}
        self._said = RateLimitedLog()
        super().__init__(*args, **kwargs)
        self.unreadable = unreadable_of(self.app)

    def _set_recovery_started(self) -> None:
        super()._set_recovery_started()
        self._fetched.clear()
        # Faust clears the event before each record, and so loses an end that no task awaits yet.
        self.signal_recovery_end.clear()

    @Service.task  # type: ignore[untyped-decorator]
    async def _slurp_changelogs(self) -> None:
        """Apply records as they arrive; between two records the loop has no unfinished work."""
        queue = self.tables.changelog_queue
        while not self.should_stop:
            try:
                async with asyncio.timeout(IDLE_S):
                    event = await queue.get()
            except TimeoutError:
                await self._look_for_the_end()
            except DecodeError:
                pass  # reported where it was decoded, see name_unreadable()
            else:
                await self._take(event)
            self._maybe_end()

    async def _take(self, event: EventT[object]) -> None:
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
        """Note the processing time, for Faust's estimate of the remaining time."""
        last: float | None = self._last_active_event_processed_at
        if last is not None:
            self._processing_times.append(monotonic() - last)
            if len(self._processing_times) > self.num_samples_required_for_estimate:
                self._processing_times.popleft()
        self._last_active_event_processed_at: float | None = now

    async def name_unreadable(self, error: Exception, message: Message) -> None:
        """Report a changelog record that did not decode."""
        self.unreadable(message.tp, [(message.offset, message.key, message.value, error)])

    def _maybe_end(self) -> None:
        if self.in_recovery and not self.need_recovery():
            self.flush_buffers()
        # Not after a failed flush, which begins the recovery again.
        if self.in_recovery and not self.need_recovery():
            self._set_recovery_ended()
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

    @contextmanager
    def _trace_actives(self) -> Iterator[None]:
        """Trace the block, which restores actives, as Faust traces its own recovery."""
        self._actives_span = span = self._begin_span("actives")
        try:
            yield
        except BaseException as error:
            finish_span(span, error=error)
            raise
        else:
            if span is not None:
                span.set_tag("Actives-Ready", True)
            finish_span(span)
        finally:
            self._actives_span = None

    def _trace_standbys(self) -> None:
        """Begin the span of standbys that are read; ``_maybe_end`` finishes it."""
        finish_span(self._standbys_span)
        self._standbys_span = span = self._begin_span("standbys")
        if span is not None:
            span.set_tag("Standby-Stats", self.standby_stats())

    def _tag_actives(self, stats: Mapping[TP, object]) -> None:
        """Tag the span of actives, if there is one, with the records that each partition lacks."""
        if self._actives_span is not None:
            self._actives_span.set_tag("Active-Stats", stats)

    def _begin_span(self, name: str) -> Any:
        """Begin a span below that of the last eager round; None without a tracer."""
        if self.app.tracer is None:
            return None
        tracer = self.app.tracer.get_tracer("_faust")
        span = tracer.start_span(f"recovery-{name}", child_of=self._recovery_span)
        self.app._span_add_default_tags(span)
        return span

    async def _look_for_the_end(self) -> None:
        """Declare partitions restored that are fetched to the end with all records applied.

        The loop calls it when its queue has been empty for a while. A position at the end means
        that the last batch was handed out in this round of the fetcher or earlier. In a later round
        the batch has reached the queue, and the queue is empty.
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

    async def _is_fetched(self, tp: TP, highwater: int) -> bool:
        """Whether the fetcher's position is after ``highwater``; False for a revoked partition."""
        try:
            position = await self.app.consumer.position(tp)
        except Exception as error:
            logger.debug("%s: no position, %r", tp, error)
            return False
        return position is not None and position > highwater

    def _restored_without(self, tp: TP, offset: int, highwater: int) -> None:
        """Set ``tp`` to its end: no record is left, or only reported ones that did not decode."""
        log = logger.error if self.unreadable.counts[tp] else logger.info
        log(
            "Changelog %s: there is no readable record between offset %s and the end %s; it "
            "counts as restored",
            tp,
            offset,
            highwater,
        )
        self.active_offsets[tp] = highwater
