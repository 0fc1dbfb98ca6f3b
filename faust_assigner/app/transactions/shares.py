"""A share, the contents of one transaction, and the place of a send in its order."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple


class Share:
    """The contents of one transaction; docs/explanation/transactions.md draws the states of a share."""

    def __init__(self, transactional_id: str, *, begun: bool) -> None:
        self.transactional_id = transactional_id
        #: Done once sends may go into Kafka's transaction: at once, or when the previous commit has ended.
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        #: Done once the producer has every send so far. A closed share keeps its last tail.
        self.tail = self.begun
        #: The (store, partition) pairs in which the records of this share have changed rows.
        self.changed: set[tuple[Any, int]] = set()
        #: Source partition -> the last offset whose record sent into this share; offsets only grow.
        self.reached: dict[Any, int] = {}
        #: The error of a failed send or window callback; a share with an error is never committed.
        self.error: BaseException | None = None
        #: Whether Kafka has committed this share; never reset.
        self.committed = False
        #: Whether this share is neither committed nor sent into from now on; never reset.
        self.abandoned = False
        if begun:
            self.begin()

    def begin(self) -> None:
        """Let the sends of this share go to the producer."""
        if not self.begun.done():
            self.begun.set_result(None)

    def commit(self) -> None:
        """Mark this share as committed and flush its table changes."""
        self.committed = True
        for store, partition in sorted(self.changed, key=lambda place: place[1]):
            store.flush(partition)

    def abandon(self) -> None:
        """Mark this share as abandoned, release its sends and undo its table changes."""
        self.abandoned = True
        self.begin()
        for store, partition in self.changed:
            store.drop(partition, self)


class Place(NamedTuple):
    """The turn of one send: the send starts when ``before`` is done, and completes ``done``."""

    transactional_id: str
    share: Share
    before: asyncio.Future[None]
    done: asyncio.Future[None]

    def leave(self) -> None:
        """Let the next send start once all earlier sends have left."""
        self.before.add_done_callback(self._pass_on)

    def _pass_on(self, _: object) -> None:
        if not self.done.done():
            self.done.set_result(None)
