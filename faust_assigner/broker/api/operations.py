"""The authorized operations in answers: one bit for each operation that the peer may perform."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from faust_assigner.broker.api.call import Call
from faust_assigner.broker.security.acls import (
    ALTER,
    ALTER_CONFIGS,
    CLUSTER,
    CLUSTER_ACTION,
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    IDEMPOTENT_WRITE,
    READ,
    THE_CLUSTER,
    TOPIC,
    WRITE,
)

NOT_ASKED: Final = -(2**31)
OPERATIONS: Final[Mapping[int, tuple[int, ...]]] = {
    TOPIC: (READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS),
    GROUP: (READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS),
    CLUSTER: (
        CREATE,
        ALTER,
        DESCRIBE,
        CLUSTER_ACTION,
        DESCRIBE_CONFIGS,
        ALTER_CONFIGS,
        IDEMPOTENT_WRITE,
    ),
}


def authorized(call: Call, resource_type: int, name: str) -> int:
    """Return the peer's operations on a resource as a bit field."""
    return sum(1 << one for one in OPERATIONS[resource_type] if call.may(one, resource_type, name))


def cluster_operations(call: Call, request: Any) -> int:
    """Return the operations on the cluster if the request asks for them; 0 without the right to DESCRIBE."""
    if not getattr(request, "include_cluster_authorized_operations", False):
        return NOT_ASKED
    may_describe = call.may(DESCRIBE, CLUSTER, THE_CLUSTER)
    return authorized(call, CLUSTER, THE_CLUSTER) if may_describe else 0


def topic_operations(call: Call, request: Any, name: str) -> int:
    """Return the operations on a topic if the request asks for them."""
    is_asked = getattr(request, "include_topic_authorized_operations", False)
    return authorized(call, TOPIC, name) if is_asked else NOT_ASKED


def group_operations(call: Call, request: Any, group_id: str) -> int:
    """Return the operations on a group if the request asks for them."""
    is_asked = getattr(request, "include_authorized_operations", False)
    return authorized(call, GROUP, group_id) if is_asked else NOT_ASKED
