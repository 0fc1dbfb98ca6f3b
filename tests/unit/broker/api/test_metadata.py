"""Metadata, FindCoordinator, DescribeTopicPartitions: existing topics and their brokers."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from faust_assigner.broker.api import topic_pages
from faust_assigner.broker.security.acls import ALLOW, DESCRIBE, LITERAL, TOPIC, Acl, Acls
from faust_assigner.broker.security.authorizer import ANONYMOUS, Authorizer
from tests.support.asking import ask
from tests.support.hall import Hall, in_hall

METADATA, FIND_COORDINATOR, DESCRIBE_TOPICS = 3, 10, 75
GROUP, TRANSACTION = 0, 1
INVALID_TOPIC, INVALID_GROUP, INVALID_REQUEST, TOPIC_BARRED = 17, 24, 42, 29
NOT_ASKED = -(2**31)


async def metadata(hall: Hall, *names: str, version: int = 9, **more: Any) -> Any:
    """Return the answer for topics by name."""
    values = {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": True}
    return await ask(hall, METADATA, version, **{**values, **more})


def test_a_name_that_cannot_be_created_keeps_no_other_from_being_created() -> None:
    """The producer requested both topics together."""

    async def story(hall: Hall) -> dict[str, int]:
        answer = await metadata(hall, "no/name", "t")
        return {topic.name: int(topic.error_code) for topic in answer.topics}

    assert in_hall(story) == {"no/name": INVALID_TOPIC, "t": 0}


@pytest.mark.parametrize(("asks", "allows"), [(False, True), (True, False)])
def test_topics_are_created_where_the_client_asks_and_the_broker_allows(
    asks: bool, allows: bool
) -> None:
    """Both the request and the setting must allow the creation."""

    async def story(hall: Hall) -> bool:
        hall.node.settings = replace(hall.node.settings, auto_create_topics_enable=allows)
        await metadata(hall, "t", allow_auto_topic_creation=asks)
        return hall.node.catalogue.get("t") is not None

    assert not in_hall(story)


@pytest.mark.parametrize("version", [10, 11])
@pytest.mark.parametrize("by", ["null", "id"])
def test_versions_with_useless_fields_for_ids_look_up_names_alone(version: int, by: str) -> None:
    """Their answers have no null name, so each topic of such a request is refused."""

    async def story(hall: Hall) -> list[tuple[str | None, int]]:
        topic = hall.node.catalogue.create("t", 1, {})
        odd = {"name": None} if by == "null" else {"name": "t", "topic_id": topic.topic_id}
        topics = [odd, {"name": "u"}]
        answer = await ask(hall, METADATA, version, topics=topics, allow_auto_topic_creation=False)
        return [(one.name, int(one.error_code)) for one in answer.topics]

    name = "" if by == "null" else "t"
    assert in_hall(story) == [(name, INVALID_REQUEST), ("u", INVALID_REQUEST)]


def test_a_topic_by_id_needs_the_right_to_describe_it() -> None:
    """The answer for a topic without this right has neither its name nor its partitions."""

    async def story(hall: Hall) -> list[tuple[str | None, int, int]]:
        known = [hall.node.catalogue.create(name, 1, {}).topic_id for name in ("t", "u")]
        rules = Acls(hall.node.store)
        rules.add([Acl(TOPIC, "t", LITERAL, ANONYMOUS, "*", DESCRIBE, ALLOW)])
        hall.node.authorizer = Authorizer(rules, frozenset())
        topics = [{"name": None, "topic_id": topic_id} for topic_id in known]
        answer = await ask(hall, METADATA, 12, topics=topics, allow_auto_topic_creation=False)
        return [(one.name, int(one.error_code), len(one.partitions)) for one in answer.topics]

    assert in_hall(story) == [("t", 0, 1), (None, TOPIC_BARRED, 0)]


def test_kept_answers_are_given_to_those_alone_who_asked_the_same() -> None:
    """Operations are answered on request, and each client gets an address that it can reach."""

    async def story(hall: Hall) -> list[tuple[bool, bool, str]]:
        hall.node.catalogue.create("t", 1, {})
        found = []
        for host, of_cluster, of_topic in (
            ("a", False, False), ("a", True, False), ("a", False, True), ("b", False, False)
        ):  # fmt: skip
            hall.node.address_for = lambda local_host, protocol, host=host: (host, 1)  # type: ignore[method-assign]
            answer = await metadata(
                hall,
                "t",
                include_cluster_authorized_operations=of_cluster,
                include_topic_authorized_operations=of_topic,
            )
            found.append(
                (
                    answer.cluster_authorized_operations != NOT_ASKED,
                    answer.topics[0].topic_authorized_operations != NOT_ASKED,
                    answer.brokers[0].host,
                )
            )
        return found

    assert in_hall(story) == [
        (False, False, "a"), (True, False, "a"), (False, True, "a"), (False, False, "b")
    ]  # fmt: skip


@pytest.mark.parametrize(("version", "topics"), [(0, 1), (1, 0)])
def test_an_empty_list_is_every_topic_in_version_0_alone(version: int, topics: int) -> None:
    """Later versions request all topics with null."""

    async def story(hall: Hall) -> int:
        hall.node.catalogue.create("t", 1, {})
        return len((await ask(hall, METADATA, version, topics=[])).topics)

    assert in_hall(story) == topics


def test_kept_answers_are_of_the_version_and_the_port_that_were_asked() -> None:
    """Two listeners may have one host, and each version has its own bytes."""

    async def story(hall: Hall) -> list[tuple[int, list[int]]]:
        hall.node.catalogue.create("t", 2, {})
        found = []
        for version, port in ((9, 1), (9, 2), (12, 2), (1, 2), (9, 1)):
            hall.node.address_for = lambda local_host, protocol, port=port: ("a", port)  # type: ignore[method-assign]
            more = {"allow_auto_topic_creation": False} if version >= 4 else {}
            answer = await ask(hall, METADATA, version, topics=[{"name": "t"}], **more)
            parts = [part.partition_index for part in answer.topics[0].partitions]
            found.append((answer.brokers[0].port, parts))
        return found

    assert in_hall(story) == [(port, [0, 1]) for port in (1, 2, 2, 2, 1)]


# -- coordinators ------------------------------------------------------------------------------


def test_a_key_that_is_asked_twice_has_one_coordinator() -> None:
    """The order is the order of the request."""

    async def story(hall: Hall) -> list[tuple[str, int]]:
        keys = ("h", "g", "", "h")
        answer = await ask(hall, FIND_COORDINATOR, 4, key_type=GROUP, coordinator_keys=keys)
        return [(one.key, int(one.error_code)) for one in answer.coordinators]

    assert in_hall(story) == [("h", 0), ("g", 0), ("", INVALID_GROUP)]


@pytest.mark.parametrize(
    ("key", "kind", "error"),
    [("", GROUP, INVALID_GROUP), ("", TRANSACTION, INVALID_REQUEST), ("g", 7, INVALID_REQUEST)],
)
@pytest.mark.parametrize("version", [3, 4])
def test_a_refused_key_names_no_coordinator(key: str, kind: int, error: int, version: int) -> None:
    """The answer has no address to which a client could connect."""

    async def story(hall: Hall) -> tuple[int, int, str, int]:
        asked = {"coordinator_keys": (key,)} if version == 4 else {"key": key}
        answer = await ask(hall, FIND_COORDINATOR, version, key_type=kind, **asked)
        found = answer.coordinators[0] if version == 4 else answer
        return int(found.error_code), found.node_id, found.host, found.port

    assert in_hall(story) == (error, -1, "", -1)


# -- pages of topics ---------------------------------------------------------------------------


async def pages(hall: Hall, limit: int, *names: str) -> list[list[tuple[str, int]]]:
    """Return every page; each page begins at the end of its predecessor."""
    found, cursor = [], None
    while True:
        answer = await ask(
            hall, DESCRIBE_TOPICS, 0, topics=[{"name": name} for name in names],
            response_partition_limit=limit, cursor=cursor,
        )  # fmt: skip
        found.append(
            [(topic.name, p.partition_index) for topic in answer.topics for p in topic.partitions]
        )
        assert all(topic.partitions for topic in answer.topics), (
            "a topic is named where it is shown"
        )
        if answer.next_cursor is None:
            return found
        cursor = {
            "topic_name": answer.next_cursor.topic_name,
            "partition_index": answer.next_cursor.partition_index,
        }


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 100])
def test_pages_show_each_partition_once_and_none_is_longer_than_asked(limit: int) -> None:
    """Pages end inside a topic, at its end, and beyond its end (KIP-966)."""
    sizes = {"a": 3, "b": 2, "c": 4}

    async def story(hall: Hall) -> list[list[tuple[str, int]]]:
        for name, size in sizes.items():
            hall.node.catalogue.create(name, size, {})
        return await pages(hall, limit)

    found = in_hall(story)
    every = [(name, number) for name, size in sizes.items() for number in range(size)]
    assert list(itertools.chain(*found)) == every
    assert all(len(page) == limit for page in found[:-1])
    assert 0 < len(found[-1]) <= limit


def test_a_page_is_no_longer_than_the_broker_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker's limit bounds the client's; a limit of 0 returns one partition per page."""
    monkeypatch.setattr(topic_pages, "MAX_PARTITIONS", 2)

    async def story(hall: Hall) -> list[int]:
        hall.node.catalogue.create("t", 4, {})
        return [len((await pages(hall, limit))[0]) for limit in (100, 0)]

    assert in_hall(story) == [2, 1]


