"""Fetching during a rebalance: fetch records, clear queues and resume partitions at safe moments only.

In Faust a fetching thread passes records on through queues. Around a recovery, stock Faust has three faults.
It clears queues that are already in use. It resumes source partitions before it seeks their committed
offsets. If no partition is active, it fetches all partitions. Each fault loses records, as
docs/explanation/faust-at-a-rebalance.md explains.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from aiokafka.errors import IllegalStateError
from faust.types.tuples import TP
from mode.utils.queues import FlowControlEvent

from faust_assigner.app.consumer.committed_offsets import replace_offset_fetch
from faust_assigner.app.consumer.live_views import Wanted

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.structs import ConsumerRecord, OffsetAndMetadata
    from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread
    from faust.types.app import AppT

    Records = Mapping[TP, list[ConsumerRecord[bytes, bytes]]]


#: The most standby records between two checks for source records. Faust needs about 50 ms for this batch.
STANDBY_BATCH = 200
#: The most source records in one fetch. A small batch keeps the backlog of new partitions from delaying
#: the other partitions.
LIVE_BATCH = 50
#: While committed offsets are fetched: seconds between two checks that their partitions are still assigned.
ASSIGNED_LOOK_S = 0.1


class FlowControl(FlowControlEvent):  # type: ignore[misc]
    """A flow control that clears the queues when the flow starts again, but never during the flow.

    Stock Faust calls ``resume()`` up to four times in one recovery. Each call empties every stream's queue
    and the changelog queue, including records of the new generation.
    """

    #: Returns whether streams must stop even after ``resume()``. A process that was suspended must first
    #: check whether it is still a member.
    must_skip_records: Callable[[], bool] = staticmethod(lambda: False)

    def __init__(self, earlier: FlowControlEvent | None = None) -> None:
        """Take over the state and the queues of ``earlier``, the app's former flow control."""
        super().__init__()
        if earlier is not None:
            self.__dict__.update(vars(earlier))

    def is_active(self) -> bool:
        """Return whether streams may take queued records; called for each record."""
        return bool(super().is_active()) and not self.must_skip_records()

    def resume(self) -> None:
        """If the flow is suspended, start it and drop the records that were queued before the suspension."""
        if not self.is_active():
            super().resume()

    def clear(self) -> None:
        """Drop the waiting records, but no errors.

        An error in a queue says that the task that fills the queue has ended. Stock Faust drops the error at
        an eager rebalance, so the agent would wait for its next record for ever.
        """
        for queue in self._queues:
            queue._queue.clear()
            for putter in queue._putters:
                putter.cancel()
            queue._putters.clear()


def put_back(seek: Callable[[TP, int], None], records: Records) -> None:
    """Seek to the first offset of each batch, so that ``records`` are fetched again.

    Call this function before the next await: a fetch during the await would move the positions.
    """
    for tp, batch in records.items():
        with contextlib.suppress(IllegalStateError):
            seek(tp, batch[0].offset)


async def _fetch_fairly(
    app: AppT,
    consumer: AIOKafkaConsumer,
    fetch: Callable[..., Awaitable[Records]],
    active: Collection[TP] | None,
    timeout: float | None = None,
    max_records: int | None = None,
) -> Records:
    """Fetch records of sources first, then records of standbys, at most one batch of each.

    Stock Faust passes on all fetched records before it checks for records of other partitions. After a
    failover one fetch may return 100,000 standby records.
    """
    if active is None or app.in_recovery:
        wanted = None if active is None else Wanted(active)
        return await fetch(wanted, timeout=timeout, max_records=max_records)
    changelogs = app.tables.changelog_topics
    few, some = (min(most, max_records or most) for most in (LIVE_BATCH, STANDBY_BATCH))
    if not changelogs:
        return await fetch(Wanted(active), timeout=timeout, max_records=few)
    live = await fetch(Wanted(active, but_not=changelogs), timeout=0, max_records=few)
    try:
        copies = await fetch(Wanted(active, only=changelogs), timeout=0, max_records=some)
    except Exception:
        put_back(consumer.seek, live)
        raise
    if not live and not copies:
        live = await fetch(Wanted(active), timeout=timeout, max_records=few)
    return {**live, **copies}


