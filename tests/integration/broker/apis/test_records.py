"""Records on the wire, version by version, as far as clients depend on the answers."""

from __future__ import annotations

import threading
import time
import uuid

import cramjam
import pytest

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.broker.housekeeping import retain
from faust_assigner.broker.storage.records import ZSTD
from faust_assigner.broker.storage.store import StoreFailed
from tests.integration.broker.apis.calls import (
    FETCH,
    LIST_OFFSETS,
    METADATA,
    commit,
    fetch,
    topic_id,
)
from tests.support.clients.raw_client import RawClient, batch, one_record


def test_offsets_and_acks(client: RawClient) -> None:
    """acks=-1 and 1 answer with the base offset; 0 gets no answer; 2 is invalid."""
    assert client.produce("t", 0, batch(count=3)).base_offset == 0
    assert client.produce("t", 0, batch(), acks=1).base_offset == 3
    client.produce("t", 0, batch(), acks=0)
    assert client.produce("t", 0, batch()).base_offset == 5
    assert client.produce("t", 0, batch(), acks=2).error_code == 21


def test_an_unacknowledged_produce_that_fails_closes_the_connection(client: RawClient) -> None:
    """As in Kafka: the client would not read an error code."""
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
def test_bad_batches_get_kafkas_error_and_append_nothing(
    client: RawClient, data: bytes, error: int
) -> None:
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
    assert (
        client.produce("t", 0, batch(sequence=2, producer_id=producer_id, epoch=0)).error_code == 47
    )
    assert client.produce("t", 0, batch(sequence=2, **mine)).base_offset == 2


def test_fetch_by_name_and_by_id_gives_the_same_bytes(client: RawClient) -> None:
    """The test covers versions 4 to 17."""
    client.produce("t", 0, batch(count=2))
    known = topic_id(client)
    answers = [
        fetch(client, 0, version=v, **({"topic_id": known} if v >= 13 else {}))
        for v in range(4, 18)
    ]
    assert len({bytes(a.records) for a in answers}) == 1
    assert {(a.high_watermark, a.last_stable_offset) for a in answers} == {(2, 2)}


@pytest.mark.parametrize(("offset", "error"), [(-1, 1), (2, 1), (0, 0), (1, 0)])
def test_fetch_outside_the_log_is_out_of_range(client: RawClient, offset: int, error: int) -> None:
    """Before the start and after the end; the end itself is valid."""
    client.produce("t", 0, batch())
    assert fetch(client, offset).error_code == error


def test_a_long_poll_ends_with_data_or_with_time(client: RawClient, broker: EmbeddedBroker) -> None:
    """The answer comes with min_bytes at the earliest, and empty after max_wait."""
    began = time.monotonic()
    assert fetch(client, 0, wait_ms=300).records in (b"", None)
    assert time.monotonic() - began > 0.25

    def produce_later() -> None:
        time.sleep(0.2)
        with RawClient(broker.bootstrap) as other:
            other.produce("t", 0, batch())
            time.sleep(0.2)
            other.produce("t", 0, batch())

    thread = threading.Thread(target=produce_later)
    began = time.monotonic()
    thread.start()
    answer = fetch(client, 0, wait_ms=600_000, min_bytes=len(batch()) + 1)
    assert time.monotonic() - began > 0.3
    assert len(answer.records) == 2 * len(batch())
    thread.join()


def test_a_parked_fetch_learns_that_its_topic_is_deleted(
    client: RawClient, broker: EmbeddedBroker
) -> None:
    """UNKNOWN_TOPIC_OR_PARTITION at once, not at max_wait."""
    threading.Timer(
        0.2,
        lambda: broker.call(
            lambda node: node.catalogue.delete(node.catalogue.get("t"))  # type: ignore[arg-type]
        ),
    ).start()
    assert fetch(client, 0, wait_ms=600_000).error_code == 3


def test_a_fetch_session_has_an_id_and_an_unknown_id_is_not_found(client: RawClient) -> None:
    """The first response of a session has every partition."""
    topics = [
        {
            "topic": "t",
            "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 9}],
        }
    ]
    full = client.call(FETCH, 11, topics=topics, session_id=0, session_epoch=0)
    assert (full.session_id > 0, len(full.responses)) == (True, 1)
    assert client.call(FETCH, 11, topics=[], session_id=77, session_epoch=3).error_code == 70


