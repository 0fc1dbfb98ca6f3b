"""Records that no commit may include: their table failed, or their partition was revoked before their end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import TYPE_CHECKING
from weakref import WeakSet

if TYPE_CHECKING:
    from faust.types.tuples import TP, Message

    from faust_assigner.app.host.bases import ConsumerBase as Consumer

    Deliver = Callable[[Message], Awaitable[object]]


class KeptBack:
    """The records of ``consumer`` that no commit includes: a commit ends before the first of them."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        #: Source partition -> the offset of its first record that is kept back.
        self.first: dict[TP, int] = {}
        #: The partitions in ``first`` that the consumer has since sought to their committed offsets.
        self.sought: set[TP] = set()
        #: The records of revoked partitions that were unfinished at the revocation.
        self.given_up: WeakSet[Message] = WeakSet()

    def keep(self, message: Message) -> None:
        """Commit neither ``message`` nor later records until it is read again.

        A wait for empty streams no longer waits for ``message``.
        """
        if not message.acked:
            message.acked = True
            self._consumer._unacked_messages.discard(message)
            self.add(message.tp, message.offset)

    def give_up(self, late: Iterable[Message]) -> None:
        """Give the unfinished records of revoked partitions up: the next owners process them again.

        Their changes of tables and, under ``exactly_once``, their sends are refused from now on. The end of
        such a record must not count as an acknowledgement, even if its partition comes back.
        """
        for message in late:
            self.given_up.add(message)
            self.keep(message)

    def add(self, tp: TP, offset: int) -> None:
        """Keep the record at ``offset`` back."""
        self.first[tp] = min(offset, self.first.get(tp, offset))
        self.sought.discard(tp)

    def seek(self, tps: Collection[TP]) -> None:
        """Note that ``tps`` were sought to their committed offsets: their next records are read again."""
        self.sought |= self.first.keys() & tps

    def forget(self, tps: Collection[TP]) -> None:
        """Allow commits of all records of ``tps`` again."""
        for tp in tps:
            self.first.pop(tp, None)
        self.sought.difference_update(tps)

    async def deliver_again(self, deliver: Deliver, message: Message) -> object:
        """Deliver the first record after a seek to the offset before a record that was kept back."""
        consumer, tp = self._consumer, message.tp
        for book in (consumer._acked, consumer._acked_index, consumer.app._attachments._pending):
            book.pop(tp, None)  # these records are read again
        delivered = await deliver(message)
        self.forget({tp})
        return delivered
