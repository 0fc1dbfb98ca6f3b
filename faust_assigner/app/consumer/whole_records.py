"""Commits under ``exactly_once``: a transaction is committed only while no record is half processed."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextvars import Context
from typing import TYPE_CHECKING

from faust import Sensor
from faust.exceptions import ProducerSendError
from mode import get_logger

if TYPE_CHECKING:
    from faust.types.tuples import TP

    from faust_assigner.app.host.bases import ConsumerBase as Consumer

logger = get_logger(__name__)

#: Seconds that a commit waits for half-processed records. Their partitions then wait for the next commit.
PATIENCE_S = 1.0

#: Seconds after which a transaction is committed with half-processed records. After 60 seconds the broker
#: would abort the transaction.
LONGEST_S = 30.0


class RecordsEnd(Sensor):  # type: ignore[misc]
    """A sensor that calls ``done`` after each record, before the stream takes the next record.

    An override of the consumer's ``ack`` would not be called: Faust's compiled streams do not call it.
    """

    def __init__(self, done: Callable[[TP], None]) -> None:
        self.done = done
        super().__init__()

    def on_stream_event_out(
        self, tp: TP, offset: int, stream: object, event: object, state: object = None
    ) -> None:
        """Call ``done`` with the record's partition; Faust calls this method after the ack."""
        self.done(tp)


