"""Under ``exactly_once`` a batch of ``Stream.take`` owns what is sent for it, as a record does.

Stock's ``take`` reads in the background: the agent that gets the batch has no current event, so that what it
sends belongs to no transaction. And a batch mixes partitions, each of which has a transaction of its own.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from faust.streams import _current_event
from mode.utils.times import want_seconds

if TYPE_CHECKING:
    from faust_assigner.app.host.bases import StreamBase as Stream
else:
    Stream = object

#: Seconds between two looks whether a commit waits for records of which a batch is still being made.
LOOK_S = 0.1


class Taken(NamedTuple):
    """One record: the value as the stream's processors left it, and its event."""

    value: Any
    event: Any


class Basket:
    """Records read and not yet handed out: ``filling``, at most ``most`` of them, and whole ``batches``."""

    def __init__(self, stream: Any, most: int) -> None:
        self.stream, self.most = stream, most
        self.filling: list[Taken] = []
        self.batches: deque[list[Taken]] = deque()
        self.full, self.room = asyncio.Event(), asyncio.Event()

    async def collect(self, value: Any) -> Any:
        """The stream's processor: keep the record; wait while there is no room."""
        event = self.stream.current_event
        if event is None:
            raise RuntimeError("take() needs a stream whose values are records")
        while len(self.filling) >= self.most:
            self.room.clear()
            if (await self.stream.wait(self.room)).stopped:
                return value
        self.filling.append(Taken(value, event))
        if len(self.filling) >= self.most:
            self.full.set()
        return value

    def make_batches(self) -> None:
        """One for each partition, the oldest record's first."""
        by_partition: dict[Any, list[Taken]] = {}
        for taken in self.filling:
            by_partition.setdefault(taken.event.message.tp, []).append(taken)
        self.batches.extend(by_partition.values())
        self.filling = []
        self.full.clear()
        self.room.set()

    def next_batch(self) -> list[Taken]:
        """Take one out, without records whose partition was revoked meanwhile: the next owner reads them."""
        generation = self.stream.app.consumer_generation_id
        return [
            taken
            for taken in self.batches.popleft()
            if taken.event.message.generation_id == generation
        ]


class BatchesInTime(Stream):
    """Of the app's streams, but under ``exactly_once``: a batch is not kept back from a round.

    Stock's ``take`` waits until its batch is full or ``within`` is over, while the round waits for the
    records in it: for ever in an eager one, and in a cooperative one as long as that is patient.
    """

    async def wait_for_stopped(self, *coros: Any, timeout: Any = None) -> bool:
        """What ``take`` waits by: that it returns early hands out the records there are."""
        if not all(isinstance(event, asyncio.Event) for event in coros):
            return await super().wait_for_stopped(*coros, timeout=timeout)
        loop = asyncio.get_running_loop()
        end = loop.time() + want_seconds(timeout) if timeout else None
        while True:
            left = LOOK_S if end is None else max(0.0, min(LOOK_S, end - loop.time()))
            await super().wait_for_stopped(*coros, timeout=left)  # True where time ran out, too
            if any(event.is_set() for event in coros):
                return False
            if (
                self.should_stop
                or (end is not None and loop.time() >= end)
                or self._holds_up_a_round()
            ):
                return True

    def _holds_up_a_round(self) -> bool:
        """Records under way are all that something waits for; without ``stream_wait_empty`` nothing does."""
        consumer = self.app.consumer
        if not self.app.conf.stream_wait_empty or not consumer._unacked_messages:
            return False
        leaving: frozenset[Any] = getattr(consumer, "leaving", frozenset())
        return (
            self.app.should_stop
            or not self.app.flow_control.is_active()
            or any(message.tp in leaving for message in list(consumer._unacked_messages))
        )


