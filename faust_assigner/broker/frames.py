"""The frames of requests in the bytes that a client has sent, and the memory for them.

Each frame has its size in front. All clients share one budget for bytes that are not served yet.
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
        #: Since when a frame is incomplete. The timeout of the first frame starts with the connection.
        self.incomplete_since: float | None = now

    def first_api_key(self) -> int:
        """Return the API key of the first frame."""
        return int.from_bytes(self[4:6], "big")

    def has_whole(self, most_bytes: int, clock: Callable[[], float]) -> bool:
        """Whether the first frame is complete; if it is not, note since when. Raises WrongSize."""
        if len(self) >= 4:
            (size,) = FRAME_SIZE.unpack_from(self)
            if not 0 < size <= most_bytes:
                raise WrongSize(f"a frame of {size} bytes")
            if len(self) >= 4 + size:
                return True
        if self and self.incomplete_since is None:
            self.incomplete_since = clock()
        return False

    def take(self, now: float) -> bytes:
        """Remove and return the first frame, which is complete, without its size."""
        end = 4 + FRAME_SIZE.unpack_from(self)[0]
        frame = bytes(memoryview(self)[4:end])
        del self[:end]
        self.incomplete_since = now if self else None
        return frame

    def restart_timeout(self, now: float) -> None:
        """Count the bytes that are left as incomplete from now on."""
        self.incomplete_since = now if self else None


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
