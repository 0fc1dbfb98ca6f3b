"""Fetches the first and end offsets of changelogs; retries while the broker does not answer."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from faust_assigner.app.retry import retry

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer
    from faust.types.tuples import TP

    from faust_assigner.app.host.table_bases import RecoveryBase

#: The leader of a partition whose replicas are all unavailable.
NO_LEADER = -1


class Leaderless(Exception):
    """Raised if only some of the requested partitions have a leader; ``tps`` are those without one."""

    def __init__(self, tps: frozenset[TP]) -> None:
        super().__init__(", ".join(f"{tp.topic}-{tp.partition}" for tp in sorted(tps)))
        self.tps = tps


class ChangelogExtents:
    """Fetches the offsets for one recovery from the broker.

    Under ``exactly_once`` the consumer has an end offset only after a fetch from the partition. A request
    waits until each of its partitions has a leader. With ``apart`` it raises Leaderless if only some have.
    """

    def __init__(self, recovery: RecoveryBase, *, apart: bool = False) -> None:
        self._recovery, self._apart = recovery, apart

    async def ends(self, tps: Collection[TP]) -> dict[TP, int]:
        """Return partition -> the offset after its last record."""
        return await self._ask("Ends of changelogs", tps, "end_offsets")

    async def firsts(self, tps: Collection[TP]) -> dict[TP, int]:
        """Return partition -> the offset of its first record."""
        return await self._ask("Beginnings of changelogs", tps, "beginning_offsets")

    async def _ask(self, what: str, tps: Collection[TP], question: str) -> dict[TP, int]:
        thread = self._recovery.app.consumer._thread
        client = thread._ensure_consumer()

        async def ask() -> dict[TP, int]:
            if self._apart and 0 < len(lost := without_leader(client, tps)) < len(tps):
                raise Leaderless(lost)
            found: dict[TP, int] = await thread.call_thread(getattr(client, question), sorted(tps))
            return found

        found = await retry(self._recovery, what, ask) if tps else {}
        return {tp: found[tp] for tp in tps}


def without_leader(client: AIOKafkaConsumer, tps: Collection[TP]) -> frozenset[TP]:
    """Return the partitions that have no leader in the client's metadata."""
    leader = client._client.cluster.leader_for_partition
    return frozenset(tp for tp in tps if leader(tp) == NO_LEADER)
