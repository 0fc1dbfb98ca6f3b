"""Requests that several test files send."""

from __future__ import annotations

import datetime
import uuid
from typing import Any

from tests.support.clients.raw_client import RawClient

PRODUCE, FETCH, LIST_OFFSETS, METADATA, COMMIT, COMMITTED = 0, 1, 2, 3, 8, 9


def milliseconds(value: int) -> datetime.timedelta:
    """Return milliseconds as kio's time span."""
    return datetime.timedelta(milliseconds=value)


def fetch(
    client: RawClient,
    offset: int,
    *,
    version: int = 11,
    partition: int = 0,
    wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 10**6,
    **more: Any,
) -> Any:
    """Fetch one partition of 't' and return the partition's response."""
    name = {"topic": "t"} if version < 13 else {"topic_id": more.pop("topic_id")}
    parts = [{"partition": partition, "fetch_offset": offset, "partition_max_bytes": max_bytes}]
    answer = client.call(
        FETCH,
        version,
        max_wait=milliseconds(wait_ms),
        min_bytes=min_bytes,
        max_bytes=10**7,
        topics=[{**name, "partitions": parts}],
        **more,
    )
    return answer.responses[0].partitions[0]


def topic_id(client: RawClient) -> uuid.UUID:
    """Return the id of 't'."""
    found = client.call(METADATA, 12, topics=[{"name": "t"}]).topics[0].topic_id
    assert isinstance(found, uuid.UUID)
    return found


def commit(
    client: RawClient, offset: int, *, version: int = 8, note: str = "", partition: int = 0
) -> int:
    """Commit without a member; return the error."""
    part = {"partition_index": partition, "committed_offset": offset, "committed_metadata": note}
    answer = client.call(
        COMMIT,
        version,
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[{"name": "t", "partitions": [part]}],
    )
    return int(answer.topics[0].partitions[0].error_code)
