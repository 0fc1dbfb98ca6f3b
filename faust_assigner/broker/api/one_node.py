"""APIs that tools call on any cluster: log directories, leaders, reassignments, quotas, the quorum.

Each partition has one replica, and there are no quotas. Apache Kafka with one node and
the same features gives the same answers.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from faust_assigner.broker.api.access import compute
from faust_assigner.broker.api.call import Api, Call, Values
from faust_assigner.broker.api.refusals import refuse_elements
from faust_assigner.broker.security.acls import CLUSTER, DESCRIBE, THE_CLUSTER

if TYPE_CHECKING:
    from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest
    from kio.schema.alter_partition_reassignments.v1.request import (
        AlterPartitionReassignmentsRequest,
    )
    from kio.schema.describe_client_quotas.v1.request import DescribeClientQuotasRequest
    from kio.schema.describe_log_dirs.v5.request import DescribeLogDirsRequest
    from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest
    from kio.schema.elect_leaders.v2.request import ElectLeadersRequest
    from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest

DESCRIBE_LOG_DIRS, ELECT_LEADERS = 35, 43
ALTER_REASSIGNMENTS, LIST_REASSIGNMENTS, DESCRIBE_QUOTAS = 45, 46, 48
ALTER_QUOTAS, DESCRIBE_QUORUM = 49, 55
METADATA_TOPIC: Final = "__cluster_metadata"
NO_QUOTAS: Final = "this broker enforces no quotas"
IN_MEMORY: Final = "memory"  # the log directory of a broker without --data
UNKNOWN_BYTES: Final = -1
Parts = dict[str, list[Values]]


async def describe_log_dirs(call: Call, request: DescribeLogDirsRequest) -> Values:
    """Return the one log directory, and the bytes of the requested partitions (null: all)."""
    if not call.may(DESCRIBE, CLUSTER, THE_CLUSTER):
        # Answers before version 3 have no error field: their clients get only an empty list.
        return {"error_code": ErrorCode.cluster_authorization_failed, "results": ()}
    catalogue = call.node.catalogue
    asked: Iterable[tuple[str, Iterable[int] | None]]
    if request.topics is None:
        asked = [(topic.name, None) for topic in list(catalogue)]
    else:
        asked = [(one.topic, one.partitions) for one in request.topics]
    topics = []
    for name, numbers in asked:
        topic = catalogue.get(name)
        found = [] if topic is None else topic.partitions
        wanted = range(len(found)) if numbers is None else dict.fromkeys(numbers)
        parts = [
            {
                "partition_index": number,
                "partition_size": found[number].size,
                "offset_lag": 0,
                "is_future_key": False,
            }
            for number in wanted
            if 0 <= number < len(found)
        ]
        if parts:
            topics.append({"name": name, "partitions": parts})
        await call.throttle.checkpoint()
    folder = call.node.folder
    usage = None if folder is None else shutil.disk_usage(folder)
    result = {
        "error_code": ErrorCode.none,
        "log_dir": IN_MEMORY if folder is None else str(folder.resolve()),
        "topics": topics,
        "total_bytes": UNKNOWN_BYTES if usage is None else usage.total,
        "usable_bytes": UNKNOWN_BYTES if usage is None else usage.free,
    }
    return {"error_code": ErrorCode.none, "results": [result]}


async def elect_leaders(call: Call, request: ElectLeadersRequest) -> Values:
    """Answer ELECTION_NOT_NEEDED, because the only replica leads. For null, list only topics."""
    asked = request.topic_partitions
    parts: Parts = {topic.name: [] for topic in call.node.catalogue} if asked is None else {}
    for topic in asked or ():
        for number in dict.fromkeys(topic.partitions):
            error, message = ErrorCode.election_not_needed, "the leader is the only replica"
            if call.node.catalogue.partition(topic.topic, number) is None:
                error = ErrorCode.unknown_topic_or_partition
                message = f"there is no partition {topic.topic}-{number}"
            parts.setdefault(topic.topic, []).append(
                {"partition_id": number, "error_code": error, "error_message": message}
            )
        await call.throttle.checkpoint()
    results = [{"topic": name, "partition_result": those} for name, those in parts.items()]
    return {"error_code": ErrorCode.none, "replica_election_results": results}


async def alter_reassignments(call: Call, request: AlterPartitionReassignmentsRequest) -> Values:
    """Refuse any replica except this node, the only node. An accepted request changes nothing."""
    here = (call.node.settings.node_id,)
    parts: Parts = {}
    for topic in request.topics:
        for part in topic.partitions:
            error = ErrorCode.none
            if call.node.catalogue.partition(topic.name, part.partition_index) is None:
                error = ErrorCode.unknown_topic_or_partition
            elif part.replicas is None:
                error = ErrorCode.no_reassignment_in_progress
            elif tuple(part.replicas) != here:
                error = ErrorCode.invalid_replica_assignment
            message = None if error is ErrorCode.none else error.name
            parts.setdefault(topic.name, []).append(
                {
                    "partition_index": part.partition_index,
                    "error_code": error,
                    "error_message": message,
                }
            )
        await call.throttle.checkpoint()
    responses = [{"name": name, "partitions": those} for name, those in parts.items()]
    return {"error_code": ErrorCode.none, "error_message": None, "responses": responses}


def list_reassignments(call: Call, request: ListPartitionReassignmentsRequest) -> Values:
    """Return an empty list, because no reassignment is ever in progress."""
    return {"error_code": ErrorCode.none, "error_message": None, "topics": ()}


def describe_quotas(call: Call, request: DescribeClientQuotasRequest) -> Values:
    """Return an empty list, because the broker has no quotas."""
    return {"error_code": ErrorCode.none, "error_message": None, "entries": ()}


async def describe_quorum(call: Call, request: DescribeQuorumRequest) -> Values:
    """Return this node as the only voter. There is no metadata log, so the log end offset is 0."""
    me = call.node.settings.node_id
    asked = [(one.topic_name, p.partition_index) for one in request.topics for p in one.partitions]
    topics = []
    for name, number in asked:
        values: dict[str, object] = {"partition_index": number}
        if asked == [(METADATA_TOPIC, 0)]:
            voter = {"replica_id": me, "log_end_offset": 0}
            values |= {"error_code": ErrorCode.none, "leader_id": me, "current_voters": [voter]}
        else:
            values |= {"error_code": ErrorCode.unknown_topic_or_partition}
        topics.append({"topic_name": name, "partitions": [values]})
        await call.throttle.checkpoint()
    nodes = [{"node_id": me, "listeners": ()}]
    return {"error_code": ErrorCode.none, "topics": topics, "nodes": nodes}


async def alter_quotas(call: Call, request: AlterClientQuotasRequest) -> Values:
    """Refuse each entry, because the broker enforces no quotas."""
    return await compute(call, request, lambda: _refuse_quotas(call, request))


def _refuse_quotas(call: Call, request: AlterClientQuotasRequest) -> Values:
    refused = refuse_elements(ALTER_QUOTAS, call.version, request, ErrorCode.invalid_request)
    entries = refused.get("entries", ())
    return {"entries": [{**entry, "error_message": NO_QUOTAS} for entry in entries]}


APIS: Final = (
    Api(DESCRIBE_LOG_DIRS, "DescribeLogDirs", 1, 5, describe_log_dirs),
    Api(ELECT_LEADERS, "ElectLeaders", 0, 2, elect_leaders),
    Api(ALTER_REASSIGNMENTS, "AlterPartitionReassignments", 0, 1, alter_reassignments),
    Api(LIST_REASSIGNMENTS, "ListPartitionReassignments", 0, 0, list_reassignments),
    Api(DESCRIBE_QUOTAS, "DescribeClientQuotas", 0, 1, describe_quotas),
    Api(ALTER_QUOTAS, "AlterClientQuotas", 0, 1, alter_quotas),
    Api(DESCRIBE_QUORUM, "DescribeQuorum", 0, 2, describe_quorum),
)
