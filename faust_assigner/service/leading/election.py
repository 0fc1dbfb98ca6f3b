"""Who leads: whoever creates the leader's key, for as long as its lease lives and it knows so itself."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence

from faust_assigner.service import keys as codec
from faust_assigner.service.clock import Clock
from faust_assigner.service.errors import StoreError
from faust_assigner.service.keys import Keys
from faust_assigner.service.leases import HeldLease
from faust_assigner.service.records import Leader
from faust_assigner.service.settings import ServiceSettings
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
from faust_assigner.service.tasks import ended

logger = logging.getLogger(__name__)


class Deposed(Exception):
    """This instance does not lead any more: nothing was written."""


class Leadership:
    """One term. Everything the leader writes goes through :meth:`commit`."""

    def __init__(self, store: Store, keys: Keys, lease: HeldLease, revision: int) -> None:
        self.lease = lease
        self.revision = revision
        self._store = store
        self._guard = Compare(keys.leader, Field.MOD_REVISION, revision)

    @property
    def is_held(self) -> bool:
        """Whether this instance leads and may be sure of it."""
        return self.lease.is_held

    async def commit(self, compares: Sequence[Compare], writes: Sequence[Write]) -> TxnResult:
        """A transaction that holds only while the leader's key is ours. Raises Deposed once we are fenced."""
        if not self.is_held:
            raise Deposed(f"term of revision {self.revision} is over")
        return await self._store.txn((self._guard, *compares), writes)

    async def timed(self, ttl_s: float) -> int:
        """A lease that nobody renews: the store deletes its keys after ``ttl_s``, whoever leads by then."""
        return (await self._store.grant(ttl_s)).lease_id


Lead = Callable[[Leadership], Awaitable[None]]


class Election:
    """Runs for leader for ever; ``lead`` is run during each term and cancelled at its end.

    ``vacant`` returns when the key was seen to go, or after the retry interval.
    """

    def __init__(
        self,
        store: Store,
        keys: Keys,
        settings: ServiceSettings,
        clock: Clock,
        node_id: str,
        lead: Lead,
        vacant: Callable[[], Awaitable[None]],
    ) -> None:
        self.term: Leadership | None = None
        self._store = store
        self._keys = keys
        self._settings = settings
        self._clock = clock
        self._node_id = node_id
        self._lead = lead
        self._vacant = vacant

    @property
    def leads(self) -> bool:
        """Whether this instance leads and is sure of it."""
        return self.term is not None and self.term.is_held

    async def run(self) -> None:
        """For ever; cancel it to stop, then :meth:`resign`."""
        while True:
            try:
                term = await self._campaign()
            except StoreError as error:
                logger.info("%s: no election: %s", self._node_id, error)
                term = None
            if term is not None:
                await self._serve(term)
            await self._vacant()

    async def _campaign(self) -> Leadership | None:
        """A term, if the key could be created."""
        if await self._store.get(self._keys.leader) is not None:
            return None
        lease = await HeldLease.grant(self._store, self._clock, self._settings.leader_ttl_s)
        value = codec.dump_leader(Leader(self._node_id, lease.lease_id))
        try:
            put = Put(self._keys.leader, value, lease.lease_id)
            result = await self._store.txn([absent(self._keys.leader)], [put])
        except StoreError:
            # It may have been done: a key that nobody knows to be his is not to stay for a whole TTL.
            await lease.revoke()
            raise
        if not result.succeeded:
            await lease.revoke()
            return None
        logger.info("%s leads since revision %d", self._node_id, result.revision)
        return Leadership(self._store, self._keys, lease, result.revision)

    async def _serve(self, term: Leadership) -> None:
        """One term, to its end: the lease is lost, or leading itself came to an end."""
        self.term = term
        loop = asyncio.get_running_loop()
        work = loop.create_task(_until_deposed(self._lead, term), name="lead")
        hold = loop.create_task(term.lease.hold(self._settings.leader_keepalive_s), name="hold")
        try:
            await asyncio.wait([work, hold], return_when=asyncio.FIRST_COMPLETED)
        finally:
            await ended(work)
            await ended(hold)
            logger.info("%s leads no more", self._node_id)
        self.term = None
        await term.lease.revoke()
        if not work.cancelled() and work.exception() is not None:
            await self._clock.sleep(self._settings.election_retry_s)

    async def resign(self) -> None:
        """Give the key up at once, if it is ours."""
        term, self.term = self.term, None
        if term is not None:
            with contextlib.suppress(StoreError, Deposed):
                await term.commit([], [Delete(self._keys.leader)])
            await term.lease.revoke()


async def _until_deposed(lead: Lead, term: Leadership) -> None:
    with contextlib.suppress(Deposed):
        await lead(term)
