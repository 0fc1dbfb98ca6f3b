"""Authorized operations: all of them without an authorizer, as on such a Kafka."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.integration.broker.conftest import Scene
from tests.support.clients.raw_client import RawClient
from tests.support.coordination.librdkafka_members import until

NOT_ASKED = -(2**31)
READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, ACT, SHOW_CONFIGS, ALTER_CONFIGS, WRITE_ONCE = (
    1 << number for number in range(3, 13)
)
TOPIC = READ | WRITE | CREATE | DELETE | ALTER | DESCRIBE | SHOW_CONFIGS | ALTER_CONFIGS
GROUP = READ | DELETE | DESCRIBE | SHOW_CONFIGS | ALTER_CONFIGS
CLUSTER = CREATE | ALTER | DESCRIBE | ACT | SHOW_CONFIGS | ALTER_CONFIGS | WRITE_ONCE
EVERYTHING = {
    "Metadata 10, cluster": CLUSTER,
    "Metadata 10, topic": TOPIC,
    "Metadata 12, topic": TOPIC,
    "DescribeCluster": CLUSTER,
    "DescribeTopicPartitions": TOPIC,
    "DescribeGroups": GROUP,
    "DescribeGroups, no such group": GROUP,
    "DescribeGroups 6, no such group": NOT_ASKED,
    "ConsumerGroupDescribe": GROUP,
    "ConsumerGroupDescribe, no such group": NOT_ASKED,
}


def operations(client: RawClient, scene: Scene, asked: bool) -> dict[str, int]:
    """Return the bits of every answer that has some."""
    group, topic = (scene.group,), [{"name": scene.topic, "topic_id": None}]
    topics = {"include_topic_authorized_operations": asked}
    cluster = {"include_cluster_authorized_operations": asked}
    included = {"include_authorized_operations": asked}
    ask: Callable[..., Any] = client.call
    metadata = ask(3, 10, topics=topic, allow_auto_topic_creation=False, **topics, **cluster)
    pages = ask(75, 0, topics=[{"name": scene.topic}], response_partition_limit=10)
    return {
        "Metadata 10, cluster": metadata.cluster_authorized_operations,
        "Metadata 10, topic": metadata.topics[0].topic_authorized_operations,
        "Metadata 12, topic": ask(3, 12, topics=topic, **topics)
        .topics[0]
        .topic_authorized_operations,
        "DescribeCluster": ask(
            60, 1, include_cluster_authorized_operations=asked, endpoint_type=1
        ).cluster_authorized_operations,
        "DescribeTopicPartitions": pages.topics[0].topic_authorized_operations,
        "DescribeGroups": ask(15, 5, groups=group, **included).groups[0].authorized_operations,
        "DescribeGroups, no such group": ask(15, 5, groups=("none",), **included)
        .groups[0]
        .authorized_operations,
        "DescribeGroups 6, no such group": ask(15, 6, groups=("none",), **included)
        .groups[0]
        .authorized_operations,
        "ConsumerGroupDescribe": ask(69, 1, group_ids=group, **included)
        .groups[0]
        .authorized_operations,
        "ConsumerGroupDescribe, no such group": ask(69, 1, group_ids=("none",), **included)
        .groups[0]
        .authorized_operations,
    }


def test_a_client_that_asks_is_told_what_it_may_do(scene: Scene) -> None:
    """A bit per operation of the resource; without the request flag, no bit."""
    scene.cluster.create(scene.topic, 1)
    member = scene.start("one")
    until(lambda: len(member.owned) == 1, "a partition")
    with RawClient(scene.cluster.bootstrap) as client:
        assert operations(client, scene, asked=True) == EVERYTHING
        assert operations(client, scene, asked=False) == dict.fromkeys(EVERYTHING, NOT_ASKED) | {
            "DescribeTopicPartitions": TOPIC  # its request has no flag
        }
