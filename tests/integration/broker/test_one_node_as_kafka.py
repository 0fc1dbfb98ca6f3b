"""Requests of tools: a single-node Apache Kafka and the embedded broker answer alike."""

from __future__ import annotations

import time
import uuid
from dataclasses import fields
from typing import Any

import pytest

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.testing.kafka import KafkaServer
from tests.support.clients.raw_client import RawClient, batch, keyed_record

ACLS, CREATE, DELETE, LOG_DIRS, ELECT, REASSIGN, REASSIGNMENTS, QUOTAS = (
    29,
    30,
    31,
    35,
    43,
    45,
    46,
    48,
)
CHANGE, QUORUM = 49, 55
POLICY_VIOLATION = 44
ANY_ACL = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
ONE_ACL = {
    "resource_type": 2,
    "resource_name": "t",
    "resource_pattern_type": 3,
    "principal": "User:a",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}


def told(bootstrap: str) -> dict[str, Any]:
    """Answers for a new topic of two partitions with a record in one of them."""
    topic, seen = f"topic-{uuid.uuid4().hex[:8]}", dict[str, Any]()
    with RawClient(bootstrap, 30) as client:
        client.call(19, 5, topics=[{"name": topic, "num_partitions": 2, "replication_factor": 1}])
        deadline = time.monotonic() + 60
        while client.produce(topic, 0, batch()).error_code and time.monotonic() < deadline:
            time.sleep(0.05)
        versions = {one.api_key: one for one in client.call(18, 0).api_keys}
        for key in (
            ACLS,
            CREATE,
            DELETE,
            LOG_DIRS,
            ELECT,
            REASSIGN,
            REASSIGNMENTS,
            QUOTAS,
            CHANGE,
            QUORUM,
        ):
            seen[f"versions of {key}"] = (versions[key].min_version, versions[key].max_version)

        def named(values: Any) -> Any:
            """Return errors and names without messages and bytes."""
            if isinstance(values, tuple):
                return sorted((named(one) for one in values), key=repr)
            if hasattr(values, "__dataclass_fields__"):
                names = [f.name for f in fields(values) if "message" not in f.name]
                return {
                    n: named(getattr(values, n))
                    for n in names
                    if n not in ("log_dir", "total_bytes", "usable_bytes", "throttle_time")
                }
            return "T" if values == topic else values

        wanted = [
            {"topic": topic, "partitions": (0, 1, 1, 7)},
            {"topic": "none", "partitions": (0,)},
        ]
        for version in (1, 2, 3, 4):
            answer = client.call(LOG_DIRS, version, topics=wanted)
            seen[f"log dirs {version}"] = named(answer)
        full = client.call(LOG_DIRS, 4, topics=None).results[0]
        seen["all log dirs"] = topic in {one.name for one in full.topics}
        seen["acls"] = named(client.call(ACLS, 3, **ANY_ACL))
        seen["created"] = named(client.call(CREATE, 3, creations=[ONE_ACL, ONE_ACL]))
        seen["deleted"] = named(client.call(DELETE, 3, filters=[ANY_ACL]))
        for kind in (0, 1):
            asked = [
                {"topic": topic, "partitions": (0, 1, 7)},
                {"topic": "none", "partitions": (0,)},
            ]
            answer = client.call(ELECT, 2, election_type=kind, topic_partitions=asked)
            seen[f"elected {kind}"] = sorted(
                (
                    named(one.topic),
                    sorted((p.partition_id, int(p.error_code)) for p in one.partition_result),
                )
                for one in answer.replica_election_results
            )
            answer = client.call(ELECT, 2, election_type=kind, topic_partitions=None)
            seen[f"elected {kind}, all"] = [
                named(one) for one in answer.replica_election_results if one.topic == topic
            ]
        moves = [
            {"partition_index": number, "replicas": replicas}
            for number, replicas in ((0, (1,)), (1, None), (7, (1,)))
        ]
        answer = client.call(REASSIGN, 0, topics=[{"name": topic, "partitions": moves}])
        seen["reassigned"] = named(answer)
        for replicas in ((2,), (1, 2), (1, 1), ()):
            moves = [{"partition_index": 0, "replicas": replicas}]
            answer = client.call(REASSIGN, 0, topics=[{"name": topic, "partitions": moves}])
            seen[f"reassigned to {replicas}"] = named(answer)
        seen["reassignments"] = named(client.call(REASSIGNMENTS, 0, topics=None))
        component = {"entity_type": "user", "match_type": 2, "match": None}
        for version in (0, 1, 2):
            for asked_of in ("__cluster_metadata", "none"):
                parts = [{"partition_index": 0}]
                named_so = [{"topic_name": asked_of, "partitions": parts}]
                answer = client.call(QUORUM, version, topics=named_so)
                (part,) = answer.topics[0].partitions
                voters = [one.replica_id for one in part.current_voters]
                found = (int(part.error_code), part.leader_id, voters, len(part.observers))
                seen[f"quorum {version}, {asked_of}"] = (int(answer.error_code), found)
        seen["quotas"] = named(client.call(QUOTAS, 1, components=[component], strict=False))
    return seen


