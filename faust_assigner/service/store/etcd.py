"""The store in etcd, by requests of the v3 API.

After a broken watch, the caller starts a new watch from the revision after the last seen.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from faust_assigner.service.errors import (
    Compacted,
    LeaseLost,
    StoreError,
    StoreUnavailable,
    TooManyOperations,
)
from faust_assigner.service.store.access import EtcdAccess
from faust_assigner.service.store.base import (
    MAX_OPERATIONS,
    Batch,
    Compare,
    Event,
    Field,
    KeyValue,
    Lease,
    Listing,
    Put,
    TxnResult,
    Write,
)
from faust_assigner.service.store.etcd_api import etcd_pb2 as pb
from faust_assigner.service.store.etcd_calls import EtcdCalls

#: Maximum number of keys in one page of a listing; all pages are read at the same revision.
PAGE = 2_000

#: Minor version -> the first patch release without the bug of etcd-io/etcd 15247, in which a paused
#: leader ends leases that its successor has renewed. 3.6 and later do not have this bug.
KEEPS_LEASES = {(3, 4): 31, (3, 5): 13}

_TARGETS = {
    Field.VALUE: (pb.Compare.VALUE, "value"),
    Field.VERSION: (pb.Compare.VERSION, "version"),
    Field.MOD_REVISION: (pb.Compare.MOD, "mod_revision"),
    Field.LEASE: (pb.Compare.LEASE, "lease"),
    Field.CREATE_REVISION: (pb.Compare.CREATE, "create_revision"),
}


class EtcdStore:
    """The store in etcd, over one connection at a time.

    ``observe`` is called after every call, with the call's name, its seconds, and the error's name
    or None.
    """

    def __init__(
        self, access: EtcdAccess, *, observe: Callable[[str, float, str | None], None] | None = None
    ) -> None:
        self._deadline_s = access.deadline_s
        self._calls = EtcdCalls(access, observe or (lambda name, took_s, error: None))

    # -- reads ---------------------------------------------------------------------------------------

    async def get(self, key: str) -> KeyValue | None:
        """Read a key."""
        found = await self._calls.ask(
            "KV/Range", pb.RangeRequest(key=key.encode()), pb.RangeResponse
        )
        return _key_value(found.kvs[0]) if found.kvs else None

    async def list(self, prefix: str) -> Listing:
        """List all keys under ``prefix``, page by page, at the first page's revision."""
        items: list[KeyValue] = []
        start, end, revision, limit = prefix.encode(), _prefix_end(prefix.encode()), 0, PAGE
        while True:
            try:
                page = await self._calls.ask(
                    "KV/Range",
                    pb.RangeRequest(key=start, range_end=end, limit=limit, revision=revision),
                    pb.RangeResponse,
                )
            except StoreUnavailable as error:
                if "larger than max" not in str(error) or limit < 2:
                    raise
                limit = max(limit // 8, 1)  # the values are large: request fewer in one message
                continue
            revision = revision or page.header.revision
            items += map(_key_value, page.kvs)
            if not page.more:
                return Listing(revision, tuple(items))
            start = page.kvs[-1].key + b"\0"

    async def watch(self, prefix: str, start_revision: int) -> AsyncIterator[Batch]:
        """Iterate over the changes from ``start_revision`` on."""
        request = pb.WatchRequest(
            create_request=pb.WatchCreateRequest(
                key=prefix.encode(),
                range_end=_prefix_end(prefix.encode()),
                start_revision=start_revision,
                fragment=True,
            )
        )
        held: list[Event] = []
        async with contextlib.aclosing(self._calls.watch(request)) as answers:
            async for answer in answers:
                held += map(_event, answer.events)
                if held and not answer.fragment:
                    # Use the last event's revision: the header's is ahead while a watch catches up.
                    batch, held = Batch(held[-1].revision, tuple(held)), []
                    yield batch

    # -- writes --------------------------------------------------------------------------------------

    async def txn(self, compares: Sequence[Compare], writes: Sequence[Write]) -> TxnResult:
        """Run a transaction."""
        for operations in (compares, writes):
            if len(operations) > MAX_OPERATIONS:
                raise TooManyOperations(len(operations), MAX_OPERATIONS)
        if len({write.key for write in writes}) < len(writes):
            raise ValueError("a transaction writes a key twice")
        request = pb.TxnRequest(
            compare=map(_compare_message, compares), success=map(_operation_message, writes)
        )
        done = await self._calls.ask("KV/Txn", request, pb.TxnResponse)
        return TxnResult(done.succeeded, done.header.revision)

    async def compact(self, revision: int) -> None:
        """Forget the history before ``revision``. An already compacted revision is no error."""
        try:
            await self._calls.ask(
                "KV/Compact", pb.CompactionRequest(revision=revision), pb.CompactionResponse
            )
        except Compacted:
            return

    # -- leases --------------------------------------------------------------------------------------

    async def grant(self, ttl_s: float) -> Lease:
        """Grant a new lease. etcd counts whole seconds, and may grant more than ``ttl_s``."""
        request = pb.LeaseGrantRequest(TTL=max(math.ceil(ttl_s), 1))
        granted = await self._calls.ask("Lease/LeaseGrant", request, pb.LeaseGrantResponse)
        if granted.error:
            raise StoreError(f"etcd granted no lease: {granted.error}")
        return Lease(granted.ID, float(granted.TTL))

    async def keep_alive(self, lease_id: int, *, timeout_s: float | None = None) -> float:
        """Renew a lease once."""
        answer = await self._calls.keep_alive(
            pb.LeaseKeepAliveRequest(ID=lease_id),
            timeout_s=min(self._deadline_s, timeout_s or self._deadline_s),
        )
        # For an expired lease etcd answers with a time to live of 0, not with an error.
        if answer.TTL <= 0:
            raise LeaseLost(lease_id)
        return float(answer.TTL)

    async def revoke(self, lease_id: int) -> None:
        """End a lease."""
        try:
            await self._calls.ask(
                "Lease/LeaseRevoke", pb.LeaseRevokeRequest(ID=lease_id), pb.LeaseRevokeResponse
            )
        except LeaseLost:
            return

    # -- the connection ------------------------------------------------------------------------------

    async def version(self) -> str:
        """Return etcd's version."""
        status = await self._calls.ask("Maintenance/Status", pb.StatusRequest(), pb.StatusResponse)
        return str(status.version)

    async def close(self) -> None:
        """Close the connections."""
        await self._calls.close()


def loses_leases(version: str) -> bool:
    """Return whether a paused leader of this etcd may end leases that its successor has renewed.

    A consumer with such a lease works until its next heartbeat, although its partitions already
    have new owners. Then only a sink that compares epochs refuses the consumer's late writes.
    """
    number = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    if number is None:
        return False
    major, minor, patch = map(int, number.groups())
    return (major, minor) < (3, 6) and patch < KEEPS_LEASES.get((major, minor), patch + 1)


def _key_value(kv: Any) -> KeyValue:
    key = kv.key.decode("utf-8", "replace")
    return KeyValue(key, kv.value, kv.create_revision, kv.mod_revision, kv.version, kv.lease)


def _event(event: Any) -> Event:
    kv = _key_value(event.kv)
    return Event(kv.key, kv.mod_revision, kv if event.type == pb.Event.PUT else None)


def _compare_message(compare: Compare) -> Any:
    target, name = _TARGETS[compare.field]
    expected: dict[str, Any] = {name: compare.expected}
    return pb.Compare(result=pb.Compare.EQUAL, target=target, key=compare.key.encode(), **expected)


def _operation_message(write: Write) -> Any:
    if isinstance(write, Put):
        put = pb.PutRequest(key=write.key.encode(), value=write.value, lease=write.lease)
        return pb.RequestOp(request_put=put)
    return pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=write.key.encode()))


def _prefix_end(prefix: bytes) -> bytes:
    """Return the first key after all keys with ``prefix``."""
    for i in range(len(prefix) - 1, -1, -1):
        if prefix[i] < 0xFF:
            return prefix[:i] + bytes([prefix[i] + 1])
    return b"\0"
