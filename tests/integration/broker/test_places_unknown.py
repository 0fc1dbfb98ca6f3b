"""Commits and deletions of offsets for unknown topics, partitions and groups."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from faust_assigner.broker import EmbeddedBroker
from tests.support.clients.raw_client import RawClient

COMMIT, LIST_GROUPS, OFFSET_DELETE, LEAVE = 8, 16, 47, 13
UNKNOWN_PLACE, TOO_LARGE, UNKNOWN_MEMBER, UNKNOWN_ID = 3, 12, 25, 100


@pytest.fixture
def client() -> Iterator[RawClient]:
    """A connection to a broker with topic t of two partitions."""
    with EmbeddedBroker() as broker, RawClient(broker.bootstrap) as connected:
        broker.call(lambda node: node.catalogue.create("t", 2, {}))
        yield connected


def commit(
    client: RawClient, version: int, member: str, generation: int, **topics: dict[int, str]
) -> Any:
    """Return a commit's errors, by topic and partition; ``topics`` has metadata by partition."""
    found = client.call(3, 12, topics=[{"name": "t"}]).topics[0].topic_id
    asked = [
        {
            "name": name,
            "topic_id": found if name == "t" else uuid.UUID(int=7),
            "partitions": [
                {"partition_index": p, "committed_offset": 1, "committed_metadata": note}
                for p, note in parts.items()
            ],
        }
        for name, parts in topics.items()
    ]
    answer = client.call(
        COMMIT,
        version,
        group_id="g",
        generation_id_or_member_epoch=generation,
        member_id=member,
        topics=asked,
    )
    return [[int(p.error_code) for p in t.partitions] for t in answer.topics]


@pytest.mark.parametrize(("version", "unknown"), [(8, UNKNOWN_PLACE), (10, UNKNOWN_ID)])
def test_what_is_not_there_is_refused_by_itself(
    client: RawClient, version: int, unknown: int
) -> None:
    """Unknown partitions come before the member's error, which comes before a long note's."""
    assert commit(client, version, "", -1, t={0: ""}) == [[0]]
    refused = commit(client, version, "m", 3, t={0: "", 1: "x" * 5_000, 9: ""}, nowhere={0: ""})
    assert refused == [[UNKNOWN_MEMBER, UNKNOWN_MEMBER, UNKNOWN_PLACE], [unknown]]
    assert commit(client, version, "", -1, t={0: "x" * 5_000, 1: ""}) == [[TOO_LARGE, 0]]


def test_notes_are_counted_in_characters(client: RawClient) -> None:
    """offset.metadata.max.bytes counts as Kafka does: two for characters beyond U+FFFF."""
    notes = {0: "\u00e4" * 4_096, 1: "\U0001f600" * 2_049}
    assert commit(client, 8, "", -1, t=notes) == [[0, TOO_LARGE]]


def test_no_group_is_made_by_a_commit_of_nothing(client: RawClient) -> None:
    """Only a commit for an existing partition creates a group."""
    assert commit(client, 8, "", -1, nowhere={0: ""}, t={9: ""}) == [
        [UNKNOWN_PLACE],
        [UNKNOWN_PLACE],
    ]
    assert commit(client, 8, "", -1) == []
    assert client.call(LIST_GROUPS, 5).groups == ()


def test_offsets_of_no_place_cannot_be_deleted(client: RawClient) -> None:
    """UNKNOWN_TOPIC_OR_PARTITION for unknown ones, the rest is deleted; a group needs a name."""
    commit(client, 8, "", -1, t={0: ""})
    wanted = [
        {"name": name, "partitions": [{"partition_index": p} for p in (0, 9)]}
        for name in ("t", "x")
    ]
    answer = client.call(OFFSET_DELETE, 0, group_id="g", topics=wanted)
    errors = [[int(p.error_code) for p in topic.partitions] for topic in answer.topics]
    assert errors == [[0, UNKNOWN_PLACE], [UNKNOWN_PLACE, UNKNOWN_PLACE]]
    assert client.call(OFFSET_DELETE, 0, group_id="", topics=wanted).error_code == 24


def test_states_are_looked_for_without_the_blanks_around_them(client: RawClient) -> None:
    """ListGroups trims states, but not types."""
    commit(client, 8, "", -1, t={0: ""})
    assert [g.group_id for g in client.call(LIST_GROUPS, 5, states_filter=[" empty "]).groups] == [
        "g"
    ]
    assert client.call(LIST_GROUPS, 5, types_filter=[" classic"]).groups == ()
