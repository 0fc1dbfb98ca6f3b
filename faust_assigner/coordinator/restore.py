"""Make a group's state machine: from its records, or for the request that creates it."""

from __future__ import annotations

from collections.abc import Iterable

from faust_assigner.coordinator.catalogue import Catalogue
from faust_assigner.coordinator.classic import ClassicGroup
from faust_assigner.coordinator.consumer.machine import ConsumerGroup
from faust_assigner.coordinator.effects import Group, GroupRecord
from faust_assigner.coordinator.events import ConsumerGroupHeartbeat, Request
from faust_assigner.coordinator.records import Kind, Record
from faust_assigner.coordinator.settings import ConsumerLimits
from faust_assigner.coordinator.states import GroupLimits


def restore(
    group_id: str,
    records: Iterable[Record],
    *,
    classic: GroupLimits,
    consumer: ConsumerLimits,
    catalogue: Catalogue,
    now_ms: int,
) -> Group:
    """Return the group of the records; without records, an empty classic group that has only offsets.

    The order of the records does not matter; keys are unique and no record is a tombstone.
    """
    found = tuple(records)
    if any(record.key.kind is Kind.EPOCH for record in found):
        return _consumer_group(group_id, classic, consumer, catalogue, now_ms).restore(found)
    for record in found:
        if isinstance(record.value, GroupRecord):
            return ClassicGroup.restore(
                record.value, classic, now_ms, consumer=consumer, catalogue=catalogue
            )
    return ClassicGroup(group_id, classic, now_ms, consumer=consumer, catalogue=catalogue)


def new_group(
    group_id: str,
    request: Request,
    *,
    classic: GroupLimits,
    consumer: ConsumerLimits,
    catalogue: Catalogue,
    now_ms: int,
) -> Group:
    """Return a new group of the request's protocol, before the request."""
    if isinstance(request, ConsumerGroupHeartbeat):
        return _consumer_group(group_id, classic, consumer, catalogue, now_ms)
    return ClassicGroup(group_id, classic, now_ms, consumer=consumer, catalogue=catalogue)


def _consumer_group(
    group_id: str, classic: GroupLimits, consumer: ConsumerLimits, catalogue: Catalogue, now_ms: int
) -> ConsumerGroup:
    return ConsumerGroup(
        group_id,
        consumer,
        catalogue,
        now_ms,
        restore_classic=ClassicGroup.restore,
        classic_limits=classic,
    )