def test_byte_limits_of_a_fetch(client: RawClient) -> None:
    """A fetch returns at least one batch, and more batches only within the limit."""
    for _ in range(5):
        client.produce("t", 0, batch())
    assert len(fetch(client, 0, max_bytes=1).records) == len(batch())
    assert len(fetch(client, 0, max_bytes=3 * len(batch())).records) == 3 * len(batch())


def test_zstd_is_kept_from_readers_that_cannot_unpack_it(client: RawClient) -> None:
    """Fetch below 10 and Produce below 7 get UNSUPPORTED_COMPRESSION_TYPE."""
    data = batch(bytes(cramjam.zstd.compress(one_record())), attributes=ZSTD)
    assert client.produce("t", 0, data, version=6).error_code == 76
    assert client.produce("t", 0, data).error_code == 0
    assert fetch(client, 0, version=9).error_code == 76
    assert fetch(client, 0, version=10).error_code == 0


def test_log_append_time_is_the_brokers() -> None:
    """The topic's message.timestamp.type decides; ListOffsets by time follows it."""
    now = [1_700_000_000_000]
    with EmbeddedBroker(clock=lambda: now[0]) as broker, RawClient(broker.bootstrap) as client:
        broker.call(
            lambda node: node.catalogue.create("t", 1, {"message.timestamp.type": "LogAppendTime"})
        )
        answer = client.produce("t", 0, batch(timestamp=5))
        assert answer.log_append_time.timestamp() == 1_700_000_000
        assert client.produce("t", 0, batch(attributes=0x08)).error_code == 32
        now[0] += 1_000
        client.produce("t", 0, batch(timestamp=6))
        part = {"partition_index": 0, "timestamp": 1_700_000_000_001}
        found = (
            client.call(LIST_OFFSETS, 5, topics=[{"name": "t", "partitions": [part]}])
            .topics[0]
            .partitions[0]
        )
        assert (found.offset, found.timestamp) == (1, 1_700_000_001_000)


def test_list_offsets_knows_the_ends_and_the_newest(client: RawClient) -> None:
    """-2 earliest, -1 latest, -3 the greatest timestamp; -1 if no record is that new."""
    for timestamp in (10, 30, 20):
        client.produce("t", 0, batch(timestamp=timestamp))
    answers = {}
    for wanted in (-2, -1, -3, 11, 31):
        part = {"partition_index": 0, "timestamp": wanted}
        answers[wanted] = client.call(LIST_OFFSETS, 7, topics=[{"name": "t", "partitions": [part]}])
    offsets = {k: v.topics[0].partitions[0].offset for k, v in answers.items()}
    assert offsets == {-2: 0, -1: 3, -3: 1, 11: 1, 31: -1}


def test_retention_deletes_by_the_topics_settings() -> None:
    """retention.ms applies if the policy has delete; compacted topics keep every record."""
    now = [1_700_000_000_000]
    with EmbeddedBroker(clock=lambda: now[0]) as broker, RawClient(broker.bootstrap) as client:
        for name, policy in (("t", "delete"), ("kept", "compact")):
            configs = {"retention.ms": "1000", "cleanup.policy": policy}
            broker.call(
                lambda node, name=name, configs=configs: node.catalogue.create(name, 1, configs)
            )
            client.produce(name, 0, batch(timestamp=now[0]))
        now[0] += 1_001
        assert broker.call(lambda node: sum(retain(node))) == 1
        assert fetch(client, 0).error_code == 1
        assert fetch(client, 1).log_start_offset == 1


def test_a_full_disk_is_answered_and_survived(client: RawClient, broker: EmbeddedBroker) -> None:
    """Every writer gets a storage error and readers continue; with room the writers do, too."""
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
    assert client.call(22, 4, transactional_id=None).error_code == 14
    assert commit(client, 1) == 16
    assert fetch(client, 0).high_watermark == 1
    store.write = write  # type: ignore[method-assign]
    assert client.produce("t", 0, batch()).base_offset == 1
    assert commit(client, 1) == 0
