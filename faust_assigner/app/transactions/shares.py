"""What one transaction holds, and a send's place in it."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple


class Share:
    """What one transaction holds; docs/explanation/transactions.md draws its states."""

    def __init__(self, transactional_id: str, *, begun: bool) -> None:
        self.transactional_id = transactional_id
        #: Done once Kafka's transaction may be sent into: at once, or when the commit before it has ended.
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        #: Done once every send so far has been handed to the producer; of a closed share it moves no more.
        self.tail = self.begun
        #: Stores and partitions in which its records have changed rows.
        self.changed: set[tuple[Any, int]] = set()
        #: Source partition -> the last offset whose record sent into it; only grows.
        self.reached: dict[Any, int] = {}
        #: Why a send or the close of a window failed: then nothing of the share is ever committed.
        self.error: BaseException | None = None
        #: Kafka has committed it; never taken back, nor is the next.
        self.committed = False
        #: Nothing is committed and nothing more is sent; never taken back.
        self.abandoned = False
        if begun:
            self.begin()

    def begin(self) -> None:
        """Let its sends pass."""
        if not self.begun.done():
            self.begun.set_result(None)

    def commit(self) -> None:
        """All of it counts: what it changed in tables is on disk in a moment."""
        self.committed = True
        for store, partition in sorted(self.changed, key=lambda place: place[1]):
            store.flush(partition)

    def abandon(self) -> None:
        """Nothing of it counts: what it changed in tables is as it was before."""
        self.abandoned = True
        self.begin()
        for store, partition in self.changed:
            store.drop(partition, self)


class Place(NamedTuple):
    """One send's turn: it goes when ``before`` is done, and sets ``done``."""

    transactional_id: str
    share: Share
    before: asyncio.Future[None]
    done: asyncio.Future[None]

    def leave(self) -> None:
        """Let the next one pass, after those before."""
        self.before.add_done_callback(self._pass_on)

    def _pass_on(self, _: object) -> None:
        if not self.done.done():
            self.done.set_result(None)
