"""The final commit before revocation: commit all processed records, then release the partitions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from faust.transport.consumer import CONSUMER_PARTITIONS_REVOKED
from faust.utils.tracing import traced_from_parent_span
from mode import Service

if TYPE_CHECKING:
    from faust.types.tuples import TP

    from faust_assigner.app.host.bases import ConsumerBase as Consumer
else:
    Consumer = object


class FinalCommit(Consumer):
    """A part of the consumer: forget the acknowledged offsets after the final commit, not before it.

    Stock Faust first forgets the acknowledged offsets and then calls the app, which waits for the streams
    and commits. So the app finds no offset to commit, and the next owner repeats up to one commit interval.
    """

    #: Defined by FlowGate.
    first_read: dict[TP, int]

    @Service.transitions_to(CONSUMER_PARTITIONS_REVOKED)  # type: ignore[untyped-decorator]
    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Notify the app, which stops the streams and commits; then forget the revoked partitions."""
        span = self.app._start_span_from_rebalancing("on_partitions_revoked")
        tell_app = traced_from_parent_span(span)(self._on_partitions_revoked, partitions=revoked)
        with span:
            self._active_partitions.difference_update(revoked)
            self._paused_partitions.difference_update(revoked)
            await tell_app(revoked)
            if not self.app.conf.stream_wait_empty:
                # The app did not wait for the streams, so it did not commit; commit the acknowledged offsets.
                await self.commit_and_end_transactions()
            self._forget(revoked)

    def _forget(self, tps: set[TP]) -> None:
        for book in (
            self._gap,
            self._acked,
            self._acked_index,
            self._read_offset,
            self._committed_offset,
        ):
            for tp in tps:
                book.pop(tp, None)
        for tp in tps:
            self.first_read.pop(tp, None)

    def _filter_committable_offsets(self, tps: Iterable[TP]) -> dict[TP, int]:
        """The offsets that may be committed: each lies before every record that is still being processed.

        With ``concurrency``, later records may be done first. Stock Faust then commits past an unfinished
        record in two cases: it is the next record to commit, or the first record of a partition without a
        commit. A SIGKILL loses this record.
        """
        undone: dict[TP, int] = {}
        for message in list(self._unacked_messages):
            if not message.acked and message.generation_id == self.app.consumer_generation_id:
                undone[message.tp] = min(message.offset, undone.get(message.tp, message.offset))
        later: dict[TP, list[int]] = {}
        wanted = tuple(tps)
        for tp in undone.keys() & set(wanted):
            later[tp] = [offset for offset in self._acked[tp] if offset > undone[tp]]
            self._acked[tp] = [offset for offset in self._acked[tp] if offset < undone[tp]]
        try:
            offsets: dict[TP, int] = super()._filter_committable_offsets(wanted)
            return offsets
        finally:
            for tp, hidden in later.items():
                self._acked[tp] += hidden

    async def commit_and_end_transactions(self) -> None:
        """Commit all safe offsets, also offsets that were acknowledged during a concurrent commit."""
        # If a commit is in progress, commit() waits for its end and does not commit again.
        await self.maybe_wait_for_commit_to_finish()
        await super().commit_and_end_transactions()
