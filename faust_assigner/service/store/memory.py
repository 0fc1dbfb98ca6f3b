"""The store in memory, with etcd's semantics, for one machine, for tests and for the simulator."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from faust_assigner.service.clock import Clock, SystemClock
from faust_assigner.service.errors import Compacted, LeaseLost, StoreUnavailable, TooManyOperations
from faust_assigner.service.store.base import (
    MAX_OPERATIONS,
    Batch,
    Compare,
    Delete,
    Event,
    Field,
    KeyValue,
    Lease,
    Listing,
    Put,
    TxnResult,
    Write,
)

#: Seconds to live of the shortest lease. A lease of 0 s would end before its first key is written.
LEAST_TTL_S = 1.0


@dataclass
class _Lease:
    ttl_s: float
    expires_at: float
    keys: set[str] = field(default_factory=set)


class MemoryStore:
    """A store in memory, which several instances of the service in one process may share.

    ``history``         the number of revisions kept for watches; older revisions are compacted
    ``history_bytes``   the limit of this history in bytes of values
    ``first_revision``  the first revision, and the first id of a lease; a restarted process must
                        begin above the numbers of the previous process
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        history: int = 10_000,
        history_bytes: int = 64 << 20,
        first_revision: int = 1,
    ) -> None:
        self._clock: Clock = clock or SystemClock()
        self._history = history
        self._closed = False
        self._keys: dict[str, KeyValue] = {}
        self._log: list[Event] = []
        self._log_bytes, self._most_bytes = 0, history_bytes
        self._leases: dict[int, _Lease] = {}
        self._next_lease = first_revision
        self._news = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self.revision = first_revision
        self.compacted = first_revision - 1

    # -- reads ---------------------------------------------------------------------------------------

    async def get(self, key: str) -> KeyValue | None:
        """Read a key."""
        self._expire()
        return self._keys.get(key)

    async def list(self, prefix: str) -> Listing:
        """List all keys under ``prefix``. Cost: one step per key of the whole store."""
        self._expire()
        found = sorted(key for key in self._keys if key.startswith(prefix))
        return Listing(self.revision, tuple(self._keys[key] for key in found))

    async def watch(self, prefix: str, start_revision: int) -> AsyncIterator[Batch]:
        """Iterate over the changes from ``start_revision`` on."""
        at = start_revision
        while not self._closed:
            if at < self.compacted:
                raise Compacted(at, self.compacted)
            news, upto = self._news, self.revision
            first = bisect_left(self._log, at, key=lambda event: event.revision)
            last = bisect_right(self._log, upto, key=lambda event: event.revision)
            events = tuple(event for event in self._log[first:last] if event.key.startswith(prefix))
            at = max(at, upto + 1)
            if events:
                yield Batch(upto, events)
            else:
                await news.wait()
        raise StoreUnavailable("the store is closed")

    # -- writes --------------------------------------------------------------------------------------

    async def txn(self, compares: Sequence[Compare], writes: Sequence[Write]) -> TxnResult:
        """Run a transaction."""
        self._expire()
        for operations in (compares, writes):
            if len(operations) > MAX_OPERATIONS:
                raise TooManyOperations(len(operations), MAX_OPERATIONS)
        if len({write.key for write in writes}) < len(writes):
            raise ValueError("a transaction writes a key twice")
        if not all(self._holds(compare) for compare in compares):
            return TxnResult(False, self.revision)
        for write in writes:
            if isinstance(write, Put) and write.lease and write.lease not in self._leases:
                raise LeaseLost(write.lease)
        return TxnResult(True, self._write(writes))

    def _holds(self, compare: Compare) -> bool:
        kv = self._keys.get(compare.key)
        if compare.field is Field.VALUE:
            return kv is not None and kv.value == compare.expected
        return (0 if kv is None else getattr(kv, compare.field.value)) == compare.expected

    def _write(self, writes: Sequence[Write]) -> int:
        revision = self.revision + 1
        events = [event for write in writes if (event := self._apply(write, revision)) is not None]
        if not events:
            return self.revision
        self.revision = revision
        self._log += events
        self._log_bytes += sum(map(_event_size, events))
        if revision - self.compacted > 2 * self._history:
            self._forget(revision - self._history)
        while self._log_bytes > self._most_bytes and self._log[0].revision < revision:
            self._forget((revision + self._log[0].revision + 1) // 2)
        news, self._news = self._news, asyncio.Event()
        news.set()
        return revision

    def _apply(self, write: Write, revision: int) -> Event | None:
        before = self._keys.get(write.key)
        if before is not None and before.lease in self._leases:
            self._leases[before.lease].keys.discard(before.key)
        if isinstance(write, Delete):
            if before is None:
                return None
            del self._keys[write.key]
            return Event(write.key, revision, None)
        kv = KeyValue(
            write.key,
            write.value,
            before.create_revision if before else revision,
            revision,
            before.version + 1 if before else 1,
            write.lease,
        )
        self._keys[write.key] = kv
        if write.lease:
            self._leases[write.lease].keys.add(write.key)
        return Event(write.key, revision, kv)

    async def compact(self, revision: int) -> None:
        """Forget the history before ``revision``."""
        self._forget(min(revision, self.revision))

    def _forget(self, revision: int) -> None:
        if revision > self.compacted:
            self.compacted = revision
            gone = bisect_left(self._log, revision, key=lambda event: event.revision)
            self._log_bytes -= sum(map(_event_size, self._log[:gone]))
            del self._log[:gone]

    # -- leases --------------------------------------------------------------------------------------

    async def grant(self, ttl_s: float) -> Lease:
        """Grant a new lease; as in etcd, for at least :data:`LEAST_TTL_S`."""
        self._expire()
        ttl_s = max(ttl_s, LEAST_TTL_S)
        lease_id, self._next_lease = self._next_lease, self._next_lease + 1
        self._leases[lease_id] = _Lease(ttl_s, self._clock.monotonic() + ttl_s)
        self._set_timer()
        return Lease(lease_id, ttl_s)

    async def keep_alive(self, lease_id: int, *, timeout_s: float | None = None) -> float:
        """Renew a lease once."""
        self._expire()
        lease = self._leases.get(lease_id)
        if lease is None:
            raise LeaseLost(lease_id)
        lease.expires_at = self._clock.monotonic() + lease.ttl_s
        return lease.ttl_s

    async def revoke(self, lease_id: int) -> None:
        """End a lease."""
        self._expire()
        self._end(lease_id)

    def _end(self, lease_id: int) -> None:
        lease = self._leases.pop(lease_id, None)
        if lease is not None and lease.keys:
            self._write([Delete(key) for key in sorted(lease.keys)])

    def _expire(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store is closed")
        now = self._clock.monotonic()
        for lease_id in [i for i, lease in self._leases.items() if lease.expires_at <= now]:
            self._end(lease_id)

    def _set_timer(self) -> None:
        """Set a timer for the next lease's end, so that leases expire even without any call."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._leases:
            soonest = min(lease.expires_at for lease in self._leases.values())
            wait_s = max(soonest - self._clock.monotonic(), 0.001)
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._expire()
        self._set_timer()

    async def close(self) -> None:
        """End all watches."""
        self._closed = True
        self._news.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _event_size(event: Event) -> int:
    """Return the size of the event's value in bytes."""
    return 0 if event.kv is None else len(event.kv.value)
