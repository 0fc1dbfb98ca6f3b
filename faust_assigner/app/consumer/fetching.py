"""Fetching during a rebalance: fetch records, clear queues and resume partitions at safe moments only.

In Faust a fetching thread passes records on through queues. Around a recovery, stock Faust has three faults.
It clears queues that are already in use. It resumes source partitions before it has sought their committed
offsets. It takes an empty set of active partitions for all partitions. Each fault loses records, as
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

from faust_assigner.app.consumer.committed_offsets import ask_for_all
from faust_assigner.app.consumer.live_views import Wanted

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.structs import ConsumerRecord, OffsetAndMetadata
    from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread
    from faust.types.app import AppT

    Records = Mapping[TP, list[ConsumerRecord[bytes, bytes]]]


#: The most standby records between two checks for source records; Faust needs about 50 ms for them.
STANDBY_BATCH = 200
#: The most source records between two fetches. So the backlog of new partitions does not delay a partition
#: with few records.
LIVE_BATCH = 50
#: Seconds between two checks that all partitions with awaited committed offsets are still assigned.
ASSIGNED_LOOK_S = 0.1


class FlowControl(FlowControlEvent):  # type: ignore[misc]
    """A flow control that clears the queues when the flow starts again, but never while it runs.

    Stock Faust calls ``resume()`` up to four times in one recovery. Each call empties every stream's queue
    and the changelog queue, including records of the new generation.
    """

    #: Whether streams must stop even after ``resume()``: a frozen process must first check its membership.
    must_stand_still: Callable[[], bool] = staticmethod(lambda: False)

    def __init__(self, earlier: FlowControlEvent | None = None) -> None:
        """Share the state of ``earlier``, if the app has one: its queues then follow this flow control."""
        super().__init__()
        if earlier is not None:
            self.__dict__.update(vars(earlier))

    def is_active(self) -> bool:
        """Whether streams may take queued records; called for each record."""
        return bool(super().is_active()) and not self.must_stand_still()

    def resume(self) -> None:
        """Start the flow, unless it runs; drop the records that were queued before its suspension."""
        if not self.is_active():
            super().resume()


def put_back(seek: Callable[[TP, int], None], records: Records) -> None:
    """Seek to the first offset of each batch to fetch ``records`` again; call it before any other await."""
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
    """Fetch records of sources first, then records of standbys, at most a batch of each.

    Stock first passes on all fetched records, after a failover 100,000 standby records, and only then checks
    for records of other partitions.
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
        thread.consumer.note_first(records)
        return records
    # Stock drops the batch and seeks to the committed offsets. A partition without a commit then continues
    # after its dropped records.
    put_back(consumer.seek, records)
    return {}


async def seek_to_committed(
    thread: AIOKafkaConsumerThread, one_by_one: Callable[[], Awaitable[Mapping[TP, int | None]]]
) -> Mapping[TP, int | None]:
    """Seek each partition to its committed offset, else to its first read offset, by one request for all.

    aiokafka sends one request for each partition, also for standby changelogs, and no records arrive
    meanwhile. It leaves a partition without a commit at a position after dropped records.
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
    """Seek ``tps`` or all assigned partitions; return committed offsets. On the consumer's thread."""
    assigned = consumer.assignment()
    wanted = sorted(assigned if tps is None else assigned & set(tps))
    ask_for_all(consumer._coordinator)
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
    """The committed offsets of ``wanted``, without partitions that are revoked before the answer.

    While a transaction stays open, the answer for its partition may take minutes, and delays all partitions.
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
