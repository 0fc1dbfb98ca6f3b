"""Whole answers of several partitions, topics and rules: fetches, topics, ACLs, tools."""

from __future__ import annotations

import asyncio
import datetime
from dataclasses import replace
from typing import Any

import pytest

from faust_assigner.broker.api import fetch, offset_commit
from faust_assigner.broker.security.acls import Acls
from faust_assigner.broker.security.authorizer import ANONYMOUS, Authorizer
from faust_assigner.broker.storage.records import parse_batch
from faust_assigner.broker.storage.store import MemoryStore, StoreFailed
from faust_assigner.broker.storage.unpacking import pack
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import CommitOffsets
from faust_assigner.coordinator.offsets import Committed
from tests.support.asking import ask, to_topic, wanting
from tests.support.clients.raw_client import batch, one_record
from tests.support.hall import Hall, in_hall
from tests.unit.broker.api.test_tools import creation
from tests.unit.broker.api.test_transactions import begun

PRODUCE, FETCH, CREATE_ACLS, LOG_DIRS, REASSIGN, GROW, QUORUM = 0, 1, 30, 35, 45, 37, 55
CREATE, DESCRIBE_CONFIGS, ADD_PARTITIONS, TXN_COMMIT = 19, 32, 24, 28
METADATA, DESCRIBE_CLUSTER, FIND_COORDINATOR, DELETE_TOPICS = 3, 60, 10, 20
DELETE_RECORDS, FETCH_OFFSETS = 21, 9
LATER = datetime.timedelta(seconds=20)
BAD_ASSIGNMENT, UNKNOWN_PARTITION, STORAGE_ERROR, INVALID_REQUEST = 39, 3, 56, 42


