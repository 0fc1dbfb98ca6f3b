"""The delivery of fetched records to streams; records of paused and revoked partitions are dropped.

Faust checks for a pause at each record of a batch. By the time of the check the partition may have been
paused, restored and resumed, and its next record is an earlier one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from faust.types.tuples import TP, Message
    from mode.utils.queues import FlowControlQueue

    from faust_assigner.app.host.bases import ConsumerBase as Consumer


class Delivery:
    """The records of ``consumer`` between the fetch and the streams, on the app's thread."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        #: The batch whose records are being handed to streams.
        self._in_hand: Mapping[TP, list[Any]] = {}
        #: The partition of the record that is being handed to streams.
        self._handing_out: TP | None = None
        #: The partitions that were wanted at the last check for missing records.
        self._looked_at: set[TP] = set()

    def is_wanted(self, tp: TP) -> bool:
        """Return whether records of ``tp`` are wanted, now or once a queue has room; any thread."""
        return tp not in self._consumer._paused_partitions and self._flows(tp)

    def _flows(self, tp: TP) -> bool:
        """Return whether records of ``tp`` are wanted now; a client-only app has no assignment."""
        consumer = self._consumer
        return (
            consumer.app.client_only
            or tp in consumer._active_partitions
            or tp in consumer._buffered_partitions
        )

    def take(self, found: Mapping[TP, list[Any]]) -> Mapping[TP, list[Any]]:
        """Return the batches of the partitions that are wanted now; they are delivered next."""
        self._in_hand = {tp: batch for tp, batch in found.items() if self._flows(tp)}
        return self._in_hand

    async def hand_out(
        self, deliver: Callable[[Message], Awaitable[object]], message: Message
    ) -> object:
        """Deliver a record to the streams, unless its partition was paused or revoked meanwhile."""
        tp = message.tp
        if not self._flows(tp):
            return None
        self._handing_out = tp
        try:
            return await deliver(message)
        finally:
            self._handing_out = None

    def is_handing_out(self, tps: Collection[TP]) -> bool:
        """Whether a record of ``tps`` is being handed to streams."""
        return self._handing_out in tps

    def put_down(self, tps: Collection[TP]) -> None:
        """Drop the fetched records of ``tps`` that are not delivered yet.

        Their delivery waits while an agent's queue is full. By then the partitions may be processed
        again, from an earlier record.
        """
        for tp in self._in_hand.keys() & tps:
            self._in_hand[tp].clear()

    def verify(self, verify: Callable[[float, TP], None], now: float, tp: TP) -> None:
        """Report a partition whose records do not arrive, if it was wanted at the last check, too.

        A paused partition is not fetched, and a new or resumed partition was not fetched before.
        Faust counts the time from the start of the worker.
        """
        if not self.is_wanted(tp):
            self._looked_at.discard(tp)
        elif tp in self._looked_at:
            verify(now, tp)
        else:
            self._looked_at.add(tp)

    def look_anew_at(self, tps: Collection[TP]) -> None:
        """Report ``tps`` only after a further check."""
        self._looked_at.difference_update(tps)


def drop(queue: FlowControlQueue, tps: Collection[TP]) -> None:
    """Remove the events of ``tps`` from a stream's queue."""
    kept = [
        event
        for event in queue._queue
        if getattr(getattr(event, "message", None), "tp", None) not in tps
    ]
    if len(kept) == len(queue._queue):
        return
    queue._queue.clear()
    queue._queue.extend(kept)
    queue.maybe_endorse_pressure_drop()
    while not queue.full() and queue._putters:
        queue._wakeup_next(queue._putters)
