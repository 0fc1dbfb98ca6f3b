"""Nothing is fetched, cleared or passed on at the wrong moment of a rebalance.

Faust hands records over from a fetching thread through queues. Around a recovery it clears queues that
are already in use, resumes source partitions before it has sought their committed offsets, and reads
"no partition is active" as "all are". Each loses records; docs/explanation/faust-at-a-rebalance.md
tells how. ``compose.py`` puts the classes before the driver's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from aiokafka.errors import IllegalStateError
from faust.transport.consumer import ensure_TPset
from mode.utils.queues import FlowControlEvent

from faust_assigner.app.consumer.committed_offsets import ask_for_all
from faust_assigner.app.retry import retry

if TYPE_CHECKING:
    # compose.py names the class below at run time.
    from faust_assigner.app.host.bases import ConsumerBase as Consumer
else:
    Consumer = object


#: Standby records handed over between two looks for records of sources; takes Faust about 50 ms.
STANDBY_BATCH = 200
#: Records of sources handed over between two looks for others: a backlog, say of partitions that were taken
#: over, is not in the way of a partition that has one record now and then.
LIVE_BATCH = 50
#: Between two looks whether all partitions are still assigned whose committed offsets are awaited.
ASSIGNED_LOOK_S = 0.1


class FlowControl(FlowControlEvent):  # type: ignore[misc]
    """Clears the queues when the flow starts again, never while it runs.

    Faust calls ``resume()`` up to four times in one recovery and each call empties every stream's queue
    and the changelog queue, records of the new generation included.
    """

    #: Whether all must stand still, whatever was said last: a process that was frozen for a while asks first.
    must_stand_still: Callable[[], bool] = staticmethod(lambda: False)

    def is_active(self) -> bool:
        """Whether streams may take what is queued; asked for each record."""
        return bool(super().is_active()) and not self.must_stand_still()

    def resume(self) -> None:
        """Let the flow start; drop what was queued before it was suspended."""
        if not self.is_active():
            super().resume()


class Wanted(Collection[Any]):
    """The partitions that may be fetched now, seen live; unlike an empty set, none of them means none.

    aiokafka tests ``if partitions and tp not in partitions``: the set that Faust passes is emptied while
    a fetch is under way, and the fetch then takes records of every assigned partition.
    """

    def __init__(
        self,
        active: Collection[Any],
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

    def __iter__(self) -> Iterator[Any]:
        return (tp for tp in tuple(self.active) if tp in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return True


def put_back(seek: Callable[[Any, int], None], records: Mapping[Any, list[Any]]) -> None:
    """Have ``records`` fetched again, by ``seek(tp, offset)``; nothing awaited since they were taken."""
    for tp, batch in records.items():
        with contextlib.suppress(IllegalStateError):
            seek(tp, batch[0].offset)


async def _fetch_fairly(
    app: Any,
    consumer: Any,
    fetch: Callable[..., Any],
    active: Collection[Any] | None,
    timeout: float | None = None,
    max_records: int | None = None,
) -> Mapping[Any, list[Any]]:
    """Records of sources before those of standbys; a batch holds only so many of each.

    Stock hands over all that waits, 100,000 records of standbys after a failover, before it looks for a
    record of another partition again.
    """
    if active is None or app.in_recovery:
        wanted = None if active is None else Wanted(active)
        everything: Mapping[Any, list[Any]] = await fetch(
            wanted, timeout=timeout, max_records=max_records
        )
        return everything
    changelogs = app.tables.changelog_topics
    few, some = (min(most, max_records or most) for most in (LIVE_BATCH, STANDBY_BATCH))
    if not changelogs:
        alone: Mapping[Any, list[Any]] = await fetch(
            Wanted(active), timeout=timeout, max_records=few
        )
        return alone
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
    thread: Any,
    fetch: Callable[..., Any],
    consumer: Any,
    active: Collection[Any] | None,
    **limits: Any,
) -> Mapping[Any, list[Any]]:
    """The consumer thread's fetch, except that what arrives while the flow is stopped is put back."""
    records = await _fetch_fairly(thread.app, consumer, partial(fetch, consumer), active, **limits)
    if thread.consumer.flow_active:
        thread.consumer.note_first(records)
        return records
    # Stock throws the batch away and seeks to committed offsets, which leaves a partition that never
    # committed behind its lost records.
    put_back(consumer.seek, records)
    return {}