def test_each_partition_of_an_answer_obeys_its_own_limit_and_the_rest_of_the_whole_one() -> None:
    """Each partition has three batches; the first batch of the answer is always included."""

    async def story(hall: Hall) -> list[list[int]]:
        topic = hall.node.catalogue.create("t", 3, {})
        for number in range(3):
            for _ in range(3):
                await ask(hall, PRODUCE, 9, **to_topic(batch(), partition=number))
        size = topic.partitions[0].size // 3
        found = []
        for limits, whole in (
            ((2 * size, 10 * size, size), 10 * size),
            ((2 * size, 10 * size, size), 4 * size),
            ((3 * size - 1, 2 * size, size), 5 * size - 1),
            ((1, size, size), 2 * size),
            ((1, size, size), 1),
        ):
            topics = wanting(3)
            for part, limit in zip(topics[0]["partitions"], limits, strict=True):
                part["partition_max_bytes"] = limit
            answer = await ask(
                hall, FETCH, 11, max_wait=datetime.timedelta(0), topics=topics, min_bytes=1,
                max_bytes=whole,
            )  # fmt: skip
            parts = answer.responses[0].partitions
            found.append([len(part.records or b"") // size for part in parts])
        return found

    assert in_hall(story) == [[2, 3, 1], [2, 2, 0], [2, 2, 0], [1, 1, 0], [1, 0, 0]]


def test_a_fetch_of_nothing_does_not_wait() -> None:
    """A consumer without partitions would be late for its next rebalance."""

    async def story(hall: Hall) -> int:
        hall.node.catalogue.create("t", 1, {})
        waits: list[int] = []

        async def data(wants: Any, min_bytes: int, wait_ms: int) -> None:
            waits.append(wait_ms)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(fetch, "_data", data)
            await ask(hall, FETCH, 11, max_wait=LATER, topics=[], max_bytes=100, min_bytes=1)
        return len(waits)

    assert in_hall(story) == 0


def test_waiting_partitions_are_counted_until_their_own_fetch_ends() -> None:
    """A fetch of two partitions and a fetch of one wait; the second fetch ends first."""

    async def story(hall: Hall) -> list[int]:
        topics = [hall.node.catalogue.create(name, 2, {}) for name in ("t", "u")]
        asked, seen = [], []
        for name, partitions in (("t", 2), ("u", 1)):
            wanted = wanting(partitions)
            wanted[0]["topic"] = name
            limits = {"topics": wanted, "max_bytes": 1_000, "min_bytes": 1}
            asked.append(asyncio.ensure_future(ask(hall, FETCH, 11, max_wait=LATER, **limits)))
            while len(topics[len(asked) - 1].partitions[0].waiters) < 1:
                await asyncio.sleep(0)
            seen.append(hall.node.waiting_partitions)
        for topic, one in zip(reversed(topics), reversed(asked), strict=True):
            hall.node.catalogue.delete(topic)
            await one
            seen.append(hall.node.waiting_partitions)
        left = [len(log.waiters) for topic in topics for log in topic.partitions]
        return [*seen, *left]

    assert in_hall(story) == [2, 3, 2, 0, 0, 0, 0, 0]


def test_aborted_transactions_are_told_for_each_partition_of_a_committed_reader() -> None:
    """Two partitions have an aborted transaction, the partition between them has none."""

    async def story(hall: Hall) -> list[Any]:
        producer = await begun(hall, 4)
        for number in (0, 2):
            await producer.add(number)
            log = hall.node.catalogue.partition("t", number)
            assert log is not None
            await ask(hall, PRODUCE, 9, **to_topic(batch(), partition=number))
            await ask(
                hall, PRODUCE, 9, transactional_id="tx",
                **to_topic(
                    batch(producer_id=producer.id, epoch=producer.epoch, sequence=0, attributes=0x10),
                    partition=number,
                ),
            )  # fmt: skip
        await ask(hall, PRODUCE, 9, **to_topic(batch(), partition=1))
        await producer.end(commits=False)
        answer = await ask(
            hall, FETCH, 11, max_wait=datetime.timedelta(0), topics=wanting(4), min_bytes=1,
            max_bytes=10_000, isolation_level=1,
        )  # fmt: skip
        return [
            (
                part.high_watermark, part.last_stable_offset,
                [(a.producer_id - producer.id, a.first_offset) for a in part.aborted_transactions],
            )
            for part in answer.responses[0].partitions
        ]  # fmt: skip

    assert in_hall(story) == [(3, 3, [(0, 1)]), (1, 1, []), (3, 3, [(0, 1)]), (0, 0, [])]


@pytest.mark.parametrize("version", [9, 10])
@pytest.mark.parametrize("first", ["plain", "zstd"])
def test_zstd_in_any_batch_of_an_answer_is_refused_to_clients_that_cannot_read_it(
    first: str, version: int
) -> None:
    """The second partition is still read (KIP-110)."""

    async def story(hall: Hall) -> list[tuple[int, int]]:
        hall.node.catalogue.create("t", 2, {})
        packed = batch(pack(4, one_record()), attributes=4)
        batches = [packed, batch()] if first == "zstd" else [batch(), packed]
        for data in batches:
            await ask(hall, PRODUCE, 9, **to_topic(data))
        await ask(hall, PRODUCE, 9, **to_topic(batch(), partition=1))
        answer = await ask(
            hall, FETCH, version, max_wait=datetime.timedelta(0), topics=wanting(2), min_bytes=1,
            max_bytes=10_000,
        )  # fmt: skip
        parts = answer.responses[0].partitions
        return [(int(p.error_code), len(p.records or b"") > 0) for p in parts]

    refused = (76, False) if version < 10 else (0, True)
    assert in_hall(story) == [refused, (0, True)]


async def waiting_at(hall: Hall, offset: int, records: int) -> tuple[Any, asyncio.Future[Any]]:
    """Create "t" with this many records and start a fetch that waits at an offset."""
    topic = hall.node.catalogue.create("t", 1, {})
    for _ in range(records):
        await ask(hall, PRODUCE, 9, **to_topic(batch()))
    wanted = {"topics": wanting(1, offset), "max_bytes": 10_000, "min_bytes": 10_000}
    asked = asyncio.ensure_future(ask(hall, FETCH, 11, max_wait=LATER, **wanted))
    while not topic.partitions[0].waiters:
        await asyncio.sleep(0)
    return topic, asked


@pytest.mark.parametrize(("trimmed_to", "error"), [(0, 0), (1, 0), (2, 1)])
def test_a_trim_below_a_waiting_consumer_does_not_disturb_it(trimmed_to: int, error: int) -> None:
    """A consumer at the new log start reads on; a consumer below it has lost records."""

    async def story(hall: Hall) -> tuple[int, int, int]:
        topic, asked = await waiting_at(hall, 1, 2)
        topic.partitions[0].trim(trimmed_to)
        large = batch(one_record(b"v" * 11_000))
        await ask(hall, PRODUCE, 9, **to_topic(large))
        (part,) = (await asked).responses[0].partitions
        return int(part.error_code), part.log_start_offset, part.high_watermark

    assert in_hall(story) == ((1, -1, -1) if error else (0, trimmed_to, 3))


def test_a_topic_that_is_deleted_under_a_waiting_consumer_is_unknown_to_it() -> None:
    """The answer has neither records nor offsets, although the wait began with records."""

    async def story(hall: Hall) -> tuple[int, int, int, int]:
        topic, asked = await waiting_at(hall, 0, 1)
        hall.node.catalogue.delete(topic)
        (part,) = (await asked).responses[0].partitions
        offsets = part.high_watermark, part.log_start_offset
        return int(part.error_code), *offsets, len(part.records or b"")

    assert in_hall(story) == (UNKNOWN_PARTITION, -1, -1, 0)


# -- topics ----------------------------------------------------------------------------------


def test_an_empty_policy_is_a_config_of_its_own() -> None:
    """An empty policy keeps all records (KIP-1161); null leaves the broker's default."""

    async def story(hall: Hall) -> list[Any]:
        configs = [
            {"name": "cleanup.policy", "value": ""},
            {"name": "retention.ms", "value": None},
            {"name": "retention.bytes", "value": "7"},
        ]
        topics = [{"name": "t", "num_partitions": 1, "replication_factor": 1, "configs": configs}]
        (made,) = (await ask(hall, CREATE, 7, topics=topics)).topics
        resources = [{"resource_type": 2, "resource_name": "t", "configuration_keys": None}]
        (shown,) = (await ask(hall, DESCRIBE_CONFIGS, 4, resources=resources)).results
        names = ("cleanup.policy", "retention.ms", "retention.bytes")
        return [
            sorted((c.name, c.value, c.config_source) for c in answer.configs if c.name in names)
            for answer in (made, shown)
        ]

    found = [
        ("cleanup.policy", "", 1),
        ("retention.bytes", "7", 1),
        ("retention.ms", "604800000", 5),
    ]
    assert in_hall(story) == [found, found]


@pytest.mark.parametrize(
    ("places", "error"), [(None, 0), ((), BAD_ASSIGNMENT), ((1, 1), BAD_ASSIGNMENT)]
)
def test_a_place_is_needed_for_each_new_partition_if_any_is_given(
    places: tuple[int, ...] | None, error: int
) -> None:
    """An empty list has no places; null lets the broker choose. A second topic is grown."""

    async def story(hall: Hall) -> list[tuple[str, int, int]]:
        for name in ("t", "u"):
            hall.node.catalogue.create(name, 1, {})
        given = None if places is None else [{"broker_ids": (one,)} for one in places]
        topics = [
            {"name": "t", "count": 2, "assignments": given},
            {"name": "u", "count": 3, "assignments": [{"broker_ids": (1,)}] * 2},
        ]
        answer = await ask(hall, GROW, 3, topics=topics, validate_only=False)
        counts = {topic.name: len(topic.partitions) for topic in hall.node.catalogue}
        return [(one.name, int(one.error_code), counts[one.name]) for one in answer.results]

    assert in_hall(story) == [("t", error, 1 if error else 2), ("u", 0, 3)]


def test_the_node_has_its_own_id_in_every_answer() -> None:
    """As a broker, as the controller, as a leader, as a replica and as a coordinator."""

    async def story(hall: Hall) -> Any:
        hall.node.settings = replace(hall.node.settings, node_id=7)
        hall.node.catalogue.create("t", 1, {})
        told = await ask(hall, METADATA, 9, topics=None, allow_auto_topic_creation=False)
        cluster = await ask(
            hall, DESCRIBE_CLUSTER, 1, include_cluster_authorized_operations=False, endpoint_type=1
        )
        found = await ask(hall, FIND_COORDINATOR, 4, key_type=0, coordinator_keys=("g",))
        part = told.topics[0].partitions[0]
        assert told.cluster_id == cluster.cluster_id == hall.node.cluster_id
        return [
            told.controller_id, cluster.controller_id, *(b.node_id for b in told.brokers),
            *(b.broker_id for b in cluster.brokers), part.leader_id, *part.replica_nodes,
            *part.isr_nodes, found.coordinators[0].node_id,
        ]  # fmt: skip

    assert in_hall(story) == [7] * 8


def test_no_topic_is_deleted_where_the_broker_forbids_it() -> None:
    """delete.topic.enable; a topic that is missing gets the same answer."""

    async def story(hall: Hall) -> Any:
        hall.node.settings = replace(hall.node.settings, delete_topic_enable=False)
        hall.node.catalogue.create("t", 1, {})
        answer = await ask(hall, DELETE_TOPICS, 5, topic_names=("t", "x"))
        return [int(one.error_code) for one in answer.responses], len(hall.node.catalogue)

    assert in_hall(story) == ([73, 73], 1)


def test_records_of_each_named_partition_are_deleted_up_to_its_own_offset() -> None:
    """A partition that is named twice, also in another element, has the last of its offsets."""

    async def story(hall: Hall) -> Any:
        topics = [hall.node.catalogue.create(name, 3, {}) for name in "tu"]
        for topic in topics:
            for log in topic.partitions:
                for _ in range(5):
                    data = batch()
                    log.append(parse_batch(data), data, 0)
        asked = [
            ("t", [(0, 1), (2, 3), (0, 2)]), ("u", [(1, 6), (0, -1), (2, -2)]), ("t", [(2, 4), (9, 1)])
        ]  # fmt: skip
        answer = await ask(
            hall, DELETE_RECORDS, 2, timeout_ms=1_000,
            topics=[
                {"name": name, "partitions": [{"partition_index": n, "offset": o} for n, o in parts]}
                for name, parts in asked
            ],
        )  # fmt: skip
        rows = [
            (t.name, p.partition_index, int(p.error_code), p.low_watermark)
            for t in answer.topics
            for p in t.partitions
        ]
        return sorted(rows), [[log.start_offset for log in t.partitions] for t in topics]

    rows, starts = in_hall(story)
    assert rows == [
        ("t", 0, 0, 2), ("t", 2, 0, 4), ("t", 9, UNKNOWN_PARTITION, -1),
        ("u", 0, 0, 5), ("u", 1, 1, -1), ("u", 2, 1, -1),
    ]  # fmt: skip
    assert starts == [[2, 0, 4], [5, 0, 0]]


def test_a_topic_that_a_fetch_of_offsets_names_twice_is_answered_once_with_all_its_partitions() -> (
    None
):
    """Each partition once, in the order in which it is named first."""

    async def story(hall: Hall) -> Any:
        hall.node.catalogue.create("t", 4, {})
        hall.node.groups.ask("g", CommitOffsets, lambda reply: None)
        hall.node.groups.books.commit("g", {("t", n): Committed(n + 5) for n in (0, 1, 3)})
        topics = [
            {"name": name, "partition_indexes": numbers}
            for name, numbers in (("t", (3, 0)), ("u", (0,)), ("t", (1, 3)))
        ]
        groups = [{"group_id": "g", "topics": topics}]
        answer = await ask(hall, FETCH_OFFSETS, 8, groups=groups, require_stable=False)
        return [
            (t.name, [(p.partition_index, p.committed_offset) for p in t.partitions])
            for t in answer.groups[0].topics
        ]

    assert in_hall(story) == [("t", [(3, 8), (0, 5), (1, 6)]), ("u", [(0, -1)])]


# -- transactions ------------------------------------------------------------------------------


def test_a_partition_number_below_zero_is_unknown_to_a_transaction() -> None:
    """Python would read -1 as the last partition; the valid partition is not added."""

    async def story(hall: Hall) -> Any:
        producer = await begun(hall, 2)
        found = await producer.add(-1, 1)
        return found, hall.node.transactions.get("tx").partitions  # type: ignore[union-attr]

    assert in_hall(story) == ({-1: UNKNOWN_PARTITION, 1: 55}, frozenset())


@pytest.mark.parametrize("fences", [False, True])
def test_an_unknown_partition_has_its_own_error_in_a_commit_of_a_transaction(fences: bool) -> None:
    """Whatever becomes of the others; of unknown partitions alone nobody is asked."""

    async def story(hall: Hall) -> Any:
        producer = await begun(hall, 1)
        await producer.add_group()
        if fences:
            producer.epoch -= 1
        parts = [
            {"partition_index": n, "committed_offset": 7, "committed_metadata": ""} for n in (0, 5)
        ]
        values = {
            "transactional_id": "tx", "group_id": "g", "producer_id": producer.id,
            "producer_epoch": producer.epoch, "generation_id": -1, "member_id": "",
            "group_instance_id": None,
        }  # fmt: skip
        found = []
        for chosen in (parts, parts[1:]):
            topics = [{"name": "t", "partitions": chosen}]
            answer = await ask(hall, TXN_COMMIT, 3, **values, topics=topics)
            found.append([int(p.error_code) for p in answer.topics[0].partitions])
        return found, hall.node.groups.books.pending.count("g")

    error = int(Code.INVALID_PRODUCER_EPOCH) if fences else 0
    found, pending = in_hall(story)
    assert found == [[error, UNKNOWN_PARTITION], [UNKNOWN_PARTITION]]
    assert pending == (0 if fences else 1)


def test_a_slice_of_offsets_that_is_not_stored_fails_the_request_and_ends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The producer aborts; each earlier slice was stored with its own offsets."""
    monkeypatch.setattr(offset_commit, "COMMITTED_AT_ONCE", 2)

    async def story(hall: Hall) -> Any:
        producer = await begun(hall, 6)
        await producer.add_group()
        slices: list[list[int]] = []

        def later(group_id: str, producer_id: int, changes: dict[tuple[str, int], Any]) -> Code:
            slices.append([number for _, number in changes])
            return Code.NOT_COORDINATOR if len(slices) == 2 else Code.NONE

        hall.node.groups.books.store_pending = later  # type: ignore[method-assign]
        return await producer.commit(count=6), slices

    assert in_hall(story) == ({int(Code.NOT_COORDINATOR)}, [[0, 1], [2, 3]])


# -- rules and tools -----------------------------------------------------------------------------


def test_a_disk_that_refuses_rules_fails_the_valid_ones_alone() -> None:
    """The invalid rule has its own reason, and no rule takes effect."""

    async def story(hall: Hall) -> list[int]:
        hall.node.authorizer = Authorizer(Acls(MemoryStore()), frozenset({ANONYMOUS}))
        hall.node.authorizer.acls.add = full  # type: ignore[method-assign]
        answer = await ask(hall, CREATE_ACLS, 3, creations=[creation(n) for n in ("x", "", "y")])
        return [int(one.error_code) for one in answer.results]

    def full(acls: object) -> None:
        raise StoreFailed("no space")

    assert in_hall(story) == [STORAGE_ERROR, INVALID_REQUEST, STORAGE_ERROR]


def test_a_log_directory_without_asked_partitions_names_no_topic() -> None:
    """An empty list differs from null, which requests all partitions."""

    async def story(hall: Hall) -> list[list[tuple[str, list[int]]]]:
        for name in ("t", "u"):
            hall.node.catalogue.create(name, 2, {})
        found = []
        for topics in (
            [],
            [{"topic": "t", "partitions": ()}],
            [{"topic": "u", "partitions": (1, 1, -1)}, {"topic": "x", "partitions": (0,)}],
        ):
            (result,) = (await ask(hall, LOG_DIRS, 4, topics=topics)).results
            assert (result.log_dir, result.total_bytes, result.usable_bytes) == ("memory", -1, -1)
            found.append(
                [(t.name, [p.partition_index for p in t.partitions]) for t in result.topics]
            )
        return found

    assert in_hall(story) == [[], [], [("u", [1])]]


@pytest.mark.parametrize("replicas", [(1, 1), (1, 2), (2, 1)])
def test_a_partition_has_one_replica_and_no_second_one(replicas: tuple[int, ...]) -> None:
    """A second replica on the same broker is refused, too; the second partition's result is good."""

    async def story(hall: Hall) -> list[tuple[int, int]]:
        hall.node.catalogue.create("t", 2, {})
        parts = [
            {"partition_index": n, "replicas": places} for n, places in ((0, replicas), (1, (1,)))
        ]
        topics = [{"name": "t", "partitions": parts}]
        (topic,) = (await ask(hall, REASSIGN, 0, timeout_ms=1_000, topics=topics)).responses
        return [(part.partition_index, int(part.error_code)) for part in topic.partitions]

    assert in_hall(story) == [(0, BAD_ASSIGNMENT), (1, 0)]


@pytest.mark.parametrize(
    ("asked", "errors"),
    [
        ([("__cluster_metadata", (0,))], [0]),
        ([("__cluster_metadata", (1,))], [UNKNOWN_PARTITION]),
        ([("__cluster_metadata", (0, 1))], [UNKNOWN_PARTITION] * 2),
        ([("t", (0,))], [UNKNOWN_PARTITION]),
    ],
)
def test_the_quorum_is_described_for_the_partition_of_the_metadata_alone(
    asked: list[tuple[str, tuple[int, ...]]], errors: list[int]
) -> None:
    """This node is the leader and only voter; Kafka refuses any different list as a whole."""

    async def story(hall: Hall) -> Any:
        topics = [
            {"topic_name": name, "partitions": [{"partition_index": n} for n in numbers]}
            for name, numbers in asked
        ]
        answer = await ask(hall, QUORUM, 1, topics=topics)
        parts = [part for topic in answer.topics for part in topic.partitions]
        voters = [
            (p.leader_id, [v.replica_id for v in p.current_voters])
            for p in parts
            if not p.error_code
        ]
        return [int(part.error_code) for part in parts], voters

    assert in_hall(story) == (errors, [(1, [1])] if errors == [0] else [])
