"""Answers on the wire, version by version: what clients branch on."""

from __future__ import annotations

import datetime
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import cramjam
import pytest

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.broker.storage.records import ZSTD
from faust_assigner.broker.storage.store import StoreFailed
from tests.support.raw_client import RawClient, batch, one_record

PRODUCE, FETCH, LIST_OFFSETS, METADATA, COMMIT, COMMITTED = 0, 1, 2, 3, 8, 9


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """A broker with one topic of two partitions."""
    with EmbeddedBroker() as running:
        running.call(lambda node: node.catalogue.create("t", 2, {}))
        yield running


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[RawClient]:
    """A bare connection."""
    with RawClient(broker.bootstrap) as connected:
        yield connected


def milliseconds(value: int) -> datetime.timedelta:
    """kio's time spans."""
    return datetime.timedelta(milliseconds=value)


def fetch(
    client: RawClient,
    offset: int,
    *,
    version: int = 11,
    partition: int = 0,
    wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 10**6,
    **more: Any,
) -> Any:
    """Fetch one partition of 't'; returns its answer."""
    name = {"topic": "t"} if version < 13 else {"topic_id": more.pop("topic_id")}
    parts = [{"partition": partition, "fetch_offset": offset, "partition_max_bytes": max_bytes}]
    answer = client.call(
        FETCH,
        version,
        max_wait=milliseconds(wait_ms),
        min_bytes=min_bytes,
        max_bytes=10**7,
        topics=[{**name, "partitions": parts}],
        **more,
    )
    return answer.responses[0].partitions[0]


def topic_id(client: RawClient) -> uuid.UUID:
    """The id of 't'."""
    found = client.call(METADATA, 12, topics=[{"name": "t"}]).topics[0].topic_id
    assert isinstance(found, uuid.UUID)
    return found


def test_offsets_and_acks(client: RawClient) -> None:
    """acks=-1 and 1 answer with the base offset; 0 gets no answer; 2 is no such thing."""
    assert client.produce("t", 0, batch(count=3)).base_offset == 0
    assert client.produce("t", 0, batch(), acks=1).base_offset == 3
    client.produce("t", 0, batch(), acks=0)
    assert client.produce("t", 0, batch()).base_offset == 5
    assert client.produce("t", 0, batch(), acks=2).error_code == 21


def test_an_unacknowledged_produce_that_fails_closes_the_connection(client: RawClient) -> None:
    """As in Kafka: nobody would read an error code."""
    client.produce("nowhere", 0, batch(), acks=0)
    assert client.is_closed()


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (batch()[:-1], 87),
        (batch(magic=1), 87),
        (batch() + batch(), 87),
        (b"", 87),
        (batch(attributes=0x20), 87),
        (batch(attributes=0x10), 53),
        (batch(b"x" * 1_100_000), 10),
    ],
)
def test_bad_batches_get_kafkas_error_and_append_nothing(client: RawClient, data: bytes, error: int) -> None:
    """Corrupt, wrong format, two at once, control, transactional, too large."""
    assert client.produce("t", 0, data).error_code == error
    assert client.produce("t", 0, batch()).base_offset == 0


def test_unknown_topics_and_partitions(client: RawClient) -> None:
    """UNKNOWN_TOPIC_OR_PARTITION, by id UNKNOWN_TOPIC_ID."""
    assert client.produce("nowhere", 0, batch()).error_code == 3
    assert client.produce("t", 2, batch()).error_code == 3
    assert fetch(client, 0, partition=7).error_code == 3
    assert fetch(client, 0, version=13, topic_id=uuid.uuid4()).error_code == 100


def test_an_idempotent_retry_is_acknowledged_with_its_first_offset(client: RawClient) -> None:
    """Duplicates append nothing; gaps are OUT_OF_ORDER_SEQUENCE; an old epoch is fenced."""
    producer_id = client.call(22, 4, transactional_id=None).producer_id
    other = client.call(22, 4, transactional_id=None).producer_id
    assert other != producer_id
    mine = {"producer_id": producer_id, "epoch": 1}
    assert client.produce("t", 0, batch(sequence=0, **mine)).base_offset == 0
    assert client.produce("t", 0, batch(sequence=1, **mine)).base_offset == 1
    assert client.produce("t", 0, batch(sequence=0, **mine)).base_offset == 0
    assert client.produce("t", 0, batch(sequence=5, **mine)).error_code == 45
    assert client.produce("t", 0, batch(sequence=2, producer_id=producer_id, epoch=0)).error_code == 47
    assert client.produce("t", 0, batch(sequence=2, **mine)).base_offset == 2