def internal(hall: Hall) -> list[str]:
    """Return the names of the broker's internal topics."""
    return sorted(topic.name for topic in hall.node.catalogue if topic.name.startswith("__"))


def test_the_look_up_of_a_coordinator_creates_its_internal_topic_alone() -> None:
    """A refused key creates no topic; the numbers of partitions are settings."""

    async def story(hall: Hall) -> list[list[str]]:
        hall.node.settings = replace(hall.node.settings, offsets_topic_num_partitions=3)
        found = [internal(hall)]
        for kind, key in ((GROUP, ""), (7, "g"), (GROUP, "g"), (GROUP, "h"), (TRANSACTION, "x")):
            await ask(hall, FIND_COORDINATOR, 4, key_type=kind, coordinator_keys=(key,))
            found.append(internal(hall))
        assert len(hall.node.catalogue.get("__consumer_offsets").partitions) == 3  # type: ignore[union-attr]
        return found

    offsets, states = "__consumer_offsets", "__transaction_state"
    assert in_hall(story) == [[], [], [], [offsets], [offsets], [offsets, states]]


def test_an_internal_topic_that_metadata_creates_is_compacted_and_flagged() -> None:
    """A client may request the topic before any group exists; an app's topic has no flag."""

    async def story(hall: Hall) -> dict[str, tuple[bool, int]]:
        answer = await metadata(hall, "__consumer_offsets", "__mine")
        topic = hall.node.catalogue.get("__consumer_offsets")
        assert topic is not None
        assert hall.node.config(topic, "cleanup.policy") == "compact"
        return {t.name: (t.is_internal, len(t.partitions)) for t in answer.topics}

    assert in_hall(story) == {"__consumer_offsets": (True, 50), "__mine": (False, 1)}