class OwnedBatches(Stream):
    """Of the app's streams: a batch holds records of one partition, and is the current event meanwhile."""

    #: Kept with the stream, which outlives an agent that fails: what was read is not lost with it.
    _basket: Basket | None = None

    def __aiter__(self) -> Any:
        # Where the agent itself acknowledges, the records under way may well wait for the next ones.
        if self.app.in_transaction and self.enable_acks:
            hold = self.app.consumer.transactions.hold_value
            if hold not in self._processors:
                self._processors.insert(0, hold)  # before those that send: echo, through, group_by
        return super().__aiter__()

    def take(self, max_: int, within: Any) -> AsyncGenerator[list[Any], None]:
        """Lists of values, of one partition each."""
        if not self.app.in_transaction:
            return super().take(max_, within)
        return self._batches(max_, within, lambda taken: taken.value)

    def take_events(self, max_: int, within: Any) -> AsyncGenerator[list[Any], None]:
        """Lists of events, of one partition each."""
        if not self.app.in_transaction:
            return super().take_events(max_, within)
        return self._batches(max_, within, lambda taken: taken.event)

    def take_with_timestamp(
        self, max_: int, within: Any, timestamp_field_name: str
    ) -> AsyncGenerator[list[Any], None]:
        """Lists of values, of one partition each; those that are dicts get the record's time."""
        if not self.app.in_transaction:
            return super().take_with_timestamp(max_, within, timestamp_field_name)

        def stamped(taken: Taken) -> Any:
            if isinstance(taken.value, dict) and timestamp_field_name:
                taken.value[timestamp_field_name] = taken.event.message.timestamp
            return taken.value

        return self._batches(max_, within, stamped)

    def noack_take(self, max_: int, within: Any) -> AsyncGenerator[list[Any], None]:
        """Lists of events, of one partition each, which the agent acknowledges itself."""
        if not self.app.in_transaction:
            return super().noack_take(max_, within)
        return self._batches(max_, within, lambda taken: taken.event, by_hand=True)

    def _batches(
        self, max_: int, within: Any, shown: Callable[[Taken], Any], *, by_hand: bool = False
    ) -> AsyncGenerator[list[Any], None]:
        within_s = want_seconds(within) if within else None
        batches = self._hand_out(self._collected(max_), within_s, shown, by_hand)
        self._active_agens.add(batches)  # closed with the stream
        return batches

    def _collected(self, most: int) -> Basket:
        if self._basket is None:
            self._basket = Basket(self, most)
            self.enable_acks = False
            self.add_processor(self._basket.collect)
        self._basket.most = most
        self._enable_passive(self.channel)  # does nothing while the reader of a former agent lives
        return self._basket

    async def _hand_out(
        self, basket: Basket, within_s: float | None, shown: Callable[[Taken], Any], by_hand: bool
    ) -> AsyncGenerator[list[Any], None]:
        transactions = self.app.consumer.transactions
        while not self.should_stop:
            if not basket.batches:
                await self._fill(basket, within_s)
                basket.make_batches()
                continue
            if not by_hand:
                await transactions.hold_back(basket.batches[0][0].event)
            batch = basket.next_batch()
            if not batch:
                continue
            # The last: a commit then waits for all of them, whose offsets are lower.
            _current_event.set(weakref.ref(batch[-1].event))
            try:
                yield [shown(taken) for taken in batch]
            finally:
                _current_event.set(None)
                for taken in () if by_hand else batch:
                    await self.ack(taken.event)

    async def _fill(self, basket: Basket, within_s: float | None) -> None:
        """Until it is full, ``within_s`` is over, or a commit or a revocation waits for what is in it."""
        loop = asyncio.get_running_loop()
        end = loop.time() + within_s if within_s else None
        while not (self.should_stop or basket.full.is_set()):
            if self._is_waited_for([taken.event for taken in basket.filling]):
                return
            left = LOOK_S if end is None else end - loop.time()
            if left <= 0:
                return
            await self.wait_for_stopped(basket.full, timeout=min(left, LOOK_S))

    def _is_waited_for(self, events: list[Any]) -> bool:
        leaving: frozenset[Any] = getattr(self.app.consumer, "leaving", frozenset())
        stopping = (
            self.app.should_stop
            or not self.app.flow_control.is_active()
            or any(event.message.tp in leaving for event in events)
        )
        return bool(events) and (stopping or self.app.consumer.transactions.waits_for(events))
