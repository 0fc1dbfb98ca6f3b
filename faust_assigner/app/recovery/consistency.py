"""Table files ahead of their changelog are refused: each later change would pass for one that they have.

A changelog is behind a file where its topic was deleted and made again, where the cluster is another one, or
where a leader was elected that lacks records. Faust compares at each recovery and raises ConsistencyError,
unless ``recovery_consistency_check`` is off. Here the end is compared at each recovery, beside streams every
few seconds, and at once where the changelog gives a change an offset that its file is beyond.

A file is never ahead because of a transaction that is open: what a committed reader sees may end before
a change that has been committed, so it is the high watermark that decides, asked for several times. A leader
that was just elected, or ``acks=1``, may tell an older one for a moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from faust.exceptions import ConsistencyError
from mode import get_logger

from faust_assigner.app.recovery.restoring import connection_of
from faust_assigner.app.tables.disk import known
from faust_assigner.snapshots.changelog import extents_of

logger = get_logger(__name__)

#: Seconds between two comparisons beside streams that flow.
COMPARE_S = 10.0
#: So many answers in a row must put the end before what the file has, so many seconds apart.
ANSWERS = 3
PAUSE_S = 1.0

#: Asks the broker for the high watermarks of some partitions, open transactions included.
Ask = Callable[[Collection[Any]], Awaitable[Mapping[Any, int]]]


@dataclass(frozen=True)
class Ahead:
    """A table partition that has a change at ``offset``; ``end`` is the end offset of its changelog."""

    table: str
    tp: Any
    offset: int
    end: int

    def __str__(self) -> str:
        return (
            f"Table {self.table}: what this worker has of partition {self.tp.partition} goes up to offset "
            f"{self.offset} of {self.tp.topic}, but the end offset of that changelog is {self.end} "
            f"({self.offset} > {self.end - 1}): the topic was deleted and made again, has lost records, or "
            "the files are of another cluster"
        )


class Consistency:
    """Of a recovery: compares what tables have with where their changelogs end.

    ``ask`` is asked only of partitions that seem to be ahead.
    """

    def __init__(self, app: Any, ask: Ask | None = None, *, pause_s: float = PAUSE_S) -> None:
        self._app, self._pause_s = app, pause_s
        self._ask: Ask = self._high_watermarks if ask is None else ask
        #: Partition -> the offset that its changelog gave a new change although the file is beyond it.
        self.doubted: dict[Any, int] = {}
        self.doubt_is_new = asyncio.Event()

    async def _high_watermarks(self, tps: Collection[Any]) -> Mapping[Any, int]:
        found = await extents_of(
            connection_of(self._app), sorted(tps), isolation_level="read_uncommitted"
        )
        return {tp: found[tp].end for tp in tps}

    def doubt(self, tp: Any, offset: int) -> None:
        """A change made after the file was restored has ``offset``, which the file is beyond."""
        self.doubted.setdefault(tp, offset)
        self.doubt_is_new.set()

    async def ahead(
        self, tables: Mapping[Any, Any], offsets: Mapping[Any, int | None], ends: Mapping[Any, int]
    ) -> frozenset[Any]:
        """Of ``ends``, the partitions ahead; raises ConsistencyError for these, if the app wants that.

        ``tables`` are by partition; ``offsets`` are of the last changes applied, and ``ends`` are those that
        this worker's consumer sees. Both outcomes are logged.
        """
        found = [
            Ahead(str(tables[tp].name), tp, known(offsets[tp]), end)
            for tp, end in sorted((await self._ends_before(offsets, ends)).items())
        ]
        for one in found:
            self._tell(one)
        if found and self._app.conf.recovery_consistency_check:
            raise ConsistencyError(str(found[0]))
        return frozenset(one.tp for one in found)

    async def _ends_before(
        self, offsets: Mapping[Any, int | None], ends: Mapping[Any, int]
    ) -> dict[Any, int]:
        """Of the partitions that are ahead: where their changelogs end, or ended when it was noticed."""
        seen = {tp: self.doubted[tp] + 1 for tp in ends.keys() & self.doubted.keys()}
        seem = [tp for tp in ends if tp not in seen and known(offsets.get(tp)) >= ends[tp]]
        told: Mapping[Any, int] = {}
        for number in range(ANSWERS):
            if not seem:
                return seen
            if number:
                await asyncio.sleep(self._pause_s)
            told = await self._ask(seem)
            seem = [tp for tp in seem if known(offsets.get(tp)) >= told[tp]]
        return seen | {tp: told[tp] for tp in seem}

    def _tell(self, one: Ahead) -> None:
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


def begin_anew(table: Any, tp: Any, first: int) -> None:
    """Have the file of ``tp`` say that it has nothing of a changelog that begins at ``first``."""
    table.data.set_persisted_offset(tp, first - 1)
