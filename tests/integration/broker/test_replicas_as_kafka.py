"""Replicas of new partitions: the only broker is accepted, others get Apache Kafka's errors."""

from __future__ import annotations

import datetime

import pytest

from faust_assigner.testing.kafka import SETTINGS
from tests.integration.broker.conftest import Scene
from tests.support.clients.raw_client import RawClient

ME = int(SETTINGS["node.id"])
INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT = 37, 39
SECONDS = datetime.timedelta(seconds=20)
CASES: dict[str, tuple[int, list[tuple[int, ...]], int]] = {
    "a broker that is not there": (3, [(9,)], INVALID_REPLICA_ASSIGNMENT),
    "a broker below zero": (3, [(-1,)], INVALID_REPLICA_ASSIGNMENT),
    "nobody": (3, [()], INVALID_REPLICA_ASSIGNMENT),
    "one broker twice": (3, [(ME, ME)], INVALID_REPLICA_ASSIGNMENT),
    "one of two is not there": (4, [(ME,), (9,)], INVALID_REPLICA_ASSIGNMENT),
    "more than there are new partitions": (3, [(ME,), (ME,)], INVALID_REPLICA_ASSIGNMENT),
    "fewer partitions than before": (1, [(9,)], INVALID_PARTITIONS),
    "as many as before": (2, [], INVALID_PARTITIONS),
    "the broker itself": (3, [(ME,)], 0),
}


@pytest.mark.parametrize("only_asked", [True, False], ids=["asked", "done"])
def test_partitions_are_added_to_brokers_that_exist(scene: Scene, only_asked: bool) -> None:
    """INVALID_REPLICA_ASSIGNMENT for other brokers, after the check that the count grows."""
    scene.cluster.create(scene.topic, 2)
    with RawClient(scene.cluster.bootstrap) as client:
        for case, (count, brokers, expected) in CASES.items():
            wanted = {"name": scene.topic, "count": count}
            wanted["assignments"] = [{"broker_ids": ids} for ids in brokers]
            answer = client.call(37, 3, topics=[wanted], validate_only=only_asked, timeout=SECONDS)
            assert answer.results[0].error_code == expected, case
