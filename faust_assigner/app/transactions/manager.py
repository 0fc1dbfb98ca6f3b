"""Transactions of whole records under ``exactly_once``: a record's sends are committed with its offset.

Stock Faust has three faults. It sends records outside of all transactions if the worker does not consume the
target topic. It leaves buffered table changes to the next transaction. It commits while a record is half
processed. docs/explanation/faust-at-a-rebalance.md explains how each fault repeats outputs or loses changes
at a SIGKILL. With this class each send joins the transaction of its record; ``whole_records.py`` commits
between two records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mode import get_logger

from faust_assigner.app.transactions.held import HeldRecords
from faust_assigner.app.transactions.ids import diff_ids, id_for, without
from faust_assigner.app.transactions.producers import TransactionalProducers
from faust_assigner.app.transactions.sends import RecordSends, message_at_hand, within
from faust_assigner.app.transactions.shares import Share

if TYPE_CHECKING:
    from faust.types.core import HeadersArg
    from faust.types.tuples import TP

    from faust_assigner.app.host.bases import TransactionsBase as TransactionManager
else:
    from faust.transport.consumer import TransactionManager

logger = get_logger(__name__)


class PartitionTransactions(TransactionManager):
    """The consumer's TransactionManager: a record's sends join the transaction that commits its offset.

    A share is the contents of one transaction. For each transactional id, ``_shares`` holds the share that
    takes new sends. During a commit, ``_closed`` holds the share that is being committed, and the share in
    ``_shares`` waits for the end of that commit.
    """

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        self._shares: dict[str, Share] = {}
        self._closed: dict[str, Share] = {}
        #: Active partition -> its transactional id. The mapping changes with the partitions, on the app's
        #: thread. The assignor learns a round's groups earlier, while the last round's records are processed.
        self._ids: dict[TP, str] = {}
        #: Whether a producer was fenced; then nothing is sent or committed until all partitions are revoked.
        self.is_fenced = False
        self._producers = TransactionalProducers(self)
        self._sends = RecordSends(self)
        self.held = HeldRecords(self.id_of, self.reached)
        if self.app.in_transaction:
            self.producer.send_soon = self._sends.send_soon  # type: ignore[method-assign]
            self._producers.separate()

    def id_of(self, tp: TP) -> str | None:
        """Return the transactional id that commits offsets of ``tp``; None if ``tp`` is not owned."""
        return self._ids.get(tp)

    def ids_for(self, tps: Iterable[TP]) -> dict[TP, str]:
        """Return the transactional ids of active partitions in the groups of the last round."""
        assignor, app_id = self.app.assignor, self.app.conf.id
        return {
            tp: id_for(app_id, assignor.group_for_topic(tp.topic), tp.partition)
            for tp in tps
            if not assignor.is_standby(tp)
        }

    async def on_rebalance(
        self, assigned: set[TP], revoked: set[TP], newly_assigned: set[TP]
    ) -> None:
        """Begin the transactions of an eager round; all earlier transactions have ended before this call."""
        before, self._ids = self._ids, self.ids_for(assigned)
        self.is_fenced = False
        await self.end(diff_ids(before, self._ids).ended)
        await self._producers.begin(set(self._ids.values()))

    async def revoke(self, revoked: Collection[TP]) -> None:
        """End the transactions of ``revoked``, whose records are processed and committed.

        The only open transactions are the empty ones that the final commit began. A late send fails, and the
        next owner processes its record again.
        """
        before, self._ids = self._ids, without(self._ids, revoked)
        await self.end(diff_ids(before, self._ids).ended)

    async def assign(self, assigned: Collection[TP]) -> None:
        """Begin the transactions of new partitions in ``assigned``; kept partitions keep theirs."""
        before, self._ids = self._ids, {**self.ids_for(assigned), **self._ids}
        await self._producers.begin(diff_ids(before, self._ids).begun)

    async def end(self, ids: Collection[str]) -> None:
        """Stop the producers of ``ids`` and abort their open transactions."""
        if ids:
            logger.info("Stopping %d transactional producers", len(ids))
        for one in sorted(ids):
            self.held.release(one)
            self._drop(one)
            await self._producers.end(one)

    def _drop(self, transactional_id: str) -> None:
        """Abandon the open transaction of this id, and the transaction whose commit is in progress."""
        for shares in (self._shares, self._closed):
            if (share := shares.pop(transactional_id, None)) is not None:
                share.abandon()

    def share_at_hand(self) -> Share | None:
        """Return the share for the current record's sends and table changes; None without a record.

        If this worker no longer owns the partition, or has given the record up, the share is abandoned; the
        next owner repeats the record.
        """
        message = message_at_hand(self.app)
        if message is None:
            return None
        transactional_id = self.id_of(message.tp)
        if transactional_id is None or message in self.consumer.kept_back.given_up:
            gone = Share("{}-{}, which was revoked,".format(*message.tp), begun=True)
            gone.abandon()
            return gone
        share = self._shares.get(transactional_id)
        if share is None:
            share = self._shares[transactional_id] = Share(transactional_id, begun=True)
        return share

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
        """Send within the transaction of the current record, to any topic, in the order of the calls.

        A message without a record, such as a timer's, belongs to no transaction. Faust sends it in the
        transaction of its target partition, which is committed only after a record of that partition.
        """
        place = self._sends.next_place()
        if place is None:
            known = self.consumer.key_partition(topic, key, partition)
            place_in_topic = partition if known is None else known
            return await self.producer.send(topic, key, value, place_in_topic, timestamp, headers)
        return await self._sends.send(place, topic, key, value, partition, timestamp, headers)

    def note_fence(self, transactional_id: str, error: BaseException) -> bool:
        """Return whether Kafka fenced the producer of this id; if so, revoke all partitions and rejoin."""
        if not self._producers.was_fenced(transactional_id, error):
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
            self.held.release_all()
            self.consumer.lose_membership()
        return True

    @contextmanager
    def within(self, tp: TP) -> Iterator[None]:
        """Let all sends in the block join the closed transaction of ``tp``, if there is one."""
        transactional_id = self.id_of(tp)
        share = self._closed.get(transactional_id or "")
        if transactional_id is None or share is None:
            yield
            return
        with within(transactional_id, share):
            yield

    def reached(self, transactional_id: str) -> Mapping[TP, int]:
        """Return the last offset of each source partition that sent into the open transaction."""
        share = self._shares.get(transactional_id)
        return {} if share is None else share.reached

    def sources(self) -> dict[TP, int]:
        """Return the last offset of each source partition that sent into an open transaction."""
        return {tp: at for share in self._shares.values() for tp, at in share.reached.items()}

    def fail(self, tp: TP, error: BaseException) -> None:
        """Mark the open transaction of ``tp`` as failed: a send is missing, so Kafka must not commit it."""
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
        """Close the current share; new sends join the next transaction and wait until it has begun."""
        self._closed[transactional_id] = self._shares.get(transactional_id) or Share(
            transactional_id, begun=True
        )
        self._shares[transactional_id] = Share(transactional_id, begun=False)

    def holds_sends(self) -> bool:
        """Whether sends of a closed id wait for the next transaction, which begins after the commit."""
        return any(
            (share := self._shares[transactional_id]).all_sent is not share.begun
            for transactional_id in self._closed
        )

    async def commit(self, offsets: Mapping[TP, int], start_new_transaction: bool = True) -> bool:
        """Commit the closed transactions, each after all of its sends; return whether all are committed.

        Stock Faust commits one transaction after the other. This method commits all at the same time: a
        commit is five requests, and a worker may have many ids. The sends of a partition wait for the commit
        of their own transaction alone.
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
        """Commit one transaction, flush its table changes, and release the sends of the next transaction."""
        if share is not None:
            await asyncio.shield(share.all_sent)
            await share.wait_for_answers(self._producers.end_of(transactional_id))
            if share.error is not None and not self.is_fenced:
                # Kafka's transaction stays open without the failed send: never commit the transaction.
                self.fail_id(transactional_id, share.error)
                raise share.error
        if self.is_fenced or (share is not None and share.abandoned):
            return False  # the worker was fenced, or the share was abandoned
        try:
            await self.producer.commit_transactions(
                {transactional_id: offsets},
                self.app.conf.id,
                start_new_transaction=start_new_transaction,
            )
        except Exception as error:
            if self.note_fence(transactional_id, error):
                return False
            raise
        if share is not None and self._closed.get(transactional_id) is share:
            share.commit()
            del self._closed[transactional_id]
            self._shares[transactional_id].begin()
        return True

    def _by_id(self, offsets: Mapping[TP, int]) -> list[tuple[str, dict[TP, int]]]:
        by_id: dict[str, dict[TP, int]] = {}
        for tp, offset in offsets.items():
            by_id.setdefault(self.id_of(tp) or "", {})[tp] = offset
        return sorted(by_id.items())

    def begin_next(self) -> None:
        """Release the sends that waited for a commit, because Kafka's next transactions have begun."""
        for transactional_id in self._closed:
            self._shares[transactional_id].begin()
        self._closed.clear()

    async def abandon(self, *, fenced: bool) -> None:
        """Abort the transactions that the final commit left open; the next owners repeat their records.

        ``fenced`` is true if other members may have owned the partitions meanwhile and fenced the producers.
        """
        self.held.release_all()
        self.app._attachments._pending.clear()
        for transactional_id in {*self._shares, *self._closed}:
            self._drop(transactional_id)
        await self._producers.abort_all(fenced=fenced)
