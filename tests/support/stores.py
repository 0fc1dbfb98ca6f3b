"""In-memory stores that refuse writes on request; a write is applied completely or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from faust_assigner.broker.storage.store import MemoryStore, Range, StoreFailed


class GuardedStore(MemoryStore):
    """A store that calls ``refuses`` before each write."""

    def refuses(self, pairs: Sequence[tuple[bytes, bytes]]) -> bool:
        """Return whether a write of these pairs fails."""
        raise NotImplementedError

    def write(
        self,
        puts: Iterable[tuple[bytes, bytes]],
        deletes: Iterable[bytes] = (),
        *,
        ranges: Iterable[Range] = (),
        is_rewrite: bool = False,
    ) -> None:
        """Put and delete, or raise StoreFailed."""
        pairs = list(puts)
        if self.refuses(pairs):
            raise StoreFailed("No space left on device")
        super().write(pairs, deletes, ranges=ranges)


class MortalStore(GuardedStore):
    """A store that fails forever after ``lifetime`` writes."""

    def __init__(self, lifetime: int) -> None:
        super().__init__()
        self.lifetime = lifetime

    def refuses(self, pairs: Sequence[tuple[bytes, bytes]]) -> bool:
        """Refuse all writes after the store's lifetime."""
        self.lifetime -= 1
        return self.lifetime < 0


class WeakStore(GuardedStore):
    """Fail one write of offsets or of a stable group while the store is ``armed``."""

    armed = failed = False

    def refuses(self, pairs: Sequence[tuple[bytes, bytes]]) -> bool:
        """Refuse the first relevant write."""
        if not (self.armed and any(_counts(*pair) for pair in pairs)):
            return False
        self.armed, self.failed = False, True
        return True


def _counts(key: bytes, value: bytes) -> bool:
    return key.startswith(b"o") or (b'"settled": true' in value and b'"members": []' not in value)