def test_transactions_are_refused_at_once(client: RawClient) -> None:
    """A fatal error, not one that is retried for ever."""
    assert client.call(22, 4, transactional_id="tx").error_code == 53
    assert client.call(10, 3, key="tx", key_type=1).error_code == 53


def test_fetch_by_name_and_by_id_gives_the_same_bytes(client: RawClient) -> None:
    """Versions 4 to 17."""
    client.produce("t", 0, batch(count=2))
    known = topic_id(client)
    answers = [fetch(client, 0, version=v, **({"topic_id": known} if v >= 13 else {})) for v in range(4, 18)]
    assert len({bytes(a.records) for a in answers}) == 1
    assert {(a.high_watermark, a.last_stable_offset) for a in answers} == {(2, 2)}


@pytest.mark.parametrize(("offset", "error"), [(-1, 1), (2, 1), (0, 0), (1, 0)])
def test_fetch_outside_the_log_is_out_of_range(client: RawClient, offset: int, error: int) -> None:
    """Before the start and after the end; the end itself is where new records will be."""
    client.produce("t", 0, batch())
    assert fetch(client, offset).error_code == error


def test_a_long_poll_ends_with_data_or_with_time(client: RawClient, broker: EmbeddedBroker) -> None:
    """Not before there are min_bytes, at once when there are, and empty at max_wait."""
    began = time.monotonic()
    assert fetch(client, 0, wait_ms=300).records in (b"", None)
    assert 0.25 < time.monotonic() - began < 3

    def produce_later() -> None:
        time.sleep(0.2)
        with RawClient(broker.bootstrap) as other:
            other.produce("t", 0, batch())
            time.sleep(0.2)
            other.produce("t", 0, batch())

    thread = threading.Thread(target=produce_later)
    thread.start()
    began = time.monotonic()
    answer = fetch(client, 0, wait_ms=10_000, min_bytes=len(batch()) + 1)
    assert 0.3 < time.monotonic() - began < 5
    assert len(answer.records) == 2 * len(batch())
    thread.join()


def test_a_parked_fetch_learns_that_its_topic_is_deleted(client: RawClient, broker: EmbeddedBroker) -> None:
    """UNKNOWN_TOPIC_OR_PARTITION at once, not at max_wait."""
    threading.Timer(
        0.2,
        lambda: broker.call(
            lambda node: node.catalogue.delete(node.catalogue.get("t"))  # type: ignore[arg-type]
        ),
    ).start()
    began = time.monotonic()
    assert fetch(client, 0, wait_ms=10_000).error_code == 3
    assert time.monotonic() - began < 5