class RecordBoundaryCommits:
    """The commits of ``consumer`` under ``exactly_once``: transactions are closed between two records.

    To close a transaction is to fix the offsets that it commits; later records join the next transaction.
    During a commit, ``_open`` holds the transactional ids that are not closed yet, and ``_cut`` the offsets
    of the closed ids. ``_late_since`` holds each id that earlier commits could not close, with the time of
    the first of these commits.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer, self._transactions = consumer, consumer.transactions
        #: Transactional id -> partitions that the current commit has still to close; None without a commit.
        self._open: dict[str, list[TP]] | None = None
        self._cut: dict[TP, int] = {}
        self._late_since: dict[str, float] = {}
        #: The task of an additional commit, for records that the last commit left out.
        self._soon: asyncio.Future[object] | None = None
        #: The current commit. It continues if its caller is cancelled.
        self._whole_commit: asyncio.Task[bool] | None = None
        if consumer.in_transaction:
            consumer.app.sensors.add(RecordsEnd(self.record_ended))

    async def commit(self, start_new_transaction: bool) -> bool:
        """Commit each transaction when all records that sent messages in this transaction are done.

        Returns whether offsets were committed.
        If the caller is cancelled, the commit continues. For example, the fetch loop commits while too many
        table changes wait, and a rebalance or the stop cancels the fetch loop. After a cancelled commit
        aiokafka would have no open transaction, and the next send would end the worker.
        """
        while (earlier := self._whole_commit) is not None and not earlier.done():
            await asyncio.wait({earlier})
        task = self._whole_commit = asyncio.create_task(self._commit_all(start_new_transaction))
        try:
            return await _outcome(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                # an error of the commit still ends the worker
                self._consumer.add_future(_outcome(task))
            raise

    async def _commit_all(self, start_new_transaction: bool) -> bool:
        if self._transactions.is_fenced:
            return False
        self._cut, self._open = {}, defaultdict(list)
        # Commit all partitions: the topics of one transaction are committed together.
        for tp in {*self._consumer._acked, *self._sources_without_acks()}:
            if (transactional_id := self._transactions.id_of(tp)) is not None:
                self._open[transactional_id].append(tp)
        await self._close_all()
        if not self._cut:
            return False
        try:
            # Run without a current event: otherwise the messages might join the event's next transaction,
            # which waits for this commit.
            await asyncio.create_task(self._publish_attached(self._cut), context=Context())
            return await self._consumer._commit_offsets(
                self._cut, start_new_transaction=start_new_transaction
            )
        except ProducerSendError as exc:
            if not self._transactions.is_fenced:
                await self._consumer.crash(exc)
            return False
        finally:
            self._transactions.begin_next()

    def _sources_without_acks(self) -> list[TP]:
        """Return the partitions for which messages were sent after the commit of their last record.

        A closing window sends such messages. These partitions have no new acknowledged offset, but their
        transactions must be committed. A source whose record is still in progress is left out: it has no
        offset to commit yet.
        """
        committed = self._consumer._committed_offset
        sources = self._transactions.sources()
        return [tp for tp, reached in sources.items() if reached < (committed.get(tp) or 0)]

    async def _publish_attached(self, offsets: Mapping[TP, int]) -> None:
        """Publish the messages that ``stream_publish_on_commit`` holds back, in their transactions."""
        for tp, offset in offsets.items():
            with self._transactions.within(tp):
                # Stock Faust also publishes the messages of the record at ``offset``, which is not yet
                # committed.
                await self._consumer._handle_attached({tp: offset - 1})

    async def _close_all(self) -> None:
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        try:
            while (
                self._open
                and asyncio.get_running_loop().time() < deadline
                # An agent in such a send may have the records in its queue that the other ids wait for.
                and not self._transactions.holds_sends()
            ):
                for transactional_id, tps in list(self._open.items()):
                    self.close_settled(tps[0])
                    if transactional_id in self._open:
                        self._transactions.held.hold(transactional_id)
                await asyncio.sleep(0.01 if self._open else 0)
            for transactional_id, (tp, *_) in list((self._open or {}).items()):
                late_since = self._late_since.setdefault(transactional_id, deadline - PATIENCE_S)
                if deadline - late_since > LONGEST_S:
                    first = min(
                        self._unfinished_records(self._transactions.reached(transactional_id)),
                        default=None,
                    )
                    logger.warning(
                        "%s: records have been in progress without a gap for %s s, so the commit "
                        "includes incomplete records; if this worker dies now, the uncommitted "
                        "records are processed again. The first unfinished record is %s. An agent that "
                        "acknowledges by itself (noack) must acknowledge each event: no commit passes "
                        "this record, and Kafka aborts a transaction that stays open for a minute",
                        transactional_id,
                        LONGEST_S,
                        first and f"{first[0].topic}-{first[0].partition} at offset {first[1]}",
                    )
                    self.close_settled(tp, whatever=True)
        finally:
            self._open = None

    def record_ended(self, tp: TP) -> None:
        """Note that a record of ``tp`` is done; called before its stream takes the next record."""
        self.close_settled(tp)
        transactional_id = self._transactions.id_of(tp)
        # If the last commit left this id out, new records of the id wait. Commit as soon as the records in
        # progress are done.
        if (
            self._open is None
            and transactional_id
            and self._transactions.held.holds(transactional_id)
            and (self._soon is None or self._soon.done())
            and self._is_settled(self._transactions.reached(transactional_id))
        ):
            self._soon = self._consumer.add_future(self._commit_soon())

    def record_acked(self, tp: TP) -> None:
        """Note that an agent has acknowledged a record of ``tp``, maybe in a thread."""
        loop = self._consumer.loop
        if _is_running(loop):
            self.record_ended(tp)
        else:
            loop.call_soon_threadsafe(self.record_ended, tp)

    async def _commit_soon(self) -> None:
        await self._consumer.maybe_wait_for_commit_to_finish()
        await self._consumer.commit()

    def _is_settled(self, reached: Mapping[TP, int]) -> bool:
        return next(self._unfinished_records(reached), None) is None

    def _unfinished_records(self, reached: Mapping[TP, int]) -> Iterator[tuple[TP, int]]:
        """Iterate over (partition, offset) of the unfinished records up to the offsets ``reached``."""
        return (
            (message.tp, message.offset)
            for message in list(self._consumer._unacked_messages)
            if message.offset <= reached.get(message.tp, -1) and not message.acked
        )

    def close_settled(self, tp: TP, *, whatever: bool = False) -> None:
        """Close the transaction of ``tp`` if the current commit waits for it and its records are done.

        With ``whatever``, close the transaction even with half-processed records, as stock Faust does.
        """
        transactional_id = self._transactions.id_of(tp)
        if self._open and transactional_id in self._open:
            if self._transactions.has_failed(transactional_id):
                # The worker ends, and the broker aborts the transaction.
                del self._open[transactional_id]
                self._transactions.held.release(transactional_id)
                return
            reached = {} if whatever else self._transactions.reached(transactional_id)
            if not self._is_settled(reached):
                return
            self._late_since.pop(transactional_id, None)
            self._transactions.held.release(transactional_id)
            offsets = self._offsets_of(self._open.pop(transactional_id), reached)
            if offsets:
                self._transactions.close(transactional_id)
                self._cut.update(offsets)

    def _offsets_of(self, tps: list[TP], reached: Mapping[TP, int]) -> dict[TP, int]:
        """Remove the offsets to commit from Faust's acknowledged offsets, and return them.

        ``reached`` contains each partition's last record that has sent messages. If an earlier record is not
        acknowledged yet, that record cannot be committed. Then no offsets are removed or returned.
        """
        consumer = self._consumer
        acked, acked_index, gap = consumer._acked, consumer._acked_index, consumer._gap
        books = {tp: (list(acked[tp]), set(acked_index[tp]), gap[tp].copy()) for tp in tps}
        offsets = consumer._filter_committable_offsets(tps)
        committed = consumer._committed_offset
        safe = {tp: max(offsets.get(tp, 0), committed[tp] or 0) for tp in reached}
        if all(safe[tp] > last for tp, last in reached.items()):
            # A closing window sends messages for a record that is already committed: commit it again.
            return offsets or {tp: safe[tp] for tp in reached}
        for tp, book in books.items():
            acked[tp], acked_index[tp], gap[tp] = book
        return {}

    async def abandon_open(self, *, fenced: bool) -> None:
        """Abandon the transactions that the final commit has left open."""
        self._late_since.clear()
        await self._transactions.abandon(fenced=fenced)


async def _outcome(task: asyncio.Task[bool]) -> bool:
    """Wait for ``task`` without cancelling it."""
    return await asyncio.shield(task)


def _is_running(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether ``loop`` runs this code."""
    with contextlib.suppress(RuntimeError):  # a thread without a loop
        return asyncio.get_running_loop() is loop
    return False
