"""What becomes of a transaction's rows in tables when it ends: in which order, and when a store fails."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from faust_assigner.app.transactions.shares import Share


async def test_a_share_counts_before_its_rows_land() -> None:
    """A store asks the share whether its rows count."""
    share = Share("shop-1-0", begun=True)
    seen: list[tuple[int, bool]] = []
    store = SimpleNamespace(flush=lambda partition: seen.append((partition, share.committed)))
    share.changed = {(store_, p) for store_ in (Store(store),) for p in range(12)}
    share.commit()
    assert seen == [(partition, True) for partition in range(12)]


async def test_an_abandoned_share_takes_back_its_own_rows_alone() -> None:
    """Another transaction of the same partition goes on, or has landed."""
    dropped: list[tuple[int, Share]] = []
    share = Share("shop-1-0", begun=True)
    store = Store(SimpleNamespace(drop=lambda partition, of: dropped.append((partition, of))))
    share.changed = {(store, 3)}
    share.abandon()
    assert dropped == [(3, share)]


async def test_a_share_stays_abandoned_where_a_store_fails() -> None:
    """Its next send would be committed with the one after it; whoever waits for it goes on."""

    def drop(partition: int, share: Share) -> None:
        raise OSError("the disk is gone")

    share = Share("shop-1-0", begun=False)
    share.changed = {(Store(SimpleNamespace(drop=drop)), 0)}
    with pytest.raises(OSError, match="gone"):
        share.abandon()
    assert share.abandoned
    assert share.begun.done()


class Store:
    """A store by identity."""

    def __init__(self, acts: SimpleNamespace) -> None:
        self.__dict__.update(vars(acts))
