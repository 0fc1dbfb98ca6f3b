"""The offsets that may be committed, and the final commit before an eager rebalance revokes partitions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from faust.utils.tracing import traced_from_parent_span
from mode import Service

if TYPE_CHECKING:
    from faust.types.tuples import TP

    from faust_assigner.app.host.bases import ConsumerBase as Consumer

#: Faust's names of a consumer's states during a revocation and an assignment; mode shows them in its logs.
PARTITIONS_REVOKED, PARTITIONS_ASSIGNED = "PARTITIONS_REVOKED", "PARTITIONS_ASSIGNED"


@Service.transitions_to(PARTITIONS_REVOKED)  # type: ignore[untyped-decorator]
async def notify_and_commit(
    consumer: Consumer, notify: Callable[[set[TP]], Awaitable[None]], revoked: set[TP]
) -> None:
    """Have the app stop the streams and commit, while the acknowledged offsets are still known.

    Stock Faust removes the acknowledged offsets before the app commits. So the app has no offset to commit,
    and the next owner processes the records of up to one commit interval again.
    """
    span = consumer.app._start_span_from_rebalancing("on_partitions_revoked")
    tell_app = traced_from_parent_span(span)(notify, partitions=revoked)
    with span:
        consumer._active_partitions.difference_update(revoked)
        consumer._paused_partitions.difference_update(revoked)
        await tell_app(revoked)
        if not consumer.app.conf.stream_wait_empty:
            # An app that does not wait for its streams does not commit either.
            await consumer.commit_and_end_transactions()


def forget(consumer: Consumer, tps: Collection[TP]) -> None:
    """Remove ``tps`` from Faust's tables of read, acknowledged and committed offsets."""
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
    """Hide from a commit each acknowledged offset of ``tps`` that is after an unfinished record.

    An agent with ``concurrency`` may finish later records first. Stock Faust then may commit past an
    unfinished record. This happens if the record is the next one to commit, or the first record of a
    partition without a commit. If the worker is killed then, this record is lost.
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
