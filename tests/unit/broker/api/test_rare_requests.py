"""Requests of tools and old clients: ACLs, quotas, bare tokens, unknown versions, configs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from faust_assigner.broker.answering import _answer_token
from faust_assigner.broker.security import acls as a
from faust_assigner.broker.security.acls import Acl, Acls
from faust_assigner.broker.security.authorizer import ANONYMOUS, Authorizer
from faust_assigner.broker.security.gate import LogInFailed
from faust_assigner.broker.storage.store import MemoryStore, StoreFailed
from faust_assigner.broker.topic_configs import TOPIC_CONFIGS
from faust_assigner.coordinator.events import CommitOffsets, JoinGroup, Protocol
from tests.support.asking import ask, read
from tests.support.hall import Hall, frames, in_hall

DESCRIBE_ACLS, DELETE_ACLS, HANDSHAKE, API_VERSIONS, DELETE_GROUPS = 29, 31, 17, 18, 42
DESCRIBE_CONFIGS, ALTER_CONFIGS, EDIT_CONFIGS, LIST_RESOURCES, ELECT = 32, 33, 44, 74, 43
REASSIGNMENTS, DESCRIBE_QUOTAS, ALTER_QUOTAS, DESCRIBE_TOPICS = 46, 48, 49, 75
STORAGE_ERROR, INVALID_REQUEST, SECURITY_DISABLED, UNKNOWN_TOPIC, INVALID_TOPIC = 56, 42, 54, 3, 17
UNSUPPORTED_VERSION, UNSUPPORTED_MECHANISM, NOT_EMPTY, NO_GROUP, ILLEGAL_STATE = 35, 33, 68, 69, 34

RULES = (
    Acl(a.TOPIC, "t", a.LITERAL, "User:a", "*", a.READ, a.ALLOW),
    Acl(a.TOPIC, "t", a.LITERAL, "User:b", "10.0.0.1", a.WRITE, a.DENY),
    Acl(a.TOPIC, "t", a.PREFIXED, "User:a", "*", a.READ, a.ALLOW),
    Acl(a.GROUP, "g", a.LITERAL, "User:a", "*", a.READ, a.ALLOW),
)


def asked(**fields: Any) -> dict[str, Any]:
    """Return a filter that selects all rules except for these fields."""
    every = {
        "resource_type_filter": a.ANY, "resource_name_filter": None, "pattern_type_filter": a.ANY,
        "principal_filter": None, "host_filter": None, "operation": a.ANY,
        "permission_type": a.ANY,
    }  # fmt: skip
    return {**every, **fields}


def with_all(hall: Hall) -> Acls:
    """Add these rules; clients may send every request."""
    acls = Acls(MemoryStore())
    acls.add(RULES)
    hall.node.authorizer = Authorizer(acls, frozenset({ANONYMOUS}))
    return acls


def test_rules_are_described_by_resource_with_every_field() -> None:
    """Two rules of the same pattern are together; a rule of a different pattern is separate."""

    async def story(hall: Hall) -> Any:
        with_all(hall)
        found = []
        for fields in ({}, {"principal_filter": "User:b"}, {"resource_type_filter": a.GROUP}):
            answer = await ask(hall, DESCRIBE_ACLS, 3, **asked(**fields))
            found.append(
                [
                    ((r.resource_type, r.resource_name, r.pattern_type), [
                        (x.principal, x.host, x.operation, x.permission_type) for x in r.acls
                    ])
                    for r in answer.resources
                ]
            )  # fmt: skip
        return found

    first, second, third, fourth = ((one[:3], one[3:]) for one in RULES)
    assert in_hall(story) == [
        [(first[0], [first[1], second[1]]), (third[0], [third[1]]), (fourth[0], [fourth[1]])],
        [(second[0], [second[1]])],
        [(fourth[0], [fourth[1]])],
    ]


def test_each_filter_deletes_and_names_its_rules() -> None:
    """A rule that two filters select belongs to the first; an invalid filter deletes none."""

    async def story(hall: Hall) -> Any:
        acls = with_all(hall)
        filters = [
            asked(resource_name_filter="t", pattern_type_filter=a.LITERAL),
            asked(operation=99),
            asked(principal_filter="User:a"),
        ]
        answer = await ask(hall, DELETE_ACLS, 3, filters=filters)
        results = [
            (int(one.error_code), [
                Acl(m.resource_type, m.resource_name, m.pattern_type, m.principal, m.host,
                    m.operation, m.permission_type)
                for m in one.matching_acls
            ])
            for one in answer.filter_results
        ]  # fmt: skip
        return results, list(acls)

    gone = [list(RULES[:2]), [], list(RULES[2:])]
    errors = [0, INVALID_REQUEST, 0]
    assert in_hall(story) == (list(zip(errors, gone, strict=True)), [])


def test_a_disk_that_refuses_a_deletion_of_rules_leaves_them_in_force() -> None:
    """The answer names no rule."""

    async def story(hall: Hall) -> Any:
        acls = with_all(hall)

        def full(*arguments: object, **more: object) -> None:
            raise StoreFailed("no space")

        acls._store.write = full  # type: ignore[method-assign]
        answer = await ask(hall, DELETE_ACLS, 3, filters=[asked()])
        (one,) = answer.filter_results
        return int(one.error_code), one.matching_acls, list(acls)

    assert in_hall(story) == (STORAGE_ERROR, (), list(RULES))


def test_without_an_authorizer_rules_are_neither_described_nor_deleted() -> None:
    """Each filter has its own error; an invalid filter of a description is an error."""

    async def story(hall: Hall) -> Any:
        described = await ask(hall, DESCRIBE_ACLS, 3, **asked())
        deleted = await ask(hall, DELETE_ACLS, 3, filters=[asked(), asked()])
        with_all(hall)
        wrong = await ask(hall, DESCRIBE_ACLS, 3, **asked(pattern_type_filter=9))
        return (
            [int(described.error_code), int(wrong.error_code)],
            [int(one.error_code) for one in deleted.filter_results],
        )

    assert in_hall(story) == ([SECURITY_DISABLED, INVALID_REQUEST], [SECURITY_DISABLED] * 2)


# -- log-ins and versions ------------------------------------------------------------------------


async def test_a_bare_token_is_answered_with_its_length_and_a_failure_with_nothing() -> None:
    """Clients of SaslHandshake version 0 expect this format."""

    class Door:
        """A gate that accepts a single token."""

        async def answer(self, token: bytes) -> bytes:
            if token != b"right":
                raise LogInFailed
            return b"welcome"

    door: Any = Door()
    assert await _answer_token(door, b"right") == [b"\0\0\0\7welcome"]
    assert await _answer_token(door, b"wrong") == [b""]


@pytest.mark.parametrize(
    ("version", "mechanism", "found"),
    [
        (0, "SCRAM-SHA-256", (0, True)),
        (1, "SCRAM-SHA-256", (0, False)),
        (1, "PLAIN", (UNSUPPORTED_MECHANISM, False)),
    ],
)
def test_a_handshake_names_the_mechanisms_and_version_0_is_followed_by_bare_tokens(
    version: int, mechanism: str, found: tuple[int, bool]
) -> None:
    """A mechanism that is not offered ends the connection after the answer."""

    async def story(hall: Hall) -> Any:
        peer, wire = hall.connect("peer", "SASL_PLAINTEXT")
        peer.data_received(next(frames(HANDSHAKE, 1, version, mechanism=mechanism)))
        await hall.answers(1)
        answer = read(HANDSHAKE, version, wire.written[0][1])
        assert peer.peer.gate is not None
        assert tuple(answer.mechanisms) == ("SCRAM-SHA-256", "SCRAM-SHA-512")
        return (int(answer.error_code), peer.peer.gate.is_raw), wire.closed

    assert in_hall(story) == (found, found[0] != 0)


def test_an_unknown_version_is_answered_where_the_client_asks_for_versions() -> None:
    """The answer has version 0 and all APIs (KIP-511); other requests end their connection."""

    async def story(hall: Hall) -> Any:
        frame = bytearray(next(frames(API_VERSIONS, 1, 3, client_software_name="x",
                                      client_software_version="1")))  # fmt: skip
        frame[6:8] = (99).to_bytes(2, "big")
        peer, wire = hall.connect("asks")
        peer.data_received(bytes(frame))
        await hall.answers(1)
        answer = read(API_VERSIONS, 0, wire.written[0][1])
        frame[4:6] = (3).to_bytes(2, "big")
        other, gone = hall.connect("other")
        other.data_received(bytes(frame))
        frame[4:6] = (999).to_bytes(2, "big")
        third, lost = hall.connect("third")
        third.data_received(bytes(frame))
        for _ in range(20):
            await asyncio.sleep(0)
        counted = hall.node.counters["requests_unsupported"]
        closed = [wire.closed, gone.closed, lost.closed]
        return int(answer.error_code), len(answer.api_keys) > 40, closed, counted

    assert in_hall(story) == (UNSUPPORTED_VERSION, True, [False, True, True], 2)


# -- configs ---------------------------------------------------------------------------------------


def test_older_clients_replace_all_configs_of_a_resource() -> None:
    """Omitted configs get their defaults; null, wrong values and missing topics change nothing."""

    async def story(hall: Hall) -> Any:
        topics = [
            hall.node.catalogue.create(name, 1, {"retention.ms": "5", "retention.bytes": "6"})
            for name in "tuv"
        ]
        changes: list[tuple[int, str, list[tuple[str, str | None]]]] = [
            (2, "t", [("retention.ms", "7"), ("segment.bytes", "100")]),
            (2, "u", [("retention.ms", None)]),
            (2, "v", [("retention.ms", "soon")]),
            (2, "x", []),
            (4, "1", [("num.partitions", "3")]),
        ]
        resources = [
            {"resource_type": kind, "resource_name": name,
             "configs": [{"name": n, "value": v} for n, v in configs]}
            for kind, name, configs in changes
        ]  # fmt: skip
        answer = await ask(hall, ALTER_CONFIGS, 2, resources=resources, validate_only=False)
        errors = [(one.resource_name, int(one.error_code)) for one in answer.responses]
        return errors, [topic.configs for topic in topics]

    errors, configs = in_hall(story)
    assert errors == [
        ("t", 0), ("u", INVALID_REQUEST), ("v", 40), ("x", UNKNOWN_TOPIC), ("1", INVALID_REQUEST)
    ]  # fmt: skip
    before = {"retention.ms": "5", "retention.bytes": "6"}
    assert configs == [{"retention.ms": "7", "segment.bytes": "100"}, before, before]


def test_a_change_that_is_only_validated_is_refused_or_not_made() -> None:
    """The request changes a topic and a group; lists are edited in the order of the request."""

    async def story(hall: Hall) -> Any:
        topic = hall.node.catalogue.create("t", 1, {"cleanup.policy": "delete"})
        edits = [
            {"name": "cleanup.policy", "config_operation": 2, "value": "compact"},
            {"name": "retention.ms", "config_operation": 0, "value": "9"},
        ]
        group = [{"name": "consumer.session.timeout.ms", "config_operation": 0, "value": "50000"}]
        resources = [
            {"resource_type": 2, "resource_name": "t", "configs": edits},
            {"resource_type": 32, "resource_name": "g", "configs": group},
        ]
        found = []
        for validate_only in (True, False):
            answer = await ask(
                hall, EDIT_CONFIGS, 1, resources=resources, validate_only=validate_only
            )
            errors = [int(one.error_code) for one in answer.responses]
            found.append((errors, dict(topic.configs), dict(hall.node.group_configs.explicit("g"))))
        return found

    policy = {"cleanup.policy": "delete,compact", "retention.ms": "9"}
    assert in_hall(story) == [
        ([0, 0], {"cleanup.policy": "delete"}, {}),
        ([0, 0], policy, {"consumer.session.timeout.ms": "50000"}),
    ]


@pytest.mark.parametrize(
    ("types", "found"),
    [
        ((), {(2, "t"), (2, "u"), (4, "1"), (8, "1"), (32, "g")}),
        ((2,), {(2, "t"), (2, "u")}),
        ((32, 4), {(32, "g"), (4, "1")}),
        ((16,), set()),
        ((2, 64), UNSUPPORTED_VERSION),
    ],
)
def test_resources_with_configs_are_listed_by_their_types(
    types: tuple[int, ...], found: Any
) -> None:
    """A group without its own configs is left out; an unknown type refuses the request."""

    async def story(hall: Hall) -> Any:
        for name in "tu":
            hall.node.catalogue.create(name, 1, {})
        own = {"consumer.session.timeout.ms": "50000"}
        hall.node.group_configs.configure("g", own, validate_only=False)
        hall.node.groups.ask("h", CommitOffsets, lambda reply: None)
        answer = await ask(hall, LIST_RESOURCES, 1, resource_types=types)
        if answer.error_code:
            assert not answer.config_resources
            return int(answer.error_code)
        return {(one.resource_type, one.resource_name) for one in answer.config_resources}

    assert in_hall(story) == found


def test_the_configs_of_a_broker_are_those_of_its_settings_and_read_only() -> None:
    """The broker's id or an empty name is accepted; foreign ids and unknown types are refused."""

    async def story(hall: Hall) -> Any:
        resources = [
            {"resource_type": kind, "resource_name": name,
             "configuration_keys": ["num.partitions", "auto.create.topics.enable",
                                    "log.cleanup.policy", "log.cleaner.min.cleanable.ratio",
                                    "log.retention.ms", "log.message.timestamp.type"]}
            for kind, name in ((4, "1"), (4, ""), (4, "2"), (16, "c"), (32, ""))
        ]  # fmt: skip
        answer = await ask(hall, DESCRIBE_CONFIGS, 4, resources=resources)
        rows = [
            [(c.name, c.value, c.config_source, c.config_type, c.read_only) for c in one.configs]
            for one in answer.results
        ]
        return [int(one.error_code) for one in answer.results], rows

    errors, rows = in_hall(story)
    assert errors == [0, 0, *[INVALID_REQUEST] * 3]
    assert sorted(rows[0]) == [
        ("auto.create.topics.enable", "true", 4, 1, True),
        ("log.cleaner.min.cleanable.ratio", "0.5", 4, 6, True),
        ("log.cleanup.policy", "delete", 4, 7, True),
        ("log.message.timestamp.type", "CreateTime", 4, 2, True),
        ("log.retention.ms", "604800000", 4, 5, True),
        ("num.partitions", "1", 4, 3, True),
    ]
    assert rows[1:] == [rows[0], [], [], []]


