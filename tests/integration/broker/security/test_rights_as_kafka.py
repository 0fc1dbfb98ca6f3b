"""Access control: Apache Kafka's StandardAuthorizer and the embedded broker give equal verdicts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.broker.connection_settings import STANDARD_AUTHORIZER
from faust_assigner.testing.kafka import kafka_server
from tests.integration.broker.security.rights import (
    ALL_ACLS,
    MINUTE,
    PASSWORD,
    USERS,
    log_in,
    requests,
    verdicts,
)
from tests.support.clients.raw_client import RawClient, batch

SETTINGS = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:ANONYMOUS;User:root",
    "auto.create.topics.enable": "true",
    # Pages of all topics end after ten partitions, and internal topics come first.
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}
LISTENERS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.plain.without.tls": "true",
}
PEOPLE = dict.fromkeys([*USERS, "root"], PASSWORD)
EVERY_ACL = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


def until(done: Callable[[], bool], what: str) -> None:
    """Repeat until ``done()`` is true, for up to 60 s."""
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def prepare(admin: RawClient) -> Any:
    """Create topics, offsets of a group, a transactional id and all rules; return the id of ``t``."""
    new = [{"name": n, "num_partitions": 1, "replication_factor": 1} for n in ("t", "u")]
    admin.call(19, 5, topics=new)
    for name in ("t", "u"):
        until(lambda name=name: admin.produce(name, 0, batch()).error_code == 0, name)  # type: ignore[misc]
    parts = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]
    values = {
        "group_id": "g",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [{"name": name, "partitions": parts} for name in ("t", "u")],
    }

    def commits() -> bool:
        admin.call(10, 4, coordinator_keys=("g",), key_type=0)
        topics = admin.call(8, 8, **values).topics
        return all(part.error_code == 0 for topic in topics for part in topic.partitions)

    def begins() -> bool:
        admin.call(10, 4, coordinator_keys=("x",), key_type=1)
        answer = admin.call(22, 4, transactional_id="x", transaction_timeout=MINUTE)
        return bool(answer.error_code == 0)

    until(commits, "a commit")
    until(begins, "a producer")
    results = admin.call(30, 3, creations=ALL_ACLS).results
    assert {int(one.error_code) for one in results} == {0}

    def are_listed() -> bool:
        resources = admin.call(29, 3, **EVERY_ACL).resources
        return sum(len(one.acls) for one in resources) == len(ALL_ACLS)

    until(are_listed, "all rules")
    (topic,) = admin.call(3, 12, topics=[{"name": "t", "topic_id": None}]).topics
    return topic.topic_id


def answers(anonymous: str, with_log_in: str) -> dict[str, list[tuple[str, str]]]:
    """Return the verdicts on each request of each user."""
    with RawClient(anonymous, 60) as admin:
        topic_id = prepare(admin)
    seen: dict[str, list[tuple[str, str]]] = {}
    for user in PEOPLE:
        with RawClient(with_log_in, 60) as client:
            log_in(client, user)
            for label, (key, version, values) in requests(topic_id).items():
                seen[f"{user}: {label}"] = sorted(verdicts(client.call(key, version, **values)))
    return seen


@pytest.mark.slow
@pytest.mark.kafka
def test_each_user_gets_the_verdicts_of_kafkas_authorizer() -> None:
    """All APIs, 20 users: literal, prefixed and wildcard rules, denials, hosts, implied rights."""
    settings: dict[str, str | None] = {**SETTINGS}
    with kafka_server(settings, users=PEOPLE) as kafka:
        theirs = answers(kafka.bootstrap, kafka.users_bootstrap)
    with EmbeddedBroker(settings=SETTINGS | LISTENERS, users=PEOPLE) as broker:
        ours = answers(broker.address("PLAINTEXT"), broker.address("SASL_PLAINTEXT"))
    assert {step: (ours[step], theirs[step]) for step in theirs if ours[step] != theirs[step]} == {}
