"""The memory for incomplete and waiting frames: one budget for all peers."""

from __future__ import annotations

from typing import Generic, TypeVar

P = TypeVar("P")


class HeldBytes(Generic[P]):
    """Bytes that each peer has sent and the broker has not served yet, the longest held first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sizes: dict[P, int] = {}
        self._total = 0

    def hold(self, peer: P, size: int) -> list[P]:
        """Set the held bytes of a peer; remove and return the peers beyond the limit. Cost O(1)."""
        before = self._sizes.get(peer, 0)
        if size == before:
            return []
        if size:
            self._sizes[peer] = size
        else:
            del self._sizes[peer]
        self._total += size - before
        gone: list[P] = []
        while self._total > self._limit:
            oldest = next(iter(self._sizes))
            self._total -= self._sizes.pop(oldest)
            gone.append(oldest)
        return gone
