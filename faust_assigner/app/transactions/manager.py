"""Transactions of whole records under ``exactly_once``: all sends of a record, and the offset after it.

Stock Faust has three faults. It sends outside of every transaction if the worker does not consume the
target topic. It leaves buffered table changes to the next transaction. It commits while a record is half
processed. docs/explanation/faust-at-a-rebalance.md explains how each fault repeats outputs or loses changes
at a SIGKILL. Here each send goes into the transaction of its record; ``whole_records.py`` commits between
two records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from aiokafka.errors import BrokerResponseError, ProducerFenced
from faust.exceptions import ProducerSendError
from faust.streams import current_event
from mode import get_logger

from faust_assigner.app.retry import retry
from faust_assigner.app.transactions.ids import change, id_for, without
from faust_assigner.app.transactions.shares import Place, Share

if TYPE_CHECKING:
    from faust.types.core import HeadersArg
    from faust.types.events import EventT
    from faust.types.tuples import TP, FutureMessage

    from faust_assigner.app.host.bases import TransactionsBase as TransactionManager
else:
    TransactionManager = object

logger = get_logger(__name__)

#: Seconds for one attempt to begin a transaction. aiokafka asks for the producer's id without a deadline;
#: the next attempt looks for the coordinator again, on new connections.
BEGIN_S = 30.0
#: The place of the running task's sends, if the task has a fixed place.
_place: ContextVar[Place | None] = ContextVar("place", default=None)


class TransactionsRefused(Exception):
    """The broker does not support transactions, or does not allow them for this worker."""


class PartitionTransactions(TransactionManager):
    """The consumer's TransactionManager: a record's sends join the transaction that commits its offset.

    For each transactional id, ``_shares`` holds the share that takes new sends. During a commit, ``_closed``
    holds the share that is being committed, and the share in ``_shares`` waits for the end of that commit.
    ``_sending`` references the tasks of running sends, so that no task is garbage-collected before its end.
    """

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        self._shares: dict[str, Share] = {}
        self._closed: dict[str, Share] = {}
        #: Transactional id with a waiting commit -> set when records that are held back must check again.
        self._held: dict[str, asyncio.Event] = {}
        self._sending: set[asyncio.Task[None]] = set()
        #: Active partition -> its transactional id. The mapping changes with the partitions, on the app's
        #: thread. The assignor learns a round's groups earlier, while the last round's records are processed.
        self._ids: dict[TP, str] = {}
        #: Whether a producer was fenced; then nothing is sent or committed until all partitions are revoked.
        self.is_fenced = False
        if self.app.in_transaction:
            self.producer.send_soon = self.send_soon  # type: ignore[method-assign]
            # The driver keeps these on its class: apps in one process would abort each other's transactions.
            self.producer._transaction_producers, self.producer._trn_locks = {}, {}

    def id_of(self, tp: TP) -> str | None:
        """The transactional id that commits offsets of ``tp``; None if this worker does not own ``tp``."""
        return self._ids.get(tp)

    def ids_for(self, tps: Iterable[TP]) -> dict[TP, str]:
        """The transactional ids of active partitions in the groups of the last round."""
        assignor, app_id = self.app.assignor, self.app.conf.id
        return {
            tp: id_for(app_id, assignor.group_for_topic(tp.topic), tp.partition)
            for tp in tps
            if not assignor.is_standby(tp)
        }

    async def on_rebalance(
        self, assigned: set[TP], revoked: set[TP], newly_assigned: set[TP]
    ) -> None:
        """Set up the transactions of an eager round, before which every transaction has ended."""
        before, self._ids = self._ids, self.ids_for(assigned)
        self.is_fenced = False
        await self.end(change(before, self._ids).ended)
        await self.begin(set(self._ids.values()))

    async def revoke(self, revoked: Collection[TP]) -> None:
        """End the transactions of ``revoked``, whose records are processed and committed.

        The only open transactions are the empty ones that the final commit began. A late send fails, and the
        next owner processes its record again.
        """
        before, self._ids = self._ids, without(self._ids, revoked)
        await self.end(change(before, self._ids).ended)

    async def assign(self, assigned: Collection[TP]) -> None:
        """Begin the transactions of new partitions in ``assigned``; kept ones keep their transactions."""
        before, self._ids = self._ids, {**self.ids_for(assigned), **self._ids}
        await self.begin(change(before, self._ids).begun)

    async def end(self, ids: Collection[str]) -> None:
        """Stop the producers of ``ids`` and abort their open transactions."""
        if ids:
            logger.info("Stopping %d transactional producers", len(ids))
        for one in sorted(ids):
            self.release_held(one)
            self._drop(one)
            producer = self.producer._transaction_producers.get(one)
            if producer is not None and producer._txn_manager.is_in_transaction():
                await self.producer.abort_transaction(one)
            await self.producer.stop_transaction(one)

    def _drop(self, transactional_id: str) -> None:
        """Abandon the open transaction of this id, and the transaction whose commit is in progress."""
        for shares in (self._shares, self._closed):
            if (share := shares.pop(transactional_id, None)) is not None:
                share.abandon()

    async def begin(self, ids: Collection[str]) -> None:
        """Begin a transaction under each of ``ids``. Raises TransactionsRefused if the broker refuses.

        Stock Faust logs the refusal as a warning, and its worker ends with a KeyError at the first commit.
        """
        if ids:
            logger.info("Starting %d transactional producers", len(ids))
        for one in sorted(ids):
            try:
                await retry(self, f"Begin of transaction {one}", partial(self._begin_in_time, one))
            except BrokerResponseError as error:
                raise TransactionsRefused(
                    f"The broker refuses transactions: {type(error).__name__} for the "
                    f"transactional id {one!r}, and processing_guarantee='exactly_once' needs "
                    "them. If the cluster has ACLs, allow Write and Describe on the "
                    f"transactional ids that begin with {self.app.conf.id!r}"
                ) from error

    async def _begin_in_time(self, transactional_id: str) -> None:
        """Begin the transaction. Raises TimeoutError after ``BEGIN_S`` seconds."""
        async with asyncio.timeout(BEGIN_S):
            await self._begin(transactional_id)

    async def _begin(self, transactional_id: str) -> None:
        producers, locks = self.producer._transaction_producers, self.producer._trn_locks
        producer = producers.get(transactional_id)
        if producer is not None and producer._txn_manager.is_fatal_error():
            await self.producer.stop_transaction(transactional_id)
            producer = None
        if producer is None:
            producer = self.producer._new_producer(transactional_id=transactional_id)
            try:
                await producer.start()
            except BaseException:
                await producer.client.close()
                raise
            producers[transactional_id], locks[transactional_id] = producer, asyncio.Lock()
        async with locks[transactional_id]:
            await producer.begin_transaction()

    def _partition_at_hand(self) -> TP | None:
        """The partition of the current record; None if there is no current record of this app."""
        event = current_event()
        # In this process, an agent of a different app may send to a topic of this app.
        if event is None or event.app is not self.app or not event.message:
            return None
        tp: TP = event.message.tp
        try:
            self.app.assignor.group_for_topic(tp.topic)
        except KeyError:  # the record came from a channel
            return None
        return tp

    def share_at_hand(self) -> Share | None:
        """The share for the sends and table changes of the current record; None if there is no such record.

        If this worker no longer owns the partition, the share is abandoned; the next owner repeats the
        record.
        """
        tp = self._partition_at_hand()
        if tp is None:
            return None
        transactional_id = self.id_of(tp)
        if transactional_id is None:
            gone = Share(f"{tp.topic}-{tp.partition}, which this worker does not own", begun=True)
            gone.abandon()
            return gone
        share = self._shares.get(transactional_id)
        if share is None:
            share = self._shares[transactional_id] = Share(transactional_id, begun=True)
        return share

    def _take_place(self) -> Place | None:
        """The next place in the current record's transaction; None if there is no current record."""
        share = self.share_at_hand()
        if share is None:
            return None
        message = current_event().message
        share.reached[message.tp] = max(message.offset, share.reached.get(message.tp, -1))
        self._look_again(share.transactional_id)
        before, share.tail = share.tail, asyncio.get_running_loop().create_future()
        return Place(share.transactional_id, share, before, share.tail)

    async def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        timestamp: float | None,
        headers: HeadersArg | None,
        *,
        transactional_id: str | None = None,
    ) -> Awaitable[object]:
        """Send within the transaction of the current record, to any topic, in the order of the calls."""
        place = _place.get() or self._take_place()
        if place is None:
            return await super().send(topic, key, value, partition, timestamp, headers)
        try:
            await asyncio.shield(place.before)
            if place.share.abandoned or self.is_fenced:
                raise ProducerSendError(
                    f"The transaction of {place.transactional_id} was abandoned"
                )
            # None if the consumer does not know the topic: it requests metadata of its own topics only.
            known = self.consumer.key_partition(topic, key, partition)
            sent = cast(
                "asyncio.Future[Any]",
                await self.producer.send(
                    topic,
                    key,
                    value,
                    partition if known is None else known,
                    timestamp,
                    headers,
                    transactional_id=place.transactional_id,
                ),
            )
            place.share.sent()
            sent.add_done_callback(partial(self._answered, place.share))
            return sent
        except Exception as exc:  # aiokafka's IllegalOperation is no KafkaError
            if self._note_fence(place.transactional_id, exc):
                raise ProducerSendError(f"{place.transactional_id} was fenced") from exc
            raise
        finally:
            place.leave()

    def send_soon(self, fut: FutureMessage) -> None:
        """Publish ``fut`` in the transaction of the current record."""
        place = self._take_place()
        if place is None:
            type(self.producer).send_soon(self.producer, fut)
            return
        task = asyncio.get_running_loop().create_task(self._publish(fut, place))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _publish(self, fut: FutureMessage, place: Place) -> None:
        _place.set(place)
        try:
            await fut.message.channel.publish_message(fut, wait=False)
        except Exception as exc:
            place.share.error = exc
            if not (place.share.abandoned or self.is_fenced):
                await self.crash(exc)
        finally:
            place.leave()

    def _answered(self, share: Share, sent: Any) -> None:
        """End the worker if the broker refuses a record, such as one that is too large for its topic.

        aiokafka commits a transaction without its refused records, unlike Kafka's own producer.
        """
        error = None if sent.cancelled() else sent.exception()
        share.answer(error)
        if error is None or share.abandoned or self.is_fenced or self.app.should_stop:
            return
        if not self._note_fence(share.transactional_id, error):
            task = asyncio.get_running_loop().create_task(self.crash(error))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    def _note_fence(self, transactional_id: str, error: BaseException) -> bool:
        """Whether Kafka fenced this producer; if so, give up all partitions and join again.

        Kafka fences the producer in two cases. A different worker has begun with the id while this worker
        stood still. Or the transaction was open for longer than its timeout. aiokafka raises ProducerFenced
        at one call only; other calls raise a different error.
        """
        producer = self.producer._transaction_producers.get(transactional_id)
        manager = producer and producer._txn_manager
        if not isinstance(error, ProducerFenced) and not (
            manager is not None
            and manager.is_fatal_error()
            and isinstance(manager._transaction_waiter.exception(), ProducerFenced)
        ):
            return False
        if not self.is_fenced:
            self.is_fenced = True
            logger.error(
                "The producer of %s was fenced: another worker has its partition now, or its "
                "transaction timed out. Streams stop, uncommitted records are processed again, "
                "and this worker joins the group again",
                transactional_id,
            )
            for share in self._shares.values():
                share.abandon()
            for one in list(self._held):
                self.release_held(one)
            self.consumer.lose_membership()
        return True

    def hold_new_records(self, transactional_id: str) -> None:
        """Hold back new records of the transaction until its share is closed."""
        self._held.setdefault(transactional_id, asyncio.Event())

    def holds_new_records(self, transactional_id: str) -> bool:
        """Whether new records of the transaction are held back."""
        return transactional_id in self._held

    def waits_for(self, events: Iterable[EventT[object]]) -> bool:
        """Whether a commit waits for at least one of ``events``."""
        return bool(self._held) and any(
            message.offset <= self.reached(transactional_id).get(message.tp, -1)
            for message in (event.message for event in events)
            if (transactional_id := self.id_of(message.tp)) in self._held
        )

    async def hold_value(self, value: object) -> object:
        """The first processor of a stream: apply ``wait_for_commit`` to its next record."""
        event = current_event()
        if self._held and event is not None and event.message:
            await self.wait_for_commit(event)
        return value

    async def wait_for_commit(self, event: EventT[object]) -> None:
        """Wait while a commit waits for the records before this record.

        If a partition's records are processed concurrently, there may never be a moment between two records.
        A record that the commit waits for passes: several agents read a topic, and an agent may lag behind.
        """
        message = event.message
        transactional_id = self.id_of(message.tp)
        while (
            transactional_id
            and transactional_id in self._held
            and message.offset > self.reached(transactional_id).get(message.tp, -1)
        ):
            await self._held[transactional_id].wait()

    def _look_again(self, transactional_id: str) -> None:
        if transactional_id in self._held:
            self._held[transactional_id].set()
            self._held[transactional_id] = asyncio.Event()

    def release_held(self, transactional_id: str) -> None:
        """Let the transaction's new records, which were held back, pass."""
        if (held := self._held.pop(transactional_id, None)) is not None:
            held.set()

    @contextmanager
    def within(self, tp: TP) -> Iterator[None]:
        """Send everything in the block within the closed transaction of ``tp``, if there is one."""
        transactional_id = self.id_of(tp)
        share = self._closed.get(transactional_id or "")
        if transactional_id is None or share is None:
            yield
            return
        token = _place.set(Place(transactional_id, share, share.tail, share.tail))
        try:
            yield
        finally:
            _place.reset(token)

    def reached(self, transactional_id: str) -> Mapping[TP, int]:
        """The last offset of each source partition that sent into the open transaction."""
        share = self._shares.get(transactional_id)
        return {} if share is None else share.reached

    def sources(self) -> dict[TP, int]:
        """The last offset of each source partition that sent into an open transaction."""
        return {tp: at for share in self._shares.values() for tp, at in share.reached.items()}

    def fail(self, tp: TP, error: BaseException) -> None:
        """Mark the open transaction of ``tp`` as failed: it lacks a send, so it is never committed."""
        self.fail_id(self.id_of(tp) or "", error)

    def fail_id(self, transactional_id: str, error: BaseException) -> None:
        """Mark the open transaction of an id as failed."""
        share = self._shares.get(transactional_id)
        if share is not None:
            share.error = error

    def has_failed(self, transactional_id: str) -> bool:
        """Whether the open transaction has failed and must never be committed."""
        share = self._shares.get(transactional_id)
        return share is not None and share.error is not None

    def close(self, transactional_id: str) -> None:
        """Close the current share; new sends join the next transaction and wait for its begin."""
        self._closed[transactional_id] = self._shares.get(transactional_id) or Share(
            transactional_id, begun=True
        )
        self._shares[transactional_id] = Share(transactional_id, begun=False)

    async def commit(self, offsets: Mapping[TP, int], start_new_transaction: bool = True) -> bool:
        """Commit the closed transactions, each after all of its sends; return whether all are committed.

        Stock commits in turn. Here all commit at the same time, and the sends of a partition wait for the
        commit of their own transaction alone: a commit is five requests, and a worker may have many ids.
        """
        closed = dict(self._closed)
        try:
            outcomes = await asyncio.gather(
                *(
                    self._commit_one(
                        transactional_id, closed.get(transactional_id), some, start_new_transaction
                    )
                    for transactional_id, some in self._by_id(offsets)
                ),
                return_exceptions=True,
            )
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome
            return all(outcomes)
        finally:
            self.begin_next()

    async def _commit_one(
        self,
        transactional_id: str,
        share: Share | None,
        offsets: Mapping[TP, int],
        start_new_transaction: bool,
    ) -> bool:
        """Commit one transaction, flush its table changes, and let the sends of the next one go."""
        if share is not None:
            await asyncio.shield(share.tail)
            await share.wait_for_answers(self._end_of(transactional_id))
            if share.error is not None and not self.is_fenced:
                # Kafka's transaction stays open without the failed send, so it must never be committed.
                self.fail_id(transactional_id, share.error)
                raise share.error
        if self.is_fenced or (share is not None and share.abandoned):
            return False  # the worker stops, or has lost the partitions in a rebalance
        try:
            await self.producer.commit_transactions(
                {transactional_id: offsets},
                self.app.conf.id,
                start_new_transaction=start_new_transaction,
            )
        except Exception as error:
            if self._note_fence(transactional_id, error):
                return False
            raise
        if share is not None and self._closed.get(transactional_id) is share:
            share.commit()
            del self._closed[transactional_id]
            self._shares[transactional_id].begin()
        return True

    def _end_of(self, transactional_id: str) -> asyncio.Future[object] | None:
        """aiokafka's future for the end of the open transaction; None if there is none."""
        producer = self.producer._transaction_producers.get(transactional_id)
        return None if producer is None else producer._txn_manager.wait_for_transaction_end()

    def _by_id(self, offsets: Mapping[TP, int]) -> list[tuple[str, dict[TP, int]]]:
        by_id: dict[str, dict[TP, int]] = {}
        for tp, offset in offsets.items():
            by_id.setdefault(self.id_of(tp) or "", {})[tp] = offset
        return sorted(by_id.items())

    def begin_next(self) -> None:
        """Release the sends that waited for a commit; Kafka's next transactions, if any, have begun."""
        for transactional_id in self._closed:
            self._shares[transactional_id].begin()
        self._closed.clear()

    async def abandon(self, *, fenced: bool) -> None:
        """Abort the transactions that the final commit left open; the next owners repeat their records.

        ``fenced``: other members may have owned these partitions meanwhile and fenced these producers.
        """
        for transactional_id in list(self._held):
            self.release_held(transactional_id)
        self.app._attachments._pending.clear()
        for transactional_id in {*self._shares, *self._closed}:
            self._drop(transactional_id)
        for transactional_id, producer in sorted(self.producer._transaction_producers.items()):
            if producer._txn_manager.is_in_transaction():
                await self.producer.abort_transaction(transactional_id)
            if fenced:
                await self.producer.stop_transaction(transactional_id)
            if producer._txn_manager.is_fatal_error():
                # Retrieve the exception, as no other code does: asyncio would log it as never retrieved.
                producer._txn_manager._transaction_waiter.exception()
