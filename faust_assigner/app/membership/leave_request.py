"""LeaveGroup with a reason (KIP-800), which the broker logs together with the member that left.

aiokafka sends version 0 or 1, which have no field for a reason. The broker's log then does not show
whether a worker was stopped or took no records for too long.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.group import LeaveGroupRequest_v0, LeaveGroupRequest_v1
from aiokafka.protocol.types import CompactArray, CompactString, Int16, Int32, Schema, TaggedFields

STOPS: Final = "the worker stops"
IDLE: Final = "no records were taken for longer than broker_max_poll_interval"


class LeaveGroupResponseV5(Response):  # type: ignore[misc]
    """The answer to LeaveGroup version 5: an error code for the request, and one for each member."""

    API_KEY = 13
    API_VERSION = 5
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        (
            "members",
            CompactArray(
                ("member_id", CompactString("utf-8")),
                ("group_instance_id", CompactString("utf-8")),
                ("error_code", Int16),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class LeaveGroupRequestV5(RequestStruct):  # type: ignore[misc]
    """LeaveGroup version 5, the first version with reasons; Apache Kafka 3.2 and later."""

    FLEXIBLE_VERSION = True
    API_KEY = 13
    API_VERSION = 5
    RESPONSE_TYPE = LeaveGroupResponseV5
    SCHEMA = Schema(
        ("group", CompactString("utf-8")),
        (
            "members",
            CompactArray(
                ("member_id", CompactString("utf-8")),
                ("group_instance_id", CompactString("utf-8")),
                ("reason", CompactString("utf-8")),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


Version: TypeAlias = LeaveGroupRequest_v0 | LeaveGroupRequest_v1 | LeaveGroupRequestV5


class LeaveGroup(Request[Version]):  # type: ignore[misc]
    """One member's request to leave; brokers before Apache Kafka 3.2 get no reason."""

    API_KEY = 13

    def __init__(self, group: str, member_id: str, reason: str) -> None:
        self._group, self._member_id, self._reason = group, member_id, reason

    def build(self, request_struct_class: type[Version]) -> Version:
        """Return the request as aiokafka encodes it."""
        if request_struct_class is LeaveGroupRequestV5:
            return request_struct_class(
                self._group, [(self._member_id, None, self._reason, {})], {}
            )
        return request_struct_class(self._group, self._member_id)
