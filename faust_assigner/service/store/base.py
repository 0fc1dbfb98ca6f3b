"""The interface of the store: the part of etcd's v3 semantics that the service uses.

Each transaction that writes gets the next *revision* of the whole store; all its writes share this
revision. A key keeps the revision of its creation and the revision of its last change. A watch
delivers every change from its start revision on, unless that revision is compacted. The store
deletes the keys bound to a lease when the lease expires.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

#: etcd's maximum number of compares, and of writes, in one transaction.
MAX_OPERATIONS = 128


@dataclass(frozen=True, slots=True)
class KeyValue:
    """A key and its value at one revision of the store.

    ``version``  the number of writes since the key was created
    ``lease``    the id of the key's lease; 0: no lease
    """

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    version: int = 1
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Listing:
    """All keys under a prefix, ascending, at ``revision``; a watch follows at ``revision + 1``."""

    revision: int
    items: tuple[KeyValue, ...]


class Field(Enum):
    """The part of a key that a transaction compares."""

    VALUE = "value"  #: bytes
    VERSION = "version"
    MOD_REVISION = "mod_revision"  #: 0: the key does not exist
    CREATE_REVISION = "create_revision"  #: 0: the key does not exist
    LEASE = "lease"


@dataclass(frozen=True, slots=True)
class Compare:
    """The condition that ``field`` of ``key`` equals ``expected``.

    An absent key has 0 in every numeric field, and no value.
    """

    key: str
    field: Field
    expected: int | bytes


def unchanged(kv: KeyValue) -> Compare:
    """Make a compare that holds if the key was neither written nor deleted since ``kv``."""
    return Compare(kv.key, Field.MOD_REVISION, kv.mod_revision)


def absent(key: str) -> Compare:
    """Make a compare that holds if the key does not exist."""
    return Compare(key, Field.CREATE_REVISION, 0)


@dataclass(frozen=True, slots=True)
class Put:
    """Write ``value`` and bind the key to ``lease``; 0: the key has no lease afterwards."""

    key: str
    value: bytes
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the key if it exists."""

    key: str


Write = Put | Delete


@dataclass(frozen=True, slots=True)
class TxnResult:
    """Whether all compares held, and the store's revision after the transaction."""

    succeeded: bool
    revision: int


@dataclass(frozen=True, slots=True)
class Event:
    """The change of ``key`` at ``revision``; ``kv`` is ``None`` for a deletion."""

    key: str
    revision: int
    kv: KeyValue | None


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive events of a watch; every later event has a revision above ``revision``."""

    revision: int
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease and its granted time to live, in seconds."""

    lease_id: int
    ttl_s: float


class Store(Protocol):
    """The store.

    All methods raise :class:`StoreError` if the store did not carry out the call, and
    ``StoreUnavailable`` if the outcome is unknown. No method waits longer than the store's own
    deadline.
    """

    async def get(self, key: str) -> KeyValue | None:
        """Read a key (linearizable); ``None`` if the key does not exist."""

    async def list(self, prefix: str) -> Listing:
        """List all keys under ``prefix`` at one revision (linearizable)."""

    async def txn(self, compares: Sequence[Compare], writes: Sequence[Write]) -> TxnResult:
        """Apply all ``writes`` at one revision if all ``compares`` hold; otherwise apply no write.

        Raises ``TooManyOperations`` for more than :data:`MAX_OPERATIONS` compares or writes,
        ``LeaseLost`` if the lease of a put is gone, ``QuotaExceeded`` if the store is full.
        """

    def watch(self, prefix: str, start_revision: int) -> AsyncIterator[Batch]:
        """Iterate over the changes under ``prefix`` from ``start_revision`` on, until closed.

        Raises ``Compacted`` if this history is compacted, and ``StoreUnavailable`` if the
        connection broke. After StoreUnavailable, the caller watches again from the last seen
        revision plus 1.
        """

    async def grant(self, ttl_s: float) -> Lease:
        """Grant a new lease."""

    async def keep_alive(self, lease_id: int, *, timeout_s: float | None = None) -> float:
        """Renew a lease once; return its seconds to live, counted from the store's renewal.

        ``timeout_s`` shortens the store's own deadline. Raises ``LeaseLost``.
        """

    async def revoke(self, lease_id: int) -> None:
        """End a lease and delete its keys. A lease that is already gone is no error."""

    async def compact(self, revision: int) -> None:
        """Forget the history before ``revision``."""

    async def close(self) -> None:
        """Close the connection, which ends all watches."""
