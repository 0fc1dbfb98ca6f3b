"""Whole answers to operators' tools: groups, transactions, users, offsets and versions."""

from __future__ import annotations

import datetime
import uuid
from typing import Any

import pytest

from faust_assigner.broker.api import APIS, topic_pages
from faust_assigner.broker.api.versions import FEATURES
from faust_assigner.broker.security.acls import (
    CLUSTER,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    READ,
    THE_CLUSTER,
    TOPIC,
    TRANSACTIONAL_ID,
)
from faust_assigner.broker.security.credentials import ITERATIONS
from faust_assigner.broker.storage.records import TRANSACTIONAL, parse_batch
from faust_assigner.broker.storage.store import StoreFailed
from faust_assigner.coordinator.events import CommitOffsets, JoinGroup, Protocol, SyncGroup
from faust_assigner.coordinator.offsets import Committed
from faust_assigner.coordinator.transactions.events import AddPartitions, InitProducer
from tests.support.asking import ask
from tests.support.clients.raw_client import batch
from tests.support.hall import Hall, in_hall
from tests.unit.broker.api.test_consumer_groups import beats
from tests.unit.broker.api.test_tools import NOW, transactions
from tests.unit.broker.api.test_with_rules import with_rules
from tests.unit.broker.test_log_in import upsert

LIST_OFFSETS, COMMIT, FETCH_OFFSETS, DESCRIBE_GROUPS, LIST_GROUPS = 2, 8, 9, 15, 16
API_VERSIONS, DESCRIBE_USERS, ALTER_USERS, DESCRIBE_CLUSTER = 18, 50, 51, 60
PRODUCERS, DESCRIBE_TXN, LIST_TXN, DESCRIBE_CONSUMERS = 61, 65, 66, 69
UNKNOWN_PARTITION, UNKNOWN_ID, GROUP_BARRED, STORAGE_ERROR, NOT_FOUND = 3, 100, 30, 56, 91
UNACCEPTABLE, DUPLICATE, NO_GROUP = 93, 92, 69


def classic_group(hall: Hall, group_id: str = "g") -> None:
    """Make a stable group of two members with different metadata and assignments."""
    tell = hall.node.groups.ask
    for member_id, instance in (("m", None), ("n", "i")):
        tell(
            group_id,
            lambda token, member_id=member_id, instance=instance: JoinGroup(  # type: ignore[misc]
                token, "", member_id, (Protocol("range", member_id.encode() * 2),), "connect",
                instance_id=instance, client_id=f"c-{member_id}", client_host=f"/{member_id}",
                needs_known_id=False,
            ),
            lambda reply: None,
        )  # fmt: skip
    hall.node.groups.tick(group_id)
    for member_id in "mn":
        tell(
            group_id,
            lambda token, member_id=member_id: SyncGroup(  # type: ignore[misc]
                token, member_id, 1, assignments={"m": b"A", "n": b"BB"}
            ),
            lambda reply: None,
        )


def test_a_classic_group_is_described_with_every_field_of_its_members() -> None:
    """A group that is named twice is described once, beside a consumer and an unknown group."""

    async def story(hall: Hall) -> Any:
        classic_group(hall)
        await beats(hall, "m1", 0, group_id="new")
        answer = await ask(hall, DESCRIBE_GROUPS, 6, groups=("g", "g", "new", "x"))
        found = [
            (g.group_id, int(g.error_code), g.error_message, g.group_state, g.protocol_type,
             g.protocol_data, len(g.members))
            for g in answer.groups
        ]  # fmt: skip
        members = [
            (m.member_id, m.group_instance_id, m.client_id, m.client_host, m.member_metadata,
             m.member_assignment)
            for m in answer.groups[0].members
        ]  # fmt: skip
        return found, members

    assert in_hall(story) == (
        [
            ("g", 0, None, "Stable", "connect", "range", 2),
            ("new", NO_GROUP, "Group new is not a classic group.", "Dead", "", "", 0),
            ("x", NO_GROUP, "Group x not found.", "Dead", "", "", 0),
        ],
        [("m", None, "c-m", "/m", b"mm", b"A"), ("n", "i", "c-n", "/n", b"nn", b"BB")],
    )


