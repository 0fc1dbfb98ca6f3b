"""Stories of configs, and of the APIs that tools call on any cluster, for test_answers."""

from __future__ import annotations

from typing import Any, Final

from faust_assigner.broker.security.acls import (
    ALTER,
    ALTER_CONFIGS,
    CLUSTER,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    THE_CLUSTER,
    TOPIC,
)
from tests.unit.broker.api.played import Ask, Do, Story
from tests.unit.broker.api.stories_of_topics import full_disk, records, rules, settings, topics

DESCRIBE_C, ALTER_C, LOG_DIRS, ELECT, EDIT_C, REASSIGN = 32, 33, 35, 43, 44, 45
REASSIGNMENTS, QUOTAS, ALTER_QUOTAS, QUORUM, RESOURCES = 46, 48, 49, 55, 74


def _resource(kind: int, name: str, *keys: str) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, "configuration_keys": keys or None}


def _change(
    kind: int, name: str, *changes: tuple[str, int, str | None], key: int = EDIT_C
) -> dict[str, Any]:
    configs: list[dict[str, Any]] = [{"name": one, "value": value} for one, _, value in changes]
    if key == EDIT_C:
        configs = [
            {**one, "config_operation": way}
            for one, (_, way, _) in zip(configs, changes, strict=True)
        ]
    return {"resource_type": kind, "resource_name": name, "configs": configs}


def _edit(*resources: dict[str, Any], only: bool = False) -> Ask:
    return Ask(EDIT_C, 1, {"resources": resources, "validate_only": only})


SHOWN: Final = ("retention.ms", "cleanup.policy", "min.insync.replicas", "preallocate")
SHOWN_OF_GROUPS: Final = ("consumer.session.timeout.ms", "consumer.heartbeat.interval.ms")
_BOTH: Final = Ask(DESCRIBE_C, 4, {"resources": [
    _resource(2, "a", *SHOWN), _resource(32, "g", *SHOWN_OF_GROUPS),
]})  # fmt: skip
CONFIGS: Story = (
    settings(node_id=7, group_consumer_session_timeout_ms=50_000),
    topics(a=1, b=1),
    Ask(
        DESCRIBE_C, 1,
        {
            "resources": [
                _resource(2, "a", "retention.ms"), _resource(32, "", "x"), _resource(2, "x"),
                _resource(4, "7", "log.retention.hours", "node.id"), _resource(4, "8"),
                _resource(16, "m"), _resource(2, "a", "preallocate"),
                {"resource_type": 32, "resource_name": "h", "configuration_keys": ()},
            ],
        },
    ),
    _BOTH,
    _edit(
        _change(2, "a", ("retention.ms", 0, "70"), ("preallocate", 0, " TRUE "),
            ("cleanup.policy", 2, "compact")),
        _change(32, "g", ("consumer.session.timeout.ms", 0, "51000"),
            ("consumer.heartbeat.interval.ms", 0, "6000")),
    ),
    _BOTH,
    _edit(
        _change(2, "a", ("cleanup.policy", 3, "delete,x"), ("retention.ms", 1, None),
            ("segment.bytes", 1, None)),
        _change(32, "g", ("consumer.session.timeout.ms", 1, None), ("no.such", 1, None)),
    ),
    _BOTH,
    _edit(
        _change(2, "a", ("retention.ms", 0, "8")), _change(2, "b", ("retention.ms", 0, None),
            ("segment.ms", 2, None)),
        _change(2, "a", ("retention.ms", 0, "9")), _change(32, "a", ("consumer.session.timeout.ms", 2, "6")),
        _change(32, "g", ("consumer.session.timeout.ms", 3, "6")),
            _change(32, "h", ("consumer.session.timeout.ms", 9, "6")),
        _change(4, "7", ("node.id", 0, "8")), _change(2, "x", ("retention.ms", 0, "8")),
    ),
    _edit(
        _change(2, "a", ("no.such", 0, "8")), _change(2, "b", ("retention.ms", 0, "8"),
            ("retention.ms", 1, None)),
    ),
    _edit(_change(2, "b", ("cleanup.policy", 0, ""))),
    _edit(_change(2, "b", ("cleanup.policy", 2, "compact"))),
    Ask(DESCRIBE_C, 1, {"resources": [_resource(2, "b", "cleanup.policy")]}),
    Ask(DESCRIBE_C, 1, {"resources": [_resource(2, "b", "cleanup", "flush.ms")]}),
    Ask(ALTER_C, 1, {"resources": [_change(2, "b", ("cleanup.policy", 0, ""), key=ALTER_C)]}),
    _edit(_change(2, "a", ("cleanup.policy", 9, "8")), _change(2, "b", ("retention.ms", 2, "8"))),
    _edit(_change(2, "a", ("retention.ms", 0, "9")), _change(32, "g", ("consumer.session.timeout.ms", 0,
        "52000")), only=True),
    _BOTH,
    Ask(ALTER_C, 1, {"resources": [
        _change(2, "a", ("segment.ms", 0, "8000"), key=ALTER_C), _change(32, "g", key=ALTER_C),
        _change(2, "b", ("segment.ms", 0, None), ("retention.ms", 0, None), key=ALTER_C),
    ]}),
    _BOTH,
    *(Ask(RESOURCES, 1, {"resource_types": kinds}) for kinds in ((), (32, 2), (8, 4), (16,), (2, 3))),
    Ask(RESOURCES, 0),
    rules((ALTER_CONFIGS, TOPIC, "b"), (DESCRIBE_CONFIGS, CLUSTER, THE_CLUSTER),
        (DESCRIBE_CONFIGS, TOPIC, "a")),
    _edit(_change(2, "a", ("retention.ms", 0, "8")), _change(2, "b", ("retention.ms", 0, "8")),
        _change(32, "g"), _change(4, "7")),
    Ask(DESCRIBE_C, 1, {"resources": [
        _resource(2, "b"), _resource(2, "a", "retention.ms"), _resource(32, "g"),
            _resource(4, "7", "node.id"),
    ]}),
    Do("a full disk", full_disk),
    _edit(_change(2, "b", ("retention.ms", 0, "9"))),
)  # fmt: skip


