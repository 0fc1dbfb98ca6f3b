"""Standbys and warm-ups: restored as actives if far behind, then followed by Faust's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from faust_assigner.app.recovery.restore_settings import settings_of
from faust_assigner.app.recovery.restore_task import Stop
from faust_assigner.app.retry import retry
from faust_assigner.app.tables.disk import is_writable, offset_or_minus_one

if TYPE_CHECKING:
    from faust.types.tuples import TP

    from faust_assigner.app.recovery.changelog_extents import ChangelogExtents
    from faust_assigner.app.recovery.loop import RecoveryLoop
    from faust_assigner.app.recovery.restoring import BatchedRestore

#: A standby that lacks at least this many records is restored before Faust's loop reads its records.
MIN_STANDBY_GAP = 2_000


class StandbyFollower:
    """Follows the standbys of one recovery service while streams run."""

    def __init__(
        self, recovery: RecoveryLoop, extents: ChangelogExtents, batches: BatchedRestore
    ) -> None:
        self._recovery, self._extents, self._batches = recovery, extents, batches
        #: The standbys whose changelogs Faust's loop reads.
        self.followed: set[TP] = set()
        #: The task that restores standbys far behind from snapshots and in batches.
        self.catching_up: asyncio.Task[None] | None = None

    def _gap(self, tp: TP) -> int:
        """Return the number of records that a standby lacks, as far as known."""
        books = self._recovery
        highwater, offset = books.standby_highwaters.get(tp), books.standby_offsets.get(tp)
        return highwater - offset if highwater is not None and offset is not None else 0

    async def follow(self, fresh: set[TP]) -> None:
        """Read the changelogs of ``fresh`` from their stored offsets; restore long gaps as actives."""
        recovery = self._recovery
        consumer, offsets = recovery.app.consumer, recovery.standby_offsets
        behind: list[TP] = []
        if fresh:
            firsts, ends = await self._extents.firsts(fresh), await self._extents.ends(fresh)
            await recovery.consistency.refuse_ahead(recovery, offsets, ends, firsts)
            for tp in fresh:
                # The restore of a global table's partition has applied records, too.
                applied = map(offset_or_minus_one, (offsets[tp], recovery.offsets_for(tp).get(tp)))
                offsets[tp] = max(*applied, firsts[tp] - 1)
                recovery.standby_highwaters[tp] = ends[tp] - 1
            behind = self._in_order(tp for tp in fresh if self._gap(tp) >= MIN_STANDBY_GAP)
            start = {tp: offset_or_minus_one(offsets[tp]) + 1 for tp in fresh}
            recovery.begin_standbys()
            await retry(recovery, "Seek in standby changelogs", partial(consumer.seek_wait, start))
            self.followed |= fresh.difference(behind)
            recovery.spans.begin_standbys(recovery._recovery_span, recovery.standby_stats())
        consumer.resume_partitions(recovery.standby_tps.difference(behind))
        if behind:
            self.catching_up = asyncio.ensure_future(self._catch_up(behind))

    def _in_order(self, tps: Iterable[TP]) -> list[TP]:
        """Return the partitions to restore, the smallest gap first."""
        settings, tables = settings_of(self._recovery.app), self._recovery.tp_to_table
        restores = settings.batched or settings.snapshots is not None
        return sorted(
            (tp for tp in tps if restores and is_writable(tables[tp].data)),
            key=lambda tp: (self._gap(tp), tp),
        )

    async def _catch_up(self, behind: list[TP]) -> None:
        """Restore standbys and warm-ups; then Faust's loop follows each from its offset."""
        recovery = self._recovery
        consumer, offsets = recovery.app.consumer, recovery.standby_offsets
        try:
            async for tp in self._batches.restore(
                behind, offsets, recovery.standby_highwaters, Stop()
            ):
                start = {tp: offset_or_minus_one(offsets[tp]) + 1}
                await retry(
                    recovery, "Seek in a standby changelog", partial(consumer.seek_wait, start)
                )
                self.followed.add(tp)
                consumer.resume_partitions({tp})
        except Exception as error:
            if not recovery.app.should_stop:
                await recovery.app.crash(error)
