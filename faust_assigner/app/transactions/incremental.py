"""Under ``exactly_once`` only what is let go ends, and only what is gained begins."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from faust_assigner.app.transactions.ids import change, without

if TYPE_CHECKING:
    from faust_assigner.app.transactions.manager import OwnTransactions as TransactionManager
else:
    TransactionManager = object


class LetsGo(TransactionManager):
    """Of the consumer's transactions, over the repaired ones."""

    async def part_with(self, revoked: Collection[Any]) -> None:
        """End the transactions of ``revoked``, whose records are done and committed.

        What is open in them by now is the empty one that the commit began. A send that comes late fails, and
        its record is repeated by the next owner.
        """
        before, self._ids = self._ids, without(self._ids, revoked)
        await self.end(change(before, self._ids).ended)

    async def take_on(self, assigned: Collection[Any]) -> None:
        """Begin the transactions of what is new in ``assigned``; those of kept partitions go on."""
        before, self._ids = self._ids, {**self.ids_for(assigned), **self._ids}
        await self.begin(change(before, self._ids).begun)
