"""The bookkeeping of Faust's recovery (its "books"), written for each round.

The books are Faust's sets of owned partitions and of followed partitions, and their offsets. A
standby is followed while this worker keeps reading its changelog.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from faust_assigner.app.tables import flushing
from faust_assigner.app.tables.disk import is_writable, offset_or_minus_one, store_of

if TYPE_CHECKING:
    from faust.types.tuples import TP

    from faust_assigner.app.recovery.by_partition import PartitionRecovery


class RoundBooks:
    """Writes the books of one recovery service, which are attributes of Faust's recovery."""

    def __init__(self, recovery: PartitionRecovery) -> None:
        self._recovery = recovery
        #: Owned and followed partitions before the last eager round.
        self._before: tuple[frozenset[TP], frozenset[TP]] = frozenset(), frozenset()

    def keep_last(self) -> None:
        """Remember the partitions at the beginning of an eager round, for the ledger."""
        books = self._recovery
        self._before = frozenset(books.active_tps), frozenset(books.standby_tps)

    def clear(self) -> None:
        """Empty the books, so that Faust's own recovery restores no partition."""
        books = self._recovery
        for book in (
            books.active_tps,
            books.standby_tps,
            books.active_highwaters,
            books.standby_highwaters,
            books.actives_for_table,
            books.standbys_for_table,
        ):
            book.clear()

    async def take(
        self, actives: frozenset[TP], standbys: frozenset[TP]
    ) -> tuple[set[TP], set[TP]]:
        """Write the books of a round; return the actives to restore and the standbys to follow."""
        recovery = self._recovery
        pending, fresh = self._to_take_on(actives, standbys)
        # Drop the records that were fetched before. Such records are older than the replay's
        # records, or they are after its start and would mark the records in between as applied.
        await recovery.app.consumer.incremental.pause_and_drop(pending | fresh)
        recovery.flush_buffers()
        for tp in recovery.databases.doubtful:
            # Records that count as read were dropped when a table failed: read them again.
            recovery.standby_offsets.pop(tp, None)
        copies = dict(recovery.standby_offsets)
        owned = frozenset(recovery.active_tps) or self._before[0]
        followed = frozenset(recovery.standby_tps) or self._before[1]
        await recovery.databases.open_beside_streams(pending, recovery.threads.run)
        self.clear()
        self._forget_offsets(actives | standbys, pending, fresh)
        self._note_roles(actives, standbys)
        await self._open(pending)
        self._continue_from(copies, pending)
        if recovery.meter is not None:
            recovery.meter.begin(pending, owned, followed)
        return pending, fresh

    async def open_copies(self, fresh: Collection[TP]) -> None:
        """Open the databases of the standbys to follow, and note their offsets."""
        recovery = self._recovery
        await recovery.databases.open_beside_streams(fresh, recovery.threads.run, pause_factor=3.0)
        for tp in sorted(fresh):
            recovery.add_standby(recovery.tables._changelogs[tp.topic], tp)
        await self._open(fresh)

    def _to_take_on(
        self, actives: frozenset[TP], standbys: frozenset[TP]
    ) -> tuple[set[TP], set[TP]]:
        """Return the actives without a complete table, and the standbys not followed yet.

        A partition of a global table can be active and followed at once. When such a partition is
        no longer a standby, it is restored again, to read the last changes of other workers.
        """
        restores, copies = self._recovery.actives, self._recovery.standbys
        restores.complete &= actives
        restores.complete -= copies.followed - standbys
        copies.followed &= standbys
        flushing.retain_partitions(self._recovery.app, actives, restores.complete)
        restores.replayed = frozenset()
        return set(actives - restores.complete), set(standbys - copies.followed)

    def _forget_offsets(
        self, here: Collection[TP], pending: Collection[TP], fresh: Collection[TP]
    ) -> None:
        books = self._recovery
        for offsets, anew in ((books.active_offsets, pending), (books.standby_offsets, fresh)):
            for tp in list(offsets):
                if tp in anew or tp not in here:
                    del offsets[tp]

    def _note_roles(self, actives: Collection[TP], standbys: Collection[TP]) -> None:
        """Note the owned partitions with their offsets; ``open_copies`` notes standbys' offsets."""
        books, of = self._recovery, self._recovery.tables._changelogs
        for tp in sorted(actives):
            books.add_active(of[tp.topic], tp)
        for tp in standbys:
            books.standby_tps.add(tp)
            books.standbys_for_table[of[tp.topic]].add(tp)

    def _continue_from(self, copies: Mapping[TP, int | None], pending: set[TP]) -> None:
        """Start an active at its standby's offset if its table, in memory, stores no offset."""
        offsets, of = self._recovery.active_offsets, self._recovery.tables._changelogs
        for tp in pending & copies.keys():
            if not is_writable(store_of(of[tp.topic])):
                offsets[tp] = max(offset_or_minus_one(copies[tp]), offset_or_minus_one(offsets[tp]))

    async def _open(self, tps: Collection[TP]) -> None:
        """Open the databases of ``tps``; read the offsets of reopened databases again."""
        recovery = self._recovery
        anew = await recovery.databases.open_all(tps, recovery.sleep, lambda: recovery.should_stop)
        for here, offsets, add in (
            (recovery.active_tps, recovery.active_offsets, recovery.add_active),
            (recovery.standby_tps, recovery.standby_offsets, recovery.add_standby),
        ):
            for tp in sorted(here & anew):
                offsets.pop(tp, None)
                add(recovery.tp_to_table[tp], tp)
