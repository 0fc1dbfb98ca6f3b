"""The delivery of fetched records to streams; records of paused and revoked partitions are dropped.

Faust checks at each record of a batch whether the partition is paused. Before this check, the
partition may have been paused, restored and resumed. Its next record is then an earlier record, so the
records already fetched are dropped.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from faust.types.tuples import TP, Message
    from mode.utils.queues import FlowControlQueue

    from faust_assigner.app.host.bases import ConsumerBase as Consumer


class Delivery:
    """The delivery of the records that ``consumer`` has fetched; runs on the app's thread."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        #: The fetched records, by partition, whose delivery to streams has begun.
        self._in_hand: Mapping[TP, list[Any]] = {}
        #: The partition of the record that is being delivered.
        self._handing_out: TP | None = None
        #: The partitions that were wanted at the last check for missing records.
        self._looked_at: set[TP] = set()
        #: The committed offsets at the last check for missing commits.
        self._committed: dict[TP, int] = {}

    def is_wanted(self, tp: TP) -> bool:
        """Return whether to fetch records of ``tp``; may be called from any thread."""
        return tp not in self._consumer._paused_partitions and self._flows(tp)

    def _flows(self, tp: TP) -> bool:
        """Return whether records of ``tp`` may be delivered; always True in a client-only app."""
        consumer = self._consumer
        return (
            consumer.app.client_only
            or tp in consumer._active_partitions
            or tp in consumer._buffered_partitions
        )

    def take(self, found: Mapping[TP, list[Any]]) -> Mapping[TP, list[Any]]:
        """Return ``found`` without paused and revoked partitions; these records are delivered next."""
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
        """Return whether a record of ``tps`` is being delivered."""
        return self._handing_out in tps

    def drop_fetched(self, tps: Collection[TP]) -> None:
        """Drop the fetched records of ``tps`` that are not delivered yet.

        Their delivery may wait for a full queue of an agent. Meanwhile the partitions may start again
        from an earlier record, so a late delivery would be out of order.
        """
        for tp in self._in_hand.keys() & tps:
            self._in_hand[tp].clear()

    def verify(self, verify: Callable[[float, TP], None], now: float, tp: TP) -> None:
        """Run Faust's check for missing records if ``tp`` was wanted at the last check, too.

        Faust counts the time without records from the worker's start. So it would report a paused
        partition, which is not fetched, and a partition that is new or has just been resumed.
        """
        if not self.is_wanted(tp):
            self._looked_at.discard(tp)
        elif tp in self._looked_at:
            verify(now, tp)
        else:
            self._looked_at.add(tp)

    def note_commit(self, now: float, tp: TP, committed_at: MutableMapping[TP, float]) -> None:
        """Set the time of the last commit in ``committed_at`` if the offset of ``tp`` has changed.

        Faust notes no time of a commit in a transaction. So it would report five minutes after the
        worker's start, and then every few seconds, that no offset is committed.
        """
        offset = self._consumer._committed_offset.get(tp)
        if offset is not None and offset != self._committed.get(tp):
            self._committed[tp], committed_at[tp] = offset, now

    def skip_next_check(self, tps: Collection[TP]) -> None:
        """Skip Faust's check of ``tps`` at the next call of :meth:`verify`."""
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
        putter = queue._putters.popleft()
        if not putter.done():
            putter.set_result(None)
