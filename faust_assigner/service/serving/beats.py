"""Heartbeats: each renews its consumer's registration, at any instance.

If a consumer sends heartbeats, only they renew its lease. The lease then expires one time to live
after the last heartbeat, even if the instance with the consumer's stream still runs.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from faust_assigner.service import values as codec
from faust_assigner.service.clock import Clock
from faust_assigner.service.digest import Held
from faust_assigner.service.errors import LeaseLost, StoreError, WrongCaller
from faust_assigner.service.keys import Keys
from faust_assigner.service.leases import HeldLease
from faust_assigner.service.metrics import Metrics
from faust_assigner.service.mirror import Mirror
from faust_assigner.service.records import Consumer, names_itself
from faust_assigner.service.serving.holdings import ExpectedHoldings
from faust_assigner.service.store.base import Put, Store, unchanged
from faust_assigner.service.view import Change
from faust_assigner.settings.service import ServiceSettings

logger = logging.getLogger(__name__)

#: A difference between reported and expected partitions that lasts for this share of the time to
#: live is repaired: a delayed message no longer explains the difference.
LASTS = 1 / 3


class _Doubt(NamedTuple):
    """The reported and the expected partitions of a consumer, and since when they differ."""

    held: Held
    expected: Held
    since: float


@dataclass(eq=False, repr=False)
class Beats:
    """Handles the heartbeats that arrive at this instance."""

    store: Store
    keys: Keys
    settings: ServiceSettings
    clock: Clock
    mirror: Mirror
    metrics: Metrics
    _holdings: ExpectedHoldings = field(default_factory=ExpectedHoldings, init=False)
    _leases: dict[str, tuple[str, HeldLease]] = field(default_factory=dict, init=False)
    _doubts: dict[str, _Doubt] = field(default_factory=dict, init=False)

    def on_changes(self, changes: Sequence[Change]) -> None:
        """Apply changes that the mirror reports."""
        self._holdings.on_changes(self.mirror.view, changes)
        for change in changes:
            if change.kind == "consumers" and change.after is None:
                self._leases.pop(change.name, None)
                self._doubts.pop(change.name, None)
            elif change.kind == "resyncs" and change.name in self._doubts:
                # Delay the next repair, so that all instances together repair a consumer at most
                # once in a time to live.
                doubt, rest_s = self._doubts[change.name], self.settings.consumer_ttl_s
                since = self.clock.monotonic() + rest_s * (1 - LASTS)
                self._doubts[change.name] = doubt._replace(since=since)

    def take(self, name: str, session: str, lease: HeldLease) -> None:
        """Note the lease of a registration made at this instance."""
        self._leases[name] = session, lease

    async def beat(
        self, name: str, identity: str, incarnation: str, session: str, held: Held | None
    ) -> float | None:
        """Renew the registration of ``session``, or a later registration of the same process.

        Until a process gets the answer to a later registration, it sends its previous session.
        Return the seconds that the registration surely lives, or None if it is over. ``held`` is
        the consumer's digest of its held partitions. Raises WrongCaller, and StoreError if the
        outcome is unknown.
        """
        lease = await self._lease(name, identity, incarnation, session)
        if lease is None:
            return None
        if lease.renewed_s >= self.settings.consumer_keepalive_s and not await lease.renew():
            if lease.is_lost:
                # A later registration may have a new lease that is not in this mirror yet.
                self._leases.pop(name, None)
                lease = await self._lease(name, identity, incarnation, session)
            if lease is None:
                return None
            if not lease.is_held:
                raise StoreError(f"{name}: the registration could not be renewed")
        if held is not None and self._is_lasting(name, session, held):
            await self._repair(name, session, held)
        return lease.left_s

    async def _lease(
        self, name: str, identity: str, incarnation: str, session: str
    ) -> HeldLease | None:
        entry = self.mirror.view.consumers.get(name)
        if entry is not None and entry.value.session == session:
            lease = await self._adopt_lease(entry.value, entry.kv.lease, identity)
            if lease is not None:
                return lease
        # The last registration, or its new lease, may not be in this instance's mirror yet.
        kv = await self.store.get(self.keys.consumer(name))
        consumer = codec.readable(codec.load_consumer, kv)
        if (
            kv is None
            or consumer is None
            or not _is_same_registration(consumer, incarnation, session)
        ):
            return None
        return await self._adopt_lease(consumer, kv.lease, identity)

    async def _adopt_lease(
        self, consumer: Consumer, lease_id: int, identity: str
    ) -> HeldLease | None:
        """Return the registration's lease, renewed if it is new to this instance; None if lost.

        Remember the lease only while the mirror has the registration: the end of any other
        registration is never heard, so its lease would be remembered forever.
        """
        name, session = consumer.name, consumer.session
        if consumer.identity and consumer.identity != identity:
            raise WrongCaller(f"{name} is registered by another identity")
        known = self._leases.get(name)
        if known is not None and known[0] == session and known[1].is_held:
            return known[1]
        try:
            ttl_s = self.settings.consumer_ttl_s
            lease = await HeldLease.adopt(self.store, self.clock, lease_id, ttl_s)
        except LeaseLost:
            return None
        entry = self.mirror.view.consumers.get(name)
        if entry is not None and entry.value.session == session:
            self._leases[name] = session, lease
        return lease

    # -- holdings ----------------------------------------------------------------------------------

    def _is_lasting(self, name: str, session: str, held: Held) -> bool:
        """Return whether a difference between held and expected partitions is old and unchanged."""
        view, now = self.mirror.view, self.clock.monotonic()
        entry = view.consumers.get(name)
        expected = self._holdings.of(view, name)
        if entry is None or entry.value.session != session or expected == held:
            self._doubts.pop(name, None)
            return False
        doubt = self._doubts.get(name)
        if doubt is None or (doubt.held, doubt.expected) != (held, expected):
            doubt = self._doubts[name] = _Doubt(held, expected, now)
        return now - doubt.since >= LASTS * self.settings.consumer_ttl_s

    async def _repair(self, name: str, session: str, held: Held) -> None:
        """Ask the instance with the consumer's stream, through the store, for a full assignment."""
        kv = self.mirror.view.consumers[name].kv
        put = Put(self.keys.resync(name), session.encode(), kv.lease)
        try:
            if not (await self.store.txn([unchanged(kv)], [put])).succeeded:
                return
        except StoreError as error:
            logger.info("%s: could not repair its partitions, trying again: %s", name, error)
            return
        self.metrics.holdings_repaired()
        logger.warning(
            "%s holds %d partitions and should hold %d, or holds them under wrong epochs: it "
            "gets its whole assignment again",
            name,
            held.count,
            self._holdings.of(self.mirror.view, name).count,
        )


def _is_same_registration(consumer: Consumer, incarnation: str, session: str) -> bool:
    """Whether the registration has this session, or the same process has registered again since."""
    return consumer.session == session or (
        bool(session) and names_itself(incarnation) and consumer.incarnation == incarnation
    )
