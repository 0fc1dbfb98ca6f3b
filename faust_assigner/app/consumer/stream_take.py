"""Batches of ``Stream.take``: no record is lost after an error, and no batch delays a rebalance.

Stock Faust's ``take`` reads in the background. After an agent's error it reads on and acknowledges records
that are in no batch, until the next run begins. It waits until its batch is full or ``within`` is over.
Meanwhile a rebalance waits for the records in the batch: an eager rebalance for ever, a cooperative one until
its timeout.

Under ``exactly_once`` the records sent for a batch join a transaction. In stock Faust the agent that gets the
batch has no current event, so the records that it sends belong to no transaction. A batch of stock Faust also
mixes partitions, although each partition has its own transaction.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING

from faust.streams import _current_event
from mode.utils.times import want_seconds

from faust_assigner.app.consumer.batch_buffer import BatchBuffer, TakenRecord
from faust_assigner.app.consumer.delivery import Lanes
from faust_assigner.app.consumer.in_progress import streams_of
from faust_assigner.app.consumer.streams import LastingStream

if TYPE_CHECKING:
    from faust.types.events import EventT
    from faust.types.tuples import TP
    from mode.services import WaitArgT
    from mode.utils.times import Seconds

#: Seconds between two checks whether a commit or a rebalance waits for records of an incomplete batch.
LOOK_S = 0.1


class BatchingStream(LastingStream):
    """The stream of an app; its batches outlive a failed agent, and a rebalance ends a batch early.

    With transactions a batch has records of one partition and sets the current event. Outside of a worker
    Faust uses no transactions.
    """

    #: The stream keeps the buffer: a stream outlives a failed agent, so no record in the buffer is lost.
    _buffer: BatchBuffer | None = None
    #: The processors of a failed agent's next run, until the reader begins its next record with them.
    _next_processors: list[object] | None = None

    def add_processor(self, processor: object) -> None:
        """Add ``processor``; after an error not before the reader has ended its record."""
        if self._next_processors is None:
            super().add_processor(processor)
        else:
            self._next_processors.append(processor)

    def _end_added_processors(self) -> None:
        """Keep the failed run's processors until the reader has ended its current record."""
        if self._buffer is None:
            super()._end_added_processors()
        else:
            self._buffer.ready.clear()
            self._next_processors = []

    async def _begin_record(self, value: object) -> object:
        """Wait for the processors of the agent's run; the first processor of a stream with batches."""
        assert self._buffer is not None
        await self._buffer.ready.wait()
        if self._next_processors is not None:
            self._take_added()
            self._processors += self._next_processors
            self._next_processors = None
        return value

    def __aiter__(self) -> AsyncIterator[object]:
        if (
            self._buffer is not None
            and self._kept is not None  # without an agent, the reader in the background is Faust's
            and asyncio.current_task() is not self._reader
        ):
            # The background reader would take a part of the records, and both would wait for ever.
            raise RuntimeError(
                "This agent has called take() on this stream: read all its records with take(), "
                "also after an error"
            )
        streams_of(self.app).add(self)
        # Do not hold records back from an agent that acknowledges by itself: the agent may need a later
        # record before it acknowledges an earlier record.
        if self.app.in_transaction and self.enable_acks and self._hold not in self._processors:
            # Put ``_hold`` before the processors that send records: echo, through, group_by.
            self._processors.insert(0, self._hold)
            self._keep(self._hold)
        return super().__aiter__()

    async def _hold(self, value: object) -> object:
        """Hold the current record back while a commit waits for the records before it."""
        return await self.app.consumer.transactions.held.hold_value(value, self._queued)

    def _queued(self) -> Iterator[EventT[object]]:
        """Iterate over the next record of each partition in the stream's queue and its batches."""
        lanes = getattr(getattr(self.channel, "queue", None), "_queue", None)
        if isinstance(lanes, Lanes):
            yield from lanes.heads()
        if self._buffer is not None:
            yield from self._buffer.waiting()

    def in_hand(self) -> Iterator[EventT[object]]:
        """Iterate over the records that the stream has begun and that the agent has not ended."""
        if self._buffer is not None:
            yield from self._buffer.events()
            yield from (taken.event for batch in self._buffer.taken for taken in batch)
        elif self.current_event is not None:
            yield self.current_event

    def acks_by_hand(self) -> bool:
        """Return whether the stream does not know when the agent ends a record."""
        return self._buffer.by_hand if self._buffer is not None else not self.enable_acks

    def take(self, max_: int, within: Seconds) -> AsyncGenerator[list[object], None]:
        """Yield lists of values; with transactions the values of a list come from one partition."""
        if self._uses_faust_batches():
            return super().take(max_, within)
        return self._batches(max_, within, lambda taken: taken.value)

    def take_events(self, max_: int, within: Seconds) -> AsyncGenerator[list[object], None]:
        """Yield lists of events; with transactions the events of a list come from one partition."""
        if self._uses_faust_batches():
            return super().take_events(max_, within)
        return self._batches(max_, within, lambda taken: taken.event)

    def take_with_timestamp(
        self, max_: int, within: Seconds, timestamp_field_name: str
    ) -> AsyncGenerator[list[object], None]:
        """Yield lists of values as ``take`` does; store the record's timestamp in values of type dict."""
        if self._uses_faust_batches():
            return super().take_with_timestamp(max_, within, timestamp_field_name)

        def stamped(taken: TakenRecord) -> object:
            if isinstance(taken.value, dict) and timestamp_field_name:
                taken.value[timestamp_field_name] = taken.event.message.timestamp
            return taken.value

        return self._batches(max_, within, stamped)

    def noack_take(self, max_: int, within: Seconds) -> AsyncGenerator[list[object], None]:
        """Yield lists of events as ``take_events`` does; the agent acknowledges the events itself."""
        if self._uses_faust_batches():
            return super().noack_take(max_, within)
        return self._batches(max_, within, lambda taken: taken.event, by_hand=True)

    def _uses_faust_batches(self) -> bool:
        """Return whether Faust makes the batches: no transaction, and no agent with a later run."""
        return self._kept is None and not self.app.in_transaction

    def _batches(
        self,
        max_: int,
        within: Seconds,
        shown: Callable[[TakenRecord], object],
        *,
        by_hand: bool = False,
    ) -> AsyncGenerator[list[object], None]:
        within_s = want_seconds(within) if within else None
        buffer = self._collect(max_)
        buffer.by_hand = by_hand
        batches = self._hand_out(buffer, within_s, shown, by_hand)
        self._active_agens.add(batches)  # the stream closes these generators at its end
        return batches

    def _collect(self, most: int) -> BatchBuffer:
        if self._buffer is None:
            self._buffer = BatchBuffer(self, most)
            self.enable_acks = False
            self._processors.insert(0, self._begin_record)
            self._keep(self._begin_record)
            self.add_processor(self._buffer.collect)
        elif (
            self._next_processors is not None and self._buffer.collect not in self._next_processors
        ):
            self._next_processors.append(self._buffer.collect)
        self._buffer.most = max(most, 1)
        self._buffer.ready.set()
        # no effect while a failed agent's background reader runs
        self._enable_passive(self._buffer)
        return self._buffer

    async def _hand_out(
        self,
        buffer: BatchBuffer,
        within_s: float | None,
        shown: Callable[[TakenRecord], object],
        by_hand: bool,
    ) -> AsyncGenerator[list[object], None]:
        exact = self.app.in_transaction
        buffer.takers += 1
        try:
            if self.should_stop:
                # The loop of an agent that calls ``take`` again and again must let its cancellation run.
                await asyncio.sleep(LOOK_S)
            while not self.should_stop:
                if not buffer.batches:
                    if not buffer.filling:
                        buffer.raise_error()
                    await self._fill(buffer, within_s)
                    buffer.make_batches(mixed=not exact)
                    continue
                if exact and not by_hand:
                    held = self.app.consumer.transactions.held
                    buffer.put_first(
                        held.first_waited_for(batch[0].event for batch in buffer.batches)
                    )
                    await held.wait_for_commit(buffer.batches[0][0].event, self._queued)
                last = buffer.batches[0][-1].event
                batch = buffer.next_batch()
                if not batch:
                    buffer.end_batch(last)
                    continue
                if exact:
                    # The last event has the highest offset, so a commit waits for the whole batch.
                    _current_event.set(weakref.ref(batch[-1].event))
                buffer.taken.append(batch)
                try:
                    yield [shown(taken) for taken in batch]
                finally:
                    if exact:
                        _current_event.set(None)
                    for taken in () if by_hand else batch:
                        await self.ack(taken.event)
                    buffer.taken = [other for other in buffer.taken if other is not batch]
                    buffer.end_batch(last)
        finally:
            buffer.takers -= 1
            if not buffer.takers and self.should_stop:
                self._give_up(buffer)
            elif not buffer.takers:
                self.add_future(self._give_up_untaken(buffer))

    async def _give_up_untaken(self, buffer: BatchBuffer) -> None:
        """Give records in ``buffer`` up if a rebalance or the shutdown waits for them and no run takes them.

        The agent may have left its loop, or its next run may not take yet: no code would end the records.
        """
        try:
            while not buffer.takers and not self.should_stop:
                if self._is_waited_for(list(buffer.events())):
                    self._give_up(buffer)
                if self.app.should_stop:
                    # The reader waits for a run. The stop waits for this task, so it needs its own task.
                    self._ending = asyncio.get_running_loop().create_task(self.stop())
                    return
                await asyncio.sleep(LOOK_S)
        finally:
            if not buffer.takers and self.should_stop:
                self._give_up(buffer)

    def _give_up(self, buffer: BatchBuffer) -> None:
        consumer = self.app.consumer
        is_all = self.should_stop or self.app.should_stop or not self.app.flow_control.is_active()
        leaving: frozenset[TP] = getattr(consumer, "leaving", frozenset())
        messages = [event.message for event in buffer.events()]
        consumer.kept_back.give_up(m for m in messages if is_all or m.tp in leaving)

    async def _fill(self, buffer: BatchBuffer, within_s: float | None) -> None:
        """Wait until ``buffer`` is full or ``within_s`` is over, in seconds (None: no limit).

        Return early if a commit, a rebalance or the shutdown waits for records in the buffer.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + within_s if within_s else None
        while not (self.should_stop or buffer.full.is_set()):
            if self._is_waited_for([taken.event for taken in buffer.filling]):
                return
            left = LOOK_S if end is None else end - loop.time()
            if left <= 0:
                return
            await self.wait_for_stopped(buffer.full, timeout=min(left, LOOK_S))

    async def wait_for_stopped(
        self, *coros: WaitArgT | asyncio.Event, timeout: Seconds | None = None
    ) -> bool:
        """Wait for ``coros`` as Faust's ``take`` does; return early if a rebalance or the shutdown waits.

        ``take`` then returns the records that it has read.
        """
        if not (
            self._uses_faust_batches() and all(isinstance(event, asyncio.Event) for event in coros)
        ):
            return await super().wait_for_stopped(*coros, timeout=timeout)
        loop = asyncio.get_running_loop()
        end = loop.time() + want_seconds(timeout) if timeout else None
        while True:
            left = LOOK_S if end is None else max(0.0, min(LOOK_S, end - loop.time()))
            # Ignore the result, which is True after a timeout as well.
            await super().wait_for_stopped(*coros, timeout=left)
            if any(event.is_set() for event in coros):
                return False
            if (
                self.should_stop
                or (end is not None and loop.time() >= end)
                or self._holds_up_a_round()
            ):
                return True

    def _holds_up_a_round(self) -> bool:
        """Return whether a rebalance or the shutdown waits for unfinished records.

        A rebalance and the shutdown wait only with Faust's setting ``stream_wait_empty``.
        """
        consumer = self.app.consumer
        if not self.app.conf.stream_wait_empty or not consumer._unacked_messages:
            return False
        leaving: frozenset[TP] = getattr(consumer, "leaving", frozenset())
        return (
            self.app.should_stop
            or not self.app.flow_control.is_active()
            or any(m.tp in leaving and not m.acked for m in list(consumer._unacked_messages))
        )

    def _is_waited_for(self, events: list[EventT[object]]) -> bool:
        if not events:
            return False
        consumer = self.app.consumer
        leaving: frozenset[TP] = getattr(consumer, "leaving", frozenset())
        return (
            self.app.should_stop
            or not self.app.flow_control.is_active()
            or any(event.message.tp in leaving for event in events)
            or (self.app.in_transaction and consumer.transactions.held.waits_for(events))
        )
