"""Detects the end of a replay by Faust's loop, even if the last records cannot be read.

Faust's recovery waits for the record at the last offset. That record never arrives if it does not
decode, or if the offset holds the marker at the end of a transaction. Therefore a replay also ends
once all records up to the end have been fetched, queued and applied.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING

from mode import get_logger

if TYPE_CHECKING:
    from faust.tables.recovery import RecoveryStats
    from faust.types.app import AppT
    from faust.types.tuples import TP

    from faust_assigner.app.recovery.unreadable import UnreadableRecords

logger = get_logger(__name__)


class ReplayEnd:
    """Finds partitions whose changelogs are fetched to the end with all records applied."""

    def __init__(self, app: AppT, unreadable: UnreadableRecords) -> None:
        self._app, self._unreadable = app, unreadable
        #: Partition -> the fetch round by which all its records had been fetched.
        self._fetched: dict[TP, int] = {}

    def begin(self) -> None:
        """Forget the partitions of the last recovery, because a new recovery begins."""
        self._fetched = {}

    async def look(
        self, lacking: Mapping[TP, RecoveryStats], offsets: MutableMapping[TP, int | None]
    ) -> None:
        """Set ``offsets`` to the end for partitions of ``lacking`` without another readable record.

        The loop calls this method when its queue has been empty for a while. A position at the end
        means that the fetcher has returned the last batch in this fetch round or earlier. When a
        later round begins, that batch is in the queue. So an empty queue then means that all
        records are applied.
        """
        consumer, fetched = self._app.consumer, self._fetched
        rounds = consumer.fetch_rounds
        for tp, stats in sorted(lacking.items()):
            if tp in fetched:
                if fetched[tp] < rounds and self._app.tables.changelog_queue.empty():
                    self._report(tp, stats.offset, stats.highwater)
                    offsets[tp] = stats.highwater
            elif consumer.may_fetch(tp):
                is_fetched = await self._is_fetched(tp, stats.highwater)
                if self._fetched is not fetched:
                    return  # a new recovery has begun, so the notes of the last recovery are void
                if is_fetched:
                    fetched[tp] = consumer.fetch_rounds

    async def _is_fetched(self, tp: TP, highwater: int) -> bool:
        """Whether the fetcher's position is after ``highwater``; False for a revoked partition."""
        try:
            position = await self._app.consumer.position(tp)
        except Exception as error:
            logger.debug("Could not read the consumer's position of %s: %r", tp, error)
            return False
        return position is not None and position > highwater

    def _report(self, tp: TP, offset: int, highwater: int) -> None:
        log = logger.error if self._unreadable.counts[tp] else logger.info
        log(
            "Changelog %s: there is no readable record between offset %s and the end %s; it "
            "counts as restored",
            tp,
            offset,
            highwater,
        )
