"""Requests to a broker with an authorizer: the topics that a client may see, create and delete."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from faust_assigner.broker.security.acls import (
    ALLOW,
    CLUSTER,
    CREATE,
    DELETE,
    DESCRIBE,
    GROUP,
    IDEMPOTENT_WRITE,
    LITERAL,
    READ,
    THE_CLUSTER,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    Acl,
    Acls,
)
from faust_assigner.broker.security.authorizer import ANONYMOUS, Authorizer
from faust_assigner.broker.storage.store import MemoryStore, StoreFailed
from faust_assigner.coordinator.events import CommitOffsets
from tests.support.asking import ask
from tests.support.clients.raw_client import batch
from tests.support.hall import Hall, in_hall
from tests.unit.broker.api.test_consumer_groups import beats

PRODUCE, FETCH, INIT, LOG_DIRS = 0, 1, 22, 35
METADATA, HEARTBEAT, CREATE_TOPICS, DELETE_TOPICS = 3, 12, 19, 20
DESCRIBE_CONSUMERS, DESCRIBE_TOPICS = 69, 75
UNKNOWN_TOPIC, BARRED, UNKNOWN_ID, GROUP_BARRED = 3, 29, 100, 30
Rule = tuple[int, int, str]


def with_rules(hall: Hall, *rules: Rule) -> None:
    """Allow clients only these operations on these resources."""
    acls = Acls(MemoryStore())
    acls.add([Acl(kind, name, LITERAL, ANONYMOUS, "*", one, ALLOW) for one, kind, name in rules])
    hall.node.authorizer = Authorizer(acls, frozenset())


def told(
    topics: tuple[str, ...], rules: tuple[Rule, ...], story: Callable[[Hall], Awaitable[Any]]
) -> Any:
    """Run a story with these topics under these rules, and return its result."""

    async def prepared(hall: Hall) -> Any:
        for name in topics:
            hall.node.catalogue.create(name, 1, {})
        with_rules(hall, *rules)
        return await story(hall)

    return in_hall(prepared)


def test_each_missing_topic_is_created_or_barred_by_its_own_rights() -> None:
    """The first topic may not be created, the second may, and the third is hidden."""

    async def story(hall: Hall) -> Any:
        topics = [{"name": name} for name in ("seen", "made", "hidden", "there")]
        answer = await ask(hall, METADATA, 9, topics=topics, allow_auto_topic_creation=True)
        found = {one.name: int(one.error_code) for one in answer.topics}
        return found, [topic.name for topic in hall.node.catalogue]

    rules = tuple((DESCRIBE, TOPIC, name) for name in ("seen", "made", "there"))
    assert told(("there",), (*rules, (CREATE, TOPIC, "made")), story) == (
        {"seen": BARRED, "made": 0, "hidden": BARRED, "there": 0},
        ["there", "made"],
    )


def test_a_disk_that_refuses_a_new_topic_leaves_it_missing_in_the_answer() -> None:
    """The existing topics are shown; the client retries."""

    async def story(hall: Hall) -> dict[str, int]:
        hall.node.catalogue.create("there", 1, {})

        def full(*arguments: object, **more: object) -> None:
            raise StoreFailed("no space")

        hall.node.store.write = full  # type: ignore[method-assign]
        topics = [{"name": name} for name in ("missing", "there")]
        answer = await ask(hall, METADATA, 9, topics=topics, allow_auto_topic_creation=True)
        return {one.name: int(one.error_code) for one in answer.topics}

    assert in_hall(story) == {"missing": UNKNOWN_TOPIC, "there": 0}


def test_a_topic_that_is_named_and_meant_by_its_id_is_shown_once() -> None:
    """The request names each topic by id and by name, in mixed order."""

    async def story(hall: Hall) -> list[tuple[str | None, int]]:
        ids = [hall.node.catalogue.create(name, 1, {}).topic_id for name in ("t", "u")]
        none = uuid.UUID(int=0)
        topics = [
            {"name": None, "topic_id": ids[0]},
            {"name": "u", "topic_id": none},
            {"name": "t", "topic_id": none},
            {"name": None, "topic_id": ids[1]},
            {"name": None, "topic_id": uuid.UUID(int=7)},
        ]
        answer = await ask(hall, METADATA, 12, topics=topics, allow_auto_topic_creation=False)
        return [(one.name, int(one.error_code)) for one in answer.topics]

    assert in_hall(story) == [("t", 0), ("u", 0), (None, UNKNOWN_ID)]


def test_clients_with_other_rights_get_no_answer_that_was_made_for_another_one() -> None:
    """The second answer follows the changed rules with an unchanged catalogue."""

    async def story(hall: Hall) -> list[list[str]]:
        found = []
        for name in ("t", "u"):
            with_rules(hall, (DESCRIBE, TOPIC, name))
            answer = await ask(hall, METADATA, 9, topics=None, allow_auto_topic_creation=False)
            found.append([one.name for one in answer.topics])
        return found

    assert told(("t", "u"), (), story) == [["t"], ["u"]]


@pytest.mark.parametrize(
    ("names", "shown"),
    [((), {"t": 0, "v": 0}), (("v", "u", "x"), {"u": BARRED, "v": 0, "x": BARRED})],
)
def test_a_page_of_all_topics_leaves_the_hidden_ones_out_and_names_them_on_request(
    names: tuple[str, ...], shown: dict[str, int]
) -> None:
    """The list of all topics must not reveal hidden topics."""

    async def story(hall: Hall) -> dict[str, int]:
        answer = await ask(
            hall, DESCRIBE_TOPICS, 0, topics=[{"name": name} for name in names],
            response_partition_limit=100, cursor=None,
        )  # fmt: skip
        return {one.name: int(one.error_code) for one in answer.topics}

    rules = tuple((DESCRIBE, TOPIC, name) for name in ("t", "v"))
    assert told(("t", "u", "v"), rules, story) == shown


def test_a_page_goes_on_behind_a_topic_that_was_deleted_meanwhile() -> None:
    """The next topic begins with its first partition, even if the client named its topics."""

    async def story(hall: Hall) -> list[Any]:
        hall.node.catalogue.create("c", 3, {})
        found = []
        for names in ((), ("b", "c")):
            answer = await ask(
                hall, DESCRIBE_TOPICS, 0, topics=[{"name": name} for name in names],
                response_partition_limit=2, cursor={"topic_name": "b", "partition_index": 2},
            )  # fmt: skip
            parts = [(t.name, p.partition_index) for t in answer.topics for p in t.partitions]
            cursor = answer.next_cursor
            found.append((parts, cursor.topic_name, cursor.partition_index))
        return found

    assert in_hall(story) == [([("c", 0), ("c", 1)], "c", 2)] * 2


@pytest.mark.parametrize("by_id", [False, True])
def test_only_topics_that_a_client_may_delete_are_deleted(by_id: bool) -> None:
    """Only clients that may describe a missing topic's name see its absence."""

    async def story(hall: Hall) -> Any:
        names = ["mine", "seen", "gone", "hidden"]
        ids = {topic.name: topic.topic_id for topic in hall.node.catalogue}
        if by_id:
            topics = [{"name": None, "topic_id": ids.get(n, uuid.UUID(int=9))} for n in names[:3]]
            answer = await ask(hall, DELETE_TOPICS, 6, topics=topics)
        else:
            answer = await ask(hall, DELETE_TOPICS, 5, topic_names=tuple(names))
        errors = [int(one.error_code) for one in answer.responses]
        return errors, [topic.name for topic in hall.node.catalogue]

    rules = ((DELETE, TOPIC, "mine"), (DESCRIBE, TOPIC, "seen"), (DESCRIBE, TOPIC, "gone"))
    errors = [0, BARRED, UNKNOWN_ID] if by_id else [0, BARRED, UNKNOWN_TOPIC, BARRED]
    assert told(("mine", "seen"), rules, story) == (errors, ["seen"])


