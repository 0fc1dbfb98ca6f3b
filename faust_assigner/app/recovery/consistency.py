"""Refuses table files that are ahead of their changelog: later changes would count as already applied.

A file is ahead of its changelog if the topic was deleted and created again, or if the elected
leader lacks records. It is also ahead if the worker now uses a different cluster.

Faust compares file and changelog at each recovery and raises ConsistencyError, unless
``recovery_consistency_check`` is off. This module compares them at each recovery and, while streams
run, every few seconds. It also compares them at once if a new change gets an offset that is not
above the file's offset.

An open transaction alone does not make a file ahead: a consumer of committed records may see an end
offset before a committed change. Therefore the high watermark decides. The watermark is requested several
times, because a newly elected leader, or ``acks=1``, may give an older high watermark for a moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from faust.exceptions import ConsistencyError
from faust.types.tuples import TP
from mode import get_logger

from faust_assigner.app.recovery.restore_settings import connection_of
from faust_assigner.app.retry import retry
from faust_assigner.app.tables import flushing
from faust_assigner.app.tables.disk import offset_or_minus_one, store_of
from faust_assigner.snapshots.changelog import extents_of

if TYPE_CHECKING:
    from faust.types.app import AppT
    from faust.types.tables import CollectionT

    from faust_assigner.app.host.table_bases import RecoveryBase

logger = get_logger(__name__)

#: Seconds between two comparisons while streams run.
COMPARE_S = 10.0
#: The number of answers in a row that must confirm that a file is ahead, and seconds between two answers.
ANSWERS = 3
PAUSE_S = 1.0

#: Fetches the high watermarks of some partitions from the broker, open transactions included.
Ask = Callable[[Collection[TP]], Awaitable[Mapping[TP, int]]]


@dataclass(frozen=True)
class Ahead:
    """A table partition with a change at ``offset``; ``end`` is its changelog's end offset."""

    table: str
    tp: TP
    offset: int
    end: int

    def __str__(self) -> str:
        return (
            f"Table {self.table}: this worker's rows of partition {self.tp.partition} reach "
            f"offset {self.offset} of {self.tp.topic}, but the end offset of this changelog is "
            f"{self.end} ({self.offset} > {self.end - 1}): the topic was deleted and created "
            "again, has lost records, or the files belong to a different cluster"
        )


class Consistency:
    """Compares the offsets of a recovery's tables with the ends of their changelogs.

    ``ask`` is called only with partitions that seem to be ahead.
    """

    def __init__(self, app: AppT, ask: Ask | None = None, *, pause_s: float = PAUSE_S) -> None:
        self._app, self._pause_s = app, pause_s
        self._ask: Ask = self._high_watermarks if ask is None else ask
        #: Partition -> the offset of a new change that is not above the file's offset.
        self.doubted: dict[TP, int] = {}
        self.doubt_is_new = asyncio.Event()

    async def _high_watermarks(self, tps: Collection[TP]) -> Mapping[TP, int]:
        found = await extents_of(
            connection_of(self._app), sorted(tps), isolation_level="read_uncommitted"
        )
        return {tp: found[tp].end for tp in tps}

    def doubt(self, tp: TP, offset: int) -> None:
        """Note a change made after the restore whose offset is not above the file's offset."""
        self.doubted.setdefault(tp, offset)
        self.doubt_is_new.set()

    async def ahead(
        self,
        tables: Mapping[TP, CollectionT],
        offsets: Mapping[TP, int | None],
        ends: Mapping[TP, int],
    ) -> frozenset[TP]:
        """Return the partitions of ``ends`` whose tables are ahead; log each of these partitions.

        ``tables`` maps partitions to tables, ``offsets`` to the last changes applied, and ``ends``
        to the ends visible to this worker's consumer. Raises ConsistencyError for the first such
        partition if ``recovery_consistency_check`` is on.
        """
        found = [
            Ahead(str(tables[tp].name), tp, offset_or_minus_one(offsets[tp]), end)
            for tp, end in sorted((await self._ends_before(offsets, ends)).items())
        ]
        for one in found:
            self._log_ahead(one)
        if found and self._app.conf.recovery_consistency_check:
            raise ConsistencyError(str(found[0]))
        return frozenset(one.tp for one in found)

    async def reset_ahead(
        self, tables: Mapping[TP, CollectionT], tps: Collection[TP]
    ) -> frozenset[TP]:
        """Return the partitions of ``tps`` whose open files are ahead of their changelogs.

        Their stored offsets are reset to the beginning of their changelogs. Raises ConsistencyError
        if ``recovery_consistency_check`` is on.
        """
        offsets = {
            tp: table.persisted_offset(tp)
            for tp, table in tables.items()
            if tp in tps and tp.partition in getattr(store_of(table), "_dbs", ())
        }
        if not offsets:
            return frozenset()
        consumer = self._app.consumer
        ahead = await self.ahead(tables, offsets, await consumer.highwaters(*offsets))
        if ahead:
            firsts = await consumer.earliest_offsets(*ahead)
            flushing.hold(self._app)
            for tp in sorted(ahead):
                _reset_offset(tables[tp], tp, firsts[tp])
                self.doubted.pop(tp, None)
        return ahead

    async def refuse_ahead(
        self,
        recovery: RecoveryBase,
        offsets: MutableMapping[TP, int | None],
        ends: Mapping[TP, int],
        firsts: Mapping[TP, int],
    ) -> None:
        """Raise ConsistencyError for tables whose offset is ahead of ``ends``.

        With ``recovery_consistency_check`` off, reset their ``offsets`` instead.
        """
        tables = recovery.tp_to_table
        ahead = await retry(
            recovery,
            "The end offsets of changelogs that tables are ahead of",
            partial(self.ahead, tables, offsets, ends),
        )
        for tp in ahead:
            _reset_offset(tables[tp], tp, firsts[tp])
            offsets[tp] = firsts[tp] - 1

    async def _ends_before(
        self, offsets: Mapping[TP, int | None], ends: Mapping[TP, int]
    ) -> dict[TP, int]:
        """Return partition that is ahead -> its changelog's end, requested now or noted by ``doubt``."""
        seen = {tp: self.doubted[tp] + 1 for tp in ends.keys() & self.doubted.keys()}
        seem = [
            tp for tp in ends if tp not in seen and offset_or_minus_one(offsets.get(tp)) >= ends[tp]
        ]
        told: Mapping[TP, int] = {}
        for number in range(ANSWERS):
            if not seem:
                return seen
            if number:
                await asyncio.sleep(self._pause_s)
            told = await self._ask(seem)
            seem = [tp for tp in seem if offset_or_minus_one(offsets.get(tp)) >= told[tp]]
        return seen | {tp: told[tp] for tp in seem}

    def _log_ahead(self, one: Ahead) -> None:
        if self._app.conf.recovery_consistency_check:
            logger.error(
                "%s. This worker ends. Stop it, and remove the files of the partition to restore it from "
                "the changelog (rows that are only in the files are lost), or set "
                "recovery_consistency_check=False to keep the rows and apply the changelog to them",
                one,
            )
        else:
            logger.warning(
                "%s. The rows are kept and all of the changelog is applied to them "
                "(recovery_consistency_check=False)",
                one,
            )


def _reset_offset(table: CollectionT, tp: TP, first: int) -> None:
    """Set the stored offset of ``tp`` to just before ``first``, where its changelog begins."""
    table.data.set_persisted_offset(tp, first - 1)