@pytest.mark.parametrize("may_all", [False, True])
def test_groups_are_listed_to_clients_that_may_describe_them(may_all: bool) -> None:
    """A right on the group or on the cluster is enough; types, states and protocols are listed."""

    async def story(hall: Hall) -> list[tuple[str, str, str, str]]:
        classic_group(hall)
        await beats(hall, "m1", 0, group_id="new")
        hall.node.groups.ask("empty", CommitOffsets, lambda reply: None)
        rules = [(DESCRIBE, CLUSTER, THE_CLUSTER)] if may_all else [(DESCRIBE, GROUP, "g")]
        with_rules(hall, *rules)
        answer = await ask(hall, LIST_GROUPS, 5, states_filter=(), types_filter=())
        return [(g.group_id, g.protocol_type, g.group_state, g.group_type) for g in answer.groups]

    every = [
        ("g", "connect", "Stable", "classic"),
        ("new", "consumer", "Stable", "consumer"),
        ("empty", "", "Empty", "classic"),
    ]
    assert in_hall(story) == (every if may_all else every[:1])


def test_groups_of_the_consumer_protocol_are_described_once_and_with_their_reasons() -> None:
    """The request also has a classic group, an unknown group and an empty name."""

    async def story(hall: Hall) -> Any:
        topic = hall.node.catalogue.create("t", 2, {})
        classic_group(hall)
        epoch = await beats(
            hall, "m1", 0, group_id="new", instance_id="i", rack_id="r",
            subscribed_topic_names=["t"], subscribed_topic_regex="u.*",
        )  # fmt: skip
        answer = await ask(hall, DESCRIBE_CONSUMERS, 1, group_ids=("new", "new", "g", "x", ""))
        (group, *others) = answer.groups
        (member,) = group.members
        held = [(p.topic_id == topic.topic_id, p.topic_name, tuple(p.partitions))
                for p in member.assignment.topic_partitions]  # fmt: skip
        return (
            [(g.group_id, int(g.error_code), g.error_message) for g in others],
            (group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name),
            (member.member_id, member.instance_id, member.rack_id, member.member_epoch - epoch,
             member.client_id, member.client_host, tuple(member.subscribed_topic_names),
             member.subscribed_topic_regex, member.member_type),
            held,
        )  # fmt: skip

    others, group, member, held = in_hall(story)
    assert others == [
        ("g", NO_GROUP, "Group g is not a consumer group."),
        ("x", NO_GROUP, "Group x not found."),
        ("", 24, None),
    ]
    assert group == ("Stable", 2, 2, "uniform")
    assert member == ("m1", "i", "r", 0, "raw", "/127.0.0.1", ("t",), "u.*", 1)
    assert held == [(True, "t", (0, 1))]


# -- transactions --------------------------------------------------------------------------------


def test_transactions_and_their_topics_are_shown_by_the_rights_of_the_client() -> None:
    """The client may describe one of the two transactional ids and one of the two topics."""

    async def story(hall: Hall) -> Any:
        await transactions(hall)
        names = ("open", "done")
        with_rules(hall, (DESCRIBE, TRANSACTIONAL_ID, "open"), (DESCRIBE, TOPIC, "t"))
        described = []
        for _ in range(2):
            answer = await ask(hall, DESCRIBE_TXN, 0, transactional_ids=names)
            described.append(
                [
                    (one.transactional_id, int(one.error_code), [t.topic for t in one.topics])
                    for one in answer.transaction_states
                ]
            )
            with_rules(hall, (DESCRIBE, TRANSACTIONAL_ID, "open"))
        every = {"state_filters": (), "producer_id_filters": (), "duration_filter": -1}
        listed = await ask(hall, LIST_TXN, 2, **every, transactional_id_pattern=None)
        rows = [
            (t.transactional_id, t.producer_id, t.transaction_state)
            for t in listed.transaction_states
        ]
        return described, rows

    barred = ("done", 53, [])
    described, rows = in_hall(story)
    assert [sorted(one, reverse=True) for one in described] == [
        [("open", 0, ["t"]), barred],
        [("open", 0, []), barred],
    ]
    assert rows == [("open", 7, "Ongoing")]