def _parts(name: str, *numbers: int) -> dict[str, Any]:
    return {"topic": name, "partitions": numbers}


TOOLS: Story = (
    settings(node_id=7),
    topics(a=3, b=1),
    records("a", 1, 1_000),
    records("a", 2, 1_000, 2_000),
    Ask(LOG_DIRS, 4, {"topics": None}),
    Ask(LOG_DIRS, 1, {"topics": [_parts("a", 2, 5, -1, 1, 2), _parts("x", 0), _parts("b", 9)]}),
    Ask(ELECT, 2, {"election_type": 0, "topic_partitions": [_parts("a", 2, 0, 2, 7), _parts("x", 0)]}),
    Ask(ELECT, 1, {"election_type": 0, "topic_partitions": None}),
    Ask(ELECT, 1, {"election_type": 0, "topic_partitions": []}),
    Ask(REASSIGN, 1, {"topics": [
        {"name": name, "partitions": [{"partition_index": n, "replicas": to} for n, to in parts]}
        for name, parts in (("a", ((0, (7,)), (1, (8,)), (2, None), (3, (7,)))), ("b", ((0, ()),)),
            ("a", ((1, (7, 8)),)))
    ]}),
    Ask(REASSIGNMENTS, 0, {"topics": None}),
    Ask(QUOTAS, 1, {"components": [], "strict": False}),
    Ask(ALTER_QUOTAS, 1, {"entries": [
        {"entity": [{"entity_type": "user", "entity_name": name}, {"entity_type": "ip", "entity_name": None}],
         "ops": [{"key": "producer_byte_rate", "value": 7.0, "remove": False}]}
        for name in ("u", "v")
    ], "validate_only": False}),
    *(
        Ask(QUORUM, 2, {"topics": [
            {"topic_name": name, "partitions": [{"partition_index": n} for n in numbers]} for name,
                numbers in asked
        ]})
        for asked in ([("__cluster_metadata", (0,))], [("__cluster_metadata", (0, 1)), ("a", (2,))])
    ),
    rules((DESCRIBE, TOPIC, "a"), (ALTER, TOPIC, "a")),
    Ask(LOG_DIRS, 4, {"topics": None}),
    Ask(LOG_DIRS, 2, {"topics": None}),
    Ask(ELECT, 2, {"election_type": 0, "topic_partitions": [_parts("a", 2, 0)]}),
    Ask(REASSIGN, 1, {"topics": [{"name": "a", "partitions": [{"partition_index": 1, "replicas": (7,)}]}]}),
    Ask(REASSIGNMENTS, 0, {"topics": None}),
    Ask(QUOTAS, 1, {"components": [], "strict": False}),
)  # fmt: skip

STORIES: Final[dict[str, Story]] = {"configs": CONFIGS, "tools": TOOLS}
