"""The authorized operations in answers: always all operations, because there is no authorizer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

NOT_ASKED: Final = -(2**31)
READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = range(3, 9)  # Kafka's codes of operations
CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = range(9, 13)


def bits(operations: Iterable[int]) -> int:
    """Encode a set of operations as a bit field, as answers contain it."""
    return sum(1 << operation for operation in operations)


OF_TOPIC: Final = bits(
    (READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
)
OF_GROUP: Final = bits((READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS))
OF_CLUSTER: Final = bits(
    (CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE)
)


def told(request: Any, resource: str, operations: int) -> int:
    """Return the operations if ``include_{resource}authorized_operations`` is set, else NOT_ASKED."""
    return (
        operations
        if getattr(request, f"include_{resource}authorized_operations", False)
        else NOT_ASKED
    )
