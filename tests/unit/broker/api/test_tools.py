"""The APIs of operators' tools: transactions, log directories, leaders, ACLs, and the metrics."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from faust_assigner.broker.metrics import take
from faust_assigner.broker.security import acls as a
from faust_assigner.broker.security.acls import Acls
from faust_assigner.broker.security.authorizer import ANONYMOUS, Authorizer
from faust_assigner.broker.storage.records import TRANSACTIONAL, parse_batch
from faust_assigner.coordinator.transactions.events import (
    AddPartitions,
    EndTransaction,
    InitProducer,
)
from tests.support.asking import ask
from tests.support.clients.raw_client import batch
from tests.support.hall import Hall, in_hall

CREATE_ACLS, LOG_DIRS, ELECT, REASSIGN = 30, 35, 43, 45
PRODUCERS, DESCRIBE, LIST, HEARTBEAT = 61, 65, 66, 68
UNKNOWN_PARTITION, NOT_NEEDED, BAD_ASSIGNMENT, NO_REASSIGNMENT = 3, 84, 39, 85
INVALID_REQUEST, POLICY, NOT_FOUND, INVALID_REGEX, SECURITY_DISABLED = 42, 44, 105, 128, 54
MINUTE = datetime.timedelta(minutes=1)
NOW = 1_000_000


async def transactions(hall: Hall) -> None:
    """Make "open" with two partitions of "t" and a record, "done" with a commit, and "idle"."""
    hall.node.clock = hall.node.transactions._clock = lambda: NOW
    topic = hall.node.catalogue.create("t", 2, {})
    places = frozenset((topic.topic_id.bytes, n) for n in range(2))
    tell = hall.node.transactions.ask
    for number, name in enumerate(("open", "done", "idle"), 7):
        tell(name, InitProducer(60_000, number))
        if name != "idle":
            tell(name, AddPartitions(number, 0, places))
    tell("done", EndTransaction(8, 0, True))
    data = batch(producer_id=7, epoch=0, sequence=4, attributes=TRANSACTIONAL)
    topic.partitions[0].append(parse_batch(data), data, NOW + 5)


def test_the_producers_of_a_partition_are_shown_with_their_open_transactions() -> None:
    """An operator finds the transaction that blocks committed readers by these fields (KIP-664)."""

    async def story(hall: Hall) -> Any:
        await transactions(hall)
        topics = [{"name": "t", "partition_indexes": (0, 9)}]
        answer = await ask(hall, PRODUCERS, 0, topics=topics)
        found = []
        for part in answer.topics[0].partitions:
            rows = [
                (p.producer_id, p.producer_epoch, p.last_sequence, p.last_timestamp,
                 p.coordinator_epoch, p.current_txn_start_offset)
                for p in part.active_producers
            ]  # fmt: skip
            found.append((int(part.error_code), rows))
        return found

    ended = (8, 0, -1, NOW, 0, -1)
    opened = (7, 0, 4, NOW + 5, -1, 1)
    assert in_hall(story) == [(0, [ended, opened]), (UNKNOWN_PARTITION, [])]


def test_a_transaction_is_described_with_its_time_and_its_partitions() -> None:
    """A repeated id is described once; an empty id is invalid, an unknown id is not found."""

    async def story(hall: Hall) -> list[Any]:
        await transactions(hall)
        names = ("open", "open", "done", "", "nobody")
        answer = await ask(hall, DESCRIBE, 0, transactional_ids=names)
        found = []
        for one in answer.transaction_states:
            parts = [(t.topic, tuple(t.partitions)) for t in one.topics]
            found.append((int(one.error_code), one.transactional_id, one.transaction_state, parts))
        first = answer.transaction_states[0]
        assert first.transaction_timeout == MINUTE
        assert first.transaction_start_time.timestamp() == NOW / 1_000
        assert (first.producer_id, first.producer_epoch) == (7, 0)
        return found

    assert in_hall(story) == [
        (0, "open", "Ongoing", [("t", (0, 1))]),
        (0, "done", "CompleteCommit", []),
        (INVALID_REQUEST, "", "", []),
        (NOT_FOUND, "nobody", "", []),
    ]


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ({}, ["done", "idle", "open"]),
        ({"state_filters": ("Ongoing",)}, ["open"]),
        ({"state_filters": ("Ongoing", "CompleteCommit")}, ["done", "open"]),
        ({"producer_id_filters": (8, 9)}, ["done", "idle"]),
        ({"state_filters": ("Ongoing",), "producer_id_filters": (8,)}, []),
        ({"duration_filter": 100}, ["idle"]),
        ({"duration_filter": 99}, ["done", "idle", "open"]),
        ({"transactional_id_pattern": "o.*"}, ["open"]),
        ({"transactional_id_pattern": "o"}, []),
        ({"transactional_id_pattern": ""}, ["done", "idle", "open"]),
    ],
)
def test_transactions_are_listed_by_each_filter_and_by_all_together(
    asked: dict[str, Any], names: list[str]
) -> None:
    """A duration excludes younger transactions; a pattern matches the whole name."""

    async def story(hall: Hall) -> list[str]:
        await transactions(hall)
        hall.node.clock = lambda: NOW + 100
        every = {"state_filters": (), "producer_id_filters": (), "duration_filter": -1}
        answer = await ask(hall, LIST, 2, **{**every, "transactional_id_pattern": None, **asked})
        return sorted(one.transactional_id for one in answer.transaction_states)

    assert in_hall(story) == names


def test_an_unknown_state_is_named_and_a_bad_pattern_refused() -> None:
    """States that Kafka has and this broker never shows are known."""

    async def story(hall: Hall) -> tuple[Any, int]:
        every = {"producer_id_filters": (), "duration_filter": -1}
        states = ("PrepareAbort", "Sleeping", "Dead", "Dozing")
        first = await ask(
            hall, LIST, 2, state_filters=states, transactional_id_pattern=None, **every
        )
        bad = await ask(hall, LIST, 2, state_filters=(), transactional_id_pattern="(", **every)
        return tuple(first.unknown_state_filters), int(bad.error_code)

    assert in_hall(story) == (("Dozing", "Sleeping"), INVALID_REGEX)


@pytest.mark.parametrize(
    ("replicas", "number", "error"),
    [((1,), 0, 0), ((2,), 0, BAD_ASSIGNMENT), ((), 0, BAD_ASSIGNMENT),
     (None, 0, NO_REASSIGNMENT), ((1,), 9, UNKNOWN_PARTITION)],
)  # fmt: skip
def test_a_partition_can_be_placed_where_it_is_and_nowhere_else(
    replicas: tuple[int, ...] | None, number: int, error: int
) -> None:
    """An empty list is an invalid place; null cancels a move, and no move exists."""

    async def story(hall: Hall) -> int:
        hall.node.catalogue.create("t", 1, {})
        parts = [{"partition_index": number, "replicas": replicas}]
        topics = [{"name": "t", "partitions": parts}]
        answer = await ask(hall, REASSIGN, 0, timeout_ms=1_000, topics=topics)
        return int(answer.responses[0].partitions[0].error_code)

    assert in_hall(story) == error


def test_no_partition_needs_an_election() -> None:
    """The only replica leads; a missing partition is an error."""

    async def story(hall: Hall) -> list[int]:
        hall.node.catalogue.create("t", 1, {})
        parts = [{"topic": "t", "partitions": (0, 9)}]
        answer = await ask(
            hall, ELECT, 2, election_type=0, timeout_ms=1_000, topic_partitions=parts
        )
        (topic,) = answer.replica_election_results
        return [int(part.error_code) for part in topic.partition_result]

    assert in_hall(story) == [NOT_NEEDED, UNKNOWN_PARTITION]


def test_the_log_directory_shows_the_bytes_of_the_partitions_that_were_asked_for() -> None:
    """Null requests all partitions; a missing partition is left out."""

    async def story(hall: Hall) -> list[dict[int, int]]:
        log = hall.node.catalogue.create("t", 2, {}).partitions[1]
        data = batch()
        log.append(parse_batch(data), data, 0)
        assert log.size == len(data)
        found = []
        for topics in (None, [{"topic": "t", "partitions": (1, 9)}]):
            answer = await ask(hall, LOG_DIRS, 4, topics=topics)
            parts = [part for topic in answer.results[0].topics for part in topic.partitions]
            found.append({part.partition_index: part.partition_size for part in parts})
        return found

    size = len(batch())
    assert in_hall(story) == [{0: 0, 1: size}, {1: size}]


def creation(name: str) -> dict[str, Any]:
    """Return a rule on a topic for alice."""
    return {
        "resource_type": a.TOPIC, "resource_name": name, "resource_pattern_type": a.LITERAL,
        "principal": "User:alice", "host": "*", "operation": a.READ, "permission_type": a.ALLOW,
    }  # fmt: skip


def test_rules_are_created_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rules of the same request count; an invalid rule does not count."""
    monkeypatch.setattr(a, "MAX_ACLS", 2)

    async def story(hall: Hall) -> list[Any]:
        hall.node.authorizer = Authorizer(Acls(hall.node.store), frozenset({ANONYMOUS}))
        names = ("", "x", "y", "z")
        creations = [creation(name) for name in names]
        wire_of(hall)
        answer = await ask(hall, CREATE_ACLS, 3, creations=creations)
        return [int(one.error_code) for one in answer.results] + [len(hall.node.authorizer.acls)]

    assert in_hall(story) == [INVALID_REQUEST, 0, 0, POLICY, 2]


