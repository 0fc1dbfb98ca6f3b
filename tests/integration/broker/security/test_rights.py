"""Access control on the embedded broker: permitted and refused APIs, over real connections."""

from __future__ import annotations

import datetime
import ssl
import time
import uuid
from pathlib import Path
from typing import Any

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.broker.api import APIS
from faust_assigner.broker.api.access import RIGHTS
from faust_assigner.broker.security import acls as a
from faust_assigner.broker.security.acls import Acl
from tests.integration.broker.security.rights import (
    AUTHORIZATION,
    PASSWORD,
    acl_values,
    log_in,
    requests,
    verdicts,
)
from tests.integration.broker.security.test_rights_as_kafka import EVERY_ACL, LISTENERS, SETTINGS
from tests.support.certificates import Authority
from tests.support.clients.raw_client import RawClient

#: Requests that omit resources instead of refusing them, or that need no right.
SILENT = {
    "metadata of all",
    "list groups",
    "log dirs 2",
    "describe cluster",
    "list transactions",
    "all topic pages",
}
WITHOUT_RIGHTS = {17, 18, 36, 60}  # the log-in, the versions, and the addresses of brokers
GROUP_ERROR, TOPIC_ERROR = 30, 29
PEOPLE = {"alice": PASSWORD, "root": PASSWORD}


def broker(data: Path | None = None, **more: Any) -> EmbeddedBroker:
    """A broker with an authorizer, a PLAINTEXT listener for a super user, and a log-in listener."""
    return EmbeddedBroker(data, settings={**SETTINGS, **LISTENERS, **more}, users=PEOPLE)


def refusals(running: EmbeddedBroker, user: str) -> dict[str, bool]:
    """Return whether the answer to each request has an authorization error."""
    topic = running.call(lambda node: node.catalogue.get("t"))
    assert topic is not None
    seen = {}
    with RawClient(running.address("SASL_PLAINTEXT")) as client:
        log_in(client, user)
        for label, (key, version, values) in requests(topic.topic_id).items():
            found = dict(verdicts(client.call(key, version, **values)))
            seen[label] = any(
                str(code) in text for text in found.values() for code in AUTHORIZATION
            )
    return seen


def test_a_principal_without_rights_is_refused_by_every_api() -> None:
    """The test sends requests of each served API; a super user gets no refusal."""
    asked = {key for key, _, _ in requests(uuid.UUID(int=1)).values()}
    assert asked == set(APIS) - (WITHOUT_RIGHTS - {60}) == set(RIGHTS) - (WITHOUT_RIGHTS - {60})
    assert {key for key, rights in RIGHTS.items() if not rights} == WITHOUT_RIGHTS
    with broker() as running:
        running.call(lambda node: node.catalogue.create("t", 1, {}))
        nobody, root = refusals(running, "alice"), refusals(running, "root")
    assert {label for label, is_refused in nobody.items() if not is_refused} == SILENT
    assert not any(root.values())


def test_topics_and_groups_without_rights_are_not_listed() -> None:
    """Answers about all topics, groups and transactional ids contain only visible ones."""
    with broker() as running:
        running.call(lambda node: node.catalogue.create("hidden", 1, {}))
        running.call(lambda node: node.catalogue.create("seen", 1, {}))
        with RawClient(running.address("PLAINTEXT")) as admin:
            admin.call(
                30, 3, creations=[acl_values("alice", (2, "seen", 3, a.WRITE, a.ALLOW, "*"))]
            )
        with RawClient(running.address("SASL_PLAINTEXT")) as client:
            log_in(client, "alice")
            listed = client.call(3, 12, topics=None).topics
            pages = client.call(75, 0, topics=(), response_partition_limit=9).topics
    assert [topic.name for topic in listed] == ["seen"]
    assert [topic.name for topic in pages] == ["seen"]


def test_rules_survive_a_restart_and_end_with_their_deletion(tmp_path: Path) -> None:
    """After a rule's deletion the next request of an open connection is refused."""
    rule = acl_values("alice", (a.TOPIC, "t", a.LITERAL, a.READ, a.ALLOW, "*"))
    ask: dict[str, Any] = {"topics": [{"name": "t", "topic_id": None}]}
    with broker(tmp_path) as running:
        running.call(lambda node: node.catalogue.create("t", 1, {}))
        with RawClient(running.address("PLAINTEXT")) as admin:
            assert admin.call(30, 3, creations=[rule]).results[0].error_code == 0
    with (
        broker(tmp_path) as running,
        RawClient(running.address("PLAINTEXT")) as admin,
        RawClient(running.address("SASL_PLAINTEXT")) as client,
    ):
        log_in(client, "alice")
        (found,) = admin.call(29, 3, **EVERY_ACL).resources
        assert (found.resource_name, found.acls[0].principal) == ("t", "User:alice")
        assert client.call(3, 12, **ask).topics[0].error_code == 0
        (deleted,) = admin.call(31, 3, filters=[EVERY_ACL]).filter_results
        assert [one.principal for one in deleted.matching_acls] == ["User:alice"]
        assert client.call(3, 12, **ask).topics[0].error_code == TOPIC_ERROR
    with broker(tmp_path) as running, RawClient(running.address("PLAINTEXT")) as admin:
        assert admin.call(29, 3, **EVERY_ACL).resources == ()


