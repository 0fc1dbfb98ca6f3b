"""A transaction's rows in tables at its end: their order, and a failing store."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from faust_assigner.app.transactions.shares import Place, Share
from tests.support.waiting import PATIENCE_S


async def test_a_share_counts_before_its_rows_land() -> None:
    """A store checks the share's state while its rows land."""
    share = Share("shop-1-0", begun=True)
    seen: list[tuple[int, bool]] = []
    store = SimpleNamespace(flush=lambda partition: seen.append((partition, share.committed)))
    share.changed = {(store_, p) for store_ in (Store(store),) for p in range(12)}
    share.commit()
    assert seen == [(partition, True) for partition in range(12)]


async def test_an_abandoned_share_takes_back_its_own_rows_alone() -> None:
    """A different transaction of the partition may be open or committed."""
    dropped: list[tuple[int, Share]] = []
    share = Share("shop-1-0", begun=True)
    store = Store(SimpleNamespace(drop=lambda partition, of: dropped.append((partition, of))))
    share.changed = {(store, 3)}
    share.abandon()
    assert dropped == [(3, share)]


async def test_a_share_stays_abandoned_where_a_store_fails() -> None:
    """Else its next send would be committed; waiting sends continue."""

    def drop(partition: int, share: Share) -> None:
        raise OSError("the disk is gone")

    share = Share("shop-1-0", begun=False)
    share.changed = {(Store(SimpleNamespace(drop=drop)), 0)}
    with pytest.raises(OSError, match="gone"):
        share.abandon()
    assert share.abandoned
    assert share.begun.done()


async def test_the_rows_of_all_stores_land_or_are_taken_back() -> None:
    """Two tables may have the same partition, so the order needs only the partition."""
    acts: list[tuple[str, int]] = []

    def store(name: str) -> Store:
        return Store(
            SimpleNamespace(
                flush=lambda partition: acts.append((f"flush {name}", partition)),
                drop=lambda partition, of: acts.append((f"drop {name}", partition)),
            )
        )

    changed = {(store("a"), 3), (store("b"), 3), (store("c"), 1)}
    for end in ("commit", "abandon"):
        share = Share("shop-1-0", begun=True)
        share.changed = set(changed)
        getattr(share, end)()
    assert acts[0] == ("flush c", 1), "by partition"
    assert sorted(acts) == [
        ("drop a", 3),
        ("drop b", 3),
        ("drop c", 1),
        ("flush a", 3),
        ("flush b", 3),
        ("flush c", 1),
    ]


class Store:
    """A store, compared by identity."""

    def __init__(self, acts: SimpleNamespace) -> None:
        self.flushing = acts


async def test_a_share_waits_for_the_last_answer_and_keeps_the_first_error() -> None:
    """The number of sent records does not matter; later answers do not change the error."""
    share = Share("shop-1-0", begun=True)
    for _ in range(3):
        share.sent()
    first, second = ValueError("first"), ValueError("second")
    share.answer(first)
    waiting = asyncio.ensure_future(share.wait_for_answers(None))
    await asyncio.sleep(0)
    share.answer(second)
    await asyncio.sleep(0.01)
    assert not waiting.done()
    share.answer(None)
    await asyncio.wait_for(waiting, PATIENCE_S)
    assert (share.unanswered, share.error) == (0, first)
    share.sent()
    share.answer(None)
    assert (share.unanswered, share.error) == (0, first)


@pytest.mark.parametrize("has_failed", [True, False])
async def test_a_share_without_an_answer_waits_no_longer_than_its_transaction(
    has_failed: bool,
) -> None:
    """The transaction may end well or fail; a share without pending sends does not wait."""
    share, end = Share("shop-1-0", begun=True), asyncio.get_running_loop().create_future()
    await asyncio.wait_for(share.wait_for_answers(end), PATIENCE_S)
    share.sent()
    waiting = asyncio.ensure_future(share.wait_for_answers(end))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    if has_failed:
        end.set_exception(ValueError("no right"))
    else:
        end.set_result(None)
    await asyncio.wait_for(waiting, PATIENCE_S)
    assert (share.unanswered, share.error, end.done()) == (1, None, True)
    end.exception()


async def test_a_share_begins_once_and_its_tail_is_its_beginning_at_first() -> None:
    """The first send waits for the begin."""
    share = Share("shop-1-0", begun=False)
    assert share.all_sent is share.begun
    assert not share.begun.done()
    share.begin()
    share.begin()
    assert share.begun.done()
    assert Share("shop-1-0", begun=True).begun.done()


async def test_a_place_is_passed_on_once_the_one_before_is_left() -> None:
    """The same holds for a place already left, and for a cancelled waiter."""
    loop = asyncio.get_running_loop()
    share = Share("shop-1-0", begun=False)
    first, second = loop.create_future(), loop.create_future()
    Place("shop-1-0", share, first, second).leave()
    Place("shop-1-0", share, share.begun, first).leave()
    await asyncio.sleep(0.01)
    assert not first.done()
    share.begin()
    await asyncio.wait_for(second, PATIENCE_S)
    gone = loop.create_future()
    gone.cancel()
    Place("shop-1-0", share, second, gone).leave()
    await asyncio.sleep(0.01)
    assert gone.cancelled()
