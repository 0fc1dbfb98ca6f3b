"""Stories of topics, for test_answers."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any, Final

from faust_assigner.broker.security.acls import (
    ALLOW,
    ALTER,
    CLUSTER,
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
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
from faust_assigner.broker.storage.records import parse_batch
from faust_assigner.broker.storage.store import MemoryStore, StoreFailed
from tests.support.clients.raw_client import batch
from tests.support.hall import Hall
from tests.unit.broker.api.played import Ask, Do, Restart, Story

METADATA, FIND_COORDINATOR, CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS = 3, 10, 19, 20, 21
LIST_OFFSETS, EPOCH_END, DESCRIBE_C, ALTER_C, LOG_DIRS, GROW, ELECT = 2, 23, 32, 33, 35, 37, 43
EDIT_C, REASSIGN, REASSIGNMENTS, QUOTAS, ALTER_QUOTAS, QUORUM, CLUSTER_OF = (
    44,
    45,
    46,
    48,
    49,
    55,
    60,
)
RESOURCES, PAGES = 74, 75
OFFSETS: Final = "__consumer_offsets"
NOBODY_S_ID: Final = uuid.UUID(int=999)
Rule = tuple[int, int, str]


def topics(**sizes: int) -> Do:
    """Create topics of these numbers of partitions."""

    def change(hall: Hall) -> None:
        for name, size in sizes.items():
            hall.node.catalogue.create(name, size, {})

    return Do(f"topics: {sizes}", change)


def rules(*given: Rule) -> Do:
    """Let the peers do only this: (operation, type of resource, its name)."""

    def change(hall: Hall) -> None:
        acls = Acls(MemoryStore())
        acls.add([Acl(kind, name, LITERAL, ANONYMOUS, "*", op, ALLOW) for op, kind, name in given])
        hall.node.authorizer = Authorizer(acls, frozenset())

    return Do(f"rights: {given}", change)


def settings(**changed: Any) -> Do:
    """Change settings of the broker."""

    def change(hall: Hall) -> None:
        hall.node.settings = replace(hall.node.settings, **changed)
        hall.node.catalogue._settings = hall.node.settings

    return Do(f"settings: {changed}", change)


def full_disk(hall: Hall) -> None:
    """Let every write fail."""

    def write(*arguments: object, **more: object) -> None:
        raise StoreFailed("no space")

    hall.node.store.write = write  # type: ignore[method-assign]


def id_of(hall: Hall, name: str) -> uuid.UUID:
    """Return the id of a topic."""
    found = hall.node.catalogue.get(name)
    assert found is not None
    return found.topic_id


def records(topic: str, partition: int, *times: int) -> Do:
    """Append a record of each time."""

    def change(hall: Hall) -> None:
        log = hall.node.catalogue.partition(topic, partition)
        assert log is not None
        for time in times:
            data = batch(timestamp=time)
            log.append(parse_batch(data), data, 0)

    return Do(f"records of {topic}-{partition}: {times}", change)


def names(*given: str) -> list[dict[str, Any]]:
    """Return topics by name."""
    return [{"name": name} for name in given]


def _meta(version: int, asked: Any, **more: Any) -> Ask:
    if version >= 4:
        more = {"allow_auto_topic_creation": False, **more}
    return Ask(METADATA, version, {"topics": asked, **more})


METADATAS: Story = (
    Do("a listener", lambda hall: hall.node.listen_on("broker.example", 9092)),
    settings(node_id=7, num_partitions=5, transaction_state_log_num_partitions=2),
    topics(b=2, a=3, **{OFFSETS: 4}),
    *(_meta(version, names("b", "x", "b", "a/b")) for version in (1, 2, 5, 8, 9, 10)),
    _meta(0, []),
    _meta(1, []),
    _meta(4, None),
    _meta(11, None, include_topic_authorized_operations=True),
    _meta(
        10, names("a"), include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    ),
    Ask(
        METADATA, 12,
        lambda hall: {
            "topics": [
                {"name": None, "topic_id": id_of(hall, "b")},
                {"name": None, "topic_id": NOBODY_S_ID},
                {"name": "a", "topic_id": uuid.UUID(int=0)},
                {"name": None, "topic_id": id_of(hall, "a")},
                {"name": "", "topic_id": id_of(hall, OFFSETS)},
            ],
            "allow_auto_topic_creation": False,
        },
    ),
    _meta(9, names("new", "a", "bad/name", "__transaction_state"), allow_auto_topic_creation=True),
    Ask(METADATA, 3, {"topics": names("newer", "")}),
    settings(auto_create_topics_enable=False),
    _meta(9, names("newest"), allow_auto_topic_creation=True),
    rules(
        (DESCRIBE, TOPIC, "a"), (CREATE, TOPIC, "a"), (WRITE, TOPIC, "a"), (DESCRIBE, TOPIC, "made"),
        (CREATE, TOPIC, "made"), (DESCRIBE, TOPIC, "seen"), (CREATE, TOPIC, "hidden"),
    ),
    settings(auto_create_topics_enable=True),
    _meta(
        10, names("b", "a", "seen", "made", "hidden"), allow_auto_topic_creation=True,
        include_topic_authorized_operations=True, include_cluster_authorized_operations=True,
    ),
    _meta(9, None),
    Ask(
        METADATA, 12,
        lambda hall: {
            "topics": [{"name": None, "topic_id": id_of(hall, name)} for name in "ba"],
            "allow_auto_topic_creation": False,
        },
    ),
    rules((CREATE, CLUSTER, THE_CLUSTER), (DESCRIBE, CLUSTER, THE_CLUSTER), (DESCRIBE, TOPIC, "any")),
    _meta(
        10, names("any", "unseen"), allow_auto_topic_creation=True,
        include_cluster_authorized_operations=True,
    ),
)  # fmt: skip


def _find(version: int, kind: int, *keys: str) -> Ask:
    asked: dict[str, Any] = {"coordinator_keys": keys} if version >= 4 else {"key": keys[0]}
    if version >= 1:
        asked["key_type"] = kind
    return Ask(FIND_COORDINATOR, version, asked)


COORDINATORS: Story = (
    Do("a listener", lambda hall: hall.node.listen_on("broker.example", 9092)),
    settings(node_id=7, offsets_topic_num_partitions=3, transaction_state_log_num_partitions=2),
    _find(0, 0, "g"),
    _find(3, 1, "tx"),
    _find(4, 0, "h", "", "g", "h", "g" * 1_025, "g" * 1_024),
    _find(4, 1, "", "t" * 1_025, "tx"),
    _find(4, 2, "s"),
    _find(3, 2, "s"),
    _find(1, 0, ""),
    rules((DESCRIBE, GROUP, "g"), (DESCRIBE, TRANSACTIONAL_ID, "tx"), (DESCRIBE, TOPIC, "t")),
    _find(6, 0, "g", "tx"),
    _find(6, 1, "g", "tx"),
    _find(2, 1, "g"),
    Ask(CLUSTER_OF, 0),
    Ask(CLUSTER_OF, 1, {"endpoint_type": 2, "include_cluster_authorized_operations": True}),
    rules((DESCRIBE, CLUSTER, THE_CLUSTER), (CREATE, CLUSTER, THE_CLUSTER)),
    Ask(CLUSTER_OF, 2, {"endpoint_type": 1, "include_cluster_authorized_operations": True}),
)


def _topic(name: str, count: int = -1, replicas: int = -1, **more: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": count, "replication_factor": replicas, **more}


def _places(*places: tuple[int, tuple[int, ...]]) -> list[dict[str, Any]]:
    return [{"partition_index": number, "broker_ids": ids} for number, ids in places]


CREATED: Story = (
    settings(node_id=7, num_partitions=5),
    Ask(CREATE_TOPICS, 4, {"topics": [_topic("a", 3, 1), _topic("b"), _topic("a", 1, 1)]}),
    Ask(
        CREATE_TOPICS, 7,
        {
            "topics": [
                _topic(
                    "c", 2, configs=[
                        {"name": "retention.ms", "value": "7"}, {"name": "cleanup.policy", "value": ""},
                        {"name": "segment.bytes", "value": None},
                    ],
                ),
                _topic("d", 1, configs=[{"name": "no.such", "value": "7"}]),
            ],
        },
    ),
    Ask(CREATE_TOPICS, 3, {"topics": [_topic("v", 2)], "validate_only": True}),
    Ask(
        CREATE_TOPICS, 4,
        {
            "topics": [
                _topic("e", 1, 2), _topic("f", 1, 0), _topic("g", 0), _topic("a", 1), _topic("h", -2),
                _topic("i", assignments=_places((1, (7,)), (0, (7,)))),
                _topic("j", assignments=_places((1, (7,)), (2, (7,)))),
                _topic("k", assignments=_places((0, (7,)), (1, (7, 8)))),
                _topic("l", assignments=_places((0, (7, 7)))),
                _topic("m", 2, assignments=_places((0, (7,)))),
                _topic("n", -1, 1, assignments=_places((0, (7,)))),
                _topic("o", assignments=_places((0, (7,)), (0, (7,)))),
            ],
        },
    ),
    Ask(
        GROW, 3,
        {
            "topics": [
                {"name": "a", "count": 5, "assignments": None},
                {"name": "b", "count": 6, "assignments": None},
                {"name": "c", "count": 3, "assignments": [{"broker_ids": (7,)}] * 2},
                {"name": "c2", "count": 3, "assignments": None},
                {"name": "i", "count": 4, "assignments": [{"broker_ids": (7,)}] * 2},
                {"name": "d", "count": 1, "assignments": None},
                {"name": "d", "count": 2, "assignments": None},
            ],
        },
    ),
    Ask(GROW, 2, {"topics": [{"name": "a", "count": 9, "assignments": None}], "validate_only": True}),
    Ask(GROW, 2, {"topics": [{"name": "a", "count": 2, "assignments": [{"broker_ids": (1,)}]}]}),
    _meta(1, names("a", "i", "v")),
    rules((CREATE, TOPIC, "p"), (CREATE, TOPIC, "q"), (DESCRIBE_CONFIGS, TOPIC, "q"), (ALTER, TOPIC, "a")),
    Ask(CREATE_TOPICS, 7, {"topics": [_topic("p", 2), _topic("r", 2)]}),
    Ask(GROW, 1, {"topics": [{"name": "b", "count": 6}, {"name": "a", "count": 6, "assignments": None}]}),
    Do("a full disk", full_disk),
    Ask(CREATE_TOPICS, 5, {"topics": [_topic("p2", 2), _topic("q", 1)]}),
    Ask(GROW, 1, {"topics": [{"name": "a", "count": 7, "assignments": None}]}),
)  # fmt: skip


def _trims(version: int, *asked: tuple[str, tuple[tuple[int, int], ...]]) -> Ask:
    named = [
        {"name": name, "partitions": [{"partition_index": n, "offset": o} for n, o in parts]}
        for name, parts in asked
    ]
    return Ask(DELETE_RECORDS, version, {"topics": named})


def _at(version: int, topic: str, *asked: tuple[int, int], level: int = 0, epoch: int = -1) -> Ask:
    parts: list[dict[str, Any]] = [{"partition_index": n, "timestamp": at} for n, at in asked]
    if version >= 4:
        parts = [{**one, "current_leader_epoch": epoch} for one in parts]
    values: dict[str, Any] = {"topics": [{"name": topic, "partitions": parts}]}
    if version >= 2:
        values["isolation_level"] = level
    return Ask(LIST_OFFSETS, version, values)


def _compacted(hall: Hall) -> None:
    for name, policy in (("c", "compact"), ("cd", "compact,delete")):
        topic = hall.node.catalogue.get(name)
        assert topic is not None
        hall.node.catalogue.configure(topic, {"cleanup.policy": policy}, validate_only=False)


GONE: Story = (
    topics(a=3, b=1, c=1, cd=1, **{OFFSETS: 1}),
    Do("policies", _compacted),
    records("a", 0, 1_000, 3_000, 2_000, 5_000),
    records("a", 2, 7_000),
    records("c", 0, 1),
    records("cd", 0, 1, 2),
    _at(1, "a", (0, -1), (0, -2), (1, -1), (2, -2), (7, -1), (-1, -1)),
    _at(1, "a", (0, -2), (1, -3), (2, 1_000)),
    _at(5, "a", (0, 3_000), (2, 7_001), (1, 0)),
    _at(7, "a", (0, -3), (1, -3), (2, -4)),
    _at(8, "a", (0, -4), (1, -5), (2, -3)),
    _at(9, "a", (0, -5), (1, -6), (2, -9)),
    _at(11, "a", (0, -6), (1, -1), (2, -1), level=1, epoch=0),
    _at(4, "a", (0, -1), epoch=1),
    _trims(
        1, ("a", ((0, 2), (1, 0), (2, -1), (3, 0))), ("c", ((0, 1),)), ("cd", ((0, 1),)),
        (OFFSETS, ((0, 0),)), ("x", ((0, 0),)), ("a", ((0, 1),)),
    ),
    _trims(2, ("a", ((0, 5), (2, -2)))),
    _at(5, "a", (0, 500), (0, -1), (2, -2), (1, -2)),
    Ask(
        EPOCH_END, 4,
        {
            "topics": [
                {
                    "topic": name,
                    "partitions": [
                        {"partition": n, "leader_epoch": at, "current_leader_epoch": -1}
                        for n, at in parts
                    ],
                }
                for name, parts in (("a", ((0, 0), (2, 1), (5, 0))), ("x", ((0, 0),)))
            ]
        },
    ),
    Restart(),
    _at(5, "a", (0, -2), (1, -2), (2, -1)),
    _at(7, "a", (0, -3)),
    Ask(DELETE_TOPICS, 5, {"topic_names": ("b", "x", "c", "c")}),
    Ask(
        DELETE_TOPICS, 6,
        lambda hall: {
            "topics": [
                {"name": None, "topic_id": id_of(hall, "cd")},
                {"name": None, "topic_id": NOBODY_S_ID},
                {"name": "x", "topic_id": uuid.UUID(int=0)},
                {"name": "a", "topic_id": id_of(hall, "a")},
            ]
        },
    ),
    settings(delete_topic_enable=False),
    Ask(DELETE_TOPICS, 5, {"topic_names": ("a",)}),
    settings(delete_topic_enable=True),
    rules((DELETE, TOPIC, "a"), (DESCRIBE, TOPIC, "x"), (DESCRIBE, TOPIC, "c")),
    Ask(DELETE_TOPICS, 5, {"topic_names": ("c", "x", "y")}),
    _trims(1, ("a", ((0, 3),)), ("c", ((0, 1),))),
    Do("a full disk", full_disk),
    _trims(1, ("a", ((0, 4),))),
    Ask(DELETE_TOPICS, 5, {"topic_names": ("a",)}),
)  # fmt: skip


def _page(limit: int, *asked: str, at: tuple[str, int] | None = None) -> Ask:
    cursor = None if at is None else {"topic_name": at[0], "partition_index": at[1]}
    return Ask(
        PAGES, 0, {"topics": names(*asked), "response_partition_limit": limit, "cursor": cursor}
    )


PAGES_OF_TOPICS: Story = (
    settings(node_id=7),
    topics(c=3, a=2, b=1, **{OFFSETS: 1}),
    _page(9),
    _page(3),
    _page(4),
    _page(1, "c", "a", "c", at=("c", 1)),
    _page(9, "x/y", "x", "c", at=("c", 2)),
    _page(9, "c", "x/y", "x"),
    _page(2, at=("aa", 1)),
    _page(2, "a", "c", at=("b", 0)),
    _page(2, "a", "c", at=("a", -1)),
    _page(2, at=("a", -1)),
    _page(0, "a", at=("a", 2)),
    rules((DESCRIBE, TOPIC, "a"), (READ, TOPIC, "a"), (DESCRIBE, TOPIC, "x")),
    _page(9),
    _page(1, "c", "a", "b", "x"),
    _page(2, "c", "a", "b", "x"),
)


STORIES: Final[dict[str, Story]] = {
    "metadata": METADATAS,
    "coordinators": COORDINATORS,
    "created": CREATED,
    "gone": GONE,
    "pages": PAGES_OF_TOPICS,
}