def note_first(consumer: Any, records: Records) -> None:
    """Note the first offset of each new source partition in ``records``; on the consumer's thread.

    A partition is new if none of its records was read since it was assigned.
    """
    for tp, batch in records.items():
        is_new = tp not in consumer.first_read
        if is_new and tp.topic not in consumer.app.tables.changelog_topics:
            consumer.first_read[tp] = batch[0].offset


async def fetch_or_put_back(
    thread: AIOKafkaConsumerThread,
    fetch: Callable[..., Awaitable[Records]],
    consumer: AIOKafkaConsumer,
    active: Collection[TP] | None,
    **limits: Any,
) -> Records:
    """Fetch for the consumer thread; put back records that arrive while the flow is stopped."""
    records = await _fetch_fairly(thread.app, consumer, partial(fetch, consumer), active, **limits)
    if thread.consumer.flow_active:
        note_first(thread.consumer, records)
        return records
    # Stock Faust drops the batch and seeks to the committed offsets. A partition without a commit then
    # continues after the dropped records, which are lost.
    put_back(consumer.seek, records)
    return {}


async def seek_to_committed(
    thread: AIOKafkaConsumerThread, one_by_one: Callable[[], Awaitable[Mapping[TP, int | None]]]
) -> Mapping[TP, int | None]:
    """Seek each partition to its committed offset; without a commit, to the first offset that was read.

    One request fetches the offsets of all partitions. aiokafka sends one request for each partition, also
    for standby changelogs, and no records arrive meanwhile. aiokafka leaves a partition without a commit at
    its position, which may be after dropped records. A consumer without a group calls ``one_by_one``.
    """
    consumer = thread._ensure_consumer()
    if not hasattr(consumer._coordinator, "fetch_committed_offsets"):
        return await one_by_one()
    sought: Mapping[TP, int | None] = await thread.call_thread(
        seek_committed, consumer, thread.consumer.first_read
    )
    return sought


async def seek_committed(
    consumer: AIOKafkaConsumer, first_read: Mapping[TP, int], tps: Collection[TP] | None = None
) -> dict[TP, int | None]:
    """Seek all assigned partitions, or only ``tps``, as :func:`seek_to_committed` does.

    Runs on the consumer's thread. Returns the committed offsets, None for a partition without a commit.
    """
    assigned = consumer.assignment()
    wanted = sorted(assigned if tps is None else assigned & set(tps))
    replace_offset_fetch(consumer._coordinator)
    found = await _committed_while_assigned(consumer, wanted)
    offsets: dict[TP, int | None] = dict.fromkeys(wanted)
    for tp in (tp for tp in wanted if tp in consumer.assignment()):
        if tp in found and found[tp].offset >= 0:
            offsets[tp] = found[tp].offset
        start = first_read.get(tp) if offsets[tp] is None else offsets[tp]
        if start is not None:
            consumer.seek(tp, start)
    return offsets


async def _committed_while_assigned(
    consumer: AIOKafkaConsumer, wanted: Sequence[TP]
) -> Mapping[TP, OffsetAndMetadata]:
    """Return the committed offsets of ``wanted``, without partitions that are revoked before the answer.

    One open transaction may delay the answer for all partitions by minutes. If a partition is revoked
    meanwhile, the request is repeated without the partition.
    """
    while wanted:
        asking = asyncio.ensure_future(consumer._coordinator.fetch_committed_offsets(wanted))
        try:
            while not asking.done() and consumer.assignment().issuperset(wanted):
                await asyncio.wait({asking}, timeout=ASSIGNED_LOOK_S)
            if asking.done():
                found: Mapping[TP, OffsetAndMetadata] = asking.result()
                return found
        finally:
            asking.cancel()
        wanted = sorted(consumer.assignment() & set(wanted))
    return {}
