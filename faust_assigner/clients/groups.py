"""Reads a cluster's groups of both protocols, from Apache Kafka or from the embedded broker."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.errors import IncompatibleBrokerVersion, KafkaConnectionError, for_code
from kio.schema.leave_group.v4.request import MemberIdentity as MemberV4
from kio.schema.leave_group.v5.request import MemberIdentity as MemberV5

from faust_assigner.clients.group_views import (
    CONSUMER_TYPE,
    GroupView,
    ListedGroup,
    PartitionView,
    classic_member,
    consumer_member,
)
from faust_assigner.clients.kio_request import KioRequest
from faust_assigner.errors import FaustAssignerError, TryAgain
from faust_assigner.snapshots.kafka_requests import find_connection_error

_LIST, _DESCRIBE_CLASSIC, _DESCRIBE_CONSUMER, _OFFSETS, _LEAVE = 16, 15, 69, 9, 13
RETIRED = "retired by faust-assigner groups retire"  # the reason (KIP-800) that the broker logs
_NOT_FOUND = 69  # the error for an unknown group, and for a group of the other protocol
#: The errors of ConsumerGroupDescribe for a classic group. 35: the brokers know the new protocol, but
#: it is turned off (group.coordinator.rebalance.protocols=classic).
_NOT_CONSUMER = frozenset({_NOT_FOUND, 35})
_TRY_AGAIN = frozenset({14, 15, 16})  # errors: loading, not available, not the coordinator


class GroupNotFound(FaustAssignerError):
    """The cluster has no group with this name."""


class NoBrokerAnswers(TryAgain):
    """None of the named brokers can be reached."""


class LoginRefused(NoBrokerAnswers):
    """The named brokers refuse the login or the TLS connection; another attempt would not help."""

    exit_code = FaustAssignerError.exit_code


async def connected(connection: Mapping[str, Any]) -> AIOKafkaClient:
    """Return a connected client, which the caller must close. ``connection`` are aiokafka's keywords.
    Raises :class:`NoBrokerAnswers`, and :class:`LoginRefused` with the brokers' reason."""
    client = AIOKafkaClient(**connection)
    try:
        await client.bootstrap()
    except BaseException as error:
        await client.close()
        if not isinstance(error, KafkaConnectionError):
            raise
        servers = connection.get("bootstrap_servers", "")
        named = servers if isinstance(servers, str) else ", ".join(servers)
        # aiokafka reports a refused login as an unreachable broker: connect again for the real reason.
        refusal = await find_connection_error(connection)
        if refusal is not None:
            reason = f"{type(refusal).__name__}: {refusal}"
            raise LoginRefused(
                f"{named} refused the login or the TLS connection: {reason}"
            ) from None
        raise NoBrokerAnswers(f"no broker answers at {named}") from None
    return client


@asynccontextmanager
async def client_of(connection: Mapping[str, object]) -> Any:
    """Provide the client of :func:`connected` for a ``with`` block, and close it afterwards."""
    client = await connected(connection)
    try:
        yield client
    finally:
        await client.close()


def _raise_for_code(code: int, what: str) -> None:
    if code in _TRY_AGAIN:
        raise TryAgain(f"{what}: {for_code(code).__name__}")
    if code:
        raise FaustAssignerError(f"{what}: {for_code(code).__name__}")


async def list_groups(connection: Mapping[str, object]) -> list[ListedGroup]:
    """List the groups of all nodes, by id. ``connection`` are aiokafka's keywords.

    Raises :class:`NoBrokerAnswers`, and :class:`TryAgain` while a coordinator loads.
    """
    async with client_of(connection) as client:
        nodes = [broker.nodeId for broker in client.cluster.brokers()]
        answers = await asyncio.gather(*(client.send(node, KioRequest(_LIST, 5)) for node in nodes))
    found = []
    for answer in answers:
        _raise_for_code(answer.error_code, "the list of groups")
        found += [
            ListedGroup(
                group_id=g.group_id,
                group_type=getattr(g, "group_type", "").lower(),
                protocol_type=g.protocol_type,
                state=getattr(g, "group_state", ""),
            )
            for g in answer.groups
        ]
    return sorted(found, key=lambda g: g.group_id)


async def describe_group(connection: Mapping[str, object], group_id: str) -> GroupView:
    """Describe a group with its members, partitions and lag.

    Raises :class:`GroupNotFound`, :class:`NoBrokerAnswers`, :class:`TryAgain` while its coordinator loads.
    """
    async with client_of(connection) as client:
        node = await client.coordinator_lookup(CoordinationType.GROUP, group_id)
        broker = client.cluster.broker_metadata(node)
        where = "" if broker is None else f"{broker.host}:{broker.port}"
        view = await _describe_consumer_group(
            client, node, group_id, where
        ) or await _describe_classic_group(client, node, group_id, where)
        committed = await committed_offsets(client, node, group_id)
    if view.state == "Dead" and not committed:
        raise GroupNotFound(f"no group {group_id!r}")
    return replace(view, partitions=await _partition_views(connection, view, committed))