def test_the_right_to_delete_on_the_cluster_deletes_every_topic() -> None:
    """A missing topic is reported as missing."""

    async def story(hall: Hall) -> list[int]:
        answer = await ask(hall, DELETE_TOPICS, 5, topic_names=("t", "gone"))
        return [int(one.error_code) for one in answer.responses]

    assert told(("t",), ((DELETE, CLUSTER, THE_CLUSTER),), story) == [0, UNKNOWN_TOPIC]


def test_a_creator_without_the_right_to_read_configs_gets_none() -> None:
    """The topic is created; the answer marks its configs as hidden."""

    async def story(hall: Hall) -> Any:
        topics = [{"name": "t", "num_partitions": 3, "replication_factor": 1}]
        (one,) = (await ask(hall, CREATE_TOPICS, 7, topics=topics)).topics
        topic = hall.node.catalogue.get("t")
        assert topic is not None
        assert one.topic_id == topic.topic_id
        return int(one.error_code), int(one.topic_config_error_code), one.configs or ()

    assert told((), ((CREATE, TOPIC, "t"),), story) == (0, BARRED, ())


def test_an_empty_group_id_needs_a_right_like_any_other() -> None:
    """No rule can name the empty id, so the heartbeat is refused."""

    async def story(hall: Hall) -> int:
        answer = await ask(
            hall, HEARTBEAT, 3, group_id="", generation_id=1, member_id="m", group_instance_id=None
        )
        return int(answer.error_code)

    assert told((), ((READ, GROUP, "g"),), story) == GROUP_BARRED


