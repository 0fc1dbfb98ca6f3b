"""Writes a registration: the consumer's leased key, and the keys that belong to it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from faust_assigner.service import values as codec
from faust_assigner.service.clock import Clock
from faust_assigner.service.errors import (
    LeaseLost,
    Replaced,
    ServiceRefused,
    StoreError,
    WrongCaller,
    expelled,
    replaced,
)
from faust_assigner.service.keys import Keys
from faust_assigner.service.leases import HeldLease
from faust_assigner.service.mirror import Mirror
from faust_assigner.service.questions import awaited, waits_in_vain
from faust_assigner.service.records import (
    FORGOTTEN,
    HEARTBEATS,
    KNOWN,
    MOST_REPLACED,
    Consumer,
    Status,
    names_itself,
)
from faust_assigner.service.store.base import Delete, KeyValue, Put, Store, Write
from faust_assigner.service.store.rewrite import Decide, rewritten
from faust_assigner.settings.service import ServiceSettings

logger = logging.getLogger(__name__)


class _Changed(Exception):
    """The name's present registration has changed since it was read."""


@dataclass(eq=False, repr=False)
class Registrar:
    """Writes registrations for one instance."""

    store: Store
    keys: Keys
    settings: ServiceSettings
    clock: Clock
    mirror: Mirror
    node_id: str

    async def write(self, consumer: Consumer) -> tuple[int, Consumer, HeldLease]:
        """Write the registration, if possible under the lease of the process's last registration.

        Return the revision of the write, the registration and its lease. Raises
        :class:`ServiceRefused`, and StoreError if the outcome is unknown.
        """
        while (present := await self._present_lease(consumer)) is not None:
            try:
                return *await self._write(consumer, *present), present[1]
            except (LeaseLost, _Changed):
                continue
        ttl_s = self.settings.consumer_ttl_s
        lease = await HeldLease.grant(self.store, self.clock, ttl_s)
        try:
            return *await self._write(consumer, None, lease), lease
        except ServiceRefused:
            await lease.revoke()
            raise
        # After a StoreError the outcome is unknown, and the lease is not revoked: the consumer may
        # still be processing, and a revoked lease would reassign its partitions at once.

    async def _present_lease(self, consumer: Consumer) -> tuple[KeyValue, HeldLease] | None:
        """Return the process's present registration and its renewed lease, or None.

        A new lease could expire in spite of heartbeats: an instance whose mirror is late still
        renews the old lease. Only a changed time to live needs a new lease; :meth:`_write` then
        revokes the old lease.
        """
        kv = await self.store.get(self.keys.consumer(consumer.name))
        before = codec.readable(codec.load_consumer, kv)
        if kv is None or before is None or not may_share(before, consumer):
            return None
        ttl_s = self.settings.consumer_ttl_s
        try:
            lease = await HeldLease.adopt(self.store, self.clock, kv.lease, ttl_s)
        except LeaseLost:
            return None
        # etcd counts whole seconds, and may grant a little more than the time to live.
        return (kv, lease) if ttl_s <= lease.granted_s < ttl_s + 2 else None

    async def _write(
        self, consumer: Consumer, present: KeyValue | None, lease: HeldLease
    ) -> tuple[int, Consumer]:
        """Write the registration; raise _Changed if ``present`` is given and has changed since."""
        consumer = self._identified(consumer, present, lease)
        former = 0

        async def registered(kv: KeyValue | None) -> Sequence[Write]:
            nonlocal former
            if present is not None and kv != present:
                raise _Changed
            writes, former = await self._replacing(kv, consumer, lease)
            return writes

        revision = await self._unless_expelled(registered, consumer, present, lease)
        if former and former != lease.lease_id:
            await self._revoke(former)
        return revision, consumer

    async def _replacing(
        self, kv: KeyValue | None, consumer: Consumer, lease: HeldLease
    ) -> tuple[list[Write], int]:
        """Return the writes that replace the registration ``kv``, and the process's former lease.

        The former lease is 0 if the process has none.
        """
        before = codec.readable(codec.load_consumer, kv)
        after, former = replace(consumer, registered_at=self.clock.wall()), 0
        beside = await self._returning(after)
        is_first = any(write.key == self.keys.awaiting for write in beside)
        if not (is_first or self.mirror.view.awaiting):
            after = replace(after, former={})
        if kv is not None and before is not None:
            after = self._inherited(before, after)
            former = kv.lease if may_share(before, after) else 0
            if self.settings.strict:
                beside += await fences(self.store, self.keys, kv, before, after, lease)
        await asyncio.sleep(0)  # let other tasks run: large claims take long to encode
        value = codec.dump_consumer(after)
        await asyncio.sleep(0)
        return [Put(self.keys.consumer(after.name), value, lease.lease_id), *beside], former

    async def _unless_expelled(
        self, registered: Decide, consumer: Consumer, present: KeyValue | None, lease: HeldLease
    ) -> int:
        """Write the result of ``registered``; return the revision. Raises Expelled and Replaced."""
        mark = self.keys.expelled(consumer.name, consumer.incarnation)
        refusal = expelled(consumer.name, consumer.incarnation)
        while True:
            try:
                return await rewritten(
                    self.store,
                    self.keys.consumer(consumer.name),
                    registered,
                    unless={mark: refusal},
                    known=present,
                )
            except Replaced:
                # If the consumer's process was expelled before its successor registered, report Expelled.
                if await self.store.get(mark) is not None:
                    raise refusal from None
                raise
            except LeaseLost:
                # Retry if the lease of the replaced process expired; raise if the new lease did.
                if await self.store.keep_alive(lease.lease_id) <= 0:
                    raise

    def _identified(
        self, consumer: Consumer, present: KeyValue | None, lease: HeldLease
    ) -> Consumer:
        """Return the request with a new session; if it has heartbeats, also with an incarnation."""
        session = f"{self.node_id}-{lease.lease_id:x}"
        if present is not None:
            session += f"-{present.mod_revision:x}"
        incarnation = consumer.incarnation or (
            f"~{session}" if HEARTBEATS in consumer.capabilities else ""
        )
        return replace(consumer, incarnation=incarnation, session=session)

    async def _revoke(self, lease_id: int) -> None:
        try:
            await self.store.revoke(lease_id)
        except StoreError as error:
            logger.info("could not revoke the lease %x, so it expires: %s", lease_id, error)

    async def _returning(self, consumer: Consumer) -> list[Write]:
        """Return the additional writes of a registration after a leave or an outage.

        After an outage of the whole group, the first consumer would get every partition, and would
        have to load most states. The registration of this first consumer therefore writes the key
        ``Keys.awaiting``. Until the lease of that key ends (``rebalance_delay_s``), each consumer gets
        only its former partitions.
        """
        view, delay_s = self.mirror.view, self.settings.rebalance_delay_s
        writes: list[Write] = []
        if consumer.name in view.departed:
            writes.append(Delete(self.keys.departed(consumer.name)))
        if delay_s <= 0 or view.consumers:
            return writes
        others = awaited(view) - {consumer.name}
        if not (others or consumer.former):
            return writes
        said = KNOWN if view.owned else FORGOTTEN
        lease = await self.store.grant(delay_s)
        logger.warning(
            "%s is the first consumer after an outage of the group: waiting for %s for up to %g s "
            "(--rebalance-delay-s); until then each consumer gets only its former partitions",
            consumer.name,
            f"{len(others)} others" if view.owned else "the former consumers",
            delay_s,
        )
        return [*writes, Put(self.keys.awaiting, said, lease.lease_id)]

    def _inherited(self, before: Consumer, after: Consumer) -> Consumer:
        """Return ``after`` with the fields inherited from ``before``.

        Raises WrongCaller and Replaced.
        """
        if before.identity and before.identity != after.identity:
            raise WrongCaller(f"{after.name} is registered by another identity")
        if before.incarnation != after.incarnation:
            if after.returns or after.incarnation in before.replaced:
                raise replaced(after.name, after.incarnation, before.incarnation)
            # A new process does not inherit a drain, unless an operator drained the consumer.
            passed = (before.incarnation, *before.replaced)[:MOST_REPLACED]
            after = replace(after, replaced=passed)
            if not before.by_operator:
                return after
        # A reconnection does not end a drain. But if the last process was dismissed, it stopped
        # while it owned partitions; the new registration may take these partitions.
        if before.status is Status.DRAINING and not before.dismissed:
            after = replace(
                after,
                status=before.status,
                by_operator=before.by_operator,
                leaves=before.leaves and before.incarnation == after.incarnation,
                # If this is true, the new stream ends at once: see Sessions.
                dismissed=waits_in_vain(self.mirror.view, after.name, self.mirror.view.ready()),
            )
        return replace(
            after,
            replaced=after.replaced or before.replaced,
            former=after.former or (before.former if self.mirror.view.awaiting else {}),
        )


