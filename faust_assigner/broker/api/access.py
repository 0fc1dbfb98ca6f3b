"""Check the rights that each API needs; refuse unauthorized requests and list elements.

``RIGHTS`` maps each API key to operations on resources, as Apache Kafka checks them. This module
checks whole requests and the elements of lists. Handlers check the rights with ``is_inside`` themselves,
because these rights depend on more than the request, or because the answer omits unauthorized elements
without an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import Any, Final

from kio.schema.errors import ErrorCode

from faust_assigner.broker.api.call import Api, Call, Values
from faust_assigner.broker.api.refusals import refuse, refuse_elements
from faust_assigner.broker.limits import INLINE_ELEMENTS
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
    TRANSACTIONAL_ID,
    WRITE,
)

OF_CONFIGS: Final = 0  # for config requests: each element has its own resource type
#: Resource type in config requests -> resource type in ACLs. Other types need a right on the cluster.
CONFIGS_OF: Final[Mapping[int, int]] = {2: TOPIC, 32: GROUP}
ERRORS: Final[Mapping[int, ErrorCode]] = {
    TOPIC: ErrorCode.topic_authorization_failed,
    GROUP: ErrorCode.group_authorization_failed,
    CLUSTER: ErrorCode.cluster_authorization_failed,
    TRANSACTIONAL_ID: ErrorCode.transactional_id_authorization_failed,
}
#: APIs whose refusal has the error at the top level and for each element: ElectLeaders,
#: AlterPartitionReassignments, DescribeUserScramCredentials.
REFUSED_TWICE: Final = frozenset((43, 45, 50))


@dataclass(frozen=True, slots=True)
class Right:
    """The right to an operation on a type of resource.

    ``named`` is the request's field with the name of the resource (empty for the cluster). ``each`` is the
    request's list whose elements name resources. The right to the operation ``or_cluster`` on the cluster
    is sufficient, too.
    """

    operation: int
    resource_type: int
    named: str = ""
    each: str = ""
    or_cluster: int | None = None
    is_inside: bool = False


def _cluster_right(operation: int) -> tuple[Right, ...]:
    return (Right(operation, CLUSTER),)


def _right_per_element(
    operation: int, resource_type: int, *lists: str, **more: Any
) -> tuple[Right, ...]:
    return tuple(Right(operation, resource_type, each=one, **more) for one in lists)


def _right_inside(operation: int, resource_type: int, or_cluster: int | None = None) -> Right:
    return Right(operation, resource_type, or_cluster=or_cluster, is_inside=True)


_READ_GROUP: Final = Right(READ, GROUP, "group_id")
_WRITE_TXN: Final = Right(WRITE, TRANSACTIONAL_ID, "transactional_id")
RIGHTS: Final[Mapping[int, tuple[Right, ...]]] = {
    0: (_right_inside(WRITE, TRANSACTIONAL_ID), _right_inside(WRITE, TOPIC)),  # Produce
    1: (_right_inside(READ, TOPIC),),  # Fetch
    2: _right_per_element(DESCRIBE, TOPIC, "topics"),  # ListOffsets
    3: (_right_inside(DESCRIBE, TOPIC), _right_inside(CREATE, TOPIC, CREATE)),  # Metadata
    8: (_READ_GROUP, *_right_per_element(READ, TOPIC, "topics")),  # OffsetCommit
    9: (  # OffsetFetch
        Right(DESCRIBE, GROUP, "group_id"),
        *_right_per_element(DESCRIBE, GROUP, "groups"),
        _right_inside(DESCRIBE, TOPIC),
    ),
    10: (
        _right_inside(DESCRIBE, GROUP),
        _right_inside(DESCRIBE, TRANSACTIONAL_ID),
    ),  # FindCoordinator
    11: (_READ_GROUP,),  # JoinGroup
    12: (_READ_GROUP,),  # Heartbeat
    13: (_READ_GROUP,),  # LeaveGroup
    14: (_READ_GROUP,),  # SyncGroup
    15: _right_per_element(DESCRIBE, GROUP, "groups"),  # DescribeGroups
    16: (_right_inside(DESCRIBE, GROUP, DESCRIBE),),  # ListGroups
    17: (),  # SaslHandshake
    18: (),  # ApiVersions
    19: (  # CreateTopics
        *_right_per_element(CREATE, TOPIC, "topics", or_cluster=CREATE),
        _right_inside(DESCRIBE_CONFIGS, TOPIC),
    ),
    20: (
        _right_inside(DESCRIBE, TOPIC, DELETE),
        _right_inside(DELETE, TOPIC, DELETE),
    ),  # DeleteTopics
    21: _right_per_element(DELETE, TOPIC, "topics"),  # DeleteRecords
    22: (
        _right_inside(WRITE, TRANSACTIONAL_ID),
        _right_inside(IDEMPOTENT_WRITE, CLUSTER),
    ),  # InitProducerId
    23: _right_per_element(
        DESCRIBE, TOPIC, "topics", or_cluster=CLUSTER_ACTION
    ),  # OffsetForLeaderEpoch
    24: (  # AddPartitionsToTxn
        Right(WRITE, TRANSACTIONAL_ID, "v3_and_below_transactional_id"),
        _right_inside(WRITE, TOPIC),
    ),
    25: (_WRITE_TXN, _READ_GROUP),  # AddOffsetsToTxn
    26: (_WRITE_TXN,),  # EndTxn
    28: (_WRITE_TXN, _READ_GROUP, *_right_per_element(READ, TOPIC, "topics")),  # TxnOffsetCommit
    29: _cluster_right(DESCRIBE),  # DescribeAcls
    30: _cluster_right(ALTER),  # CreateAcls
    31: _cluster_right(ALTER),  # DeleteAcls
    32: _right_per_element(DESCRIBE_CONFIGS, OF_CONFIGS, "resources"),  # DescribeConfigs
    33: _right_per_element(ALTER_CONFIGS, OF_CONFIGS, "resources"),  # AlterConfigs
    35: (_right_inside(DESCRIBE, CLUSTER),),  # DescribeLogDirs
    36: (),  # SaslAuthenticate
    37: _right_per_element(ALTER, TOPIC, "topics"),  # CreatePartitions
    42: _right_per_element(DELETE, GROUP, "groups_names"),  # DeleteGroups
    43: _cluster_right(ALTER),  # ElectLeaders
    44: _right_per_element(ALTER_CONFIGS, OF_CONFIGS, "resources"),  # IncrementalAlterConfigs
    45: _cluster_right(ALTER),  # AlterPartitionReassignments
    46: _cluster_right(DESCRIBE),  # ListPartitionReassignments
    47: (
        Right(DELETE, GROUP, "group_id"),
        *_right_per_element(READ, TOPIC, "topics"),
    ),  # OffsetDelete
    48: _cluster_right(DESCRIBE_CONFIGS),  # DescribeClientQuotas
    49: _cluster_right(ALTER_CONFIGS),  # AlterClientQuotas
    50: _cluster_right(DESCRIBE),  # DescribeUserScramCredentials
    51: _cluster_right(ALTER),  # AlterUserScramCredentials
    55: _cluster_right(DESCRIBE),  # DescribeQuorum
    60: (),  # DescribeCluster
    61: _right_per_element(READ, TOPIC, "topics"),  # DescribeProducers
    65: (  # DescribeTransactions
        *_right_per_element(DESCRIBE, TRANSACTIONAL_ID, "transactional_ids"),
        _right_inside(DESCRIBE, TOPIC),
    ),
    66: (_right_inside(DESCRIBE, TRANSACTIONAL_ID),),  # ListTransactions
    68: (_READ_GROUP, _right_inside(DESCRIBE, TOPIC)),  # ConsumerGroupHeartbeat
    69: (
        *_right_per_element(DESCRIBE, GROUP, "group_ids"),
        _right_inside(DESCRIBE, TOPIC),
    ),  # ConsumerGroupDescribe
    74: _cluster_right(DESCRIBE_CONFIGS),  # ListConfigResources
    75: (_right_inside(DESCRIBE, TOPIC),),  # DescribeTopicPartitions
}


async def handle(api: Api, call: Call, request: Any) -> Any:
    """Handle the authorized part of a request; answer each unauthorized element with Kafka's error."""
    if call.node.authorizer is None:
        outcome = api.handle(call, request)
        return await outcome if _is_awaitable(outcome) else outcome
    refused: dict[str, list[object]] = {}
    for right in RIGHTS[api.key]:
        if right.is_inside:
            continue
        if right.each:
            request = await _filter_elements(api, call, request, right, refused)
        elif not _may_perform(call, request, right):
            error = ERRORS[right.resource_type]
            return await compute(call, request, partial(_refuse_request, api, call, request, error))
    outcome = api.handle(call, request)
    values = await outcome if _is_awaitable(outcome) else outcome
    if not refused or values.get("error_code"):
        return values
    return {**values, **{name: [*values.get(name, ()), *more] for name, more in refused.items()}}


