"""Under ``exactly_once`` a transaction holds whole records: all they sent, and the offset after them.

Stock sends outside of every transaction what goes to a topic the worker does not consume, leaves table
changes that wait in a buffer to the next transaction, and commits while a record is half processed;
docs/explanation/faust-at-a-rebalance.md tells how each repeats outputs or loses changes at a SIGKILL.
Here a record's sends find their transaction; ``whole_records.py`` commits between two records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any

from aiokafka.errors import BrokerResponseError, ProducerFenced
from faust.exceptions import ProducerSendError
from faust.streams import current_event
from mode import get_logger

from faust_assigner.app.retry import retry
from faust_assigner.app.transactions.ids import change, id_for, without
from faust_assigner.app.transactions.shares import Place, Share

if TYPE_CHECKING:
    from faust_assigner.app.host.bases import TransactionsBase as TransactionManager
else:
    TransactionManager = object

logger = get_logger(__name__)

#: Where the task that runs sends to.
_place: ContextVar[Place | None] = ContextVar("place", default=None)


class TransactionsRefused(Exception):
    """The broker has no transactions, or none for this worker."""


class OwnTransactions(TransactionManager):
    """Of the consumer's transactions: a record's sends go where its offset is committed.

    By transactional id, ``_shares`` has the one share that takes sends; ``_closed``, empty but during a
    commit, the one that is being committed: then the one in ``_shares`` waits for it. ``_sending`` holds the
    tasks of sends under way, so that none is collected before it is done.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._shares: dict[str, Share] = {}
        self._closed: dict[str, Share] = {}
        #: Of a transaction that waits for its records under way: set when some of those held back may go on.
        self._settling: dict[str, asyncio.Event] = {}
        self._sending: set[asyncio.Task[None]] = set()
        #: Active partition -> its transactional id. It changes with the partitions, on the app's thread: the
        #: assignor learns the groups of a round earlier, while records of the last round are under way.
        self._ids: dict[Any, str] = {}
        #: A producer was fenced: nothing is sent or committed until everything has been given up.
        self.is_fenced = False
        if self.app.in_transaction:
            self.producer.send_soon = self.send_soon
            # The driver's are its class's: apps of one process would abort each other's transactions.
            self.producer._transaction_producers, self.producer._trn_locks = {}, {}

    def id_of(self, tp: Any) -> str | None:
        """The transactional id that commits offsets of ``tp``; None where this worker does not own it."""
        return self._ids.get(tp)

    def ids_for(self, tps: Iterable[Any]) -> dict[Any, str]:
        """The transactional ids of active partitions in the groups of the last round."""
        assignor, app_id = self.app.assignor, self.app.conf.id
        return {
            tp: id_for(app_id, assignor.group_for_topic(tp.topic), tp.partition)
            for tp in tps
            if not assignor.is_standby(tp)
        }

    async def on_rebalance(
        self, assigned: set[Any], revoked: set[Any], newly_assigned: set[Any]
    ) -> None:
        """Take over the partitions of an eager round, before which every transaction was ended."""
        before, self._ids = self._ids, self.ids_for(assigned)
        self.is_fenced = False
        await self.end(change(before, self._ids).ended)
        await self.begin(set(self._ids.values()))

    async def revoke(self, revoked: Collection[Any]) -> None:
        """End the transactions of ``revoked``, whose records are done and committed.

        What is open in them by now is the empty one that the commit began. A send that comes late fails, and
        its record is repeated by the next owner.
        """
        before, self._ids = self._ids, without(self._ids, revoked)
        await self.end(change(before, self._ids).ended)

    async def assign(self, assigned: Collection[Any]) -> None:
        """Begin the transactions of what is new in ``assigned``; those of kept partitions go on."""
        before, self._ids = self._ids, {**self.ids_for(assigned), **self._ids}
        await self.begin(change(before, self._ids).begun)

    async def end(self, ids: Collection[str]) -> None:
        """Stop the producers of ``ids``; a transaction that is open is aborted."""
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
        """Nothing of its open transaction counts, nor of one whose commit is still under way."""
        for shares in (self._shares, self._closed):
            if (share := shares.pop(transactional_id, None)) is not None:
                share.abandon()

    async def begin(self, ids: Collection[str]) -> None:
        """Begin a transaction under each of ``ids``. Raises TransactionsRefused where the broker has none.

        Stock logs the refusal as a warning, and the worker ends at its first commit with KeyError.
        """
        if ids:
            logger.info("Starting %d transactional producers", len(ids))
        for one in sorted(ids):
            try:
                await retry(self, f"Begin of transaction {one}", partial(self._begin, one))
            except BrokerResponseError as error:
                raise TransactionsRefused(
                    f"The broker refuses transactions: {type(error).__name__} for the transactional id "
                    f"{one!r}. processing_guarantee='exactly_once' needs them. The embedded broker has "
                    "none: use Apache Kafka, or 'at_least_once'. If Kafka has ACLs, allow Write and "
                    f"Describe on the transactional ids that begin with {self.app.conf.id!r}"
                ) from error

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

    def _partition_at_hand(self) -> Any:
        """The partition of the record that is processed now; None where there is no such record."""
        event = current_event()
        # An agent of another app in this process may send to a topic of this one.
        if event is None or event.app is not self.app or not event.message:
            return None
        tp = event.message.tp
        try:
            self.app.assignor.group_for_topic(tp.topic)
        except KeyError:  # a channel's
            return None
        return tp

    def share_at_hand(self) -> Share | None:
        """What the record that is processed now sends and changes belongs to; None where to nothing.

        A record whose partition has gone gets a share that is abandoned: its next owner repeats it.
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
        """The next turn in the transaction of the record that is processed now, if one is."""
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
        headers: Any,
        *,
        transactional_id: str | None = None,
    ) -> Awaitable[Any]:
        """Send within the transaction of the record that is processed, whatever the topic; in order."""
        place = _place.get() or self._take_place()
        sent: Awaitable[Any]
        if place is None:
            sent = await super().send(topic, key, value, partition, timestamp, headers)
            return sent
        try:
            await asyncio.shield(place.before)
            if place.share.abandoned or self.is_fenced:
                raise ProducerSendError(
                    f"The transaction of {place.transactional_id} was abandoned"
                )
            # None where the consumer, which asks for no metadata of it, does not know the topic.
            known = self.consumer.key_partition(topic, key, partition)
            sent = await self.producer.send(
                topic,
                key,
                value,
                partition if known is None else known,
                timestamp,
                headers,
                transactional_id=place.transactional_id,
            )
            return sent
        except Exception as exc:  # aiokafka's IllegalOperation is no KafkaError
            if self._note_fence(place.transactional_id, exc):
                raise ProducerSendError(f"{place.transactional_id} was fenced") from exc
            raise
        finally:
            place.leave()

    def send_soon(self, fut: Any) -> None:
        """Publish ``fut`` in the transaction of the record that is processed now."""
        place = self._take_place()
        if place is None:
            type(self.producer).send_soon(self.producer, fut)
            return
        task = asyncio.get_running_loop().create_task(self._publish(fut, place))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _publish(self, fut: Any, place: Place) -> None:
        _place.set(place)
        try:
            await fut.message.channel.publish_message(fut, wait=False)
        except Exception as exc:
            place.share.error = exc
            if not (place.share.abandoned or self.is_fenced):
                await self.crash(exc)
        finally:
            place.leave()

    def _note_fence(self, transactional_id: str, error: BaseException) -> bool:
        """Whether Kafka ended this producer; then all partitions are given up, and the worker joins again.

        That is so after a freeze of this worker, when another one has begun with the id, and after a
        transaction that was open for longer than its timeout. aiokafka names the reason at one call only.
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
                "The producer of %s was fenced: another worker has its partition by now, or its "
                "transaction timed out. Streams stop, what is not committed is dropped and processed "
                "again, and this worker joins the group again",
                transactional_id,
            )
            for share in self._shares.values():
                share.abandon()
            for one in list(self._settling):
                self.release_held(one)
            self.consumer.lose_membership()
        return True

    def settle(self, transactional_id: str) -> None:
        """Hold new records of the transaction back until it is closed."""
        self._settling.setdefault(transactional_id, asyncio.Event())

    def is_settling(self, transactional_id: str) -> bool:
        """Whether new records of the transaction are held back."""
        return transactional_id in self._settling

    def waits_for(self, events: Iterable[Any]) -> bool:
        """Whether a commit can only come after one of ``events``."""
        return bool(self._settling) and any(
            message.offset <= self.reached(transactional_id).get(message.tp, -1)
            for message in (event.message for event in events)
            if (transactional_id := self.id_of(message.tp)) in self._settling
        )

    async def hold_value(self, value: Any) -> Any:
        """A stream's first processor: ``hold_back`` for the record that comes next."""
        event = current_event()
        if self._settling and event is not None and event.message:
            await self.hold_back(event)
        return value

    async def hold_back(self, event: Any) -> None:
        """Wait while a commit waits for the records before this one.

        With several records of a partition under way at a time there may never be a moment between two
        of them. One that a commit has to wait for goes on: an agent may be behind another of the same topic.
        """
        message = event.message
        transactional_id = self.id_of(message.tp)
        while (
            transactional_id
            and transactional_id in self._settling
            and message.offset > self.reached(transactional_id).get(message.tp, -1)
        ):
            await self._settling[transactional_id].wait()

    def _look_again(self, transactional_id: str) -> None:
        if transactional_id in self._settling:
            self._settling[transactional_id].set()
            self._settling[transactional_id] = asyncio.Event()

    def release_held(self, transactional_id: str) -> None:
        """New records of the transaction may pass."""
        if (held := self._settling.pop(transactional_id, None)) is not None:
            held.set()

    @contextmanager
    def within(self, tp: Any) -> Iterator[None]:
        """What is sent in the block belongs to the closed transaction of ``tp``."""
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

    def reached(self, transactional_id: str) -> Mapping[Any, int]:
        """The last offset of each source partition that sent into the open transaction."""
        share = self._shares.get(transactional_id)
        return {} if share is None else share.reached

    def sources(self) -> dict[Any, int]:
        """The last offset of each source partition that sent into an open transaction."""
        return {tp: at for share in self._shares.values() for tp, at in share.reached.items()}

    def fail(self, tp: Any, error: BaseException) -> None:
        """Never commit what the open transaction of ``tp`` holds: what belongs to it will not be sent."""
        share = self._shares.get(self.id_of(tp) or "")
        if share is not None:
            share.error = error

    def has_failed(self, transactional_id: str) -> bool:
        """Whether the open transaction is never to be committed."""
        share = self._shares.get(transactional_id)
        return share is not None and share.error is not None

    def close(self, transactional_id: str) -> None:
        """What is sent from now on belongs to the next transaction and waits for it."""
        self._closed[transactional_id] = self._shares.get(transactional_id) or Share(
            transactional_id, begun=True
        )
        self._shares[transactional_id] = Share(transactional_id, begun=False)

    async def commit(self, offsets: Mapping[Any, int], start_new_transaction: bool = True) -> bool:
        """Commit the closed transactions, all of their sends included."""
        closed = dict(self._closed)
        try:
            for share in closed.values():
                await share.tail
                if self.is_fenced:
                    return False
                if share.error is not None:
                    raise share.error
            # One after the other, as stock does; each is on disk as soon as it is committed.
            for transactional_id, some in self._by_id(offsets):
                if transactional_id in closed and closed[transactional_id].abandoned:
                    return False  # the worker stops, or gave it up in a rebalance
                try:
                    await self.producer.commit_transactions(
                        {transactional_id: some},
                        self.app.conf.id,
                        start_new_transaction=start_new_transaction,
                    )
                except Exception as error:
                    if self._note_fence(transactional_id, error):
                        return False
                    raise
                if transactional_id in self._closed:
                    self._closed[transactional_id].commit()
            return True
        finally:
            self.begin_next()

    def _by_id(self, offsets: Mapping[Any, int]) -> list[tuple[str, dict[Any, int]]]:
        by_id: dict[str, dict[Any, int]] = {}
        for tp, offset in offsets.items():
            by_id.setdefault(self.id_of(tp) or "", {})[tp] = offset
        return sorted(by_id.items())

    def begin_next(self) -> None:
        """Let pass what waited for a commit; Kafka's next transactions have begun, if there are any."""
        for transactional_id in self._closed:
            self._shares[transactional_id].begin()
        self._closed.clear()

    async def abandon(self, *, fenced: bool) -> None:
        """Abort what the final commit left open: its records are processed again, here or elsewhere.

        ``fenced``: others may have owned these partitions meanwhile, and have ended these producers by that.
        """
        for transactional_id in list(self._settling):
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
                producer._txn_manager._transaction_waiter.exception()  # nothing else asks for it