def internal_topics(bootstrap: str) -> dict[str, Any]:
    """Return clients' view of both coordinators' topics after a lookup of each coordinator."""
    seen = dict[str, Any]()
    with RawClient(bootstrap, 30) as client:
        for key_type, name in ((0, "__consumer_offsets"), (1, "__transaction_state")):
            deadline = time.monotonic() + 60
            asked = {"key_type": key_type, "coordinator_keys": ("one",)}
            while client.call(10, 4, **asked).coordinators[0].error_code:
                assert time.monotonic() < deadline, f"no coordinator for {name}"
                time.sleep(0.1)
            every = client.call(3, 12, topics=None).topics
            seen[f"listed {name}"] = [t.is_internal for t in every if t.name == name]
            (alone,) = client.call(3, 12, topics=[{"name": name}]).topics
            seen[f"alone {name}"] = (int(alone.error_code), alone.is_internal)
            paged = client.call(
                75, 0, topics=[{"name": name}], response_partition_limit=9, cursor=None
            )
            seen[f"paged {name}"] = [(t.name, t.is_internal) for t in paged.topics]
            seen[f"written {name}"] = int(client.produce(name, 0, batch()).error_code)
            parts = [{"partition_index": 0, "offset": -1}]
            trimmed = client.call(21, 2, topics=[{"name": name, "partitions": parts}]).topics[0]
            seen[f"trimmed {name}"] = int(trimmed.partitions[0].error_code)
            wanted = ("cleanup.policy", "segment.bytes", "compression.type")
            resource = {"resource_type": 2, "resource_name": name, "configuration_keys": wanted}
            (configs,) = client.call(32, 4, resources=[resource]).results
            seen[f"configs {name}"] = sorted((c.name, c.value) for c in configs.configs)
    return seen


@pytest.mark.kafka
def test_the_internal_topics_look_as_kafkas_do(kafka: KafkaServer) -> None:
    """A coordinator's look-up creates them; lists flag them; Produce, DeleteRecords are refused."""
    theirs = internal_topics(kafka.bootstrap)
    with EmbeddedBroker() as broker:
        ours = internal_topics(broker.bootstrap)
    assert ours == theirs
    assert theirs["listed __consumer_offsets"] == [True]


@pytest.mark.kafka
def test_a_node_alone_answers_what_tools_probe_as_kafka_does(kafka: KafkaServer) -> None:
    """Log directories, access control, elections, reassignments, quotas: errors and versions."""
    theirs = told(kafka.bootstrap)
    with EmbeddedBroker() as broker:
        ours = told(broker.bootstrap)
    assert {step: (ours[step], theirs[step]) for step in theirs if ours[step] != theirs[step]} == {}


def small_rules(bootstrap: str) -> dict[str, int]:
    """The errors of DeleteRecords by policy, of special timestamps by version, and of edits of configs."""
    seen = dict[str, int]()
    policies = ("delete", "compact", "compact,delete", "")
    names = {policy: f"rules-{uuid.uuid4().hex[:8]}" for policy in policies}
    with RawClient(bootstrap, 30) as client:
        for policy, name in names.items():
            configs = [{"name": "cleanup.policy", "value": policy}]
            new = {"name": name, "num_partitions": 1, "replication_factor": 1, "configs": configs}
            client.call(19, 5, topics=[new])
            deadline = time.monotonic() + 60
            while client.produce(name, 0, batch(keyed_record(b"k", b"v"))).error_code:
                assert time.monotonic() < deadline, f"no topic {name}"
                time.sleep(0.05)
            parts = [{"partition_index": 0, "offset": 1}]
            (topic,) = client.call(21, 2, topics=[{"name": name, "partitions": parts}]).topics
            seen[f"trimmed {policy}"] = int(topic.partitions[0].error_code)
        for version in range(4, 12):
            for timestamp in range(-7, 0):
                parts = [{"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": -1}]
                wanted = [{"name": names["delete"], "partitions": parts}]
                (topic,) = client.call(2, version, replica_id=-1, topics=wanted).topics
                found = int(topic.partitions[0].error_code)
                seen[f"timestamp {timestamp}, version {version}"] = found
        for way in (2, 3):
            for config, value in (("retention.ms", "604800000"), ("cleanup.policy", "delete")):
                change = {"name": config, "config_operation": way, "value": value}
                resource = {
                    "resource_type": 2,
                    "resource_name": names["compact,delete"],
                    "configs": [change],
                }
                (answer,) = client.call(44, 1, resources=[resource]).responses
                seen[f"{config}, edit {way}"] = int(answer.error_code)
    return seen


@pytest.mark.kafka
def test_small_rules_are_kafkas(kafka: KafkaServer) -> None:
    """A compact-only topic keeps its records; old requests know few timestamps."""
    theirs = small_rules(kafka.bootstrap)
    with EmbeddedBroker() as broker:
        ours = small_rules(broker.bootstrap)
    assert ours == theirs
    assert theirs["trimmed compact"] == POLICY_VIOLATION