@pytest.mark.parametrize(("hidden", "error"), [("", 0), ("t", BARRED), ("u", BARRED)])
def test_a_group_is_described_to_clients_that_may_describe_all_its_topics(
    hidden: str, error: int
) -> None:
    """The second member's topics count as well, and the refusal names no topic."""

    async def story(hall: Hall) -> tuple[int, bool]:
        await beats(hall, "m1", 0, subscribed_topic_names=["t"])
        await beats(hall, "m2", 0, subscribed_topic_names=["u"])
        may = tuple((DESCRIBE, TOPIC, name) for name in ("t", "u") if name != hidden)
        with_rules(hall, (DESCRIBE, GROUP, "g"), *may)
        (group,) = (await ask(hall, DESCRIBE_CONSUMERS, 1, group_ids=("g",))).groups
        return int(group.error_code), bool(group.members)

    async def prepared(hall: Hall) -> tuple[int, bool]:
        for name in ("t", "u"):
            hall.node.catalogue.create(name, 1, {})
        return await story(hall)

    assert in_hall(prepared) == (error, not hidden)
    assert ErrorCode(BARRED) is ErrorCode.topic_authorization_failed


def test_the_topics_that_a_member_has_count_beside_those_that_it_subscribes_to() -> None:
    """The member has dropped the topic from its subscription and not revoked it yet."""

    async def story(hall: Hall) -> int:
        for name in ("t", "u", "v"):
            hall.node.catalogue.create(name, 1, {})
        at_once = {"consumer.assignment.interval.ms": "0"}
        hall.node.group_configs.configure("g", at_once, validate_only=False)
        epoch = await beats(hall, "m1", 0, subscribed_topic_names=["t", "u"])
        await beats(hall, "m1", epoch, subscribed_topic_names=["t"])
        with_rules(hall, (DESCRIBE, GROUP, "g"), (DESCRIBE, TOPIC, "t"))
        (group,) = (await ask(hall, DESCRIBE_CONSUMERS, 1, group_ids=("g",))).groups
        return int(group.error_code)

    assert in_hall(story) == BARRED


@pytest.mark.parametrize("asks", [True, False])
@pytest.mark.parametrize("api", [15, 69])
def test_the_operations_on_a_group_are_told_to_clients_that_ask(api: int, asks: bool) -> None:
    """Existing groups of both protocols have operations; missing groups have none."""

    async def story(hall: Hall) -> list[tuple[str, int]]:
        hall.node.catalogue.create("t", 1, {})
        if api == 69:
            await beats(hall, "m1", 0, subscribed_topic_names=["t"])
        else:
            hall.node.groups.ask("g", CommitOffsets, lambda reply: None)
        rules = ((DESCRIBE, GROUP, name) for name in "gx")
        with_rules(hall, *rules, (DELETE, GROUP, "g"), (DESCRIBE, TOPIC, "t"))
        names = {"groups": ("g", "x")} if api == 15 else {"group_ids": ("g", "x")}
        version = 6 if api == 15 else 1
        answer = await ask(hall, api, version, include_authorized_operations=asks, **names)
        return [(one.group_id, one.authorized_operations) for one in answer.groups]

    none = -(2**31)
    told_ = (1 << DESCRIBE | 1 << DELETE) if asks else none
    assert in_hall(story) == [("g", told_), ("x", none)]


