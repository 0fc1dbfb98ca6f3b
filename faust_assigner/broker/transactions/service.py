"""All transactional ids of this broker: store each decision, then apply it; abort transactions on timeout.

The state machine is pure (:mod:`faust_assigner.coordinator.transactions`). A decision, the markers in all
partitions and the offsets of all groups are one write of the store. So after a kill a transaction is either
completely committed, completely aborted or still open. Only the broker's event loop calls this module.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from faust_assigner.broker.groups.books import GroupBooks
from faust_assigner.broker.limits import MAX_TRANSACTIONAL_IDS
from faust_assigner.broker.storage.log import PartitionLog
from faust_assigner.broker.storage.store import WITH_TRANSACTIONS, Store, StoreFailed, raise_format
from faust_assigner.broker.topics import Catalogue, Topic
from faust_assigner.broker.transactions.transaction_store import (
    dump_transaction,
    load_transactions,
    transaction_key,
)
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.transactions import (
    Decision,
    Marker,
    State,
    Transaction,
    TransactionLimits,
    step,
)
from faust_assigner.coordinator.transactions.events import Event, TransactionTimedOut

logger = logging.getLogger(__name__)
#: (transactional id, time in ms): schedules TransactionService.tick for that time
SetTimer = Callable[[str, int], None]
RETRY_MS: Final = 1_000  # time until the retry of an abort that could not be stored


class TransactionService:
    """All transactional ids, restored from the store and written to it."""

    def __init__(
        self,
        store: Store,
        catalogue: Catalogue,
        books: GroupBooks,
        limits: TransactionLimits,
        clock: Callable[[], int],
        *,
        timer: Callable[[], int],
        set_timer: SetTimer,
        counters: Counter[str],
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._books = books
        self._limits = limits
        self._clock = clock
        self._timer = timer
        self._set_timer = set_timer
        self._counters = counters
        self._unflushed: dict[str, tuple[tuple[Topic, PartitionLog], ...]] = {}
        self._known: dict[str, Transaction] = {}  # the longest idle id first
        for transaction in sorted(load_transactions(store), key=lambda t: t.updated_ms):
            self._known[transaction.transactional_id] = transaction
            self._set_alarm(transaction)

    def __iter__(self) -> Iterator[Transaction]:
        return iter(self._known.values())

    def get(self, transactional_id: str) -> Transaction | None:
        """Return the state of a transactional id, or None."""
        return self._known.get(transactional_id)

    def ask(self, transactional_id: str, event: Event) -> Code:
        """Apply an event to the state of a transactional id, store the change, and return the error code.

        COORDINATOR_NOT_AVAILABLE: the write failed or there are too many ids. The state is unchanged, and
        the client may retry.
        """
        known = self._known.get(transactional_id)
        decision = step(transactional_id, known, event, self._clock(), self._limits)
        if decision.transaction is None:
            return decision.error
        if known is None and self._is_full() and not self._forget_longest_idle():
            return Code.COORDINATOR_NOT_AVAILABLE
        try:
            self._carry_out(decision, decision.transaction)
        except StoreFailed as failed:
            logger.error("Could not store the transaction of %r: %s", transactional_id, failed)
            return Code.COORDINATOR_NOT_AVAILABLE
        return decision.error

    def unflushed_partitions(self, transactional_id: str) -> tuple[tuple[Topic, PartitionLog], ...]:
        """Return the partitions with an end marker of the last transaction; empty after :meth:`flushed`."""
        return self._unflushed.get(transactional_id, ())

    def flushed(self, transactional_id: str) -> None:
        """Record that the end of the last transaction is flushed as its topics require."""
        self._unflushed.pop(transactional_id, None)

    def _carry_out(self, decision: Decision, transaction: Transaction) -> None:
        puts = [(transaction_key(transaction.transactional_id), dump_transaction(transaction))]
        if transaction.transactional_id not in self._known:
            puts += raise_format(self._store, WITH_TRANSACTIONS)
        deletes: list[bytes] = []
        then: list[Callable[[], None]] = []
        ended: tuple[tuple[Topic, PartitionLog], ...] = ()
        if decision.marker is not None:
            ended = self._plan_end(decision.marker, puts, deletes, then)
        self._store.write(puts, deletes)
        self._known.pop(transaction.transactional_id, None)
        self._known[transaction.transactional_id] = transaction
        for stored in then:
            stored()
        if decision.marker is not None:
            self._counters[
                f"transactions_{'committed' if decision.marker.commits else 'aborted'}"
            ] += 1
            self._unflushed[transaction.transactional_id] = ended
        self._set_alarm(transaction)

    def _plan_end(
        self,
        marker: Marker,
        puts: list[tuple[bytes, bytes]],
        deletes: list[bytes],
        then: list[Callable[[], None]],
    ) -> tuple[tuple[Topic, PartitionLog], ...]:
        """Add the writes that end a transaction; return the ended partitions, without deleted topics."""
        now = self._clock()
        found = [self._catalogue.at(*place) for place in sorted(marker.partitions)]
        ended = tuple(pair for pair in found if pair is not None)
        for _, log in ended:
            ending = log.end_transaction(
                marker.producer_id, marker.epoch, now, commits=marker.commits
            )
            puts += ending.puts
            deletes += ending.deletes
            then.append(ending.stored)
        for group_id in sorted(marker.groups):
            more, gone, stored = self._books.end_transaction(
                group_id, marker.producer_id, commits=marker.commits
            )
            puts += more
            deletes += gone
            then.append(stored)
        return ended

    # -- time ------------------------------------------------------------------------------------

    def _set_alarm(self, transaction: Transaction) -> None:
        due = transaction.aborts_at_ms
        if due is not None:
            self._set_timer(
                transaction.transactional_id, self._timer() + max(due - self._clock(), 0)
            )

    def tick(self, transactional_id: str) -> None:
        """Abort the transaction if it exceeds its timeout."""
        known = self._known.get(transactional_id)
        if known is None or known.aborts_at_ms is None:
            return
        if self.ask(transactional_id, TransactionTimedOut()) is not Code.NONE:
            self._set_timer(transactional_id, self._timer() + RETRY_MS)
            return
        after = self._known[transactional_id]
        if after.state is State.ONGOING:
            self._set_alarm(after)
            return
        self._counters["transactions_timed_out"] += 1
        logger.info(
            "aborted the transaction of %r: it was open for longer than %d ms; its producer is fenced",
            transactional_id,
            known.timeout_ms,
        )

    def expire(self, retention_ms: int) -> Iterator[int]:
        """Forget ids unused for ``retention_ms``; yield 1 for each forgotten id, 0 for each kept id."""
        idle_since = self._clock() - retention_ms
        for transactional_id in list(self._known):
            # Between two yields the caller serves requests, which may change or delete this id.
            found = self._known.get(transactional_id)
            if found is None or found.state is State.ONGOING or found.updated_ms > idle_since:
                yield 0
            else:
                self._forget(transactional_id)
                yield 1

    def _forget(self, transactional_id: str) -> None:
        self._store.write((), [transaction_key(transactional_id)])
        del self._known[transactional_id]
        self.flushed(transactional_id)
        self._counters["transactional_ids_forgotten"] += 1

    def _is_full(self) -> bool:
        return len(self._known) >= MAX_TRANSACTIONAL_IDS

    def _forget_longest_idle(self) -> bool:
        """Forget the id that is idle for the longest time; return whether an id was forgotten.

        An id with an open transaction is never forgotten.
        """
        idle = (t.transactional_id for t in self if t.state is not State.ONGOING)
        oldest = next(idle, None)
        if oldest is None:
            return False
        try:
            self._forget(oldest)
        except StoreFailed:
            return False
        return True