async def seek_to_committed(thread: Any, one_by_one: Callable[[], Any]) -> Mapping[Any, int | None]:
    """Seek to the committed offsets of all partitions, asked for at once; else to what was read first.

    aiokafka asks once for every partition, standbys' changelogs included, and nothing flows meanwhile. And it
    leaves one without a commit behind what was read and dropped.
    """
    consumer = thread._ensure_consumer()
    if not hasattr(consumer._coordinator, "fetch_committed_offsets"):
        offsets: Mapping[Any, int | None] = await one_by_one()
        return offsets

    sought: Mapping[Any, int | None] = await thread.call_thread(
        seek_committed, consumer, thread.consumer.first_read
    )
    return sought


async def seek_committed(
    consumer: Any, first_read: Mapping[Any, int], tps: Collection[Any] | None = None
) -> dict[Any, int | None]:
    """Seek ``tps``, or all that is assigned, and return what is committed; on the consumer's thread."""
    assigned = consumer.assignment()
    wanted = sorted(assigned if tps is None else assigned & set(tps))
    ask_for_all(consumer._coordinator)
    found = await _committed_while_assigned(consumer, wanted)
    offsets: dict[Any, int | None] = dict.fromkeys(wanted)
    for tp in (tp for tp in wanted if tp in consumer.assignment()):
        if tp in found and found[tp].offset >= 0:
            offsets[tp] = found[tp].offset
        start = first_read.get(tp) if offsets[tp] is None else offsets[tp]
        if start is not None:
            consumer.seek(tp, start)
    return offsets


async def _committed_while_assigned(consumer: Any, wanted: Sequence[Any]) -> Mapping[Any, Any]:
    """What is committed of ``wanted``, without those that are given up while the answer is awaited.

    Under a transaction that does not end, a partition's answer may take minutes, and all wait with it.
    """
    while wanted:
        asking = asyncio.ensure_future(consumer._coordinator.fetch_committed_offsets(wanted))
        try:
            while not asking.done() and consumer.assignment().issuperset(wanted):
                await asyncio.wait({asking}, timeout=ASSIGNED_LOOK_S)
            if asking.done():
                found: Mapping[Any, Any] = asking.result()
                return found
        finally:
            asking.cancel()
        wanted = sorted(consumer.assignment() & set(wanted))
    return {}


class KnownPartitions(Consumer):
    """Of the consumer: how many partitions a topic has, as far as it knows."""

    def topic_partitions(self, topic: str) -> int | None:
        """As many as are known; a topic younger than the last look at the cluster is unknown, not empty.

        Stock answers 0 and ends the agent with PartitionsMismatch at its first change of a fresh table.
        """
        return super().topic_partitions(topic) or None


