"""Commits that are cancelled while sends have their turn."""

from __future__ import annotations

import asyncio

from tests.unit.app.transactions.test_manager import (
    ID,
    ORDERS,
    OTHER,
    PAYMENTS,
    Manager,
    processing,
    send,
)
from tests.unit.app.transactions.test_manager import made as made


async def test_a_commit_that_is_cancelled_takes_no_turn_from_a_send(made: Manager) -> None:
    """The send goes on, the share that was to be committed stays whole, and the next share begins."""
    places = []
    for offset, tp in ((4, ORDERS), (7, PAYMENTS)):
        with processing(made, offset, tp):
            place = made._sends.next_place()
        assert place is not None
        places.append(place)
        made.close(place.transactional_id)
    closed = dict(made._closed)
    assert list(closed) == [ID, OTHER]
    committing = asyncio.ensure_future(made.commit({ORDERS: 5, PAYMENTS: 8}))
    await asyncio.sleep(0.01)
    assert not committing.done()
    committing.cancel()
    await asyncio.gather(committing, return_exceptions=True)
    assert committing.cancelled()
    assert [(share.committed, share.abandoned) for share in closed.values()] == [(False, False)] * 2
    assert [place.done.done() for place in places] == [False, False]
    for place in places:
        place.leave()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [(place.done.done(), place.done.cancelled()) for place in places] == [(True, False)] * 2
    assert (made._closed, made.producer.acts) == ({}, [])
    with processing(made, 9):
        assert await (await send(made)) == "sent"
