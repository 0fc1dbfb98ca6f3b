"""Topics, metadata and settings on the wire."""

from __future__ import annotations

import uuid

from faust_assigner.broker import EmbeddedBroker
from tests.integration.broker.apis.calls import METADATA, topic_id
from tests.support.clients.raw_client import RawClient, batch


def test_metadata_creates_topics_only_where_asked_and_allowed(client: RawClient) -> None:
    """Consumers set the flag to false; versions 0 to 3 have no flag, which means true."""
    ask = [{"name": "new"}]
    assert (
        client.call(METADATA, 12, topics=ask, allow_auto_topic_creation=False).topics[0].error_code
        == 3
    )
    made = client.call(METADATA, 12, topics=ask, allow_auto_topic_creation=True).topics[0]
    assert (made.error_code, len(made.partitions)) == (0, 1)
    assert client.call(METADATA, 2, topics=[{"name": "old"}]).topics[0].error_code == 0
    with (
        EmbeddedBroker(settings={"auto.create.topics.enable": False}) as strict,
        RawClient(strict.bootstrap) as other,
    ):
        assert (
            other.call(METADATA, 12, topics=ask, allow_auto_topic_creation=True)
            .topics[0]
            .error_code
            == 3
        )


def test_metadata_by_id_and_of_all_topics(client: RawClient) -> None:
    """Null means all topics, an empty list none. A recreated topic has a new id."""
    known = topic_id(client)
    by_id = client.call(METADATA, 12, topics=[{"topic_id": known, "name": None}]).topics[0]
    assert (by_id.name, by_id.topic_id) == ("t", known)
    stranger = client.call(METADATA, 12, topics=[{"topic_id": uuid.uuid4(), "name": None}]).topics[
        0
    ]
    assert stranger.error_code == 100
    assert [t.name for t in client.call(METADATA, 12, topics=None).topics] == ["t"]
    assert client.call(METADATA, 12, topics=[]).topics == ()
    assert [t.name for t in client.call(METADATA, 0, topics=[]).topics] == ["t"]
    client.call(20, 5, topic_names=("t",))
    client.call(19, 5, topics=[{"name": "t", "num_partitions": 1, "replication_factor": 1}])
    assert topic_id(client) != known


def test_create_topics_validates_each_topic_for_itself(client: RawClient) -> None:
    """Existing, repeated, bad config, manual assignment; validate_only creates no topic."""
    one = {"num_partitions": 1, "replication_factor": 1}
    answer = client.call(
        19,
        7,
        topics=[
            {"name": "t", **one},
            {"name": "twice", **one},
            {"name": "twice", **one},
            {"name": "ok", **one},
            {"name": "bad", **one, "configs": [{"name": "retention.ms", "value": "soon"}]},
            {
                "name": "hand",
                "num_partitions": -1,
                "replication_factor": -1,
                "assignments": [{"partition_index": p, "broker_ids": (1,)} for p in range(3)],
            },
            {
                "name": "far",
                "num_partitions": -1,
                "replication_factor": -1,
                "assignments": [{"partition_index": 0, "broker_ids": (9,)}],
            },
        ],
    )
    errors = [t.error_code for t in answer.topics]
    assert errors == [36, 42, 0, 40, 0, 39]
    assert answer.topics[4].num_partitions == 3
    client.call(19, 7, topics=[{"name": "dry", **one}], validate_only=True)
    names = {t.name for t in client.call(METADATA, 12, topics=None).topics}
    assert names == {"t", "ok", "hand"}


def test_partitions_grow_and_never_shrink(client: RawClient) -> None:
    """INVALID_PARTITIONS for the same and for fewer."""

    def grow(count: int) -> int:
        topics = [{"name": "t", "count": count, "assignments": None}]
        return int(client.call(37, 1, topics=topics).results[0].error_code)

    assert [grow(2), grow(1), grow(5), grow(3)] == [37, 37, 0, 37]
    assert client.produce("t", 4, batch()).error_code == 0


def test_cluster_and_configs_are_described(client: RawClient) -> None:
    """A single broker with read-only settings; the answer reports unknown resources."""
    cluster = client.call(60, 0)
    assert [(b.broker_id, b.host) for b in cluster.brokers] == [(1, "127.0.0.1")]
    assert cluster.cluster_id == client.call(METADATA, 12, topics=[]).cluster_id
    resources = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
        for kind, name, keys in ((4, "1", ("num.partitions",)), (2, "ghost", None), (2, "t", None))
    ]
    broker, ghost, topic = client.call(32, 4, resources=resources).results
    assert [(c.name, c.value, c.read_only) for c in broker.configs] == [
        ("num.partitions", "1", True)
    ]
    assert ghost.error_code == 3
    assert len(topic.configs) > 20
