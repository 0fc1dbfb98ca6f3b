"""The offsets that may be committed, and the final commit before an eager round's revocation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from faust.utils.tracing import traced_from_parent_span
from mode import Service

if TYPE_CHECKING:
    from faust.types.tuples import TP

    from faust_assigner.app.host.bases import ConsumerBase as Consumer

#: Faust's states of a consumer that gives partitions away or takes partitions over; mode shows them.
PARTITIONS_REVOKED, PARTITIONS_ASSIGNED = "PARTITIONS_REVOKED", "PARTITIONS_ASSIGNED"


@Service.transitions_to(PARTITIONS_REVOKED)  # type: ignore[untyped-decorator]
async def notify_and_commit(
    consumer: Consumer, notify: Callable[[set[TP]], Awaitable[None]], revoked: set[TP]
) -> None:
    """Notify the app, which stops the streams and commits; the acknowledged offsets are kept.

    Stock Faust first forgets the acknowledged offsets and then calls the app, which waits for the streams
    and commits. So the app finds no offset to commit, and the next owner repeats up to one commit interval.
    """
    span = consumer.app._start_span_from_rebalancing("on_partitions_revoked")
    tell_app = traced_from_parent_span(span)(notify, partitions=revoked)
    with span:
        consumer._active_partitions.difference_update(revoked)
        consumer._paused_partitions.difference_update(revoked)
        await tell_app(revoked)
        if not consumer.app.conf.stream_wait_empty:
            # The app did not wait for the streams, so it did not commit; commit the acknowledged offsets.
            await consumer.commit_and_end_transactions()


def forget(consumer: Consumer, tps: Collection[TP]) -> None:
    """Remove ``tps`` from the books of offsets."""
    for book in (
        consumer._gap,
        consumer._acked,
        consumer._acked_index,
        consumer._read_offset,
        consumer._committed_offset,
    ):
        for tp in tps:
            book.pop(tp, None)


@contextmanager
def before_unfinished_records(consumer: Consumer, tps: Collection[TP]) -> Iterator[None]:
    """Hide the acknowledged offsets of ``tps`` that are not before every record in progress.

    With ``concurrency``, later records may be done first. Stock Faust then commits past an unfinished
    record in two cases: it is the next record to commit, or the first record of a partition without a
    commit. A SIGKILL loses this record.
    """
    undone: dict[TP, int] = {}
    for message in list(consumer._unacked_messages):
        if not message.acked and message.generation_id == consumer.app.consumer_generation_id:
            undone[message.tp] = min(message.offset, undone.get(message.tp, message.offset))
    acked = consumer._acked
    later: dict[TP, list[int]] = {}
    for tp in undone.keys() & set(tps):
        later[tp] = [offset for offset in acked[tp] if offset > undone[tp]]
        acked[tp] = [offset for offset in acked[tp] if offset < undone[tp]]
    try:
        yield
    finally:
        for tp, hidden in later.items():
            acked[tp] += hidden