def test_an_identical_heartbeat_is_refused_once_its_right_is_gone() -> None:
    """Without an authorizer the connection's cache answers the second heartbeat."""
    right = Acl(a.GROUP, "g", a.LITERAL, "User:alice", "*", a.READ, a.ALLOW)
    beat: dict[str, Any] = {"group_id": "g", "generation_id": 1, "member_id": "m"}
    with broker() as running, RawClient(running.address("SASL_PLAINTEXT")) as client:
        log_in(client, "alice")
        running.call(lambda node: node.authorizer and node.authorizer.acls.add([right]))
        assert client.call(12, 4, **beat).error_code != GROUP_ERROR
        running.call(lambda node: node.authorizer and node.authorizer.acls.remove([right]))
        assert client.call(12, 4, **beat).error_code == GROUP_ERROR


def test_an_expression_of_a_consumer_matches_only_topics_that_it_may_describe(
    tmp_path: Path,
) -> None:
    """Later rights and topics count at once; the broker keeps the member's user over a restart."""
    values: dict[str, Any] = {
        "group_id": "g",
        "member_id": "m",
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": datetime.timedelta(minutes=1),
        "subscribed_topic_names": [],
        "subscribed_topic_regex": ".*",
        "server_assignor": None,
        "topic_partitions": [],
    }
    rights = [(2, "seen", 3, a.READ, a.ALLOW, "*"), (3, "g", 3, a.READ, a.ALLOW, "*")]
    later = acl_values("alice", (2, "hidden", 3, a.DESCRIBE, a.ALLOW, "*"))

    def follow(client: RawClient, known: int, topics: int) -> int:
        """Send heartbeats until the member has that many topics; return its epoch."""
        held: list[dict[str, Any]] = []
        for _ in range(100):
            beat = client.call(68, 1, **{**values, "member_epoch": known, "topic_partitions": held})
            assert beat.error_code == 0, beat
            known = beat.member_epoch
            if beat.assignment is not None:
                held = [
                    {"topic_id": one.topic_id, "partitions": one.partitions}
                    for one in beat.assignment.topic_partitions
                ]
                if len(held) == topics:
                    return known
            time.sleep(0.05)
        raise AssertionError(f"{len(held)} topics, {topics} are expected")

    at_once = {"group.consumer.assignment.interval.ms": "0"}
    with broker(tmp_path, **at_once) as running:
        for name in ("hidden", "seen"):
            running.call(lambda node, name=name: node.catalogue.create(name, 1, {}))
        with RawClient(running.address("PLAINTEXT")) as admin:
            admin.call(30, 3, creations=[acl_values("alice", right) for right in rights])
            with RawClient(running.address("SASL_PLAINTEXT")) as client:
                log_in(client, "alice")
                epoch = follow(client, 0, 1)
                admin.call(30, 3, creations=[later])
                epoch = follow(client, epoch, 2)
    with (
        broker(tmp_path, **at_once) as running,
        RawClient(running.address("SASL_PLAINTEXT")) as client,
    ):
        log_in(client, "alice")
        assert follow(client, epoch, 2) == epoch, "the same rights are no change"
        assert running.call(lambda node: node.authorizer) is not None
        running.call(
            lambda node: (
                node.authorizer
                and node.authorizer.acls.remove(
                    [acl for acl in node.authorizer.acls if acl.name == "hidden"]
                )
            )
        )
        follow(client, epoch, 1)


def test_the_subject_of_a_certificate_is_the_principal(tmp_path: Path) -> None:
    """``User:CN=shop`` may describe a topic; a peer without a certificate is ANONYMOUS."""
    authority = Authority(tmp_path)
    own, shop = authority.sign("localhost"), authority.sign("shop")
    store = tmp_path / "broker.pem"
    store.write_bytes(own.key.read_bytes() + own.cert.read_bytes())
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "super.users": "User:root",
        "ssl.keystore.location": str(store),
        "ssl.truststore.location": str(authority.ca),
        "ssl.client.auth": "requested",
    }
    right = Acl(a.TOPIC, "t", a.LITERAL, "User:CN=shop", "*", a.DESCRIBE, a.ALLOW)
    errors = {}
    with broker(**settings) as running:
        running.call(lambda node: node.catalogue.create("t", 1, {}))
        running.call(lambda node: node.authorizer and node.authorizer.acls.add([right]))
        for has_certificate in (True, False):
            context = ssl.create_default_context(cafile=str(authority.ca))
            if has_certificate:
                context.load_cert_chain(shop.cert, shop.key)
            with RawClient(running.bootstrap) as client:
                client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
                topics = client.call(3, 12, topics=[{"name": "t", "topic_id": None}]).topics
                errors[has_certificate] = int(topics[0].error_code)
    assert errors == {True: 0, False: TOPIC_ERROR}
