"""Sends records under ``exactly_once``: each send joins its record's transaction, in the order of calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from faust.exceptions import ProducerSendError
from faust.streams import current_event

from faust_assigner.app.transactions.refusals import RefusedSends
from faust_assigner.app.transactions.shares import Place, Share

if TYPE_CHECKING:
    from faust.types.app import AppT
    from faust.types.core import HeadersArg
    from faust.types.tuples import FutureMessage, Message

    from faust_assigner.app.transactions.manager import PartitionTransactions

#: The place (turn in the order of sends) of the running task's sends, if the task has a fixed place.
_place: ContextVar[Place | None] = ContextVar("place", default=None)


@contextmanager
def within(transactional_id: str, share: Share) -> Iterator[None]:
    """Let all sends in the block join ``share``, which is closed."""
    token = _place.set(Place(transactional_id, share, share.all_sent, share.all_sent))
    try:
        yield
    finally:
        _place.reset(token)


def message_at_hand(app: AppT) -> Message | None:
    """Return the message of the current record; None if there is no current record of this app.

    Also None for a record of a topic without acknowledgements (``acks=False``): no offset of it is
    ever committed, and a transaction is committed only with an offset.
    """
    event = current_event()
    # In this process, an agent of a different app may send to a topic of this app.
    if event is None or event.app is not app or not event.message:
        return None
    message: Message = event.message
    if not app.topics.acks_enabled_for(message.tp.topic):
        return None
    try:
        app.assignor.group_for_topic(message.tp.topic)
    except KeyError:  # the record came from a channel
        return None
    return message


class RecordSends:
    """Sends the records of one worker.

    ``_running`` references the tasks of running sends, so that no task is garbage-collected before its end.
    """

    def __init__(self, transactions: PartitionTransactions) -> None:
        self._transactions = transactions
        self._running: set[asyncio.Task[None]] = set()
        self._refused = RefusedSends()

    def next_place(self) -> Place | None:
        """Return the place of the next send (:class:`Place`); None if there is no current record."""
        return _place.get() or self._take_place()

    def _take_place(self) -> Place | None:
        """Return the next place in the current record's transaction; None if there is no current record."""
        share = self._transactions.share_at_hand()
        if share is None:
            return None
        message = current_event().message
        share.reached[message.tp] = max(message.offset, share.reached.get(message.tp, -1))
        self._transactions.held.recheck_waiting()
        before, share.all_sent = share.all_sent, asyncio.get_running_loop().create_future()
        return Place(share.transactional_id, share, before, share.all_sent)

    async def send(
        self,
        place: Place,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        timestamp: float | None,
        headers: HeadersArg | None,
    ) -> Awaitable[object]:
        """Send at ``place``, to any topic; return the future of the broker's answer.

        If the transaction was abandoned, the future has a ProducerSendError, as if the broker had refused the
        message. See :meth:`_refuse`.
        """
        transactions = self._transactions
        try:
            await asyncio.shield(place.before)
            if place.share.abandoned or transactions.is_fenced:
                return self._refuse(f"The transaction of {place.transactional_id} was abandoned")
            # ``known`` is None for other topics: the consumer requests metadata of its own topics only.
            known = transactions.consumer.key_partition(topic, key, partition)
            sent = cast(
                "asyncio.Future[Any]",
                await transactions.producer.send(
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
            sent.add_done_callback(partial(self._broker_answered, place.share))
            return sent
        except Exception as exc:
            # not only KafkaError: aiokafka's IllegalOperation does not derive from it
            if transactions.note_fence(place.transactional_id, exc):
                return self._refuse(f"{place.transactional_id} was fenced", exc)
            raise
        finally:
            place.leave()

    def send_soon(self, fut: FutureMessage) -> None:
        """Publish ``fut`` in the transaction of the current record."""
        place = self._take_place()
        if place is None:
            producer = self._transactions.producer
            type(producer).send_soon(producer, fut)
            return
        task = asyncio.get_running_loop().create_task(self._publish(fut, place))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _publish(self, fut: FutureMessage, place: Place) -> None:
        transactions = self._transactions
        _place.set(place)
        try:
            await fut.message.channel.publish_message(fut, wait=False)
        except Exception as exc:
            place.share.error = exc
            if not (place.share.abandoned or transactions.is_fenced):
                await transactions.crash(exc)
        finally:
            place.leave()

    def _broker_answered(self, share: Share, sent: Any) -> None:
        """End the worker if the broker refuses a record, such as one that is too large for its topic.

        aiokafka commits a transaction without its refused records, unlike Kafka's own producer.
        """
        transactions = self._transactions
        error = None if sent.cancelled() else sent.exception()
        share.answer(error)
        if error is None:
            return
        if share.abandoned or transactions.is_fenced:
            self._refused.add(error)
        elif transactions.app.should_stop:
            return
        elif transactions.note_fence(share.transactional_id, error):
            self._refused.add(error)
        else:
            task = asyncio.get_running_loop().create_task(transactions.crash(error))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    def _refuse(self, reason: str, cause: Exception | None = None) -> asyncio.Future[object]:
        """Return a future with the error of a send whose record is processed again.

        An exception would end the agent's run. For ``group_by`` and ``through`` it would end Faust's task
        that reads the source, and no code restarts this task while the agent runs. Only a send of a commit or
        of a window's callback raises, because these must know the failure.
        """
        error = ProducerSendError(reason)
        error.__cause__ = cause
        if _place.get() is not None or getattr(current_event(), "raises_refusals", False):
            raise error
        refused: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        refused.set_exception(error)
        self._refused.add(error)
        return refused
