"""The little the coordinator reads of ConsumerProtocol bytes: which topics a member subscribes to.

Only used to protect offsets of subscribed topics; the bytes stay opaque to the group itself. Version 0 is a
prefix of every later version, so no version has to be known.
"""

from __future__ import annotations

import struct
from typing import Final

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
MAX_TOPICS: Final = 100_000


def subscribed_topics(metadata: bytes) -> tuple[str, ...] | None:
    """Topic names in a ConsumerProtocol subscription, or None when the bytes do not parse.

    >>> subscribed_topics(bytes.fromhex("0000 00000001 0003 666f6f ffffffff"))
    ('foo',)
    >>> subscribed_topics(b"junk") is None
    True
    """
    try:
        version, count = struct.unpack_from(">hi", metadata)
        if version < 0 or not 0 <= count <= min(MAX_TOPICS, len(metadata) // 2):
            return None
        topics, position = [], 6
        for _ in range(count):
            (length,) = struct.unpack_from(">h", metadata, position)
            end = position + 2 + length
            if length < 0 or end > len(metadata):
                return None
            topics.append(metadata[position + 2 : end].decode())
            position = end
    except (struct.error, UnicodeDecodeError):
        return None
    return tuple(topics)
