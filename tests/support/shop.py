"""A wire group of an app with one table, for most tests of the assignor."""

from __future__ import annotations

from typing import Any

from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata

from faust_assigner.wire.join import decode_join
from tests.support.faust_group import PartitionAssignor, WireGroup, make_app

LOG = "shop-totals-changelog"
TOPICS = {"orders": 6, LOG: 6, "shop-__assignor-__leader": 1}


def group(members: int = 3, partitions: dict[str, int] | None = None, **options: Any) -> WireGroup:
    """A group of ``members`` apps with one table, after one round."""
    found = WireGroup(partitions or TOPICS)
    for i in range(members):
        found.add(
            f"m{i}", make_app(f"http://w{i}:6066", tables=["totals"], **options), found.partitions
        )
    found.rebalance()
    return found


def assignor_of(found: WireGroup, member: str = "m0") -> PartitionAssignor:
    """A member's assignor."""
    assignor: PartitionAssignor = found.apps[member].assignor
    return assignor


def said(found: WireGroup, member: str) -> Any:
    """Return a member's data of the last JoinGroup."""
    metadata = ConsumerProtocolMemberMetadata.decode(found.joined[member])
    return decode_join(metadata.user_data, metadata.subscription)
