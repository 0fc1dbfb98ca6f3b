"""Fetches the first and end offsets of changelogs; retries while the broker does not answer."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING

from faust_assigner.app.retry import retry

if TYPE_CHECKING:
    from faust.types.tuples import TP

    from faust_assigner.app.host.table_bases import RecoveryBase


class ChangelogExtents:
    """Fetches the offsets for one recovery from the broker.

    Under ``exactly_once`` the consumer has an end offset only after a fetch from the partition.
    """

    def __init__(self, recovery: RecoveryBase) -> None:
        self._recovery = recovery

    async def ends(self, tps: Collection[TP]) -> dict[TP, int]:
        """Partition -> the offset after its last record."""
        return await self._ask("Ends of changelogs", tps, "end_offsets")

    async def firsts(self, tps: Collection[TP]) -> dict[TP, int]:
        """Partition -> the offset of its first record."""
        return await self._ask("Beginnings of changelogs", tps, "beginning_offsets")

    async def _ask(self, what: str, tps: Collection[TP], question: str) -> dict[TP, int]:
        recovery = self._recovery
        thread = recovery.app.consumer._thread
        ask = getattr(thread._ensure_consumer(), question)
        found = (
            await retry(recovery, what, partial(thread.call_thread, ask, sorted(tps)))
            if tps
            else {}
        )
        return {tp: found[tp] for tp in tps}
