"""Which transactions end and begin in a cooperative round."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest
from faust.types import TP

from faust_assigner.app.transactions.manager import PartitionTransactions

A, B, LOG = TP("orders", 0), TP("orders", 1), TP("payments", 0)


class Transactions(PartitionTransactions):
    """Note ended and begun transactions instead of calls to a broker."""

    def __init__(self) -> None:
        self._ids = {A: "shop-1-0", LOG: "shop-1-0", B: "shop-1-1"}
        self.group = 1
        self.acts: list[Any] = []
        self._producers: Any = self

    def ids_for(self, tps: Iterable[Any]) -> dict[Any, str]:
        """Return ids in the groups of the last round."""
        return {tp: f"shop-{self.group}-{tp.partition}" for tp in tps}

    async def end(self, ids: Collection[str]) -> None:
        """Note the end; the partitions no longer belong to this worker."""
        self.acts.append(("end", set(ids), set(self._ids)))

    async def begin(self, ids: Collection[str]) -> None:
        """Note the begin."""
        self.acts.append(("begin", set(ids), set(self._ids)))


@pytest.fixture
def made() -> Transactions:
    """Transactions of three partitions with two ids."""
    return Transactions()


async def test_what_is_let_go_ends_with_all_of_its_transaction(made: Transactions) -> None:
    """Late sends of these partitions find no transaction."""
    await made.revoke({A, LOG})
    assert made.acts == [("end", {"shop-1-0"}, {B})]


async def test_what_is_kept_keeps_its_id_though_its_group_has_another(made: Transactions) -> None:
    """Its transaction stays open; only a new partition begins a transaction."""
    made.group = 2
    await made.revoke({A, LOG})
    await made.assign({A, B})
    assert made.acts[1] == ("begin", {"shop-2-0"}, {A, B})
    assert made._ids == {A: "shop-2-0", B: "shop-1-1"}


async def test_nothing_begins_that_is_open(made: Transactions) -> None:
    """Kafka would end the open transaction."""
    await made.assign({A, B, LOG})
    assert made.acts == [("begin", set(), {A, B, LOG})]
