"""Limits on requests, answers and stored state: names, counts, bytes and times."""

from __future__ import annotations

import re
from typing import Final

MAX_TOPIC_NAME: Final = 249  # Kafka's own limit, because its topic names become file names
MAX_TOPICS: Final = 20_000
MAX_PARTITIONS_PER_TOPIC: Final = 10_000
MAX_PARTITIONS: Final = 200_000
MAX_GROUPS: Final = 20_000
MAX_GROUP_ID: Final = 1_024  # bytes
MAX_OFFSETS_PER_GROUP: Final = 200_000
MAX_PRODUCERS_PER_PARTITION: Final = 10_000
MAX_ACLS: Final = 10_000
MAX_CREDENTIALS: Final = 20_000  # a user has one credential for each SCRAM mechanism
MAX_TRANSACTIONAL_IDS: Final = 100_000  # at the limit, a new id replaces the longest idle id
MAX_ARRAY_ELEMENTS: Final = 250_000  # in one request, including nested arrays
MAX_WAITING_PARTITIONS: Final = 1_000_000  # in all fetches that wait for records
MAX_PROTOCOLS_PER_MEMBER: Final = 1_000
MAX_LEAVERS: Final = 20_000  # members in one LeaveGroup request
MAX_STRING_BYTES: Final = 32_767  # the longest string that every version of an answer can encode
INLINE_ELEMENTS: Final = 500  # longer requests and answers are decoded and encoded in a thread
INLINE_BYTES: Final = 2 * 2**20  # answers with more opaque bytes are encoded in a thread
MAX_ANSWER_BYTES: Final = 64 * 2**20  # in one answer, without record batches: see fetch.max.bytes
ANSWER_TIMEOUT_S: Final = 30.0  # the usual request timeout of clients
MAX_UNPACKED_BYTES: Final = 64 * 2**20  # in one decompressed record batch
INLINE_BATCH_BYTES: Final = 16 * 1024  # larger or compressed batches are checked in a thread
MAX_UNSENT_BYTES: Final = 256 * 2**20  # in all answers that the peers have not read yet
#: above this limit, the peers that read nothing for the longest time are disconnected
DISCONNECT_UNSENT_BYTES: Final = 2 * MAX_UNSENT_BYTES
SMALLEST_ANSWER_BYTES: Final = 64 * 1024  # room for records in an answer, even at MAX_UNSENT_BYTES
CACHED_METADATA_BYTES: Final = 32 * 2**20
CACHED_BATCH_BYTES: Final = 64 * 2**20  # for the latest batches in memory

FRAME_TIMEOUT_S: Final = (
    30.0  # time for a whole frame since its first byte; for the first frame, since the connect
)
WRITE_STALL_TIMEOUT_S: Final = 120.0  # for a peer that does not read answers

_LEGAL_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]+")


def topic_name_problem(name: str | None) -> str | None:
    """Return the reason why a topic name is invalid, or None.

    >>> topic_name_problem("orders-changelog"), topic_name_problem("a/b")
    (None, "topic name 'a/b' has characters other than letters, digits, '.', '_' and '-'")
    """
    if not name:
        return "the topic name is empty"
    if name in (".", ".."):
        return f"{name!r} is not allowed as a topic name"
    if len(name) > MAX_TOPIC_NAME:
        return f"the topic name has {len(name)} characters, {MAX_TOPIC_NAME} are allowed"
    if not _LEGAL_TOPIC.fullmatch(name):
        return f"topic name {name!r} has characters other than letters, digits, '.', '_' and '-'"
    return None


def is_group_id(group_id: str | None) -> bool:
    """Whether a text is a valid group id: not empty, and at most MAX_GROUP_ID bytes long."""
    return group_id is not None and 0 < len(group_id.encode()) <= MAX_GROUP_ID