@pytest.mark.parametrize(
    ("name", "taken", "refused"),
    [
        (
            "cleanup.policy",
            ("", "delete", "compact", "compact, delete"),
            ("shred", "delete,x", ","),
        ),
        ("compression.gzip.level", ("-1", "9"), ("-2", "10", "1_0", "")),
        ("flush.messages", ("1", str(2**63 - 1)), ("0", str(2**63))),
        ("max.message.bytes", ("0", str(2**31 - 1)), ("-1", str(2**31))),
        ("message.timestamp.type", ("CreateTime", "LogAppendTime"), ("createtime", "")),
        ("min.cleanable.dirty.ratio", ("0", "1", "0.25"), ("-0.1", "1.1", "0_1", "x")),
        ("preallocate", ("true", " FALSE "), ("yes", "")),
        ("retention.ms", ("-1", "0"), ("-2", "1.5")),
        ("segment.bytes", ("14", str(2**31 - 1)), ("13",)),
        ("follower.replication.throttled.replicas", ("", "*", "0:1"), ()),
    ],
)
def test_each_config_takes_its_values_up_to_both_limits(
    name: str, taken: tuple[str, ...], refused: tuple[str, ...]
) -> None:
    """Kafka has the same limits."""
    check = TOPIC_CONFIGS[name][1].check
    assert [check(value) for value in taken] == [True] * len(taken)
    assert [check(value) for value in refused] == [False] * len(refused)


