"""The offsets that may be committed, and the final commit before an eager rebalance revokes partitions.

Some records may be in no commit: their table failed, or their partition was revoked before their end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from faust.utils.tracing import traced_from_parent_span
from mode import Service

if TYPE_CHECKING:
    from faust.types.tuples import TP, Message

    from faust_assigner.app.host.bases import ConsumerBase as Consumer

    Deliver = Callable[[Message], Awaitable[object]]

#: Faust's names of a consumer's states during a revocation and an assignment; mode shows them in its logs.
PARTITIONS_REVOKED, PARTITIONS_ASSIGNED = "PARTITIONS_REVOKED", "PARTITIONS_ASSIGNED"


@Service.transitions_to(PARTITIONS_REVOKED)  # type: ignore[untyped-decorator]
async def notify_and_commit(
    consumer: Consumer, notify: Callable[[set[TP]], Awaitable[None]], revoked: set[TP]
) -> None:
    """Make the app stop its streams and commit before Faust removes the acknowledged offsets.

    Stock Faust removes the acknowledged offsets before the app commits. So the app has no offset to commit,
    and the next owner processes the records of up to one commit interval again.
    """
    span = consumer.app._start_span_from_rebalancing("on_partitions_revoked")
    tell_app = traced_from_parent_span(span)(notify, partitions=revoked)
    with span:
        consumer._active_partitions.difference_update(revoked)
        consumer._paused_partitions.difference_update(revoked)
        await tell_app(revoked)
        if consumer.app.should_stop:
            await _finish_while_stopping(consumer)
        elif not consumer.app.conf.stream_wait_empty:
            # An app that does not wait for its streams does not commit either.
            await consumer.commit_and_end_transactions()


async def _finish_while_stopping(consumer: Consumer) -> None:
    """Stop the streams, let agents finish their records, and commit; Faust skips this while the app stops.

    Without this commit, the next owners would process these records again.
    """
    app = consumer.app
    consumer.stop_flow()
    app.flow_control.suspend()
    consumer.pause_partitions(consumer.assignment())
    app.flow_control.clear()
    if app.conf.stream_wait_empty:
        await consumer.wait_empty()
    else:
        await consumer.commit_and_end_transactions()
    await app.producer.flush()


def forget(consumer: Any, tps: Collection[TP]) -> None:
    """Remove ``tps`` from the tables of first read, read, acknowledged and committed offsets.

    Messages attached to uncommitted records are removed, too: these records are processed again.
    """
    for book in (
        consumer._gap,
        consumer._acked,
        consumer._acked_index,
        consumer._read_offset,
        consumer._committed_offset,
        consumer.first_read,
        consumer.app._attachments._pending,
    ):
        for tp in tps:
            book.pop(tp, None)


def leave_out_of_gap(gap: Any, acked: Collection[int]) -> None:
    """Remove acknowledged offsets from a partition's gap.

    The gap is an ``IntervalTree`` of the offsets without records, such as the ends of transactions. Faust
    also adds the offset of the record after them. Acknowledged too, this offset would count twice, and the
    commit would end there.
    """
    if gap:
        for offset in [offset for offset in acked if gap.overlaps(offset)]:
            gap.chop(offset, offset + 1)


async def run_delivery_callbacks() -> None:
    """Wait two steps of the event loop, in which the producer's pending delivery callbacks run."""
    for _ in range(2):
        await asyncio.sleep(0)


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

    @contextmanager
    def hide_after_unfinished(self, tps: Collection[TP]) -> Iterator[None]:
        """Hide from a commit each acknowledged offset of ``tps`` that is after an unfinished record.

        An agent with ``concurrency`` may finish later records first. Stock Faust may then commit past an
        unfinished record. This happens if the record is the next record to commit, or the first record of a
        partition without a commit. If the worker is killed after this commit, the record is lost. A record
        that is kept back counts as unfinished although Faust has acknowledged it.
        """
        consumer, acked = self._consumer, self._consumer._acked
        for tp in tps:
            leave_out_of_gap(consumer._gap[tp], acked[tp])
        undone = dict(self.first)
        for message in list(consumer._unacked_messages):
            if not message.acked and message.generation_id == consumer.app.consumer_generation_id:
                undone[message.tp] = min(message.offset, undone.get(message.tp, message.offset))
        later: dict[TP, list[int]] = {}
        for tp in undone.keys() & set(tps):
            later[tp] = [offset for offset in acked[tp] if offset > undone[tp]]
            acked[tp] = [offset for offset in acked[tp] if offset < undone[tp]]
        try:
            yield
        finally:
            for tp, hidden in later.items():
                acked[tp] += hidden
