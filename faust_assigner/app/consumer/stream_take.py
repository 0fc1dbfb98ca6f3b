"""Batches of ``Stream.take``; under ``exactly_once`` the records sent for a batch join a transaction.

Stock Faust's ``take`` reads in the background. The agent that gets the batch then has no current event,
so the records that it sends belong to no transaction. A batch of stock Faust also mixes partitions, although
each partition has its own transaction.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from faust.streams import _current_event
from mode.utils.times import want_seconds

from faust_assigner.app.consumer.delivery import Lanes
from faust_assigner.app.consumer.streams import LOOK_S, TimelyStream

if TYPE_CHECKING:
    from faust.types.events import EventT
    from faust.types.tuples import TP
    from mode.utils.times import Seconds

    from faust_assigner.app.host.bases import StreamBase as Stream
else:
    from faust.streams import Stream


class TakenRecord(NamedTuple):
    """One record: the value after the stream's processors, and the event."""

    value: object
    event: EventT[object]


class BatchBuffer:
    """The records that wait for an agent: full batches, and ``filling`` with up to ``most`` records."""

    def __init__(self, stream: Stream, most: int) -> None:
        self.stream, self.most = stream, most
        self.filling: list[TakenRecord] = []
        #: The record that waits until ``filling`` has room.
        self.next: EventT[object] | None = None
        self.batches: deque[list[TakenRecord]] = deque()
        self.full, self.room = asyncio.Event(), asyncio.Event()

    async def collect(self, value: object) -> object:
        """Add the current record to ``filling``; wait while ``filling`` is full.

        The stream calls this method as one of its processors. Raises RuntimeError without a current event.
        """
        event = self.stream.current_event
        if event is None:
            raise RuntimeError("take() needs a stream whose values are records")
        self.next = event
        while len(self.filling) >= self.most:
            self.room.clear()
            if (await self.stream.wait(self.room)).stopped:
                return value
        self.next = None
        self.filling.append(TakenRecord(value, event))
        if len(self.filling) >= self.most:
            self.full.set()
        return value

    def make_batches(self) -> None:
        """Move the records from ``filling`` to one batch for each partition, the oldest record first."""
        by_partition: dict[TP, list[TakenRecord]] = {}
        for taken in self.filling:
            by_partition.setdefault(taken.event.message.tp, []).append(taken)
        self.batches.extend(by_partition.values())
        self.filling = []
        self.full.clear()
        self.room.set()

    def waiting(self) -> Iterator[EventT[object]]:
        """Iterate over the records after the first batch: one of each batch, and all others."""
        yield from (batch[0].event for batch in islice(self.batches, 1, None))
        yield from (taken.event for taken in self.filling)
        if self.next is not None:
            yield self.next

    def put_first(self, event: EventT[object] | None) -> None:
        """Put the batch that begins with ``event`` first; no effect for None."""
        for place, batch in enumerate(self.batches):
            if batch[0].event is event:
                del self.batches[place]
                self.batches.appendleft(batch)
                return

    def next_batch(self) -> list[TakenRecord]:
        """Remove the first batch and return its records of the current generation.

        The current owners of the partitions read the records of earlier generations again.
        """
        generation = self.stream.app.consumer_generation_id
        return [
            taken
            for taken in self.batches.popleft()
            if taken.event.message.generation_id == generation
        ]


class TransactionalStream(TimelyStream):
    """The stream under ``exactly_once``: a batch has records of one partition and sets the current event.

    Outside of a worker Faust uses no transactions, and this stream is a :class:`TimelyStream`.
    """

    #: The stream keeps the buffer: a stream outlives a failed agent, so no record in the buffer is lost.
    _buffer: BatchBuffer | None = None

    def __aiter__(self) -> AsyncIterator[object]:
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

    def take(self, max_: int, within: Seconds) -> AsyncGenerator[list[object], None]:
        """Yield lists of values; the values of a list come from one partition."""
        if not self.app.in_transaction:
            return super().take(max_, within)
        return self._batches(max_, within, lambda taken: taken.value)

    def take_events(self, max_: int, within: Seconds) -> AsyncGenerator[list[object], None]:
        """Yield lists of events; the events of a list come from one partition."""
        if not self.app.in_transaction:
            return super().take_events(max_, within)
        return self._batches(max_, within, lambda taken: taken.event)

    def take_with_timestamp(
        self, max_: int, within: Seconds, timestamp_field_name: str
    ) -> AsyncGenerator[list[object], None]:
        """Yield lists of values of one partition; store the record's timestamp in values of type dict."""
        if not self.app.in_transaction:
            return super().take_with_timestamp(max_, within, timestamp_field_name)

        def stamped(taken: TakenRecord) -> object:
            if isinstance(taken.value, dict) and timestamp_field_name:
                taken.value[timestamp_field_name] = taken.event.message.timestamp
            return taken.value

        return self._batches(max_, within, stamped)

    def noack_take(self, max_: int, within: Seconds) -> AsyncGenerator[list[object], None]:
        """Yield lists of events of one partition; the agent acknowledges the events itself."""
        if not self.app.in_transaction:
            return super().noack_take(max_, within)
        return self._batches(max_, within, lambda taken: taken.event, by_hand=True)

    def _batches(
        self,
        max_: int,
        within: Seconds,
        shown: Callable[[TakenRecord], object],
        *,
        by_hand: bool = False,
    ) -> AsyncGenerator[list[object], None]:
        within_s = want_seconds(within) if within else None
        batches = self._hand_out(self._collect(max_), within_s, shown, by_hand)
        self._active_agens.add(batches)  # the stream closes these generators at its end
        return batches

    def _collect(self, most: int) -> BatchBuffer:
        if self._buffer is None:
            self._buffer = BatchBuffer(self, most)
            self.enable_acks = False
            self.add_processor(self._buffer.collect)
            self._keep(self._buffer.collect)
        self._buffer.most = most
        # no effect while a failed agent's background reader runs
        self._enable_passive(self.channel)
        return self._buffer

    async def _hand_out(
        self,
        buffer: BatchBuffer,
        within_s: float | None,
        shown: Callable[[TakenRecord], object],
        by_hand: bool,
    ) -> AsyncGenerator[list[object], None]:
        held = self.app.consumer.transactions.held
        while not self.should_stop:
            if not buffer.batches:
                await self._fill(buffer, within_s)
                buffer.make_batches()
                continue
            if not by_hand:
                buffer.put_first(held.first_waited_for(batch[0].event for batch in buffer.batches))
                await held.wait_for_commit(buffer.batches[0][0].event, self._queued)
            batch = buffer.next_batch()
            if not batch:
                continue
            # The last event has the highest offset, so a commit waits for the whole batch.
            _current_event.set(weakref.ref(batch[-1].event))
            try:
                yield [shown(taken) for taken in batch]
            finally:
                _current_event.set(None)
                for taken in () if by_hand else batch:
                    await self.ack(taken.event)

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

    def _is_waited_for(self, events: list[EventT[object]]) -> bool:
        leaving: frozenset[TP] = getattr(self.app.consumer, "leaving", frozenset())
        stopping = (
            self.app.should_stop
            or not self.app.flow_control.is_active()
            or any(event.message.tp in leaving for event in events)
        )
        return bool(events) and (stopping or self.app.consumer.transactions.held.waits_for(events))