def _refuse_request(api: Api, call: Call, request: Any, error: ErrorCode) -> Values:
    """Return the refusal of a whole request."""
    whole = refuse(api.key, call.version, request, error)
    if api.key not in REFUSED_TWICE:
        return whole
    return {**whole, **refuse_elements(api.key, call.version, request, error)}


async def compute(call: Call, request: Any, refusal: Callable[[], Values]) -> Values:
    """Return ``refusal()``, from a thread if the request is long; it may have 250,000 elements.

    A short request is answered without a thread: if its client has closed its sending side, the connection
    ends at the loop's next turn.
    """
    return await call.node.crunch(refusal) if _has_many_elements(request) else refusal()


def _has_many_elements(request: Any) -> bool:
    """Whether a request has more than INLINE_ELEMENTS elements, at any depth."""
    left, waiting = INLINE_ELEMENTS, [request]
    while waiting and left >= 0:
        value = waiting.pop()
        if isinstance(value, tuple):
            left -= len(value)
            waiting += value[: INLINE_ELEMENTS + 1]
        elif is_dataclass(value):
            waiting += (getattr(value, field.name) for field in fields(value))
    return left < 0


def _is_awaitable(outcome: Any) -> bool:
    return asyncio.iscoroutine(outcome) or isinstance(outcome, asyncio.Future)


