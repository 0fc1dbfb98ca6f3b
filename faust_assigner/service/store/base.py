"""The store as the service sees it: etcd's v3 semantics and no more of them than are used.

Every write gets the next *revision* of the whole store; a key remembers the one that created it and the
one that changed it last. A watch from a revision misses nothing until that revision is compacted. Keys
bound to a lease are deleted when it expires. All writes of a transaction share one revision.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

#: etcd refuses a transaction whose compares, or whose writes, are more than this.
MAX_OPERATIONS = 128


@dataclass(frozen=True, slots=True)
class KeyValue:
    """A key as of some revision. ``version`` counts its writes since it was created; ``lease`` 0: none."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    version: int = 1
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Listing:
    """All keys under a prefix, ascending, as of ``revision``: watch from ``revision + 1``."""

    revision: int
    items: tuple[KeyValue, ...]


class Field(Enum):
    """What of a key a transaction may compare."""

    VALUE = "value"  #: bytes
    VERSION = "version"
    MOD_REVISION = "mod_revision"  #: 0: the key does not exist
    CREATE_REVISION = "create_revision"  #: 0: the key does not exist
    LEASE = "lease"


@dataclass(frozen=True, slots=True)
class Compare:
    """``field`` of ``key`` equals ``expected``; a key that is not there has 0 everywhere, and no value."""

    key: str
    field: Field
    expected: int | bytes


def unchanged(kv: KeyValue) -> Compare:
    """The key is what it was: neither written nor deleted, not even deleted and created again."""
    return Compare(kv.key, Field.MOD_REVISION, kv.mod_revision)


def absent(key: str) -> Compare:
    """The key does not exist."""
    return Compare(key, Field.CREATE_REVISION, 0)


@dataclass(frozen=True, slots=True)
class Put:
    """Write ``value``; the key is bound to ``lease`` from now on, or to none where it is 0."""

    key: str
    value: bytes
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the key if it is there."""

    key: str


Write = Put | Delete


@dataclass(frozen=True, slots=True)
class TxnResult:
    """Whether all compares held, and the store's revision afterwards (that of the writes)."""

    succeeded: bool
    revision: int


@dataclass(frozen=True, slots=True)
class Event:
    """``key`` changed at ``revision``; ``kv`` is ``None`` where it was deleted."""

    key: str
    revision: int
    kv: KeyValue | None


@dataclass(frozen=True, slots=True)
class Batch:
    """What a watch saw, in order of revisions; nothing up to ``revision`` comes any more."""

    revision: int
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease and the time to live the store granted, in seconds."""

    lease_id: int
    ttl_s: float


class Store(Protocol):
    """All methods raise :class:`StoreError` where the store did not do it, and ``StoreUnavailable`` where
    nobody knows whether it did. None waits longer than the store's own deadline.
    """

    async def get(self, key: str) -> KeyValue | None:
        """The key now (linearizable), or ``None``."""

    async def list(self, prefix: str) -> Listing:
        """Everything under ``prefix`` at one revision (linearizable)."""

    async def txn(self, compares: Sequence[Compare], writes: Sequence[Write]) -> TxnResult:
        """All of ``writes`` at one revision if all of ``compares`` hold, else none.

        Raises ``TooManyOperations`` beyond :data:`MAX_OPERATIONS` of either, ``LeaseLost`` where a put
        names a lease that is gone, ``QuotaExceeded`` where the store is full.
        """

    def watch(self, prefix: str, start_revision: int) -> AsyncIterator[Batch]:
        """Every change under ``prefix`` from ``start_revision`` on, until the iterator is closed.

        Raises ``Compacted`` where that history is gone, ``StoreUnavailable`` where the connection broke:
        the caller watches again from the last revision it saw, plus one.
        """

    async def grant(self, ttl_s: float) -> Lease:
        """A new lease."""

    async def keep_alive(self, lease_id: int, *, timeout_s: float | None = None) -> float:
        """Renew once; the seconds it lives from when the store took it. Raises ``LeaseLost``.

        ``timeout_s`` shortens the store's own deadline.
        """

    async def revoke(self, lease_id: int) -> None:
        """End a lease and delete its keys; a lease that is gone is no error."""

    async def compact(self, revision: int) -> None:
        """Forget the history before ``revision``."""

    async def close(self) -> None:
        """Release the connection. Watches end."""