def test_records_for_a_barred_topic_are_refused_and_those_beside_it_are_taken() -> None:
    """Topics are named by name and by id; no rule can bar an unknown id."""

    async def story(hall: Hall) -> Any:
        ids = {topic.name: topic.topic_id for topic in hall.node.catalogue}
        found = []
        for version in (9, 13):
            data = [{"index": 0, "records": batch()}]
            if version >= 13:
                keys = [{"topic_id": one} for one in (*ids.values(), uuid.UUID(int=9))]
            else:
                keys = [{"name": name} for name in ("t", "u", "x")]
            topics = [{**key, "partition_data": data} for key in keys]
            answer = await ask(hall, PRODUCE, version, acks=-1, timeout_ms=1, topic_data=topics)
            found.append([int(t.partition_responses[0].error_code) for t in answer.responses])
        ends = [topic.partitions[0].end_offset for topic in hall.node.catalogue]
        return found, ends

    by_name, by_id = [0, BARRED, BARRED], [0, BARRED, UNKNOWN_ID]
    assert told(("t", "u"), ((WRITE, TOPIC, "t"),), story) == ([by_name, by_id], [2, 0])


def test_a_topic_that_a_reader_may_not_see_is_barred_whether_it_exists_or_not() -> None:
    """Topics are named by name and by id; no rule can bar an unknown id."""

    async def story(hall: Hall) -> Any:
        ids = {topic.name: topic.topic_id for topic in hall.node.catalogue}
        found = []
        for version in (12, 13):
            parts = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}]
            if version >= 13:
                keys = [{"topic_id": one} for one in (*ids.values(), uuid.UUID(int=9))]
            else:
                keys = [{"topic": name} for name in ("t", "u", "x")]
            topics = [{**key, "partitions": parts} for key in keys]
            answer = await ask(hall, FETCH, version, **limits, topics=topics)
            found.append([int(topic.partitions[0].error_code) for topic in answer.responses])
        return found

    limits = {"max_wait": datetime.timedelta(), "min_bytes": 0, "max_bytes": 9}
    by_name, by_id = [0, BARRED, BARRED], [0, BARRED, UNKNOWN_ID]
    assert told(("t", "u"), ((READ, TOPIC, "t"),), story) == [by_name, by_id]


def test_the_log_directory_is_shown_to_clients_that_may_describe_the_cluster(
    tmp_path: Path,
) -> None:
    """The answer has the directory and its space; other clients get an error."""

    async def story(hall: Hall) -> list[tuple[int, list[tuple[str, bool]]]]:
        hall.node.folder = tmp_path
        found = []
        for rules in ((), ((DESCRIBE, CLUSTER, THE_CLUSTER),)):
            with_rules(hall, *rules)
            answer = await ask(hall, LOG_DIRS, 4, topics=None)
            rows = [(one.log_dir, 0 < one.usable_bytes < one.total_bytes) for one in answer.results]
            found.append((int(answer.error_code), rows))
        return found

    assert in_hall(story) == [(31, []), (0, [(str(tmp_path.resolve()), True)])]