def test_partitions_of_a_transaction_are_shown_in_order_with_their_topic() -> None:
    """The partitions of a deleted topic are left out."""

    async def story(hall: Hall) -> list[tuple[str, tuple[int, ...]]]:
        topics = [hall.node.catalogue.create(name, 12, {}) for name in "tuv"]
        tell = hall.node.transactions.ask
        tell("tx", InitProducer(60_000, 7))
        places = {(t.topic_id.bytes, n) for t in topics for n in (11, 3, 7, 0)}
        tell("tx", AddPartitions(7, 0, frozenset(places)))
        hall.node.catalogue.delete(topics[1])
        (one,) = (await ask(hall, DESCRIBE_TXN, 0, transactional_ids=("tx",))).transaction_states
        return sorted((t.topic, tuple(t.partitions)) for t in one.topics)

    assert in_hall(story) == [("t", (0, 3, 7, 11)), ("v", (0, 3, 7, 11))]


def test_two_open_transactions_are_shown_with_their_own_producers_and_offsets() -> None:
    """The producers are in the order of their last write."""

    async def story(hall: Hall) -> list[tuple[int, ...]]:
        log = hall.node.catalogue.create("t", 1, {}).partitions[0]
        for producer_id, epoch, sequence, count in ((7, 2, 4, 3), (8, 3, 0, 1), (9, 1, 6, 2)):
            attributes = 0 if producer_id == 9 else TRANSACTIONAL
            data = batch(
                producer_id=producer_id, epoch=epoch, sequence=sequence, count=count,
                attributes=attributes,
            )  # fmt: skip
            log.append(parse_batch(data), data, NOW + producer_id)
        topics = [{"name": "t", "partition_indexes": (0,)}]
        (part,) = (await ask(hall, PRODUCERS, 0, topics=topics)).topics[0].partitions
        return [
            (p.producer_id, p.producer_epoch, p.last_sequence, p.last_timestamp - NOW,
             p.coordinator_epoch, p.current_txn_start_offset)
            for p in part.active_producers
        ]  # fmt: skip

    assert in_hall(story) == [(7, 2, 6, 7, -1, 0), (8, 3, 0, 8, -1, 3), (9, 1, 7, 9, -1, -1)]


# -- users -----------------------------------------------------------------------------------------


def test_each_user_of_a_change_succeeds_or_fails_alone() -> None:
    """A deletion and a creation of the same user are both refused; the other changes are made."""

    async def story(hall: Hall) -> Any:
        hall.node.credentials.set_password("old", "x")
        answer = await ask(
            hall, ALTER_USERS, 0,
            upsertions=[upsert(name="new"), upsert(name="bad", salt=b""), upsert(name="old")],
            deletions=[{"name": "old", "mechanism": 1}, {"name": "none", "mechanism": 2}],
        )  # fmt: skip
        errors = [(one.user, int(one.error_code)) for one in answer.results]
        await ask(
            hall, ALTER_USERS, 0, upsertions=[], deletions=[{"name": "old", "mechanism": 1}]
        )  # fmt: skip
        return errors, list(hall.node.credentials)

    errors, users = in_hall(story)
    assert errors == [("old", DUPLICATE), ("none", NOT_FOUND), ("new", 0), ("bad", UNACCEPTABLE)]
    assert users == [("new", "SCRAM-SHA-256"), ("old", "SCRAM-SHA-512")]


def test_a_disk_that_refuses_a_credential_is_named_in_the_answer() -> None:
    """The user then does not exist."""

    async def story(hall: Hall) -> tuple[int, int]:
        def full(*arguments: object, **more: object) -> None:
            raise StoreFailed("no space")

        hall.node.store.write = full  # type: ignore[method-assign]
        answer = await ask(hall, ALTER_USERS, 0, upsertions=[upsert()], deletions=[])
        return int(answer.results[0].error_code), len(hall.node.credentials)

    assert in_hall(story) == (STORAGE_ERROR, 0)


