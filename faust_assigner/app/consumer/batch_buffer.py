"""The records of a stream that wait for an agent, in batches of ``take``."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from faust_assigner.app.consumer.streams import LastingStream

if TYPE_CHECKING:
    from faust.types.events import EventT
    from faust.types.tuples import TP


class TakenRecord(NamedTuple):
    """One record: the value after the stream's processors, and the event."""

    value: object
    event: EventT[object]


class BatchBuffer:
    """The records that wait for an agent: closed ``batches``, and ``filling`` with up to ``most`` records."""

    def __init__(self, stream: LastingStream, most: int) -> None:
        self.stream, self.most = stream, max(most, 1)
        self.filling: list[TakenRecord] = []
        #: The record that waits until ``filling`` has room.
        self.next: EventT[object] | None = None
        self.batches: deque[list[TakenRecord]] = deque()
        #: The batches that runs of the agent have taken and not ended.
        self.taken: list[list[TakenRecord]] = []
        #: Whether the agent acknowledges its events itself (``noack_take``).
        self.by_hand = False
        #: Set when the agent's run has added its processors; the reader waits for this before each record.
        self.ready = asyncio.Event()
        #: ``full`` is also set if the reader of the stream has failed with ``error``.
        self.full, self.room = asyncio.Event(), asyncio.Event()
        #: Without transactions: the last record of a full batch, and the event that is set when the agent
        #: has ended this batch.
        self.awaited: EventT[object] | None = None
        self.batch_done = asyncio.Event()
        #: The number of runs that take batches now.
        self.takers = 0
        self.error: BaseException | None = None

    async def collect(self, value: object) -> object:
        """Add the current record to ``filling``; wait while ``filling`` is full.

        Without transactions, wait also until the agent has ended a batch that this record has filled.
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
            if not self.stream.app.in_transaction:
                # As in stock Faust the last record stays the stream's current event: the
                # agent's reply answers it.
                self.awaited = event
                self.batch_done.clear()
                await self.stream.wait(self.batch_done)
        return value

    def end_batch(self, last: EventT[object]) -> None:
        """Let the reader continue if it waits for the batch that ended with ``last``."""
        if last is self.awaited:
            self.batch_done.set()

    def events(self) -> Iterator[EventT[object]]:
        """Iterate over all records that no run has taken, and the record that the reader processes."""
        yield from (taken.event for batch in self.batches for taken in batch)
        yield from (taken.event for taken in self.filling)
        if self.stream.current_event is not None:
            yield self.stream.current_event

    async def maybe_declare(self) -> None:
        """Do nothing: a buffer has no topic."""

    async def throw(self, exc: BaseException) -> None:
        """Note that the reader of the stream has failed; the agent's run ends with this error."""
        self.error = exc
        self.full.set()

    def raise_error(self) -> None:
        """Raise the error of the reader, once."""
        error, self.error = self.error, None
        if error is not None:
            raise error

    def make_batches(self, *, mixed: bool) -> None:
        """Move the records from ``filling`` to one batch for each partition, or one ``mixed`` batch.

        The batch with the oldest record is the first.
        """
        by_partition: dict[TP | None, list[TakenRecord]] = {}
        for taken in self.filling:
            by_partition.setdefault(None if mixed else taken.event.message.tp, []).append(taken)
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

        The current owners of the partitions read the records of earlier generations again, and the records
        that a revocation has given up.
        """
        generation = self.stream.app.consumer_generation_id
        given_up = self.stream.app.consumer.kept_back.given_up
        return [
            taken
            for taken in self.batches.popleft()
            if taken.event.message.generation_id == generation
            and taken.event.message not in given_up
        ]
