"""Fetching during a rebalance: fetch records, clear queues and resume partitions at safe moments only.

In Faust a fetching thread passes records on through queues. Around a recovery, stock Faust has three faults.
It clears queues that are already in use. It resumes source partitions before it has sought their committed
offsets. It takes an empty set of active partitions for all partitions. Each fault loses records, as
docs/explanation/faust-at-a-rebalance.md explains. ``compose.py`` puts these classes before the driver's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from aiokafka.errors import IllegalStateError
from faust.transport.consumer import ensure_TPset
from faust.types.tuples import TP
from mode.utils.queues import FlowControlEvent

from faust_assigner.app.consumer.committed_offsets import ask_for_all
from faust_assigner.app.retry import retry

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.structs import ConsumerRecord, OffsetAndMetadata
    from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread
    from faust.types.app import AppT

    Records = Mapping[TP, list[ConsumerRecord[bytes, bytes]]]

    # compose.py names the class below at run time.
    from faust_assigner.app.host.bases import ConsumerBase as Consumer
else:
    Consumer = object


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


class Wanted(Collection[TP]):
    """A live view of the partitions that may be fetched now; an empty view means no partition.

    aiokafka tests ``if partitions and tp not in partitions``. If Faust empties the set that it has passed
    during a fetch, that fetch takes records of every assigned partition.
    """

    def __init__(
        self,
        active: Collection[TP],
        *,
        only: Collection[str] | None = None,
        but_not: Collection[str] = (),
    ) -> None:
        self.active, self.only, self.but_not = active, only, but_not

    def __contains__(self, tp: Any) -> bool:
        return (
            tp in self.active
            and tp.topic not in self.but_not
            and (self.only is None or tp.topic in self.only)
        )

    def __iter__(self) -> Iterator[TP]:
        return (tp for tp in tuple(self.active) if tp in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return True


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


class KnownPartitions(Consumer):
    """A part of the consumer: the number of partitions of a topic, if known."""

    def topic_partitions(self, topic: str) -> int | None:
        """The number of partitions of ``topic``; None for a topic newer than the cached metadata.

        Stock returns 0, and the agent ends with PartitionsMismatch at its first change of a new table.
        """
        return super().topic_partitions(topic) or None


class FlowGate(KnownPartitions):
    """A part of the consumer: no partition resumes from the revocation until the next recovery begins."""

    #: True from the revocation until the recovery of the next generation begins.
    _between_generations: bool = False

    #: The number of fetches so far: a record of fetch n has reached its queue when fetch n + 1 begins.
    fetch_rounds: int = 0

    #: Source partition -> the offset of its first record since it was assigned.
    first_read: dict[TP, int]

    def _reset_state(self) -> None:
        super()._reset_state()
        self._resumed = asyncio.Event()
        self.first_read = {}

    def note_first(self, records: Records) -> None:
        """Note the first offset of each new source partition in ``records``; on the consumer's thread."""
        for tp, batch in records.items():
            if tp not in self.first_read and not self._is_changelog_tp(tp):
                self.first_read[tp] = batch[0].offset

    async def highwaters(self, *partitions: TP) -> Mapping[TP, int]:
        """The end offsets of ``partitions`` from the broker, of committed records under ``exactly_once``.

        Under ``exactly_once`` stock returns the offset that its last fetch reported, and before the first
        fetch it takes partitions for empty.
        """
        thread = self._thread
        ends: Mapping[TP, int] = await thread.call_thread(
            thread._ensure_consumer().end_offsets, partitions
        )
        return ends

    async def _getmany(self, active_partitions: set[TP] | None, timeout: float) -> Records:
        # The fetcher calls this only after it has passed on the previous batch.
        self.fetch_rounds += 1
        return await super()._getmany(active_partitions, timeout)

    async def _wait_next_records(self, timeout: float) -> tuple[Records | None, set[TP] | None]:
        # Stock sleeps a second while no partition is active, at the begin and end of each recovery.
        if not self.app.client_only and not self._active_partitions:
            if not self.flow_active:
                # Wait as stock does: after a return while the flow is stopped, the caller seeks all
                # partitions to their committed offsets.
                await self.wait(self.can_resume_flow)
            self._resumed.clear()
            await self.wait(self._resumed, timeout=timeout)
            if not self._active_partitions:
                return {}, self._active_partitions
        return await super()._wait_next_records(timeout)

    def may_fetch(self, tp: TP) -> bool:
        """Whether records of ``tp`` may be fetched now."""
        return self.flow_active and tp in self._active_partitions

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Stop the flow until the next generation; a running recovery must not start it again."""
        self._between_generations = True
        await super().on_partitions_revoked(revoked)
        # A buffer that was full in this generation must not resume its partition in the next generation.
        self._buffered_partitions.clear()

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        """Pause all partitions first; stock leaves them active until agents and topics are notified."""
        self._between_generations = True
        self.stop_flow()
        self.app.flow_control.suspend()
        self._buffered_partitions.clear()
        self._paused_partitions.update(ensure_TPset(assigned))
        await super().on_partitions_assigned(assigned, generation_id)

    @property
    def between_generations(self) -> bool:
        """Whether the last generation has ended and the next generation's recovery has not begun."""
        return self._between_generations

    async def perform_seek(self) -> None:
        """Seek to the committed offsets; retry for as long as the broker is silent."""
        await retry(self, "Committed offsets", super().perform_seek)

    def begin_generation(self) -> None:
        """Allow the flow to resume; called when the recovery of a new generation begins."""
        self._between_generations = False

    def resume_flow(self) -> None:
        """Start the flow, unless a rebalance has overtaken the recovery that calls this."""
        if not self._between_generations:
            super().resume_flow()

    def resume_partitions(self, tps: Iterable[TP]) -> None:
        """Fetch from ``tps`` again, unless the next generation is about to begin."""
        if not self._between_generations:
            super().resume_partitions(ensure_TPset(tps))
            self._resumed.set()

    def on_buffer_drop(self, tp: TP) -> None:
        """Resume ``tp``, whose queue has room again; only its recovery resumes a paused partition."""
        if tp in self._paused_partitions:
            self._buffered_partitions.discard(tp)
        else:
            super().on_buffer_drop(tp)
