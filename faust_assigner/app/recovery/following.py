"""Standbys and warm-ups: read in batches if far behind, then followed by Faust's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from faust_assigner.app.recovery.exchange import MIN_STANDBY_GAP, StandbyExchange
from faust_assigner.app.recovery.restore_settings import settings_of
from faust_assigner.app.recovery.restore_task import Stop
from faust_assigner.app.retry import retry
from faust_assigner.app.tables.disk import is_writable, offset_or_minus_one

if TYPE_CHECKING:
    from faust.types.tuples import TP

    from faust_assigner.app.recovery.changelog_extents import ChangelogExtents
    from faust_assigner.app.recovery.loop import RecoveryLoop
    from faust_assigner.app.recovery.restoring import BatchedRestore


class StandbyFollower:
    """Follows the standbys of one recovery service while streams run."""

    def __init__(
        self,
        recovery: RecoveryLoop,
        extents: ChangelogExtents,
        batches: BatchedRestore,
        exchange: StandbyExchange,
    ) -> None:
        self._recovery, self._extents = recovery, extents
        self._batches, self._exchange = batches, exchange
        #: The standbys whose changelogs Faust's loop reads.
        self.followed: set[TP] = set()
        #: The task that reads standbys far behind in batches.
        self.catching_up: asyncio.Task[None] | None = None

    def forget_interrupted(self) -> None:
        """Let the next round follow the standbys anew whose exchange a round has interrupted."""
        self.followed -= self._exchange.left
        self._exchange.left = set()

    async def follow(self, fresh: set[TP]) -> None:
        """Read the changelogs of ``fresh`` from their stored offsets; read long gaps in batches."""
        recovery = self._recovery
        consumer, offsets = recovery.app.consumer, recovery.standby_offsets
        behind: list[TP] = []
        if fresh:
            firsts, ends = await self._extents.firsts(fresh), await self._extents.ends(fresh)
            await recovery.consistency.refuse_ahead(recovery, offsets, ends, firsts)
            for tp in fresh:
                offsets[tp] = max(offset_or_minus_one(offsets[tp]), firsts[tp] - 1)
                recovery.standby_highwaters[tp] = ends[tp] - 1
            behind = self._in_order(tp for tp in fresh if self._exchange.gap(tp) >= MIN_STANDBY_GAP)
            start = {tp: offset_or_minus_one(offsets[tp]) + 1 for tp in fresh}
            await retry(recovery, "Seek in standby changelogs", partial(consumer.seek_wait, start))
            self.followed |= fresh.difference(behind)
            recovery.spans.begin_standbys(recovery._recovery_span, recovery.standby_stats())
        consumer.resume_partitions(recovery.standby_tps.difference(behind))
        if behind:
            self.catching_up = asyncio.ensure_future(self._catch_up(behind))
        elif fresh and settings_of(recovery.app).snapshots:
            recovery.add_future(self._exchange.exchange_all(recovery._generation_id))

    def _in_order(self, tps: Iterable[TP]) -> list[TP]:
        """Return the partitions to read in batches, the smallest gap first."""
        # With snapshots no standby is read in batches: ``exchange_all`` replaces its database.
        settings, tables = settings_of(self._recovery.app), self._recovery.tp_to_table
        batched = settings.batched and settings.snapshots is None
        return sorted(
            (tp for tp in tps if batched and is_writable(tables[tp].data)),
            key=lambda tp: (self._exchange.gap(tp), tp),
        )

    async def _catch_up(self, behind: list[TP]) -> None:
        """Read standbys and warm-ups in batches; then Faust's loop follows each from its offset."""
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
