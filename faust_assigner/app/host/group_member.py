"""This worker's generation and member id, read from aiokafka's group coordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from faust.types.app import AppT


def coordinator_of(consumer: object) -> Any:
    """Return aiokafka's group coordinator of Faust's ``consumer``; None before its thread has started."""
    client = getattr(getattr(consumer, "_thread", None), "_consumer", None)
    return getattr(client, "_coordinator", None)


def kafka_generation(app: AppT) -> int:
    """Return Kafka's number of the consumer's generation, current or being formed; -1 if unknown."""
    at = getattr(coordinator_of(getattr(app, "_consumer", None)), "generation", None)
    return at if type(at) is int and at > 0 else -1


def kafka_member_id(app: AppT) -> str:
    """Return the id that the group gave this member; "" before its first join."""
    return str(getattr(coordinator_of(getattr(app, "_consumer", None)), "member_id", None) or "")