def _may_perform(call: Call, request: Any, right: Right) -> bool:
    if right.resource_type == CLUSTER:
        return call.may(right.operation, CLUSTER, THE_CLUSTER)
    name = getattr(request, right.named, None)
    return name is None or call.may(right.operation, right.resource_type, name)


async def _filter_elements(
    api: Api, call: Call, request: Any, right: Right, refused: dict[str, list[object]]
) -> Any:
    """Return the request without unauthorized elements; add their error answers to ``refused``."""
    asked = getattr(request, right.each, None)
    if not asked:
        return request
    if right.or_cluster is not None and call.may(right.or_cluster, CLUSTER, THE_CLUSTER):
        return request
    kept: list[object] = []
    barred: dict[ErrorCode, list[object]] = {}
    for element in asked:
        kind, name = _resource(call, right, element)
        if name is None or call.may(right.operation, kind, name):
            kept.append(element)
        else:
            barred.setdefault(ERRORS[kind], []).append(element)
        await call.throttle.checkpoint()
    for error, elements in barred.items():
        only_those = replace(request, **{right.each: tuple(elements)})
        refusals = partial(refuse_elements, api.key, call.version, only_those, error)
        for name, answers in (await compute(call, only_those, refusals)).items():
            refused.setdefault(name, []).extend(answers)
    return replace(request, **{right.each: tuple(kept)}) if barred else request


def _resource(call: Call, right: Right, element: Any) -> tuple[int, str | None]:
    """Return the type and name of an element's resource; no name for an unknown topic id."""
    if right.resource_type == OF_CONFIGS:
        kind = CONFIGS_OF.get(element.resource_type, CLUSTER)
        return kind, THE_CLUSTER if kind == CLUSTER else element.resource_name
    if isinstance(element, str):
        return right.resource_type, element
    for field in ("name", "topic", "group_id"):
        found = getattr(element, field, None)
        if found is not None:
            return right.resource_type, found
    topic = call.node.catalogue.by_id(element.topic_id)
    return right.resource_type, None if topic is None else topic.name
