"""For plain aiokafka consumers, without Faust: this package's planner as their assignor.

    consumer = AIOKafkaConsumer("orders", "payments", group_id="shop",
                                partition_assignment_strategy=(CoPartitionedAssignor(),))
"""

from faust_assigner.clients.assignors import CoPartitionedAssignor, PlannedAssignor, StickyAssignor
from faust_assigner.clients.preferred import MetadataAssignor, RackAwareAssignor
from faust_assigner.clients.redundant import RedundantAssignor

__all__ = [
    "CoPartitionedAssignor",
    "MetadataAssignor",
    "PlannedAssignor",
    "RackAwareAssignor",
    "RedundantAssignor",
    "StickyAssignor",
]