def test_fetch_sessions_are_declined_in_a_way_clients_understand(client: RawClient) -> None:
    """Session id 0 means: ask in full each time. An id nobody gave out is not found."""
    topics = [{"topic": "t", "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 9}]}]
    full = client.call(FETCH, 11, topics=topics, session_id=0, session_epoch=0)
    assert (full.session_id, len(full.responses)) == (0, 1)
    assert client.call(FETCH, 11, topics=[], session_id=77, session_epoch=3).error_code == 70


def test_byte_limits_of_a_fetch(client: RawClient) -> None:
    """One batch always comes; more only within the limit."""
    for _ in range(5):
        client.produce("t", 0, batch())
    assert len(fetch(client, 0, max_bytes=1).records) == len(batch())
    assert len(fetch(client, 0, max_bytes=3 * len(batch())).records) == 3 * len(batch())


def test_zstd_is_kept_from_readers_that_cannot_unpack_it(client: RawClient) -> None:
    """UNSUPPORTED_COMPRESSION_TYPE before Fetch 10 and Produce 7."""
    data = batch(bytes(cramjam.zstd.compress(one_record())), attributes=ZSTD)
    assert client.produce("t", 0, data, version=6).error_code == 76
    assert client.produce("t", 0, data).error_code == 0
    assert fetch(client, 0, version=9).error_code == 76
    assert fetch(client, 0, version=10).error_code == 0


def test_log_append_time_is_the_brokers() -> None:
    """message.timestamp.type of the topic; ListOffsets by time follows."""
    now = [1_700_000_000_000]
    with EmbeddedBroker(clock=lambda: now[0]) as broker, RawClient(broker.bootstrap) as client:
        broker.call(lambda node: node.catalogue.create("t", 1, {"message.timestamp.type": "LogAppendTime"}))
        answer = client.produce("t", 0, batch(timestamp=5))
        assert answer.log_append_time.timestamp() == 1_700_000_000
        assert client.produce("t", 0, batch(attributes=0x08)).error_code == 32
        now[0] += 1_000
        client.produce("t", 0, batch(timestamp=6))
        part = {"partition_index": 0, "timestamp": 1_700_000_000_001}
        found = (
            client.call(LIST_OFFSETS, 5, topics=[{"name": "t", "partitions": [part]}]).topics[0].partitions[0]
        )
        assert (found.offset, found.timestamp) == (1, 1_700_000_001_000)


def test_list_offsets_knows_the_ends_and_the_newest(client: RawClient) -> None:
    """-2 earliest, -1 latest, -3 the record with the greatest timestamp; -1 where nothing is that new."""
    for timestamp in (10, 30, 20):
        client.produce("t", 0, batch(timestamp=timestamp))
    answers = {}
    for wanted in (-2, -1, -3, 11, 31):
        part = {"partition_index": 0, "timestamp": wanted}
        answers[wanted] = client.call(LIST_OFFSETS, 7, topics=[{"name": "t", "partitions": [part]}])
    offsets = {k: v.topics[0].partitions[0].offset for k, v in answers.items()}
    assert offsets == {-2: 0, -1: 3, -3: 1, 11: 1, 31: -1}


def test_metadata_creates_topics_only_where_asked_and_allowed(client: RawClient) -> None:
    """Consumers set the flag to false; version 0 to 3 have no flag and mean yes."""
    ask = [{"name": "new"}]
    assert client.call(METADATA, 12, topics=ask, allow_auto_topic_creation=False).topics[0].error_code == 3
    made = client.call(METADATA, 12, topics=ask, allow_auto_topic_creation=True).topics[0]
    assert (made.error_code, len(made.partitions)) == (0, 1)
    assert client.call(METADATA, 2, topics=[{"name": "old"}]).topics[0].error_code == 0
    with (
        EmbeddedBroker(settings={"auto.create.topics.enable": False}) as strict,
        RawClient(strict.bootstrap) as other,
    ):
        assert other.call(METADATA, 12, topics=ask, allow_auto_topic_creation=True).topics[0].error_code == 3


def test_metadata_by_id_and_of_all_topics(client: RawClient) -> None:
    """Null means all, an empty list none; version 0 has no null. A recreated topic has a new id."""
    known = topic_id(client)
    by_id = client.call(METADATA, 12, topics=[{"topic_id": known, "name": None}]).topics[0]
    assert (by_id.name, by_id.topic_id) == ("t", known)
    stranger = client.call(METADATA, 12, topics=[{"topic_id": uuid.uuid4(), "name": None}]).topics[0]
    assert stranger.error_code == 100
    assert [t.name for t in client.call(METADATA, 12, topics=None).topics] == ["t"]
    assert client.call(METADATA, 12, topics=[]).topics == ()
    assert [t.name for t in client.call(METADATA, 0, topics=[]).topics] == ["t"]
    client.call(20, 5, topic_names=("t",))
    client.call(19, 5, topics=[{"name": "t", "num_partitions": 1, "replication_factor": 1}])
    assert topic_id(client) != known


def test_create_topics_validates_each_topic_for_itself(client: RawClient) -> None:
    """Existing, twice, bad config, manual assignment; validate_only makes nothing."""
    one = {"num_partitions": 1, "replication_factor": 1}
    answer = client.call(
        19,
        7,
        topics=[
            {"name": "t", **one},
            {"name": "twice", **one},
            {"name": "twice", **one},
            {"name": "ok", **one},
            {"name": "bad", **one, "configs": [{"name": "retention.ms", "value": "soon"}]},
            {
                "name": "hand",
                "num_partitions": -1,
                "replication_factor": -1,
                "assignments": [{"partition_index": p, "broker_ids": (1,)} for p in range(3)],
            },
            {
                "name": "far",
                "num_partitions": -1,
                "replication_factor": -1,
                "assignments": [{"partition_index": 0, "broker_ids": (9,)}],
            },
        ],
    )
    errors = [t.error_code for t in answer.topics]
    assert errors == [36, 42, 0, 40, 0, 39]
    assert answer.topics[4].num_partitions == 3
    client.call(19, 7, topics=[{"name": "dry", **one}], validate_only=True)
    names = {t.name for t in client.call(METADATA, 12, topics=None).topics}
    assert names == {"t", "ok", "hand"}


def test_partitions_grow_and_never_shrink(client: RawClient) -> None:
    """INVALID_PARTITIONS for the same and for fewer."""

    def grow(count: int) -> int:
        topics = [{"name": "t", "count": count, "assignments": None}]
        return int(client.call(37, 1, topics=topics).results[0].error_code)

    assert [grow(2), grow(1), grow(5), grow(3)] == [37, 37, 0, 37]
    assert client.produce("t", 4, batch()).error_code == 0


def commit(client: RawClient, offset: int, *, version: int = 8, note: str = "", partition: int = 0) -> int:
    """A commit from outside of any group; returns the error."""
    part = {"partition_index": partition, "committed_offset": offset, "committed_metadata": note}
    answer = client.call(
        COMMIT,
        version,
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[{"name": "t", "partitions": [part]}],
    )
    return int(answer.topics[0].partitions[0].error_code)


@pytest.mark.parametrize("version", range(2, 10))
def test_commits_in_every_version_are_read_back_in_every_version(client: RawClient, version: int) -> None:
    """Offset and note; -1 where nothing was committed; one or many groups."""
    assert commit(client, 42, version=version, note="n") == 0
    for reader in range(1, 10):
        topics = [{"name": "t", "partition_indexes": (0, 1)}]
        if reader < 8:
            found = client.call(COMMITTED, reader, group_id="g", topics=topics).topics[0].partitions
        else:
            groups = [{"group_id": name, "topics": topics, "member_id": None} for name in ("g", "nobody")]
            first, second = client.call(COMMITTED, reader, groups=groups, require_stable=True).groups
            assert [p.committed_offset for p in second.topics[0].partitions] == [-1, -1]
            found = first.topics[0].partitions
        assert [(p.committed_offset, p.metadata, p.error_code) for p in found] == [(42, "n", 0), (-1, "", 0)]


def test_all_offsets_of_a_group_are_listed_for_null(client: RawClient) -> None:
    """What kafka-consumer-groups asks."""
    commit(client, 3)
    commit(client, 4, partition=1)
    found = client.call(COMMITTED, 7, group_id="g", topics=None).topics
    assert [(t.name, [p.committed_offset for p in t.partitions]) for t in found] == [("t", [3, 4])]


def test_a_commit_is_refused_partition_by_partition(client: RawClient) -> None:
    """Unknown partition, note too long; the sound one beside them is stored."""
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
def test_a_generation_of_a_group_that_does_not_exist(client: RawClient, version: int, error: int) -> None:
    """ILLEGAL_GENERATION, since version 9 GROUP_ID_NOT_FOUND."""
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
    """A JoinGroup of group 'g' in any version."""
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
    """Join, sync, heartbeat, leave, each in the newest version that goes with that JoinGroup."""
    joined = join(client, version)
    if version >= 4:
        assert joined.error_code == 79
        joined = join(client, version, member_id=joined.member_id)
    assert (joined.error_code, joined.leader) == (0, joined.member_id)
    assert [m.metadata for m in joined.members] == [b"m"]
    me = {"group_id": "g", "generation_id": joined.generation_id, "member_id": joined.member_id}
    given = [{"member_id": joined.member_id, "assignment": b"mine"}]
    synced = client.call(
        14, min(version, 5), assignments=given, protocol_type="consumer", protocol_name="range", **me
    )
    assert synced.assignment == b"mine"
    assert client.call(12, min(version, 4), **me).error_code == 0
    leave = (
        {"members": [{"member_id": joined.member_id}]} if version >= 3 else {"member_id": joined.member_id}
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
    assert (described[0].members[0].member_assignment, described[0].protocol_data) == (b"A", "range")
    assert client.call(15, 6, groups=("ghost",)).groups[0].error_code == 69
    assert [g.group_id for g in client.call(16, 5, states_filter=("stable",)).groups] == ["g"]
    assert client.call(16, 5, states_filter=("Empty",)).groups == ()
    assert client.call(16, 5, types_filter=("consumer",)).groups == ()
    client.call(13, 1, group_id="g", member_id=member)
    answers = client.call(42, 1, groups_names=("g", "ghost")).results
    assert [(r.group_id, r.error_code) for r in answers] == [("g", 0), ("ghost", 69)]


def test_offsets_in_use_are_not_deleted(client: RawClient) -> None:
    """OffsetDelete: GROUP_SUBSCRIBED_TO_TOPIC per topic; free ones go (KIP-496)."""
    commit(client, 5)
    topics = [{"name": "t", "partitions": [{"partition_index": 0}]}]
    metadata = bytes.fromhex("0001 00000001 0001 74 ffffffff")
    member = join(client, 3, protocols=[{"name": "range", "metadata": metadata}]).member_id
    client.call(14, 3, group_id="g", generation_id=1, member_id=member, assignments=[])
    refused = client.call(47, 0, group_id="g", topics=topics)
    assert refused.topics[0].partitions[0].error_code == 86
    client.call(13, 1, group_id="g", member_id=member)
    assert client.call(47, 0, group_id="g", topics=topics).topics[0].partitions[0].error_code == 0
    found = client.call(COMMITTED, 5, group_id="g", topics=[{"name": "t", "partition_indexes": (0,)}])
    assert found.topics[0].partitions[0].committed_offset == -1
    assert client.call(47, 0, group_id="ghost", topics=topics).error_code == 69


def test_deleting_a_topic_deletes_what_groups_committed_for_it(client: RawClient) -> None:
    """Offsets of the old topic would make no sense in a new one of that name."""
    commit(client, 5)
    client.call(20, 5, topic_names=("t",))
    client.call(19, 5, topics=[{"name": "t", "num_partitions": 1, "replication_factor": 1}])
    found = client.call(COMMITTED, 5, group_id="g", topics=[{"name": "t", "partition_indexes": (0,)}])
    assert found.topics[0].partitions[0].committed_offset == -1


def test_offsets_expire_with_the_clock() -> None:
    """offsets.retention.minutes after the last commit, by the test's clock; the group goes with them."""
    now = [1_700_000_000_000]
    with EmbeddedBroker(settings={"offsets.retention.minutes": 10}, clock=lambda: now[0]) as broker:
        broker.call(lambda node: node.catalogue.create("t", 2, {}))
        with RawClient(broker.bootstrap) as client:
            commit(client, 5)
            now[0] += 10 * 60_000 - 1
            assert broker.call(lambda node: node.expire_offsets()) == 0
            now[0] += 1
            assert broker.call(lambda node: node.expire_offsets()) == 1
            assert client.call(15, 6, groups=("g",)).groups[0].error_code == 69


def test_retention_deletes_by_the_topics_settings() -> None:
    """retention.ms where the policy has delete; compacted topics keep every record."""
    now = [1_700_000_000_000]
    with EmbeddedBroker(clock=lambda: now[0]) as broker, RawClient(broker.bootstrap) as client:
        for name, policy in (("t", "delete"), ("kept", "compact")):
            configs = {"retention.ms": "1000", "cleanup.policy": policy}
            broker.call(lambda node, name=name, configs=configs: node.catalogue.create(name, 1, configs))
            client.produce(name, 0, batch(timestamp=now[0]))
        now[0] += 1_001
        assert broker.call(lambda node: node.apply_retention()) == 1
        assert fetch(client, 0).error_code == 1
        assert fetch(client, 1).log_start_offset == 1


def test_a_full_disk_is_answered_and_survived(client: RawClient, broker: EmbeddedBroker) -> None:
    """KAFKA_STORAGE_ERROR and friends from every writer; readers go on; writers too, once there is room."""
    client.produce("t", 0, batch())
    store = broker.call(lambda node: node.store)
    write = store.write

    def full(*arguments: object, **more: object) -> None:
        raise StoreFailed("No space left on device")

    store.write = full  # type: ignore[method-assign]
    one = [{"name": "new", "num_partitions": 1, "replication_factor": 1}]
    assert client.produce("t", 0, batch()).error_code == 56
    assert client.call(19, 5, topics=one).topics[0].error_code == 56
    assert client.call(METADATA, 12, topics=[{"name": "auto"}]).topics[0].error_code == 3
    assert client.call(22, 4, transactional_id=None).error_code == 15
    assert commit(client, 1) == 16
    assert fetch(client, 0).high_watermark == 1
    store.write = write  # type: ignore[method-assign]
    assert client.produce("t", 0, batch()).base_offset == 1
    assert commit(client, 1) == 0


def test_cluster_and_configs_are_described(client: RawClient) -> None:
    """One broker, its settings read-only; unknown resources are named."""
    cluster = client.call(60, 0)
    assert [(b.broker_id, b.host) for b in cluster.brokers] == [(1, "127.0.0.1")]
    assert cluster.cluster_id == client.call(METADATA, 12, topics=[]).cluster_id
    resources = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
        for kind, name, keys in ((4, "1", ("num.partitions",)), (2, "ghost", None), (2, "t", None))
    ]
    broker, ghost, topic = client.call(32, 4, resources=resources).results
    assert [(c.name, c.value, c.read_only) for c in broker.configs] == [("num.partitions", "1", True)]
    assert ghost.error_code == 3
    assert len(topic.configs) > 20
