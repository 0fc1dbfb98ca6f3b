"""The producers of one worker under ``exactly_once``: one aiokafka producer for each transactional id."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, Any

from aiokafka.errors import BrokerResponseError, ProducerFenced
from mode import get_logger

from faust_assigner.app.retry import retry

if TYPE_CHECKING:
    from aiokafka import AIOKafkaProducer

    from faust_assigner.app.host.bases import TransactionsBase as TransactionManager

logger = get_logger(__name__)

#: Seconds for one attempt to begin a transaction. aiokafka asks for the producer's id without a deadline;
#: the next attempt looks for the coordinator again, on new connections.
BEGIN_S = 30.0


class TransactionsRefused(Exception):
    """The broker does not support transactions, or does not allow them for this worker."""


class _ById(dict[str, "AIOKafkaProducer"]):
    """The producers by their ids; a loop over ``values()`` allows changes meanwhile.

    Faust's ``flush()`` and ``on_stop()`` await each producer in such a loop. A round may begin or end
    producers at that time.
    """

    def values(self) -> Any:
        """Return the producers of this moment."""
        return list(super().values())


class TransactionalProducers:
    """Begins, ends and aborts the transactions of Faust's transaction manager (``transactions``).

    Faust's own producer keeps the producers by their ids.
    """

    def __init__(self, transactions: TransactionManager) -> None:
        self._transactions, self._producer = transactions, transactions.producer

    def separate(self) -> None:
        """Keep the producers of this app separate from the producers of other apps.

        The driver keeps producers in class attributes. With these, apps in one process would abort each
        other's transactions.
        """
        self._producer._transaction_producers, self._producer._trn_locks = _ById(), {}

    async def begin(self, ids: Collection[str]) -> None:
        """Begin a transaction with each of ``ids``. Raises TransactionsRefused if the broker refuses.

        Stock Faust logs the refusal as a warning, and its worker ends with a KeyError at the first commit.
        """
        if ids:
            logger.info("Starting %d transactional producers", len(ids))
        for one in sorted(ids):
            try:
                await retry(
                    self._transactions,
                    f"Begin of transaction {one}",
                    partial(self._begin_in_time, one),
                )
            except BrokerResponseError as error:
                raise TransactionsRefused(
                    f"The broker refuses transactions: {type(error).__name__} for the "
                    f"transactional id {one!r}, and processing_guarantee='exactly_once' needs "
                    "them. If the cluster has ACLs, allow Write and Describe on the "
                    f"transactional ids that begin with {self._transactions.app.conf.id!r}"
                ) from error

    async def _begin_in_time(self, transactional_id: str) -> None:
        """Begin the transaction. Raises TimeoutError after ``BEGIN_S`` seconds."""
        async with asyncio.timeout(BEGIN_S):
            await self._begin(transactional_id)

    async def _begin(self, transactional_id: str) -> None:
        producers, locks = self._producer._transaction_producers, self._producer._trn_locks
        producer = producers.get(transactional_id)
        if producer is not None and producer._txn_manager.is_fatal_error():
            await self._producer.stop_transaction(transactional_id)
            producer = None
        if producer is None:
            producer = self._producer._new_producer(transactional_id=transactional_id)
            try:
                await producer.start()
            except BaseException:
                await producer.client.close()
                raise
            producers[transactional_id], locks[transactional_id] = producer, asyncio.Lock()
        async with locks[transactional_id]:
            await producer.begin_transaction()

    async def end(self, transactional_id: str) -> None:
        """Stop the producer of this id and abort its open transaction."""
        producer = self._producer._transaction_producers.get(transactional_id)
        if producer is not None and producer._txn_manager.is_in_transaction():
            await self._producer.abort_transaction(transactional_id)
        await self._producer.stop_transaction(transactional_id)

    async def abort_all(self, *, fenced: bool) -> None:
        """Abort all open transactions; stop the producers too if other members may have ``fenced`` them."""
        for transactional_id, producer in sorted(self._producer._transaction_producers.items()):
            if producer._txn_manager.is_in_transaction():
                await self._producer.abort_transaction(transactional_id)
            if fenced:
                await self._producer.stop_transaction(transactional_id)
            if producer._txn_manager.is_fatal_error():
                # Retrieve the exception, as no other code does: asyncio would log it as never retrieved.
                producer._txn_manager._transaction_waiter.exception()

    def was_fenced(self, transactional_id: str, error: BaseException) -> bool:
        """Whether ``error`` of a call with this id means that Kafka fenced its producer.

        Kafka fences the producer in two cases. A different worker has begun with the id while this worker
        was paused. Or the transaction was open for longer than its timeout. aiokafka raises ProducerFenced
        at one call only; later calls raise a different error.
        """
        if isinstance(error, ProducerFenced):
            return True
        producer = self._producer._transaction_producers.get(transactional_id)
        manager = producer and producer._txn_manager
        return (
            manager is not None
            and manager.is_fatal_error()
            and isinstance(manager._transaction_waiter.exception(), ProducerFenced)
        )

    def end_of(self, transactional_id: str) -> asyncio.Future[object] | None:
        """Return aiokafka's future for the end of the open transaction; None if there is none."""
        producer = self._producer._transaction_producers.get(transactional_id)
        return None if producer is None else producer._txn_manager.wait_for_transaction_end()