class FlowGate(KnownPartitions):
    """Of the consumer: from the revocation until the next recovery begins, nothing resumes.

    And within a recovery, source partitions resume after the seek to their committed offsets.
    """

    #: Partitions whose resumption waits for the end of ``sources_held()``; None outside of it.
    _held: set[Any] | None = None

    #: Set from the revocation until the recovery of the next generation begins.
    _between_generations: bool = False

    #: Batches handed over so far: a record fetched in round n has reached its queue in round n + 1.
    fetch_rounds: int = 0

    #: Source partition -> the offset of its first record since it was assigned.
    first_read: dict[Any, int]

    def _reset_state(self) -> None:
        super()._reset_state()
        self._resumed = asyncio.Event()
        self.first_read = {}

    def note_first(self, records: Mapping[Any, list[Any]]) -> None:
        """``records`` are handed over; called on the consumer's thread."""
        for tp, batch in records.items():
            if tp not in self.first_read and not self._is_changelog_tp(tp):
                self.first_read[tp] = batch[0].offset

    def _new_consumer_thread(self) -> Any:
        thread = super()._new_consumer_thread()
        # The driver names its thread class in code, so this one instance is told.
        thread._fetch_records = partial(fetch_or_put_back, thread, thread._fetch_records)
        thread.seek_to_committed = partial(seek_to_committed, thread, thread.seek_to_committed)
        return thread

    async def highwaters(self, *partitions: Any) -> Mapping[Any, int]:
        """Where ``partitions`` end, committed, by the broker.

        Under ``exactly_once`` stock says how far it has read, before the first fetch that they are empty.
        """
        thread = self._thread
        ends: Mapping[Any, int] = await thread.call_thread(
            thread._ensure_consumer().end_offsets, partitions
        )
        return ends

    async def _getmany(
        self, active_partitions: set[Any] | None, timeout: float
    ) -> Mapping[Any, list[Any]]:
        # The fetcher asks for more only once it has handed over the batch before.
        self.fetch_rounds += 1
        return await super()._getmany(active_partitions, timeout)

    async def _wait_next_records(
        self, timeout: float
    ) -> tuple[Mapping[Any, list[Any]] | None, set[Any] | None]:
        # Stock sleeps a second when nothing is active, which each recovery begins and ends with.
        if not self.app.client_only and not self._active_partitions:
            if not self.flow_active:
                # As stock: who returns with the flow stopped seeks everything to what is committed.
                await self.wait(self.can_resume_flow)
            self._resumed.clear()
            await self.wait(self._resumed, timeout=timeout)
            if not self._active_partitions:
                return {}, self._active_partitions
        return await super()._wait_next_records(timeout)

    def may_fetch(self, tp: Any) -> bool:
        """Whether records of ``tp`` are asked for now."""
        return self.flow_active and tp in self._active_partitions

    async def on_partitions_revoked(self, revoked: set[Any]) -> None:
        """Stop for good; a recovery that is still under way must not start the flow again."""
        self._between_generations = True
        await super().on_partitions_revoked(revoked)
        # A buffer that was full in this generation must not wake its partition in the next.
        self._buffered_partitions.clear()

    async def on_partitions_assigned(self, assigned: set[Any], generation_id: int = 0) -> None:
        """Begin with everything paused: stock leaves all active until agents and topics are told."""
        self._between_generations = True
        self.stop_flow()
        self.app.flow_control.suspend()
        self._buffered_partitions.clear()
        self._paused_partitions.update(ensure_TPset(assigned))
        await super().on_partitions_assigned(assigned, generation_id)

    @property
    def between_generations(self) -> bool:
        """Whether the last generation is over and the recovery of the next has not begun."""
        return self._between_generations

    async def perform_seek(self) -> None:
        """Seek to the committed offsets, however long the broker is silent."""
        await retry(self, "Committed offsets", super().perform_seek)

    def begin_generation(self) -> None:
        """Called when the recovery of a new generation begins: from here on it may resume."""
        self._between_generations = False

    def resume_flow(self) -> None:
        """Let records pass, unless the recovery that asks has been overtaken by a rebalance."""
        if not self._between_generations:
            super().resume_flow()

    def resume_partitions(self, tps: Iterable[Any]) -> None:
        """Fetch from ``tps`` again: at once, at the end of ``sources_held()``, or not between generations."""
        if self._between_generations:
            return
        if self._held is not None:
            self._held |= ensure_TPset(tps)
        else:
            super().resume_partitions(ensure_TPset(tps))
            self._resumed.set()

    def on_buffer_drop(self, tp: Any) -> None:
        """A queue has room again; a paused partition stays paused until its recovery resumes it."""
        if tp in self._paused_partitions:
            self._buffered_partitions.discard(tp)
        else:
            super().on_buffer_drop(tp)

    @contextlib.contextmanager
    def sources_held(self) -> Iterator[None]:
        """Within the block partitions do not resume; at its end, unless it raises, those asked for do."""
        self._held = set()
        try:
            yield
            held, self._held = self._held, None
            self.resume_partitions(held)
        finally:
            self._held = None


class Unrepaired(KnownPartitions):
    """Of another driver's consumer: what the recovery expects of a repaired one, without effect."""

    fetch_rounds: int = 0
    between_generations: bool = False

    def begin_generation(self) -> None:
        """A recovery begins."""

    def record_ended(self, tp: Any) -> None:
        """A record is done."""

    def may_fetch(self, tp: Any) -> bool:
        """Unknown, so never: the recovery then waits as stock does."""
        return False

    @contextlib.contextmanager
    def sources_held(self) -> Iterator[None]:
        """Hold nothing."""
        yield
