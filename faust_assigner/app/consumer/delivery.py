"""The delivery of fetched records to streams; records of paused and revoked partitions are dropped.

Faust checks at each record of a batch whether the partition is paused. Before this check, the
partition may have been paused, restored and resumed. Its next record is then an earlier record, so the
records already fetched are dropped.

A stream's queue has one lane (sub-queue) for each partition; the lanes are served in turn. An agent has one
queue. After a rebalance the backlog of new partitions fills the queue at once. With a plain queue, the kept
partitions would wait until the agent has processed this backlog. Under ``exactly_once`` a record that a
commit waits for comes first. Other records are held back meanwhile.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
)
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from faust.app import App
    from faust.types.events import EventT
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
        #: The number of rounds at that check, and whether a round was current.
        self._round: tuple[int, bool] = 0, False
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

    def verify(
        self,
        verify: Callable[[float, TP], None],
        now: float,
        tp: TP,
        *,
        counted_from: Iterable[MutableMapping[TP, float]] = (),
    ) -> None:
        """Run Faust's check for missing records if ``tp`` was wanted at the last check, too.

        Faust counts the time without records and commits from the worker's start. So it would report a
        paused partition, which is not fetched, and a partition that is new or has just been resumed. At
        the start and the end of a round, Faust's monitor forgets the records of all partitions. The skipped
        check sets the times of the last record and the last commit in ``counted_from`` to ``now``, because
        the next record may take longer than the time between two checks.
        """
        app = self._consumer.app
        if self._round != (now_round := (app.rebalancing_count, app.rebalancing)):
            self._round = now_round
            self._looked_at.clear()
        if not self.is_wanted(tp):
            self._looked_at.discard(tp)
        elif tp in self._looked_at:
            verify(now, tp)
        else:
            self._looked_at.add(tp)
            for times in counted_from:
                times[tp] = now

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
    kept = [event for event in queue._queue if _lane_of(event) not in tps]
    if len(kept) == len(queue._queue):
        return
    queue._queue.clear()
    queue._queue.extend(kept)
    queue.maybe_endorse_pressure_drop()
    while not queue.full() and queue._putters:
        putter = queue._putters.popleft()
        if not putter.done():
            putter.set_result(None)


class Lanes:
    """The items of an ``asyncio.Queue``, by partition: ``popleft`` serves the partitions in turn.

    Items of one partition stay in order. Items that are not records share one lane. ``append`` and
    ``popleft`` cost O(1). ``urgent`` returns the item to take first of the lanes' first items, if any;
    ``popleft`` then costs O(lanes).
    """

    def __init__(
        self,
        items: Iterable[object] = (),
        urgent: Callable[[Iterable[Any]], object | None] | None = None,
    ) -> None:
        self._urgent = urgent
        self._lanes: OrderedDict[object, deque[object]] = OrderedDict()
        self._length = 0
        self.extend(items)

    def append(self, item: object) -> None:
        """Append ``item`` to the lane of its partition."""
        tp = _lane_of(item)
        lane = self._lanes.get(tp)
        if lane is None:
            lane = self._lanes[tp] = deque()
        lane.append(item)
        self._length += 1

    def popleft(self) -> object:
        """Remove the first item of the next lane. Raises IndexError if there is no item."""
        if not self._length:
            raise IndexError("pop from an empty queue")
        urgent = self._urgent(self.heads()) if self._urgent is not None else None
        tp = next(iter(self._lanes)) if urgent is None else _lane_of(urgent)
        lane = self._lanes[tp]
        item = lane.popleft()
        self._length -= 1
        if lane:
            self._lanes.move_to_end(tp)
        else:
            del self._lanes[tp]
        return item

    def heads(self) -> Iterator[Any]:
        """Iterate over the first item of each lane, in the order of turns."""
        return (lane[0] for lane in self._lanes.values())

    def extend(self, items: Iterable[object]) -> None:
        """Append each item to the lane of its partition."""
        for item in items:
            self.append(item)

    def clear(self) -> None:
        """Remove all items."""
        self._lanes.clear()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[object]:
        return (item for lane in self._lanes.values() for item in lane)


def _lane_of(item: object) -> object:
    """Return the partition of a record; None for an item that is not a record."""
    return getattr(getattr(item, "message", None), "tp", None)


def install_lanes(app: App, *, is_exact: bool = False) -> None:
    """Make ``app`` create its queues with one lane for each partition from now on.

    ``is_exact``: the app's setting is ``exactly_once``.
    """
    urgent = partial(_waited_for, app) if is_exact else None
    app.FlowControlQueue = partial(_make_fair_queue, app.FlowControlQueue, urgent)


def _waited_for(app: App, items: Iterable[EventT[object]]) -> object | None:
    """Return the first of ``items`` that a commit of ``app`` waits for."""
    held = getattr(getattr(app._consumer, "transactions", None), "held", None)
    return None if held is None else held.first_waited_for(items)


def _make_fair_queue(
    make: Callable[..., FlowControlQueue],
    urgent: Callable[[Iterable[Any]], object | None] | None,
    *args: object,
    **kwargs: object,
) -> FlowControlQueue:
    queue = make(*args, **kwargs)
    queue._queue = Lanes(queue._queue, urgent)
    return queue
