"""Closes windows on the owner of their partition, and deletes their rows through the changelog.

Faust closes only windows that its own process has changed, by the machine's clock, and deletes rows
from its own files only. The next owner reads these rows from the changelog again, and closes no
windows.

A window is closed in two cases: the partition's time has passed the window's expiry
(``window_times.py``), or the partition has no record left to process and the window's expiry has
passed.
``on_window_close`` is called with the row. Then a record in the changelog deletes the row. Both steps
count as part of a source record that is being processed. So no commit and no revocation comes between
the two steps.

Under ``exactly_once`` both steps are in one transaction, which is never committed if the callback
raises or is cancelled. Without ``exactly_once`` the callback's records are acknowledged before the row
is deleted, and after a crash in between the callback is called again.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from aiokafka import TopicPartition
from faust import Event
from faust.exceptions import ProducerSendError
from faust.streams import _current_event
from faust.types.tuples import TP, Message
from mode import get_logger

from faust_assigner.app.tables.open_windows import Key, OpenWindows
from faust_assigner.app.tables.window_sources import WindowSources
from faust_assigner.app.tables.window_times import Times

if TYPE_CHECKING:
    from faust.app import App
    from faust.tables.table import Table
    from faust.types.events import EventT

logger = get_logger(__name__)

#: The maximum number of windows closed as part of one record: a commit waits for all of them.
MOST = 100


class Closing:
    """Closes windows of one table, which only the owners of its partitions write."""

    def __init__(
        self,
        app: App,
        table: Table,
        clock: Callable[[], float] = lambda: time.time(),
        monotonic: Callable[[], float] | None = None,
    ) -> None:
        self._app, self._table, self._clock = app, table, clock
        # The loop's clock is monotonic, and tests that move an app's time move this clock too.
        self._monotonic = monotonic or (lambda: app.loop.time())
        self.windows, self.times = OpenWindows(table), Times()
        self.sources = WindowSources(app, table, self.times)
        self._timestamp: float | None = None
        #: Rows changed while windows are being closed; empty at other times.
        self._late: set[Key] = set()
        self._is_closing = False
        self._ranges, self._apply = table._window_ranges, table.apply_changelog_batch
        table._window_ranges, table.apply_changelog_batch = self._note_timestamp, self._applied
        table._maybe_set_key_ttl, table._maybe_del_key_ttl = self._changed, self._deleted
        table._del_old_keys = self.close_windows

    @property
    def _expires(self) -> bool:
        window = self._table.window
        return window is not None and window.expires is not None

    @property
    def changelog(self) -> str:
        """The table's changelog topic."""
        return str(self._table.changelog_topic.get_topic_name())

    # -- changes

    def _note_timestamp(self, timestamp: float) -> Iterator[object]:
        self._timestamp = timestamp
        try:
            yield from self._ranges(timestamp)
        finally:
            self._timestamp = None

    def _changed(self, key: Key, partition: int) -> None:
        if not self._expires:
            return
        self.windows.add(key, partition)
        if self._is_closing:
            self._late.add(key)
        message = self._message_at_hand()
        if message is not None:
            timestamp = key[1][0] if self._timestamp is None else self._timestamp
            self.times.reach(message.tp, message.offset, partition, timestamp, self._monotonic())
            if not self._is_committed_by_offset(message.tp):
                self.times.commit({message.tp: message.offset + 1})

    def _is_committed_by_offset(self, source: TP) -> bool:
        """Whether offsets of ``source`` are committed: not of a topic with ``acks=False``."""
        return bool(self._app.topics.acks_enabled_for(source.topic))

    def _message_at_hand(self) -> Message | None:
        event = _current_event.get(None)
        found = event() if event is not None else None
        return None if found is None or isinstance(found, _Close) else found.message

    def _deleted(self, key: Key, partition: int) -> None:
        if self._expires:
            self.windows.discard(key, partition)

    def _applied(self, batch: Iterable[EventT[object]]) -> None:
        events = list(batch)
        self._apply(events)
        if self._expires:
            self.windows.applied(events)

    # -- closing

    async def close_windows(self) -> None:
        """Close the due windows of each owned and restored partition."""
        actives = self._app.tables.recovery.active_tps
        for partition in sorted(tp.partition for tp in actives if tp.topic == self.changelog):
            if not self._is_here(partition):
                continue
            if await self.windows.look_through(partition, partial(self._is_here, partition)):
                until = await self._closing_time(partition)
                while until is not None and await self._close_some(partition, until):
                    await asyncio.sleep(0)

    def _is_here(self, partition: int) -> bool:
        """Whether the partition is owned and restored, and its sources are processed.

        A former owner may keep the changelog as a standby and lose only the sources.
        """
        app, changelog = self._app, TP(self.changelog, partition)
        if self._table.should_stop or getattr(app.consumer.transactions, "is_fenced", False):
            return False
        return app.tables.recovery.is_restored(changelog) and bool(self.sources.of(partition))

    def _is_due(self, partition: int, until: float | None) -> bool:
        end = self.windows.first(partition)
        return end is not None and until is not None and bool(self._table.window.stale(end, until))

    async def _closing_time(self, partition: int) -> float | None:
        """Return the partition's time, at most the machine's time; None if no window is due."""
        clock, reached = self._clock(), self.times.time(partition)
        if reached is not None and self._is_due(partition, min(clock, reached)):
            return min(clock, reached)
        at_the_end = self.times.at_the_end(
            partition, self._monotonic(), clock, self._table.window.expires
        )
        if self._is_due(partition, at_the_end) and await self.sources.are_at_their_end(partition):
            return at_the_end
        return None

    async def _close_some(self, partition: int, until: float) -> bool:
        """Close some windows as part of one record; return whether more may be due."""
        if not self._is_here(partition) or not self._is_due(partition, until):
            return False
        end, sources = self.windows.first(partition), self.sources.of(partition)
        if end is None or not sources:
            return False
        committed = self._app.consumer._committed_offset
        source = max(sources, key=lambda tp: (committed.get(tp) or 0, tp))
        if (
            self._app.in_transaction
            and self._is_committed_by_offset(source)
            and not committed.get(source)
        ):
            return False  # a transaction can be committed only with an offset
        with self._under_way(source, committed.get(source) or 0) as event:
            return await self._close(self.windows.some(partition, end, MOST), partition, event)

    @contextmanager
    def _under_way(self, source: TP, committed: int) -> Iterator[_Close]:
        """Mark the last committed record as unfinished, so that commits and revocations wait."""
        consumer = self._app.consumer
        # aiokafka commits offsets only for its own partition type.
        place, offset = TopicPartition(*source), max(0, committed - 1)
        message = Message(
            source.topic, source.partition, offset, self._clock(), 0, None, None, None, None, tp=place,
            generation_id=self._app.consumer_generation_id,
        )  # fmt: skip
        event = _Close(self._app, None, None, None, message)
        consumer._unacked_messages.add(message)
        token = _current_event.set(weakref.ref(event))
        self._is_closing = True
        try:
            yield event
        except BaseException as error:
            if self._app.in_transaction:
                # The callback's records must not count: the row stays, and the window is closed
                # again.
                consumer.transactions.fail(source, error)
            raise
        finally:
            self._is_closing = False
            self._late.clear()
            _current_event.reset(token)
            message.acked = True
            consumer._unacked_messages.discard(message)
            if self._app.in_transaction:
                consumer.boundaries.record_ended(source)

    async def _close(self, keys: list[Key], partition: int, event: _Close) -> bool:
        """Call ``on_window_close`` for each row, delete the rows; return whether all are closed."""
        table, told = self._table, list[Key]()
        for key in keys:
            if not self._is_here(partition):
                break
            self._late.discard(key)
            value = table.data.get(key)
            if value is None:  # code that bypasses the table has deleted the row
                self.windows.discard(key, partition)
                continue
            event.key, event.value = key, value
            try:
                await table.on_window_close(key, value)
            except ProducerSendError:
                if self._is_here(partition):
                    raise
                # The partition was fenced or revoked meanwhile: the transaction is aborted, and the
                # next owner closes the window.
                logger.info("Table %s: window %s stays open", table.name, key)
                return False
            if self._app.in_transaction:
                if not self._delete([key]):
                    return False
            elif key not in self._late:
                told.append(key)
        if told and not (await self._is_sent() and self._delete(told)):
            return False
        return self._is_here(partition)

    async def _is_sent(self) -> bool:
        """Wait until the app's records are acknowledged; return False after a timeout."""
        timeout_s = self._app.conf.broker_request_timeout
        try:
            async with asyncio.timeout(timeout_s):
                await self._app.producer.flush()
        except TimeoutError:
            logger.warning(
                "Table %s: windows stay open, the broker has not answered for %.0f s; "
                "on_window_close is called for them again",
                self._table.name,
                timeout_s,
            )
            return False
        return True

    def _delete(self, keys: Iterable[Key]) -> bool:
        """Delete rows, except rows that a late record has just changed: their windows are closed
        again.

        Returns False if the source was revoked although its record counts as unfinished: the next
        owner closes these windows.
        """
        table, event = self._table, _current_event.get()()
        if event is None or event.message.tp not in self._app.consumer.assignment():
            return False
        try:
            for key in keys:
                if key not in self._late:
                    del table[key]
                    table.last_closed_window = max(table.last_closed_window, key[1][0])
        except ProducerSendError:  # the revocation did not wait for this end any longer
            return False
        return True


class _Close(Event):  # type: ignore[misc]
    """The event of the record that counts as unfinished while windows are closed."""

    #: A refused send raises in the callback, so that its window stays open.
    raises_refusals = True
