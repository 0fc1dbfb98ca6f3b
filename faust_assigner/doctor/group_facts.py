"""Reads the doctor's facts about a running group: two queries, topics' settings, brokers' limits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError
from kio.schema.describe_configs.v4.request import DescribeConfigsResource
from kio.static.primitive import i8

from faust_assigner.clients.groups import client_of
from faust_assigner.clients.kio_request import KioRequest
from faust_assigner.doctor.facts import GroupFacts
from faust_assigner.doctor.topics import TopicFacts
from faust_assigner.status.collect import Looks, Where

_DESCRIBE_CONFIGS = 32
_TOPIC, _BROKER = 2, 4
_OFFSETS_TOPIC = "__consumer_offsets"
#: The time limit for the brokers' settings, in seconds.
CONFIGS_S = 15.0


async def look(where: Where, *, between_s: float, clock: Callable[[], float]) -> GroupFacts:
    """Query a group twice. Raises as :meth:`~faust_assigner.status.collect.Looks.look` does."""
    async with Looks(where, clock) as looks:
        first = await looks.look()
        topics, limits = await asyncio.gather(
            topics_of(where.connection, {topic for topic, _ in (*first.ends, *first.leaderless)}),
            _broker_limits(where.connection),
        )
        await asyncio.sleep(between_s)
        later = await looks.look()
    record_bytes, bounds_s = limits
    return GroupFacts(
        evidence=first,
        later=later,
        topics=topics,
        record_bytes=record_bytes,
        session_bounds_s=bounds_s,
    )


async def topics_of(
    connection: Mapping[str, object], names: Collection[str]
) -> dict[str, TopicFacts]:
    """Return the topics of ``names`` that exist; a topic's settings may be missing.

    Settings are missing if the client is not authorized to read them.
    """
    async with client_of(connection) as client:
        cluster = await client.fetch_all_metadata()
        there = {name: count for name in names if (count := _count(cluster, name))}
        configs = await _read_configs(client, ((_TOPIC, name) for name in sorted(there)))
    found = {}
    for name, count in there.items():
        config = configs.get((_TOPIC, name), {})
        retention = config.get("retention.ms", "")
        found[name] = TopicFacts(
            partitions=count,
            cleanup_policy=config.get("cleanup.policy", ""),
            retention_ms=int(retention) if retention.lstrip("-").isdecimal() else None,
        )
    return found


def _count(cluster: Any, topic: str) -> int:
    return len(cluster.partitions_for_topic(topic) or ())


async def _broker_limits(
    connection: Mapping[str, object],
) -> tuple[int | None, tuple[float, float] | None]:
    """Return the limit of a group's record in bytes, and of session timeouts in seconds.

    A limit is None if the broker does not report it.
    """
    async with client_of(connection) as client:
        (node, *_) = [broker.nodeId for broker in client.cluster.brokers()]
        wanted = [(_TOPIC, _OFFSETS_TOPIC), (_BROKER, str(node))]
        configs = await _read_configs(client, wanted, node=node)
    record = configs.get((_TOPIC, _OFFSETS_TOPIC), {}).get("max.message.bytes", "")
    broker = configs.get((_BROKER, str(node)), {})
    bounds = [broker.get(f"group.{side}.session.timeout.ms", "") for side in ("min", "max")]
    least, most = (int(bound) / 1000 if bound.isdecimal() else None for bound in bounds)
    return (
        int(record) if record.isdecimal() else None,
        None if least is None or most is None else (least, most),
    )


async def _read_configs(
    client: AIOKafkaClient, resources: Any, *, node: int | None = None
) -> dict[tuple[int, str], dict[str, str]]:
    """Return the settings of each (kind, name) that the client is authorized to read.

    Empty if the broker does not answer within ``CONFIGS_S``.
    """
    wanted = tuple(
        DescribeConfigsResource(resource_type=i8(kind), resource_name=name, configuration_keys=None)
        for kind, name in resources
    )
    if not wanted:
        return {}
    if node is None:
        (node, *_) = [broker.nodeId for broker in client.cluster.brokers()]
    try:
        async with asyncio.timeout(CONFIGS_S):
            answer = await client.send(
                node,
                KioRequest(
                    _DESCRIBE_CONFIGS,
                    4,
                    1,
                    resources=wanted,
                    include_synonyms=False,
                    include_documentation=False,
                ),
            )
    except (KafkaError, TimeoutError):
        return {}
    return {
        (int(result.resource_type), result.resource_name): dict(_config_values(result))
        for result in answer.results
        if not result.error_code
    }


def _config_values(result: Any) -> Iterator[tuple[str, str]]:
    for config in result.configs:
        if config.value is not None:
            yield config.name, config.value
