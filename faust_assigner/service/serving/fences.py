"""Fences: a former lease of a name still protects the process that may work by its answers."""

from __future__ import annotations

from faust_assigner.service.errors import LeaseLost
from faust_assigner.service.keys import Keys
from faust_assigner.service.leases import HeldLease
from faust_assigner.service.records import HEARTBEATS, Consumer, names_itself
from faust_assigner.service.store.base import KeyValue, Put, Store, Write


def may_share(before: Consumer, after: Consumer) -> bool:
    """Whether both are registrations of one process, whose lease only its heartbeats renew."""
    return (
        names_itself(after.incarnation)
        and before.incarnation == after.incarnation
        and HEARTBEATS in before.capabilities
        and HEARTBEATS in after.capabilities
    )


async def fences(
    store: Store, keys: Keys, present: KeyValue, before: Consumer, after: Consumer, lease: HeldLease
) -> list[Write]:
    """Return the writes that keep ``before``'s partitions as long as it may work on them.

    ``present``: the key of the registration ``before``, which ``after`` replaces under ``lease``. A
    replaced process may work until its lease expires. The same process may not get the answer to
    ``after``, and work by an answer under a longer lease. Raises ``StoreError``.
    """
    ends_with = 0
    if before.incarnation != after.incarnation:
        ends_with = present.lease
    elif present.lease != lease.lease_id and may_share(before, after):
        try:
            former_s = await store.keep_alive(present.lease)
        except LeaseLost:
            return []
        # The former lease itself is revoked: a late instance would renew it in place of the new one.
        if former_s > lease.granted_s:
            ends_with = (await store.grant(former_s)).lease_id
    fence = keys.fence(before.name, before.incarnation)
    return [Put(fence, before.session.encode(), ends_with)] if ends_with else []