def test_each_config_has_the_type_that_kafka_shows() -> None:
    """BOOLEAN 1, STRING 2, INT 3, LONG 5, DOUBLE 6, LIST 7: every type occurs at least once."""
    types = {name: kind.config_type for name, (_, kind) in TOPIC_CONFIGS.items()}
    some = {
        "preallocate": 1, "compression.type": 2, "max.message.bytes": 3, "segment.bytes": 3,
        "min.insync.replicas": 3, "compression.gzip.level": 3, "retention.ms": 5,
        "flush.messages": 5, "min.cleanable.dirty.ratio": 6, "cleanup.policy": 7,
        "leader.replication.throttled.replicas": 7, "message.timestamp.type": 2,
    }  # fmt: skip
    assert {name: types[name] for name in some} == some


# -- groups, leaders and quotas --------------------------------------------------------------------


def test_groups_are_deleted_one_by_one_and_answered_in_the_order_of_the_request() -> None:
    """The groups have a member, are empty, or are unknown; the empty group is named twice."""

    async def story(hall: Hall) -> Any:
        for group_id in ("empty", "stays"):
            hall.node.groups.ask(group_id, CommitOffsets, lambda reply: None)
        join = JoinGroup(0, "", "m", (Protocol("range", b""),), needs_known_id=False)
        hall.node.groups.ask("live", lambda token: join, lambda reply: None)
        names = ("live", "empty", "x", "empty")
        answer = await ask(hall, DELETE_GROUPS, 2, groups_names=names)
        results = [(one.group_id, int(one.error_code)) for one in answer.results]
        return results, sorted(group.group_id for group in hall.node.groups)

    assert in_hall(story) == (
        [("live", NOT_EMPTY), ("empty", 0), ("x", NO_GROUP)],
        ["live", "stays"],
    )


