"""The interface of the broker's store (ordered key-value pairs of bytes), and the store in memory.

The store on a disk is in :mod:`faust_assigner.broker.storage.rocks_store`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from faust_assigner.errors import FaustAssignerError

FORMAT = b"format"  # the key of the store's format version
#: Version 2 has transactions. The version is raised at the first use of transactions, because an older broker
#: would serve aborted records as committed records. Version 3 has compacted logs, which an older broker would
#: treat as damaged.
FORMAT_VERSIONS = (b"1", b"2", b"3")
WITH_TRANSACTIONS, WITH_COMPACTION = FORMAT_VERSIONS[1:]


class StoreFailed(FaustAssignerError, OSError):
    """The disk failed (no space, i/o error, corruption); no part of the write is stored."""


Keys = Callable[[], Iterable[bytes]]


class Range(NamedTuple):
    """Keys to delete, from ``first`` to before ``beyond``; their number and the keys, if known."""

    first: bytes
    beyond: bytes
    size: int | None = None
    known: Keys | None = None


def prefix_range(prefix: bytes, known: Keys | None = None) -> Range:
    """Return the range of all keys that start with ``prefix``.

    >>> prefix_range(b"ab")[:2], prefix_range(b"a\\xff")[:2]
    ((b'ab', b'ac'), (b'a\\xff', b'b'))
    """
    head = prefix.rstrip(b"\xff")
    beyond = head[:-1] + bytes([head[-1] + 1]) if head else b"\xff" * 64
    return Range(prefix, beyond, None, known)


def raise_format(store: Store, version: bytes) -> tuple[tuple[bytes, bytes], ...]:
    """Return the write that raises the store's format to ``version``; empty if no raise is needed."""
    return () if (store.get(FORMAT) or b"") >= version else ((FORMAT, version),)


class Store(Protocol):
    """The interface of a store: ordered keys with values."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value, or None. May run in any thread."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values in the order of the keys. May run in any thread."""

    def cached(self, keys: Sequence[bytes]) -> list[bytes] | None:
        """Return the values if all of them are in memory, else None."""

    def write(
        self,
        puts: Iterable[tuple[bytes, bytes]],
        deletes: Iterable[bytes] = (),
        *,
        ranges: Iterable[Range] = (),
        is_rewrite: bool = False,
    ) -> None:
        """Apply range deletions, puts and deletions, in this order, all or nothing. Raises StoreFailed.

        ``is_rewrite``: compaction rewrites old batches, so the write does not add them to a cache.
        """

    def flush(self) -> int:
        """Wait for the disk; return how many writes are synced. Raises StoreFailed.

        May run in any thread.
        """

    def note_flushed(self, writes: int) -> None:
        """Record in the write audit that ``writes`` writes are on the disk."""

    def note_end(self, place: bytes, end: int) -> None:
        """Record the end of a partition in the write audit."""

    def forget_end(self, place: bytes) -> None:
        """Remove a deleted partition from the write audit."""

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield every pair whose key starts with ``prefix``, in key order; never reads other keys."""

    def close(self) -> None:
        """Release files and locks."""


class MemoryStore:
    """A store in a dict, lost at the end of the process."""

    def __init__(self) -> None:
        self._pairs: dict[bytes, bytes] = {}

    def get(self, key: bytes) -> bytes | None:
        """Return the value, or None."""
        return self._pairs.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values in the order of the keys."""
        return [self._pairs.get(key) for key in keys]

    def cached(self, keys: Sequence[bytes]) -> list[bytes] | None:
        """Return the values, or None if any value is missing."""
        found = [self._pairs.get(key) for key in keys]
        return None if None in found else found  # type: ignore[return-value]

    def write(
        self,
        puts: Iterable[tuple[bytes, bytes]],
        deletes: Iterable[bytes] = (),
        *,
        ranges: Iterable[Range] = (),
        is_rewrite: bool = False,
    ) -> None:
        """Apply range deletions, puts and deletions; a range without known keys costs O(all keys)."""
        for first, beyond, _, known in ranges:
            for key in (
                [k for k in self._pairs if first <= k < beyond] if known is None else known()
            ):
                self._pairs.pop(key, None)
        self._pairs.update(puts)
        for key in deletes:
            self._pairs.pop(key, None)

    def flush(self) -> int:
        """Return 0: memory is never synced."""
        return 0

    def note_flushed(self, writes: int) -> None:
        """Ignore the call: memory has no write audit."""

    def note_end(self, place: bytes, end: int) -> None:
        """Ignore the call: memory has no write audit."""

    def forget_end(self, place: bytes) -> None:
        """Ignore the call: memory has no write audit."""

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield every pair whose key starts with ``prefix``; cost O(all keys)."""
        return iter(sorted((k, v) for k, v in self._pairs.items() if k.startswith(prefix)))

    def close(self) -> None:
        """Do nothing, because memory has no files or locks."""