@pytest.mark.parametrize("names", [None, (), ("b", "a", "x", "b", "y", "y")])
def test_users_are_described_with_their_mechanisms_or_the_reason_why_not(
    names: tuple[str, ...] | None,
) -> None:
    """A missing or empty list selects all users; a repeated name is an error."""

    async def story(hall: Hall) -> list[Any]:
        for name, mechanisms in (("a", (1, 2)), ("b", (2,))):
            for mechanism in mechanisms:
                changed = upsert(name=name, mechanism=mechanism, iterations=ITERATIONS + mechanism)
                await ask(hall, ALTER_USERS, 0, upsertions=[changed], deletions=[])
        users = None if names is None else [{"name": name} for name in names]
        answer = await ask(hall, DESCRIBE_USERS, 0, users=users)
        return [
            (one.user, int(one.error_code), [
                (info.mechanism, info.iterations - ITERATIONS) for info in one.credential_infos
            ])
            for one in answer.results
        ]  # fmt: skip

    every = [("a", 0, [(1, 1), (2, 2)]), ("b", 0, [(2, 2)])]
    named = [("b", DUPLICATE, []), every[0], ("x", NOT_FOUND, []), ("y", DUPLICATE, [])]
    assert in_hall(story) == (named if names else every)


# -- offsets -----------------------------------------------------------------------------------


def test_a_partition_that_a_commit_names_twice_has_its_last_offset() -> None:
    """The offset keeps every field; a known topic's unknown partition has a partition's error."""

    async def story(hall: Hall) -> Any:
        hall.node.clock = lambda: 5_000
        hall.node.groups._clock = hall.node.clock
        topic = hall.node.catalogue.create("t", 2, {})
        parts = [
            {"partition_index": n, "committed_offset": offset, "committed_leader_epoch": epoch,
             "committed_metadata": note}
            for n, offset, epoch, note in ((1, 5, 2, "one"), (9, 7, 3, "x"), (1, 6, 4, "two"))
        ]  # fmt: skip
        topics = [
            {"topic_id": one, "partitions": parts} for one in (topic.topic_id, uuid.UUID(int=3))
        ]
        answer = await ask(
            hall, COMMIT, 10, group_id="g", generation_id_or_member_epoch=-1, member_id="",
            group_instance_id=None, topics=topics,
        )  # fmt: skip
        errors = [[int(p.error_code) for p in t.partitions] for t in answer.topics]
        return errors, hall.node.groups.books.offsets("g").entries

    errors, entries = in_hall(story)
    assert errors == [[0, UNKNOWN_PARTITION, 0], [UNKNOWN_ID] * 3]
    assert entries == {("t", 1): Committed(6, 4, "two", 5_000, None)}


@pytest.mark.parametrize(("retention_ms", "expires"), [(-1, None), (0, 5_000), (7, 5_007)])
def test_an_offset_may_have_an_age_of_its_own(retention_ms: int, expires: int | None) -> None:
    """Clients of versions 2 to 4 set the age; -1 is the broker's setting, 0 expires immediately."""

    async def story(hall: Hall) -> Any:
        hall.node.clock = lambda: 5_000
        hall.node.catalogue.create("t", 1, {})
        part = {"partition_index": 0, "committed_offset": 5, "committed_metadata": None}
        await ask(
            hall, COMMIT, 4, group_id="g", generation_id_or_member_epoch=-1, member_id="",
            retention_time=datetime.timedelta(milliseconds=retention_ms),
            topics=[{"name": "t", "partitions": [part]}],
        )  # fmt: skip
        return hall.node.groups.books.offsets("g").entries[("t", 0)]

    assert in_hall(story) == Committed(5, -1, "", 5_000, expires)


def test_committed_offsets_are_read_with_every_field_by_the_rights_of_the_client() -> None:
    """A barred group has an error; topics that the client may not describe are left out."""

    async def story(hall: Hall) -> Any:
        for name in "tu":
            hall.node.catalogue.create(name, 3, {})
        for group_id, offset in (("g", 5), ("h", 6)):
            for name in "tu":
                hall.node.groups.ask(group_id, CommitOffsets, lambda reply: None)
                hall.node.groups.books.commit(group_id, {(name, 2): Committed(offset, 3, "note")})
        with_rules(hall, (DESCRIBE, GROUP, "g"), (DESCRIBE, TOPIC, "t"))
        groups = [{"group_id": one, "topics": None} for one in "gh"]
        named = [
            {"group_id": "g", "topics": [{"name": n, "partition_indexes": (2, 0)} for n in "tu"]}
        ]
        found = []
        for asked in (groups, named):
            answer = await ask(hall, FETCH_OFFSETS, 8, groups=asked, require_stable=False)
            found.append(
                [
                    (g.group_id, int(g.error_code), [
                        (t.name, p.partition_index, p.committed_offset, p.committed_leader_epoch,
                         p.metadata, int(p.error_code))
                        for t in g.topics for p in t.partitions
                    ])
                    for g in answer.groups
                ]
            )  # fmt: skip
        return found

    two = ("t", 2, 5, 3, "note", 0)
    barred = [("u", n, -1, -1, "", 29) for n in (2, 0)]
    assert in_hall(story) == [
        [("g", 0, [two]), ("h", GROUP_BARRED, [])],
        [("g", 0, [two, ("t", 0, -1, -1, "", 0), *barred])],
    ]