def test_an_election_for_all_partitions_names_each_topic_and_no_partition() -> None:
    """A null list requests partitions that need an election; a list has each partition once."""

    async def story(hall: Hall) -> Any:
        for name in "tu":
            hall.node.catalogue.create(name, 2, {})
        found = []
        for parts in (None, [{"topic": "u", "partitions": (1, 0, 1)}]):
            answer = await ask(
                hall, ELECT, 2, election_type=0, timeout_ms=1_000, topic_partitions=parts
            )
            found.append(
                [
                    (one.topic, [p.partition_id for p in one.partition_result])
                    for one in answer.replica_election_results
                ]
            )
        return found

    assert in_hall(story) == [[("t", []), ("u", [])], [("u", [1, 0])]]


def test_there_are_no_reassignments_and_no_quotas() -> None:
    """Each quota that a client sets is refused with its entity and the reason."""

    async def story(hall: Hall) -> Any:
        moves = await ask(hall, REASSIGNMENTS, 0, timeout_ms=1_000, topics=None)
        quotas = await ask(hall, DESCRIBE_QUOTAS, 1, components=[], strict=False)
        entries = [
            {"entity": [{"entity_type": "user", "entity_name": name}],
             "ops": [{"key": "k", "value": 1.0, "remove": False}]}
            for name in ("a", None)
        ]  # fmt: skip
        refused = await ask(hall, ALTER_QUOTAS, 1, entries=entries, validate_only=False)
        return (
            (int(moves.error_code), moves.topics, int(quotas.error_code), quotas.entries),
            [
                (int(one.error_code), one.error_message,
                 [(e.entity_type, e.entity_name) for e in one.entity])
                for one in refused.entries
            ],
        )  # fmt: skip

    none, refused = in_hall(story)
    assert none == (0, (), 0, ())
    why = "this broker enforces no quotas"
    assert refused == [
        (INVALID_REQUEST, why, [("user", "a")]),
        (INVALID_REQUEST, why, [("user", None)]),
    ]


def test_a_topic_that_is_missing_from_a_page_has_the_reason() -> None:
    """A valid and an invalid name are missing; missing topics do not fill the page."""

    async def story(hall: Hall) -> Any:
        hall.node.catalogue.create("t", 2, {})
        answer = await ask(
            hall, DESCRIBE_TOPICS, 0, topics=[{"name": n} for n in ("t", "a", "b/c")],
            response_partition_limit=2, cursor=None,
        )  # fmt: skip
        assert answer.next_cursor is None
        return [(t.name, int(t.error_code), len(t.partitions)) for t in answer.topics]

    assert in_hall(story) == [("a", UNKNOWN_TOPIC, 0), ("b/c", INVALID_TOPIC, 0), ("t", 0, 2)]
    assert ILLEGAL_STATE == 34
