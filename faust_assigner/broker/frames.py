"""The frames of requests in the bytes that a client has sent: each has its size in front."""

from __future__ import annotations

import struct
from typing import Final

FRAME_SIZE: Final = struct.Struct(">i")


class Frames:
    """The bytes of one connection that are not served yet."""

    def __init__(self, now: float) -> None:
        self._bytes = bytearray()
        #: Since when a frame is incomplete. The timeout of the first frame starts with the connection.
        self.incomplete_since: float | None = now

    def __len__(self) -> int:
        return len(self._bytes)

    def add(self, data: bytes) -> None:
        """Add received bytes."""
        self._bytes += data

    def clear(self) -> None:
        """Drop all bytes."""
        self._bytes.clear()

    @property
    def first_size(self) -> int | None:
        """The size that the first frame claims, None while its bytes are missing."""
        return FRAME_SIZE.unpack_from(self._bytes)[0] if len(self._bytes) >= 4 else None

    @property
    def first_api_key(self) -> int:
        """The API key of the first frame."""
        return int.from_bytes(self._bytes[4:6], "big")

    def has_whole(self, now: float) -> bool:
        """Whether the first frame is complete; if it is not, note since when."""
        size = self.first_size
        if size is not None and len(self._bytes) >= 4 + size:
            return True
        if self._bytes and self.incomplete_since is None:
            self.incomplete_since = now
        return False

    def take(self, now: float) -> bytes:
        """Remove and return the first frame, which is complete, without its size."""
        end = 4 + FRAME_SIZE.unpack_from(self._bytes)[0]
        frame = bytes(memoryview(self._bytes)[4:end])
        del self._bytes[:end]
        self.restart_timeout(now)
        return frame

    def restart_timeout(self, now: float) -> None:
        """Count the bytes that are left as incomplete from now on."""
        self.incomplete_since = now if self._bytes else None
