"""Assignors for plain aiokafka consumers, without Faust, which use this package's planner.

consumer = AIOKafkaConsumer("orders", "payments", group_id="shop",
                            partition_assignment_strategy=(CoPartitionedAssignor(),))
"""

from faust_assigner.settings.extras import needs

with needs("clients"):
    from faust_assigner.clients.assignors import (
        CoPartitionedAssignor,
        PlannedAssignor,
        StickyAssignor,
    )
    from faust_assigner.clients.exchange import GroupRefused, Share, Strategy
    from faust_assigner.clients.member import GroupMember, NotInGroup, Work
    from faust_assigner.clients.preferred import MetadataAssignor, RackAwareAssignor
    from faust_assigner.clients.redundant import RedundantAssignor

__all__ = [
    "CoPartitionedAssignor",
    "GroupMember",
    "GroupRefused",
    "MetadataAssignor",
    "NotInGroup",
    "PlannedAssignor",
    "RackAwareAssignor",
    "RedundantAssignor",
    "Share",
    "StickyAssignor",
    "Strategy",
    "Work",
]
