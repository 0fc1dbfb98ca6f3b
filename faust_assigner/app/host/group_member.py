"""This worker's membership, as aiokafka's group coordinator knows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiokafka.consumer.group_coordinator import GroupCoordinator
    from faust.types.app import AppT


def coordinator_of(app: AppT) -> GroupCoordinator | None:
    """Return the coordinator of the app's consumer; None before the consumer's start."""
    at: Any = app
    for part in ("_consumer", "_thread", "_consumer", "_coordinator"):
        at = getattr(at, part, None)
    return at


def kafka_generation(app: AppT) -> int:
    """Return Kafka's number of the consumer's current or forming generation; -1 without one."""
    at = getattr(coordinator_of(app), "generation", None)
    return at if type(at) is int and at > 0 else -1


def kafka_member_id(app: AppT) -> str:
    """Return the id that the group gave this member; "" before its first join."""
    return str(getattr(coordinator_of(app), "member_id", None) or "")
