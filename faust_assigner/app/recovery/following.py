"""Standbys and warm-ups: read in batches if far behind, then followed by Faust's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, MutableMapping
from functools import partial
from typing import TYPE_CHECKING

from faust_assigner.app.recovery.bring_up import MIN_STANDBY_GAP, Stop
from faust_assigner.app.recovery.consistency import begin_anew
from faust_assigner.app.recovery.restore_settings import settings_of
from faust_assigner.app.recovery.restoring import RestoringRecovery
from faust_assigner.app.retry import retry
from faust_assigner.app.tables.disk import is_writable, known

if TYPE_CHECKING:
    from faust.types.tuples import TP


class StandbyFollower(RestoringRecovery):
    """The part of the table manager's recovery that follows partitions while streams flow."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        #: Standbys that Faust's loop reads.
        self._followed: set[TP] = set()
        #: The task that reads standbys far behind in batches.
        self._catching_up: asyncio.Task[None] | None = None
        super().__init__(*args, **kwargs)

    async def _follow(self, fresh: set[TP]) -> None:
        """Read the changelogs of ``fresh`` from the ends of their copies; long gaps in batches."""
        consumer = self.app.consumer
        behind: list[TP] = []
        if fresh:
            firsts, ends = await self._firsts(fresh), await self._ends(fresh)
            await self._refuse_ahead(self.standby_offsets, ends, firsts)
            for tp in fresh:
                self.standby_offsets[tp] = max(known(self.standby_offsets[tp]), firsts[tp] - 1)
                self.standby_highwaters[tp] = ends[tp] - 1
            behind = self._in_order(tp for tp in fresh if self._standby_gap(tp) >= MIN_STANDBY_GAP)
            start = {tp: known(self.standby_offsets[tp]) + 1 for tp in fresh}
            await retry(self, "Seek in standby changelogs", partial(consumer.seek_wait, start))
            self._followed |= fresh.difference(behind)
            self._trace_standbys()
        consumer.resume_partitions(self.standby_tps.difference(behind))
        if behind:
            self._catching_up = asyncio.ensure_future(self._catch_up(behind))
        elif fresh and settings_of(self.app).snapshots:
            self.add_future(self._exchange_standbys(self._generation_id))

    def _in_order(self, tps: Iterable[TP]) -> list[TP]:
        """The partitions to read in batches, the smallest gap first."""
        # With snapshots a standby is exchanged for a snapshot, while Faust's loop reads on.
        settings = settings_of(self.app)
        batched = settings.batched and settings.snapshots is None
        return sorted(
            (tp for tp in tps if batched and is_writable(self.tp_to_table[tp].data)),
            key=lambda tp: (self._standby_gap(tp), tp),
        )

    async def _catch_up(self, behind: list[TP]) -> None:
        """Read standbys and warm-ups in batches; then Faust's loop follows each from its offset."""
        consumer = self.app.consumer
        try:
            async for tp in self._in_batches(
                behind, self.standby_offsets, self.standby_highwaters, Stop()
            ):
                start = {tp: known(self.standby_offsets[tp]) + 1}
                await retry(self, "Seek in a standby changelog", partial(consumer.seek_wait, start))
                self._followed.add(tp)
                consumer.resume_partitions({tp})
        except Exception as error:
            if not self.app.should_stop:
                await self.app.crash(error)

    async def _refuse_ahead(
        self,
        offsets: MutableMapping[TP, int | None],
        ends: Mapping[TP, int],
        firsts: Mapping[TP, int],
    ) -> None:
        """Raise ConsistencyError for tables ahead of ``ends``; without the check reset offsets."""
        for tp in await self._ahead(offsets, ends):
            begin_anew(self.tp_to_table[tp], tp, firsts[tp])
            offsets[tp] = firsts[tp] - 1

    async def _ends(self, tps: Collection[TP]) -> dict[TP, int]:
        return await self._ask("Ends of changelogs", tps, "end_offsets")

    async def _firsts(self, tps: Collection[TP]) -> dict[TP, int]:
        return await self._ask("Beginnings of changelogs", tps, "beginning_offsets")

    async def _ask(self, what: str, tps: Collection[TP], question: str) -> dict[TP, int]:
        """Ask the broker: under ``exactly_once`` the consumer knows only ends that it has read."""
        thread = self.app.consumer._thread
        ask = getattr(thread._ensure_consumer(), question)
        found = (
            await retry(self, what, partial(thread.call_thread, ask, sorted(tps))) if tps else {}
        )
        return {tp: found[tp] for tp in tps}
