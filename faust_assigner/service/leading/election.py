"""The election of the leader.

An instance that has created the leader's key leads as long as its lease for the key is valid.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from faust_assigner.service import values as codec
from faust_assigner.service.clock import Clock
from faust_assigner.service.errors import StoreError
from faust_assigner.service.keys import Keys
from faust_assigner.service.leases import HeldLease
from faust_assigner.service.records import Leader
from faust_assigner.service.store.base import (
    Compare,
    Delete,
    Field,
    Put,
    Store,
    TxnResult,
    Write,
    absent,
)
from faust_assigner.service.tasks import cancel_and_wait
from faust_assigner.settings.service import ServiceSettings

logger = logging.getLogger(__name__)


class Deposed(Exception):
    """This instance no longer leads; the refused commit wrote no key."""


class Leadership:
    """One term of a leader. The leader makes all its writes through :meth:`commit`."""

    def __init__(self, store: Store, keys: Keys, lease: HeldLease, revision: int) -> None:
        self.lease = lease
        self.revision = revision
        self._store = store
        self._guard = Compare(keys.leader, Field.MOD_REVISION, revision)

    @property
    def is_held(self) -> bool:
        """Whether this instance leads and its lease is valid."""
        return self.lease.is_held

    async def commit(self, compares: Sequence[Compare], writes: Sequence[Write]) -> TxnResult:
        """Run a transaction that fails if the leader's key has changed since this instance became the leader.

        Raises Deposed if the term's lease is no longer valid.
        """
        if not self.is_held:
            raise Deposed(f"this instance's leadership since revision {self.revision} has ended")
        return await self._store.txn((self._guard, *compares), writes)

    async def timed(self, ttl_s: float) -> int:
        """Grant a lease that is never renewed; return its id. Its keys live for ``ttl_s``."""
        return (await self._store.grant(ttl_s)).lease_id


Lead = Callable[[Leadership], Awaitable[None]]


@dataclass(eq=False, repr=False)
class Election:
    """Campaigns for leadership; runs ``lead`` in each term and cancels ``lead`` when a term ends.

    ``vacant`` returns when the leader's key has disappeared, or after the retry interval.
    """

    store: Store
    keys: Keys
    settings: ServiceSettings
    clock: Clock
    node_id: str
    lead: Lead
    vacant: Callable[[], Awaitable[None]]
    term: Leadership | None = field(default=None, init=False)

    @property
    def leads(self) -> bool:
        """Whether this instance leads and its lease is valid."""
        return self.term is not None and self.term.is_held

    async def run(self) -> None:
        """Campaign forever. To stop, cancel this coroutine, then call :meth:`resign`."""
        while True:
            try:
                term = await self._campaign()
            except StoreError as error:
                logger.info(
                    "%s could not take part in the election, trying again: %s", self.node_id, error
                )
                term = None
            if term is not None:
                await self._serve(term)
            await self.vacant()

    async def _campaign(self) -> Leadership | None:
        """Try to create the leader's key; return the term, or None."""
        if await self.store.get(self.keys.leader) is not None:
            return None
        lease = await HeldLease.grant(self.store, self.clock, self.settings.leader_ttl_s)
        value = codec.dump_leader(Leader(self.node_id, lease.lease_id))
        try:
            put = Put(self.keys.leader, value, lease.lease_id)
            result = await self.store.txn([absent(self.keys.leader)], [put])
        except (StoreError, asyncio.CancelledError):
            # The store may have created the key although this instance got no answer. Revoke the
            # lease, which deletes the key at once; otherwise the group has no leader for a TTL.
            await lease.revoke()
            raise
        if not result.succeeded:
            await lease.revoke()
            return None
        logger.info("%s leads since revision %d", self.node_id, result.revision)
        return Leadership(self.store, self.keys, lease, result.revision)

    async def _serve(self, term: Leadership) -> None:
        """Run ``lead`` for one term, until the lease is lost or ``lead`` ends."""
        self.term = term
        loop = asyncio.get_running_loop()
        work = loop.create_task(_until_deposed(self.lead, term), name="lead")
        hold = loop.create_task(term.lease.hold(self.settings.leader_keepalive_s), name="hold")
        try:
            await asyncio.wait([work, hold], return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_and_wait(work)
            await cancel_and_wait(hold)
            logger.info("%s no longer leads", self.node_id)
        self.term = None
        await term.lease.revoke()
        if not work.cancelled() and work.exception() is not None:
            await self.clock.sleep(self.settings.election_retry_s)

    async def resign(self) -> None:
        """Delete the leader's key at once, if this instance leads."""
        term, self.term = self.term, None
        if term is not None:
            with contextlib.suppress(StoreError, Deposed):
                await term.commit([], [Delete(self.keys.leader)])
            await term.lease.revoke()


async def _until_deposed(lead: Lead, term: Leadership) -> None:
    with contextlib.suppress(Deposed):
        await lead(term)
