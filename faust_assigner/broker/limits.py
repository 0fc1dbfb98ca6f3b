"""What a stranger may ask for: caps on names and counts, each with the Kafka error it earns."""

from __future__ import annotations

import re
from typing import Final

MAX_TOPIC_NAME: Final = 249  # Kafka's own limit: a topic name becomes a file name there
MAX_TOPICS: Final = 20_000
MAX_PARTITIONS_PER_TOPIC: Final = 10_000
MAX_PARTITIONS: Final = 200_000
MAX_GROUPS: Final = 20_000
MAX_GROUP_ID: Final = 1_024  # bytes
MAX_OFFSETS_PER_GROUP: Final = 200_000
MAX_PENDING_MEMBERS: Final = 10_000  # ids handed out in one group and not used yet
MAX_PRODUCERS_PER_PARTITION: Final = 10_000
MAX_TRANSACTIONAL_IDS: Final = 100_000  # the longest idle one goes for a new one
MAX_ARRAY_ELEMENTS: Final = 250_000  # in one request, nested arrays included
MAX_PROTOCOLS_PER_MEMBER: Final = 1_000
MAX_LEAVERS: Final = 20_000  # in one LeaveGroup
MAX_STRING_BYTES: Final = 32_767  # what every version of an answer can carry
INLINE_ELEMENTS: Final = 500  # a longer request or answer is read or written beside the event loop
INLINE_BYTES: Final = 2 * 2**20  # of opaque bytes likewise
MAX_ANSWER_BYTES: Final = 64 * 2**20  # of one answer, record batches apart (fetch.max.bytes)
ANSWER_TIMEOUT_S: Final = 30.0  # as long as clients wait
MAX_UNPACKED_BYTES: Final = 64 * 2**20  # of one record batch
INLINE_BATCH_BYTES: Final = (
    16 * 1024
)  # a larger batch, or a compressed one, is checked beside the loop
MAX_UNSENT_BYTES: Final = 256 * 2**20  # of all answers that peers have not taken yet
SMALLEST_ANSWER_BYTES: Final = 64 * 1024  # with records, however much is unsent
CACHED_METADATA_BYTES: Final = 32 * 2**20
CACHED_BATCH_BYTES: Final = 64 * 2**20  # of the batches written last, in memory

FRAME_TIMEOUT_S: Final = (
    30.0  # from a frame's first byte to its last, and from connect to the first frame
)
WRITE_STALL_TIMEOUT_S: Final = 120.0  # a peer that takes nothing of what it asked for

_LEGAL_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]+")


def topic_name_problem(name: str | None) -> str | None:
    """Why a topic may not be called that, or None when it may.

    >>> topic_name_problem("orders-changelog"), topic_name_problem("a/b")
    (None, "topic name 'a/b' has characters other than letters, digits, '.', '_' and '-'")
    """
    if not name:
        return "the topic name is empty"
    if name in (".", ".."):
        return f"a topic cannot be called {name!r}"
    if len(name) > MAX_TOPIC_NAME:
        return f"the topic name has {len(name)} characters, {MAX_TOPIC_NAME} are allowed"
    if not _LEGAL_TOPIC.fullmatch(name):
        return f"topic name {name!r} has characters other than letters, digits, '.', '_' and '-'"
    return None


def is_group_id(group_id: str | None) -> bool:
    """Group ids are any text, but not empty and not a novel."""
    return bool(group_id) and len(group_id.encode()) <= MAX_GROUP_ID if group_id else False
