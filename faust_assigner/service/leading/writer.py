"""Writes the leader's bundles in few transactions, and leaves out the bundles that are refused."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from faust_assigner.service.handoff import TopicPartition
from faust_assigner.service.leading.bundles import COOLDOWN_LEASE, EXPELLED_LEASE, Bundle, lines
from faust_assigner.service.leading.election import Deposed, Leadership
from faust_assigner.service.metrics import Metrics
from faust_assigner.service.records import EXPELLED_S
from faust_assigner.service.store.base import Put, Write
from faust_assigner.settings.service import ServiceSettings

logger = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class Writer:
    """Writes bundles for the leader. ``refused`` is called for each bundle with a failed compare."""

    settings: ServiceSettings
    metrics: Metrics
    refused: Callable[[], None]

    async def write(
        self, term: Leadership, bundles: Sequence[Bundle], ages: Mapping[TopicPartition, float]
    ) -> int:
        """Write the bundles of at most one transaction; return the revision of the last write.

        ``ages``: the ages in seconds of the hand-offs that end. Raises Deposed and StoreError.
        """
        return await self._apply(term, await self._with_leases(term, bundles), ages)

    async def _with_leases(self, term: Leadership, bundles: Sequence[Bundle]) -> Sequence[Bundle]:
        """Replace the placeholders by granted leases, with which the store deletes the keys."""
        times = {COOLDOWN_LEASE: self.settings.cooldown_s, EXPELLED_LEASE: EXPELLED_S}
        wanted = {
            write.lease for bundle in bundles for write in bundle.writes if isinstance(write, Put)
        }
        leases = {mark: await term.timed(times[mark]) for mark in sorted(wanted & times.keys())}
        if not leases:
            return bundles
        return [
            replace(bundle, writes=tuple(_bound(write, leases) for write in bundle.writes))
            for bundle in bundles
        ]

    async def _apply(
        self, term: Leadership, bundles: Sequence[Bundle], ages: Mapping[TopicPartition, float]
    ) -> int:
        """Write the bundles in one transaction; if the transaction fails, halve them and try again.

        The halving isolates each bundle with a failed compare. ``ages``: the ages in seconds of the
        hand-offs that end. Returns the revision of the last write.
        """
        result = await term.commit(
            list(dict.fromkeys(compare for bundle in bundles for compare in bundle.compares)),
            [write for bundle in bundles for write in bundle.writes],
        )
        if result.succeeded:
            self._log_and_count(bundles, ages)
            return result.revision
        if len(bundles) == 1:
            # Either a different writer has changed a compared key, which the view will show, or
            # the term is over, which _check finds.
            self.refused()
            await self._check(term)
            return 0
        half = len(bundles) // 2
        first = await self._apply(term, bundles[:half], ages)
        return max(first, await self._apply(term, bundles[half:], ages))

    async def _check(self, term: Leadership) -> None:
        """Raise Deposed if a different term has written the leader's key."""
        if not (await term.commit([], [])).succeeded:
            term.lease.give_up()
            raise Deposed("a different instance leads now")

    def _log_and_count(
        self, written: Sequence[Bundle], ages: Mapping[TopicPartition, float]
    ) -> None:
        """Log and count the written bundles."""
        for line in lines(written):
            logger.info("%s", line)
        for bundle in written:
            if bundle.warning:
                logger.warning("%s", bundle.warning)
            for outcome, at in bundle.ended:
                self.metrics.handoff_ended(outcome, ages[at])


def _bound(write: Write, leases: Mapping[int, int]) -> Write:
    if isinstance(write, Put) and write.lease in leases:
        return replace(write, lease=leases[write.lease])
    return write
