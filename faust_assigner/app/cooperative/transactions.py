"""Under ``exactly_once`` only what is let go ends, and only what is gained begins."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from faust_assigner.app.repairs.transactions import OwnTransactions as TransactionManager
else:
    TransactionManager = object


class LetsGo(TransactionManager):
    """Of the consumer's transactions, over the repaired ones."""

    async def part_with(self, revoked: Collection[Any]) -> None:
        """End the transactions of ``revoked``, whose records are done and committed.

        What is open in them by now is the empty one that the commit began. A send that comes late fails, and
        its record is repeated by the next owner.
        """
        ids = {found for tp in revoked if (found := self.id_of(tp)) is not None}
        for transactional_id in sorted(ids):
            self.let_go(transactional_id)
            share = self._shares.pop(transactional_id, None)
            if share is not None:
                share.abandon()
            producer = self.producer._transaction_producers.get(transactional_id)
            if producer is not None and producer._txn_manager.is_in_transaction():
                await self.producer.abort_transaction(transactional_id)
            await self.producer.stop_transaction(transactional_id)
