"""A share (the contents of one transaction), and the place of a send in the order of its sends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from faust.types.tuples import TP


class Share:
    """The contents of one transaction; docs/explanation/transactions.md draws the states of a share."""

    def __init__(self, transactional_id: str, *, begun: bool) -> None:
        self.transactional_id = transactional_id
        #: Done once Kafka's transaction accepts this share's sends: at once, or after the previous commit.
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        #: Done once the producer has taken all sends so far. Stays the same once the share is closed.
        self.all_sent = self.begun
        #: The (store, partition) pairs in which the records of this share have changed rows.
        self.changed: set[tuple[Any, int]] = set()
        #: Source partition -> the last offset whose record sent into this share; offsets only grow.
        self.reached: dict[TP, int] = {}
        #: The number of sent records for which the broker has not answered yet.
        self.unanswered = 0
        #: Done once ``unanswered`` is 0; None if no commit waits for the answers.
        self.answered: asyncio.Future[None] | None = None
        #: The error of a failed send or window callback; a share with an error is never committed.
        self.error: BaseException | None = None
        #: Whether Kafka has committed this share; never reset.
        self.committed = False
        #: Whether this share was given up: it is never committed and takes no more sends; never reset.
        self.abandoned = False
        if begun:
            self.begin()

    def begin(self) -> None:
        """Allow the producer to send the records of this share."""
        if not self.begun.done():
            self.begun.set_result(None)

    def sent(self) -> None:
        """Count a record that the producer has taken."""
        self.unanswered += 1

    def answer(self, error: BaseException | None) -> None:
        """Note the broker's answer for a record."""
        self.unanswered -= 1
        self.error = self.error or error
        if not self.unanswered and self.answered is not None and not self.answered.done():
            self.answered.set_result(None)

    async def wait_for_answers(self, transaction: asyncio.Future[Any] | None) -> None:
        """Wait for all answers, or until ``transaction`` has failed: its records then get no answer."""
        if self.unanswered:
            self.answered = asyncio.get_running_loop().create_future()
            ends = {self.answered} if transaction is None else {self.answered, transaction}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)

    def commit(self) -> None:
        """Mark this share as committed and flush its table changes."""
        self.committed = True
        for store, partition in sorted(self.changed, key=lambda place: place[1]):
            store.flushing.flush(partition)

    def abandon(self) -> None:
        """Mark this share as abandoned, release its sends and undo its table changes."""
        self.abandoned = True
        self.begin()
        for store, partition in self.changed:
            store.flushing.drop(partition, self)


class Place(NamedTuple):
    """The turn of one send: the send starts when ``before`` is done, and completes ``done``."""

    transactional_id: str
    share: Share
    before: asyncio.Future[None]
    done: asyncio.Future[None]

    def leave(self) -> None:
        """Let the next send start once all earlier sends have called this method."""
        self.before.add_done_callback(self._pass_on)

    def _pass_on(self, _: object) -> None:
        if not self.done.done():
            self.done.set_result(None)
