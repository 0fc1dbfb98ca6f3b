"""Cut the received bytes of each client into frames, and limit the bytes that are not served yet.

Each frame begins with its size. All clients share one limit for unserved bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from faust_assigner.errors import FaustAssignerError

FRAME_SIZE: Final = struct.Struct(">i")
P = TypeVar("P")


class WrongSize(FaustAssignerError, ValueError):
    """A frame claims a size that no frame may have."""


class FrameBuffer(bytearray):
    """The bytes of one connection that are not served yet."""

    def __init__(self, now: float) -> None:
        super().__init__()
        #: The time since which a frame is incomplete; None without an incomplete frame. The timeout
        #: of the first frame starts with the connection.
        self.incomplete_since: float | None = now

    def first_api_key(self) -> int:
        """Return the API key of the first frame."""
        return int.from_bytes(self[4:6], "big")

    def has_whole(self, most_bytes: int, clock: Callable[[], float]) -> bool:
        """Whether the first frame is complete; if not, start its timeout. Raises WrongSize."""
        if len(self) >= 4:
            (size,) = FRAME_SIZE.unpack_from(self)
            if not 0 < size <= most_bytes:
                raise WrongSize(f"a frame announces an invalid size of {size} bytes")
            if len(self) >= 4 + size:
                return True
        if self and self.incomplete_since is None:
            self.incomplete_since = clock()
        return False

    def take(self, now: float) -> bytes:
        """Remove the first frame, which must be complete; return the frame without its size."""
        end = 4 + FRAME_SIZE.unpack_from(self)[0]
        frame = bytes(memoryview(self)[4:end])
        del self[:end]
        self.incomplete_since = now if self else None
        return frame

    def restart_timeout(self, now: float) -> None:
        """Restart the timeout of the remaining bytes, if there are any."""
        self.incomplete_since = now if self else None


class HeldBytes(Generic[P]):
    """The number of unserved bytes of each peer; the peer with the longest wait is first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sizes: dict[P, int] = {}
        self._total = 0

    def hold(self, peer: P, size: int) -> list[P]:
        """Set the number of unserved bytes of a peer; remove and return the oldest peers beyond the limit.

        Cost: O(1), amortized.
        """
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
