"""Committed offsets that no transaction is about to change (KIP-447's ``RequireStable``).

A transaction has ended for its producer once its end is written down; what it commits of offsets counts a
little later. Whoever asks in between is told the offset before it, and processes again what has been
committed. aiokafka asks with version 3 at most; the struct below is Kafka's own ``OffsetFetchRequest.json``
at version 7, the first that can ask for more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from itertools import groupby
from typing import Any

from aiokafka.errors import IncompatibleBrokerVersion, KafkaError
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)

UNSTABLE_OFFSET_COMMIT = 88
#: Looks, and seconds between two, before whoever waits is told so.
LOOKS, LOOK_S = 20, 0.05


class UnstableOffsetsError(KafkaError):  # type: ignore[misc]
    """A transaction that is under way commits offsets of these partitions; it ends within its timeout."""

    retriable = True


class _OffsetFetchResponse(Response):  # type: ignore[misc]
    API_KEY = 9
    API_VERSION = 7
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("topics", CompactArray(
            ("name", CompactString("utf-8")),
            ("partitions", CompactArray(
                ("partition", Int32), ("committed_offset", Int64), ("committed_leader_epoch", Int32),
                ("metadata", CompactString("utf-8")), ("error_code", Int16), ("tags", TaggedFields))),
            ("tags", TaggedFields))),
        ("error_code", Int16),
        ("tags", TaggedFields),
    )


class _OffsetFetchStruct(RequestStruct):  # type: ignore[misc]
    API_KEY = 9
    API_VERSION = 7
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _OffsetFetchResponse
    SCHEMA = Schema(
        ("group_id", CompactString("utf-8")),
        ("topics", CompactArray(
            ("name", CompactString("utf-8")), ("partitions", CompactArray(Int32)), ("tags", TaggedFields))),
        ("require_stable", Boolean),
        ("tags", TaggedFields),
    )


class _OffsetFetch(Request[_OffsetFetchStruct]):  # type: ignore[misc]
    API_KEY = 9

    def __init__(self, group_id: str, tps: Collection[Any]) -> None:
        self._group_id, self._tps = group_id, sorted(tps)

    def build(self, request_struct_class: Any) -> Any:
        topics: list[Any] = [(topic, [tp.partition for tp in tps], {})
                             for topic, tps in groupby(self._tps, key=lambda tp: tp.topic)]
        return request_struct_class(self._group_id, topics, True, {})


async def until_stable(coordinator: Any, tps: Collection[Any]) -> None:
    """Return once no transaction is about to change what is committed of ``tps``.

    ``coordinator`` is aiokafka's, on its own thread. Raises :class:`UnstableOffsetsError` after a second of
    waiting, and whatever aiokafka raises. Brokers before Kafka 2.5 cannot tell, and are not waited for.
    """
    for _ in range(LOOKS):
        await coordinator.ensure_coordinator_known()
        try:
            answer = await coordinator._send_req(_OffsetFetch(coordinator.group_id, tps))
        except (IncompatibleBrokerVersion, NotImplementedError):
            return
        unstable = [f"{topic['name']}-{found['partition']}" for topic in answer.to_object()["topics"]
                    for found in topic["partitions"] if found["error_code"] == UNSTABLE_OFFSET_COMMIT]
        if not unstable:
            return  # any other error is for the question itself
        await asyncio.sleep(LOOK_S)
    raise UnstableOffsetsError(f"a transaction is about to commit offsets of {', '.join(unstable[:20])}")
