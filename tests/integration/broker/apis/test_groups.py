"""Groups and their offsets on the wire, version by version."""

from __future__ import annotations

from typing import Any

import pytest

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.broker.housekeeping import expire
from tests.integration.broker.apis.calls import COMMIT, COMMITTED, commit, milliseconds
from tests.support.clients.raw_client import RawClient


@pytest.mark.parametrize("version", range(2, 10))
def test_commits_in_every_version_are_read_back_in_every_version(
    client: RawClient, version: int
) -> None:
    """Offset and metadata are returned; -1 for partitions without a commit; one or many groups."""
    assert commit(client, 42, version=version, note="n") == 0
    for reader in range(1, 10):
        topics = [{"name": "t", "partition_indexes": (0, 1)}]
        if reader < 8:
            found = client.call(COMMITTED, reader, group_id="g", topics=topics).topics[0].partitions
        else:
            groups = [
                {"group_id": name, "topics": topics, "member_id": None} for name in ("g", "nobody")
            ]
            first, second = client.call(
                COMMITTED, reader, groups=groups, require_stable=True
            ).groups
            assert [p.committed_offset for p in second.topics[0].partitions] == [-1, -1]
            found = first.topics[0].partitions
        assert [(p.committed_offset, p.metadata, p.error_code) for p in found] == [
            (42, "n", 0),
            (-1, "", 0),
        ]


def test_all_offsets_of_a_group_are_listed_for_null(client: RawClient) -> None:
    """kafka-consumer-groups sends this request."""
    commit(client, 3)
    commit(client, 4, partition=1)
    found = client.call(COMMITTED, 7, group_id="g", topics=None).topics
    assert [(t.name, [p.committed_offset for p in t.partitions]) for t in found] == [("t", [3, 4])]


def test_a_commit_is_refused_partition_by_partition(client: RawClient) -> None:
    """An unknown partition and a long note are refused; the valid partition is stored."""
    parts = [
        {"partition_index": p, "committed_offset": 1, "committed_metadata": "x" * size}
        for p, size in ((0, 1), (1, 5_000), (9, 1))
    ]
    answer = client.call(
        COMMIT,
        8,
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[{"name": "t", "partitions": parts}],
    )
    assert [p.error_code for p in answer.topics[0].partitions] == [0, 12, 3]


@pytest.mark.parametrize(("version", "error"), [(8, 22), (9, 69)])
def test_a_generation_of_a_group_that_does_not_exist(
    client: RawClient, version: int, error: int
) -> None:
    """The error is ILLEGAL_GENERATION, and GROUP_ID_NOT_FOUND from version 9 on."""
    part = {"partition_index": 0, "committed_offset": 1}
    answer = client.call(
        COMMIT,
        version,
        group_id="ghost",
        generation_id_or_member_epoch=4,
        member_id="m",
        topics=[{"name": "t", "partitions": [part]}],
    )
    assert answer.topics[0].partitions[0].error_code == error


def join(client: RawClient, version: int, **changes: Any) -> Any:
    """Send a JoinGroup for group 'g' in any version."""
    values = {
        "group_id": "g",
        "session_timeout": milliseconds(10_000),
        "rebalance_timeout": milliseconds(10_000),
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"m"}],
        **changes,
    }
    return client.call(11, version, **values)


@pytest.mark.parametrize("version", range(10))
def test_a_member_lives_its_life_in_every_version(client: RawClient, version: int) -> None:
    """Join, sync, heartbeat and leave, each in the newest version for that JoinGroup."""
    joined = join(client, version)
    if version >= 4:
        assert joined.error_code == 79
        joined = join(client, version, member_id=joined.member_id)
    assert (joined.error_code, joined.leader) == (0, joined.member_id)
    assert [m.metadata for m in joined.members] == [b"m"]
    me = {"group_id": "g", "generation_id": joined.generation_id, "member_id": joined.member_id}
    given = [{"member_id": joined.member_id, "assignment": b"mine"}]
    synced = client.call(
        14,
        min(version, 5),
        assignments=given,
        protocol_type="consumer",
        protocol_name="range",
        **me,
    )
    assert synced.assignment == b"mine"
    assert client.call(12, min(version, 4), **me).error_code == 0
    leave = (
        {"members": [{"member_id": joined.member_id}]}
        if version >= 3
        else {"member_id": joined.member_id}
    )
    assert client.call(13, min(version, 5), group_id="g", **leave).error_code == 0
    assert client.call(12, min(version, 4), **me).error_code == 25


