"""The books of Faust's recovery, written for each round: owned and followed partitions, and offsets."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from faust_assigner.app.tables import write_behind as overlay
from faust_assigner.app.tables.disk import is_writable, known, store_of

if TYPE_CHECKING:
    from faust.types.tuples import TP

    from faust_assigner.app.recovery.by_partition import PartitionRecovery


class RoundBooks:
    """The books of one recovery service; between eager rounds the recovery's own sets hold them."""

    def __init__(self, recovery: PartitionRecovery) -> None:
        self._recovery = recovery
        #: Owned and followed partitions before the last eager round.
        self._before: tuple[frozenset[TP], frozenset[TP]] = frozenset(), frozenset()

    def keep_last(self) -> None:
        """Remember the partitions at the beginning of an eager round, for the ledger."""
        books = self._recovery
        self._before = frozenset(books.active_tps), frozenset(books.standby_tps)

    def clear(self) -> None:
        """Leave Faust's own recovery without partitions to restore."""
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
        """Record the roles; return the actives to restore and the standbys to follow."""
        recovery = self._recovery
        pending, fresh = self._to_take_on(actives, standbys)
        # Fetched records in flight are older than the replay's, or would mark the records between
        # as applied.
        await recovery.app.consumer.pause_and_drop(pending | fresh)
        recovery.flush_buffers()
        for tp in recovery.databases.doubtful:
            # The failure of a table dropped records that count as read.
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
        await recovery.databases.open_beside_streams(fresh, recovery.threads.run, breath=3.0)
        for tp in sorted(fresh):
            recovery.add_standby(recovery.tables._changelogs[tp.topic], tp)
        await self._open(fresh)

    def _to_take_on(
        self, actives: frozenset[TP], standbys: frozenset[TP]
    ) -> tuple[set[TP], set[TP]]:
        """The actives without a complete table, and the standbys that are not followed.

        An active that is no longer followed is restored again, to read the last changes of other
        workers. This concerns the worker's own part of a global table.
        """
        restores, copies = self._recovery.actives, self._recovery.standbys
        restores.complete &= actives
        restores.complete -= copies.followed - standbys
        copies.followed &= standbys
        overlay.keep(self._recovery.app, actives, restores.complete)
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
        """Note the owned partitions with their offsets; ``open_copies`` notes those of copies."""
        books, of = self._recovery, self._recovery.tables._changelogs
        for tp in sorted(actives):
            books.add_active(of[tp.topic], tp)
        for tp in standbys:
            books.standby_tps.add(tp)
            books.standbys_for_table[of[tp.topic]].add(tp)

    def _continue_from(self, copies: Mapping[TP, int | None], pending: set[TP]) -> None:
        """Begin at the offset of the copy: a table in memory stores no offset."""
        offsets, of = self._recovery.active_offsets, self._recovery.tables._changelogs
        for tp in pending & copies.keys():
            if not is_writable(store_of(of[tp.topic])):
                offsets[tp] = max(known(copies[tp]), known(offsets[tp]))

    async def _open(self, tps: Collection[TP]) -> None:
        """Open the databases of ``tps``; note the offsets of those opened anew once more."""
        recovery = self._recovery
        anew = await recovery.databases.open_all(tps, recovery.sleep, lambda: recovery.should_stop)
        for here, offsets, add in (
            (recovery.active_tps, recovery.active_offsets, recovery.add_active),
            (recovery.standby_tps, recovery.standby_offsets, recovery.add_standby),
        ):
            for tp in sorted(here & anew):
                offsets.pop(tp, None)
                add(recovery.tp_to_table[tp], tp)