def wire_of(hall: Hall) -> None:
    """Connect peers without certificates."""
    connect = hall.connect

    def plain(name: str) -> Any:
        peer, wire = connect(name)
        wire.get_extra_info = (  # type: ignore[method-assign]
            lambda key, default=None: None if key == "peercert" else ("127.0.0.1", 1)
        )
        return peer, wire

    hall.connect = plain  # type: ignore[method-assign]


def test_without_an_authorizer_rules_are_refused_one_by_one() -> None:
    """SECURITY_DISABLED is the error, as in Kafka."""

    async def story(hall: Hall) -> list[int]:
        answer = await ask(hall, CREATE_ACLS, 3, creations=[creation("x"), creation("y")])
        return [int(one.error_code) for one in answer.results]

    assert in_hall(story) == [SECURITY_DISABLED] * 2


def test_a_scrape_counts_groups_members_peers_and_events() -> None:
    """Members are counted by their own protocol, groups by type and state."""

    async def story(hall: Hall) -> Any:
        hall.node.catalogue.create("t", 1, {})
        await ask(
            hall, HEARTBEAT, 1, group_id="g", member_id="m", member_epoch=0, instance_id=None,
            rack_id=None, rebalance_timeout=MINUTE, subscribed_topic_names=["t"],
            subscribed_topic_regex=None, server_assignor=None, topic_partitions=[],
        )  # fmt: skip
        hall.node.counters["events"] += 3
        seen = take(hall.server)
        return [
            dict(seen.groups), dict(seen.members), seen.connections, seen.topics,
            seen.events["events"], sorted(seen.spreads),
        ]  # fmt: skip

    assert in_hall(story) == [
        {("consumer", "Stable"): 1}, {"classic": 0, "consumer": 1}, 1, 1, 3,
        ["classic", "consumer", "rebalance"],
    ]  # fmt: skip