def test_requests_to_groups_that_do_not_exist(client: RawClient) -> None:
    """UNKNOWN_MEMBER_ID from join with an id, sync, heartbeat and leave."""
    assert join(client, 5, member_id="m").error_code == 25
    who = {"group_id": "g", "generation_id": 1, "member_id": "m"}
    assert client.call(14, 3, assignments=[], **who).error_code == 25
    assert client.call(12, 3, **who).error_code == 25
    assert client.call(13, 1, group_id="g", member_id="m").error_code == 25


def test_groups_are_described_listed_and_deleted(client: RawClient) -> None:
    """States, filters, NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, Dead."""
    member = join(client, 3).member_id
    assert client.call(42, 1, groups_names=("g", "ghost")).results[0].error_code == 68
    client.call(
        14,
        3,
        group_id="g",
        generation_id=1,
        member_id=member,
        assignments=[{"member_id": member, "assignment": b"A"}],
    )
    described = client.call(15, 5, groups=("g", "ghost")).groups
    assert [g.group_state for g in described] == ["Stable", "Dead"]
    assert (described[0].members[0].member_assignment, described[0].protocol_data) == (
        b"A",
        "range",
    )
    assert client.call(15, 6, groups=("ghost",)).groups[0].error_code == 69
    assert [g.group_id for g in client.call(16, 5, states_filter=("stable",)).groups] == ["g"]
    assert client.call(16, 5, states_filter=("Empty",)).groups == ()
    assert client.call(16, 5, types_filter=("consumer",)).groups == ()
    client.call(13, 1, group_id="g", member_id=member)
    answers = client.call(42, 1, groups_names=("g", "ghost")).results
    assert [(r.group_id, r.error_code) for r in answers] == [("g", 0), ("ghost", 69)]


def test_offsets_in_use_are_not_deleted(client: RawClient) -> None:
    """OffsetDelete answers GROUP_SUBSCRIBED_TO_TOPIC per topic, deletes free topics (KIP-496)."""
    commit(client, 5)
    topics = [{"name": "t", "partitions": [{"partition_index": 0}]}]
    metadata = bytes.fromhex("0001 00000001 0001 74 ffffffff")
    member = join(client, 3, protocols=[{"name": "range", "metadata": metadata}]).member_id
    client.call(14, 3, group_id="g", generation_id=1, member_id=member, assignments=[])
    refused = client.call(47, 0, group_id="g", topics=topics)
    assert refused.topics[0].partitions[0].error_code == 86
    client.call(13, 1, group_id="g", member_id=member)
    assert client.call(47, 0, group_id="g", topics=topics).topics[0].partitions[0].error_code == 0
    found = client.call(
        COMMITTED, 5, group_id="g", topics=[{"name": "t", "partition_indexes": (0,)}]
    )
    assert found.topics[0].partitions[0].committed_offset == -1
    assert client.call(47, 0, group_id="ghost", topics=topics).error_code == 69


def test_deleting_a_topic_deletes_what_groups_committed_for_it(client: RawClient) -> None:
    """The old topic's offsets do not apply to a new topic with the same name."""
    commit(client, 5)
    client.call(20, 5, topic_names=("t",))
    client.call(19, 5, topics=[{"name": "t", "num_partitions": 1, "replication_factor": 1}])
    found = client.call(
        COMMITTED, 5, group_id="g", topics=[{"name": "t", "partition_indexes": (0,)}]
    )
    assert found.topics[0].partitions[0].committed_offset == -1


def test_offsets_expire_with_the_clock() -> None:
    """Offsets expire offsets.retention.minutes after the last commit, and the group with them."""
    now = [1_700_000_000_000]
    with EmbeddedBroker(settings={"offsets.retention.minutes": 10}, clock=lambda: now[0]) as broker:
        broker.call(lambda node: node.catalogue.create("t", 2, {}))
        with RawClient(broker.bootstrap) as client:
            commit(client, 5)
            now[0] += 10 * 60_000 - 1
            assert broker.call(lambda node: sum(expire(node))) == 0
            now[0] += 1
            assert broker.call(lambda node: sum(expire(node))) == 1
            assert client.call(15, 6, groups=("g",)).groups[0].error_code == 69