# -- the broker ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [3, 4])
def test_the_served_versions_and_features_are_advertised_whole(version: int) -> None:
    """Clients before version 4 cannot read a feature whose lowest level is 0."""

    async def story(hall: Hall) -> Any:
        answer = await ask(
            hall, API_VERSIONS, version, client_software_name="x", client_software_version="1"
        )
        keys = [(int(one.api_key), one.min_version, one.max_version) for one in answer.api_keys]
        supported = {f.name: (f.min_version, f.max_version) for f in answer.supported_features}
        finalized = {
            f.name: (f.min_version_level, f.max_version_level) for f in answer.finalized_features
        }
        return keys, supported, finalized

    keys, supported, finalized = in_hall(story)
    assert keys == [(key, 0 if key == 0 else APIS[key].low, APIS[key].high) for key in sorted(APIS)]
    assert supported == {n: span for n, span in FEATURES.items() if version >= 4 or span[0] > 0}
    assert finalized == {name: (high, high) for name, (_, high) in FEATURES.items()}


@pytest.mark.parametrize(
    ("rules", "operations"),
    [
        ([], 0),
        ([(DESCRIBE_CONFIGS, CLUSTER, THE_CLUSTER)], 0),
        ([(DESCRIBE, CLUSTER, THE_CLUSTER)], 1 << DESCRIBE),
        (
            [(DESCRIBE, CLUSTER, THE_CLUSTER), (DESCRIBE_CONFIGS, CLUSTER, THE_CLUSTER)],
            1 << DESCRIBE | 1 << DESCRIBE_CONFIGS,
        ),
    ],
)
def test_operations_on_the_cluster_are_told_to_clients_that_may_describe_it(
    rules: list[tuple[int, int, str]], operations: int
) -> None:
    """Each operation has a bit; a client that does not ask gets the default value."""

    async def story(hall: Hall) -> list[int]:
        with_rules(hall, *rules, (READ, TOPIC, "t"))
        return [
            (
                await ask(
                    hall, DESCRIBE_CLUSTER, 1, include_cluster_authorized_operations=asks,
                    endpoint_type=1,
                )
            ).cluster_authorized_operations
            for asks in (True, False)
        ]  # fmt: skip

    assert in_hall(story) == [operations, -(2**31)]
    assert topic_pages.MAX_PARTITIONS == 2_000


@pytest.mark.parametrize(
    ("timestamp", "found"),
    [(-1, (2, -1, 0)), (-2, (1, -1, 0)), (-4, (1, -1, 0)), (-3, (1, 2_000, 0)), (-5, (-1, -1, -1)),
     (1_500, (1, 2_000, 0)), (2_001, (-1, -1, -1))],
)  # fmt: skip
def test_each_special_time_has_its_own_offset(timestamp: int, found: tuple[int, int, int]) -> None:
    """The times are latest, earliest, newest, local, tiered and a date, in a trimmed log."""

    async def story(hall: Hall) -> tuple[int, int, int]:
        log = hall.node.catalogue.create("t", 1, {}).partitions[0]
        for time in (1_000, 2_000):
            data = batch(timestamp=time)
            log.append(parse_batch(data), data, 0)
        log.trim(1)
        part = {"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": 0}
        topics = [{"name": "t", "partitions": [part]}]
        answer = await ask(hall, LIST_OFFSETS, 9, replica_id=-1, isolation_level=0, topics=topics)
        (one,) = answer.topics[0].partitions
        return one.offset, one.timestamp, one.leader_epoch

    assert in_hall(story) == found