async def retire(
    connection: Mapping[str, object], group_id: str, instance_ids: Sequence[str]
) -> Mapping[str, str]:
    """Remove static members from a group (KIP-345); return instance id -> error, "" for a removed member.

    A member whose process still runs joins again. Raises :class:`TryAgain` while the coordinator loads,
    :class:`NoBrokerAnswers`, and :class:`FaustAssignerError` for a refused request.
    """
    ids = [{"member_id": "", "group_instance_id": name} for name in dict.fromkeys(instance_ids)]
    with_reason = tuple(MemberV5(**one, reason=RETIRED) for one in ids)
    without = tuple(MemberV4(**one) for one in ids)  # for a broker older than Apache Kafka 3.2
    async with client_of(connection) as client:
        node = await client.coordinator_lookup(CoordinationType.GROUP, group_id)
        try:
            answer = await client.send(
                node, KioRequest(_LEAVE, 5, 5, group_id=group_id, members=with_reason)
            )
        except IncompatibleBrokerVersion:
            answer = await client.send(
                node, KioRequest(_LEAVE, 4, 4, group_id=group_id, members=without)
            )
    _raise_for_code(answer.error_code, f"group {group_id!r}")
    return {
        str(row.group_instance_id): for_code(row.error_code).__name__ if row.error_code else ""
        for row in answer.members
    }


async def _describe_consumer_group(
    client: AIOKafkaClient, node: int, group_id: str, where: str
) -> GroupView | None:
    """Describe a KIP-848 group; None for a classic group, or if the cluster does not serve KIP-848."""
    try:
        answer = await client.send(
            node,
            KioRequest(
                _DESCRIBE_CONSUMER, 1, group_ids=(group_id,), include_authorized_operations=False
            ),
        )
    except IncompatibleBrokerVersion:
        return None
    (group,) = answer.groups
    if group.error_code in _NOT_CONSUMER:
        return None
    _raise_for_code(group.error_code, f"group {group_id!r}")
    return GroupView(
        group_id=group_id,
        group_type=CONSUMER_TYPE,
        protocol_type=CONSUMER_TYPE,
        state=group.group_state,
        assignor=group.assignor_name,
        coordinator=where,
        epoch=group.group_epoch,
        target_epoch=group.assignment_epoch,
        members=tuple(sorted(map(consumer_member, group.members), key=lambda m: m.member_id)),
    )


async def described(client: AIOKafkaClient, node: int, group_id: str) -> Any:
    """Return kio's description of a classic group; for an unknown group, it has no members."""
    answer = await client.send(
        node,
        KioRequest(_DESCRIBE_CLASSIC, 5, groups=(group_id,), include_authorized_operations=False),
    )
    (group,) = answer.groups
    _raise_for_code(
        group.error_code if group.error_code != _NOT_FOUND else 0, f"group {group_id!r}"
    )
    return group


async def _describe_classic_group(
    client: AIOKafkaClient, node: int, group_id: str, where: str
) -> GroupView:
    group = await described(client, node, group_id)
    members = (
        classic_member(member, group.protocol_type, group.protocol_data) for member in group.members
    )
    return GroupView(
        group_id=group_id,
        group_type="classic",
        protocol_type=group.protocol_type,
        state=group.group_state,
        assignor=group.protocol_data,
        coordinator=where,
        members=tuple(sorted(members, key=lambda m: m.member_id)),
    )


async def committed_offsets(
    client: AIOKafkaClient, node: int, group_id: str
) -> dict[TopicPartition, int]:
    """Return every committed offset of the group."""
    answer = await client.send(
        node, KioRequest(_OFFSETS, 7, 2, group_id=group_id, topics=None, require_stable=False)
    )
    _raise_for_code(answer.error_code, f"offsets of {group_id!r}")
    return {
        TopicPartition(topic.name, row.partition_index): row.committed_offset
        for topic in answer.topics
        for row in topic.partitions
        if row.committed_offset >= 0
    }


async def _partition_views(
    connection: Mapping[str, object], view: GroupView, committed: Mapping[TopicPartition, int]
) -> tuple[PartitionView, ...]:
    owners = {tp: member.member_id for member in view.members for tp in member.owned}
    held = {*owners, *(tp for member in view.members for tp in member.standbys)}
    wanted = sorted({*committed, *(TopicPartition(*tp) for tp in held)})
    ends = await _end_offsets(connection, wanted)
    return tuple(
        PartitionView(
            topic=tp.topic,
            partition=tp.partition,
            committed=committed.get(tp),
            end=ends[tp],
            owner=owners.get((tp.topic, tp.partition)),
        )
        for tp in wanted
        if tp in ends
    )


async def _end_offsets(
    connection: Mapping[str, object], wanted: Sequence[TopicPartition]
) -> Mapping[TopicPartition, int | None]:
    if not wanted:
        return {}
    consumer = AIOKafkaConsumer(**connection)
    try:
        await consumer.start()
        return await end_offsets(consumer, {tp.topic for tp in wanted})
    finally:
        await consumer.stop()


async def end_offsets(
    consumer: AIOKafkaConsumer, topics: Collection[str]
) -> dict[TopicPartition, int | None]:
    """Return the end offset of each partition of the existing topics; None without a leader."""
    # Missing topics are left out: a request for one would use up the time limit.
    cluster = await consumer._client.fetch_all_metadata()
    found, led = (
        [TopicPartition(t, number) for t in sorted(topics) for number in numbers_of(t) or ()]
        for numbers_of in (cluster.partitions_for_topic, cluster.available_partitions_for_topic)
    )
    # A request would wait until each of its partitions has a leader.
    return {**dict.fromkeys(found), **await consumer.end_offsets(led)}