def test_a_created_topic_is_answered_with_its_counts_and_configs() -> None:
    """A validated topic is not created; the only broker allows a single replica."""

    async def story(hall: Hall) -> Any:
        hall.node.settings = replace(hall.node.settings, num_partitions=6)
        topics = [
            {"name": name, "num_partitions": count, "replication_factor": -1}
            for name, count in (("t", 3), ("u", -1), ("a/b", 1))
        ]
        found = []
        for validate_only in (True, False):
            answer = await ask(hall, CREATE_TOPICS, 7, topics=topics, validate_only=validate_only)
            rows = [
                (t.name, int(t.error_code), t.num_partitions, t.replication_factor,
                 len(t.configs or ()) > 20)
                for t in answer.topics
            ]  # fmt: skip
            found.append((rows, [topic.name for topic in hall.node.catalogue]))
        return found

    rows = [("t", 0, 3, 1, True), ("u", 0, 6, 1, True), ("a/b", 17, -1, -1, False)]
    assert in_hall(story) == [(rows, []), (rows, ["t", "u"])]


def test_a_page_shows_every_field_of_its_topics_and_partitions() -> None:
    """The page has an internal topic and the operations of a client with few rights."""

    async def story(hall: Hall) -> Any:
        names = ("__consumer_offsets", "t")
        ids = [hall.node.catalogue.create(name, 2, {}).topic_id for name in names]
        with_rules(hall, *((DESCRIBE, TOPIC, name) for name in names), (DELETE, TOPIC, "t"))
        answer = await ask(
            hall, DESCRIBE_TOPICS, 0, topics=[], response_partition_limit=9, cursor=None
        )
        assert [one.topic_id for one in answer.topics] == ids
        return [
            (
                one.name, one.is_internal, one.topic_authorized_operations,
                [
                    (int(p.error_code), p.partition_index, p.leader_id, p.leader_epoch,
                     tuple(p.replica_nodes), tuple(p.isr_nodes))
                    for p in one.partitions
                ],
            )
            for one in answer.topics
        ]  # fmt: skip

    parts = [(0, number, 1, 0, (1,), (1,)) for number in range(2)]
    assert in_hall(story) == [
        ("__consumer_offsets", True, 1 << DESCRIBE, parts),
        ("t", False, 1 << DESCRIBE | 1 << DELETE, parts),
    ]


@pytest.mark.parametrize(
    ("rules", "transactional", "idempotent"),
    [
        ((), 53, 31),
        (((WRITE, TRANSACTIONAL_ID, "tx"),), 0, 31),
        (((DESCRIBE, TRANSACTIONAL_ID, "tx"),), 53, 31),
        (((IDEMPOTENT_WRITE, CLUSTER, THE_CLUSTER),), 53, 0),
        (((WRITE, TOPIC, "t"),), 53, 0),
        (((READ, TOPIC, "t"),), 53, 31),
    ],
)
def test_a_producer_gets_an_id_by_the_right_to_write_so(
    rules: tuple[Rule, ...], transactional: int, idempotent: int
) -> None:
    """The right is on the transactional id, or without such an id on the cluster or any topic."""

    async def story(hall: Hall) -> list[tuple[int, bool]]:
        with_rules(hall, *rules)
        found = []
        for name in ("tx", None):
            answer = await ask(
                hall, INIT, 4, transactional_id=name, producer_id=-1, producer_epoch=-1,
                transaction_timeout=datetime.timedelta(minutes=1),
            )  # fmt: skip
            found.append((int(answer.error_code), answer.producer_id >= 0))
        return found

    assert in_hall(story) == [(transactional, not transactional), (idempotent, not idempotent)]


@pytest.mark.parametrize(
    ("names", "error"), [(("t",), 0), (("t", "u"), BARRED), (("u", "t"), BARRED), ((), 0)]
)
def test_a_member_may_subscribe_only_to_topics_that_it_may_describe(
    names: tuple[str, ...], error: int
) -> None:
    """The right to describe "t" is not sufficient for both topics."""

    async def story(hall: Hall) -> int:
        answer = await ask(
            hall, 68, 1, group_id="g", member_id="m", member_epoch=0, instance_id=None,
            rack_id=None, subscribed_topic_regex=None if names else "t", server_assignor=None,
            rebalance_timeout=datetime.timedelta(minutes=1), subscribed_topic_names=names,
            topic_partitions=[],
        )  # fmt: skip
        return int(answer.error_code)

    assert told(("t", "u"), ((READ, GROUP, "g"), (DESCRIBE, TOPIC, "t")), story) == error