def may_share(before: Consumer, after: Consumer) -> bool:
    """Whether both are registrations of one process that sends heartbeats: they share a lease."""
    return (
        names_itself(after.incarnation)
        and before.incarnation == after.incarnation
        and HEARTBEATS in before.capabilities
        and HEARTBEATS in after.capabilities
    )


async def fences(
    store: Store, keys: Keys, present: KeyValue, before: Consumer, after: Consumer, lease: HeldLease
) -> list[Write]:
    """Return the writes that reserve ``before``'s partitions while its process may work on them.

    ``present`` is the stored registration ``before``; ``after`` replaces it under ``lease``. A
    replaced process may work until its lease expires. If the same process registers again, it may
    miss the answer, and go on to work under the former, longer lease. Raises ``StoreError``.
    """
    ends_with = 0
    if before.incarnation != after.incarnation:
        ends_with = present.lease
    elif present.lease != lease.lease_id and may_share(before, after):
        try:
            former_s = await store.keep_alive(present.lease)
        except LeaseLost:
            return []
        # The fence gets a separate lease. The former lease is revoked, because an instance with a
        # late mirror would renew it instead of the new lease.
        if former_s > lease.granted_s:
            ends_with = (await store.grant(former_s)).lease_id
    fence = keys.fence(before.name, before.incarnation)
    return [Put(fence, before.session.encode(), ends_with)] if ends_with else []
