"""The current topic behind a name: Kafka's topic ids (KIP-516), which change when a topic is recreated.

aiokafka requests metadata up to version 5; ids came with version 10. The two structs below are Kafka's own
``MetadataRequest.json`` and ``MetadataResponse.json`` at version 10, sent over aiokafka's connections.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

from aiokafka.errors import IncompatibleBrokerVersion
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    AbstractType,
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

_UUID_BYTES = 16
_NO_ID = uuid.UUID(int=0)


class _Uuid(AbstractType):  # type: ignore[misc]
    """16 bytes, most significant first."""

    @classmethod
    def encode(cls, value: uuid.UUID) -> bytes:
        return value.bytes

    @classmethod
    def decode(cls, data: BytesIO) -> uuid.UUID:
        return uuid.UUID(bytes=data.read(_UUID_BYTES))


class _MetadataResponse(Response):  # type: ignore[misc]
    API_KEY = 3
    API_VERSION = 10
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(
                ("node_id", Int32),
                ("host", CompactString("utf-8")),
                ("port", Int32),
                ("rack", CompactString("utf-8")),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_id", CompactString("utf-8")),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("name", CompactString("utf-8")),
                ("topic_id", _Uuid),
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", CompactArray(Int32)),
                        ("isr", CompactArray(Int32)),
                        ("offline_replicas", CompactArray(Int32)),
                        ("tags", TaggedFields),
                    ),
                ),
                ("authorized_operations", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("authorized_operations", Int32),
        ("tags", TaggedFields),
    )


class _MetadataStruct(RequestStruct):  # type: ignore[misc]
    API_KEY = 3
    API_VERSION = 10
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _MetadataResponse
    SCHEMA = Schema(
        (
            "topics",
            CompactArray(
                ("topic_id", _Uuid), ("name", CompactString("utf-8")), ("tags", TaggedFields)
            ),
        ),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class _Metadata(Request[_MetadataStruct]):  # type: ignore[misc]
    API_KEY = 3

    def __init__(self, topics: Sequence[str]) -> None:
        self._topics = topics

    def build(self, request_struct_class: Any) -> Any:
        topics: list[object] = [(_NO_ID, topic, {}) for topic in self._topics]
        return request_struct_class(topics, False, False, False, {})


async def topic_ids(admin: Any, topics: Sequence[str]) -> Mapping[str, str]:
    """Return topic -> its id, as 32 hex digits with dashes; ``admin`` is a started AIOKafkaAdminClient.

    A missing topic is absent from the result and is not created. With a broker before Kafka 2.8, which has
    no ids, the result is empty.
    """
    try:
        answer = await admin._send_request(_Metadata(topics))
    except IncompatibleBrokerVersion:
        return {}
    found = answer.to_object()["topics"]
    return {
        topic["name"]: str(topic["topic_id"])
        for topic in found
        if topic["error_code"] == 0 and topic["topic_id"] != _NO_ID
    }
