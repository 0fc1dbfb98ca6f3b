"""Malformed, oversized, slow, too many and random frames; each harms only its own connection."""

from __future__ import annotations

import datetime
import random
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.broker.limits import FRAME_TIMEOUT_S
from tests.support.clients.raw_client import RawClient, batch, one_record, request_frame
from tests.support.waiting import wait_until

METADATA, API_VERSIONS = 3, 18


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """A broker with a topic."""
    with EmbeddedBroker(settings={"max.connections.per.ip": 20}) as running:
        running.call(lambda node: node.catalogue.create("t", 2, {}))
        yield running


def counted(broker: EmbeddedBroker, name: str) -> int:
    """Return a counter of the broker."""
    return broker.call(lambda node: node.counters[name])


def serves(client: RawClient) -> bool:
    """Return whether a connection still gets answers."""
    return [t.name for t in client.call(METADATA, 12, topics=None).topics] == ["t"]


@pytest.mark.parametrize(
    ("frame", "counter"),
    [
        (struct.pack(">i", 2**31 - 1), "frames_refused"),
        (struct.pack(">i", 16_777_217), "frames_refused"),
        (struct.pack(">i", 0), "frames_refused"),
        (struct.pack(">i", -1), "frames_refused"),
        (struct.pack(">i", 1) + b"\0", "frames_malformed"),
        (struct.pack(">ihhih", 10, METADATA, 5, 1, -5), "frames_malformed"),
        (struct.pack(">ihhihi", 14, METADATA, 5, 1, -1, 2**31 - 1), "frames_malformed"),
        (struct.pack(">ihhih", 10, 999, 0, 1, -1), "requests_unsupported"),
        (struct.pack(">ihhih", 10, METADATA, 999, 1, -1), "requests_unsupported"),
        (b"GET / HTTP/1.1\r\n\r\n", "frames_refused"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "frames_refused"),
    ],
)
def test_a_bad_frame_closes_its_own_connection_and_is_counted(
    broker: EmbeddedBroker, frame: bytes, counter: str
) -> None:
    """Bad sizes, headers, counts, APIs and protocols; another connection is not affected."""
    with RawClient(broker.bootstrap) as neighbour, RawClient(broker.bootstrap) as stranger:
        assert serves(neighbour)
        stranger.socket.sendall(frame)
        assert stranger.is_closed()
        assert serves(neighbour)
    assert counted(broker, counter) == 1


def test_requests_before_a_bad_frame_are_still_answered(broker: EmbeddedBroker) -> None:
    """A valid request and garbage in one packet; the answer arrives before the close."""
    with RawClient(broker.bootstrap) as client:
        good = request_frame(METADATA, 12, 1, {"topics": None})
        client.socket.sendall(good + struct.pack(">i", -1))
        assert [t.name for t in client.receive(METADATA, 12).topics] == ["t"]
        assert client.is_closed()


def test_an_unknown_version_of_api_versions_gets_version_0_with_error_35(
    broker: EmbeddedBroker,
) -> None:
    """KIP-511: a newer client learns the supported versions on the same connection."""
    with RawClient(broker.bootstrap) as client:
        client.socket.sendall(struct.pack(">ihhih", 10, API_VERSIONS, 99, 5, -1))
        answer = client.receive(API_VERSIONS, 0)
        assert answer.error_code == 35
        ranges = {k.api_key: (k.min_version, k.max_version) for k in answer.api_keys}
        assert ranges[API_VERSIONS] == (0, 4)
        assert serves(client)


def test_apis_that_are_not_there_are_not_advertised(broker: EmbeddedBroker) -> None:
    """No markers between brokers (27); every listener lists SASL (17, 36), as in Kafka."""
    with RawClient(broker.bootstrap) as client:
        keys = {k.api_key for k in client.call(API_VERSIONS, 3).api_keys}
    assert 27 not in keys
    assert keys >= {
        0,
        1,
        2,
        3,
        8,
        9,
        10,
        11,
        12,
        13,
        14,
        15,
        16,
        18,
        19,
        20,
        22,
        24,
        25,
        26,
        28,
        32,
    }
    assert keys >= {37, 42, 60, 61, 65, 66}


def test_a_slow_frame_is_given_up(broker: EmbeddedBroker) -> None:
    """Half a frame, then silence; and a silent peer. Other peers are served meanwhile."""
    with (
        RawClient(broker.bootstrap) as half,
        RawClient(broker.bootstrap) as mute,
        RawClient(broker.bootstrap) as ok,
    ):
        assert serves(ok)
        began, broker.server.frame_timeout_s = time.monotonic(), 0.5
        half.socket.sendall(request_frame(METADATA, 12, 1, {"topics": None})[:9])
        assert serves(ok)
        assert half.is_closed()
        assert mute.is_closed()
        assert time.monotonic() - began < FRAME_TIMEOUT_S
        assert serves(ok), "a connection that has been served may be silent for longer"
    assert counted(broker, "frames_slow") == 2


def test_a_silent_connection_ends_after_the_idle_time() -> None:
    """The limit is connections.max.idle.ms."""
    with (
        EmbeddedBroker(settings={"connections.max.idle.ms": 1_000}) as broker,
        RawClient(broker.bootstrap) as client,
    ):
        client.call(API_VERSIONS, 0)
        assert client.is_closed()
        assert counted(broker, "peers_idle") == 1


def test_one_address_gets_only_so_many_connections(broker: EmbeddedBroker) -> None:
    """The limit is max.connections.per.ip; a closed connection makes room for another."""
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(broker.bootstrap)) for _ in range(20)]
        assert all(serves(c) for c in clients)
        with RawClient(broker.bootstrap) as one_too_many:
            assert one_too_many.is_closed()
        clients[0].socket.close()
        wait_until(lambda: broker.server.connections < 20)
        assert serves(stack.enter_context(RawClient(broker.bootstrap)))
    assert counted(broker, "connections_refused") == 1


def test_a_peer_that_does_not_read_holds_up_nobody(broker: EmbeddedBroker) -> None:
    """The answers wait in the peer's own buffer, and the broker pauses that peer."""
    data = batch(one_record(b"x" * 900_000))
    with RawClient(broker.bootstrap) as client:
        assert client.produce("t", 0, data).error_code == 0
    with RawClient(broker.bootstrap) as deaf, RawClient(broker.bootstrap) as ok:
        deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        wants = [
            {
                "topic": "t",
                "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 10**6}],
            }
        ]
        for _ in range(200):
            deaf.send(1, 11, max_bytes=10**6, topics=wants, session_epoch=-1)
        for _ in range(5):
            assert serves(ok)
        waiting = [
            c._transport.get_write_buffer_size() for c in broker.server._connections if c._transport
        ]
        assert max(waiting) < 2_000_000, "one answer waits, not two hundred"


def test_illegal_topics_are_neither_made_nor_found(broker: EmbeddedBroker) -> None:
    """INVALID_TOPIC_EXCEPTION; metadata does not create them."""
    with RawClient(broker.bootstrap) as client:
        answer = client.call(
            METADATA, 12, topics=[{"name": "../x"}], allow_auto_topic_creation=True
        )
        assert [t.error_code for t in answer.topics] == [17]
        created = client.call(
            19, 5, topics=[{"name": "a b", "num_partitions": 1, "replication_factor": 1}]
        )
        assert [t.error_code for t in created.topics] == [17]
        assert serves(client)


def test_caps_on_partitions_answer_with_kafkas_errors(broker: EmbeddedBroker) -> None:
    """INVALID_PARTITIONS for zero and for too many, INVALID_REPLICATION_FACTOR for 3 replicas."""
    with RawClient(broker.bootstrap) as client:
        asked = [{"name": "huge", "num_partitions": 10_001, "replication_factor": 1}]
        assert client.call(19, 5, topics=asked).topics[0].error_code == 37
        asked = [{"name": "zero", "num_partitions": 0, "replication_factor": 1}]
        assert client.call(19, 5, topics=asked).topics[0].error_code == 37
        asked = [{"name": "copies", "num_partitions": 1, "replication_factor": 3}]
        assert client.call(19, 5, topics=asked).topics[0].error_code == 38


def test_a_long_group_id_is_refused(broker: EmbeddedBroker) -> None:
    """INVALID_GROUP_ID from FindCoordinator, JoinGroup and OffsetCommit."""
    long = "g" * 2_000
    join = {
        "session_timeout": datetime.timedelta(seconds=10),
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    with RawClient(broker.bootstrap) as client:
        assert client.call(10, 3, key=long).error_code == 24
        assert client.call(11, 5, group_id=long, **join).error_code == 24
        assert client.call(11, 5, group_id="", **join).error_code == 24
        topics = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 1}]}]
        commit = client.call(
            8, 5, group_id=long, generation_id_or_member_epoch=-1, member_id="", topics=topics
        )
        assert commit.topics[0].partitions[0].error_code == 24


def test_random_frames_never_stop_the_broker(broker: EmbeddedBroker) -> None:
    """400 connections of noise, flipped bits and cut frames; a failure prints the seed."""
    seed = random.randrange(2**32)
    dice = random.Random(seed)
    sound = [
        request_frame(key, version, 1, {})
        for key, version in [
            (0, 9),
            (1, 11),
            (1, 16),
            (2, 5),
            (3, 12),
            (8, 8),
            (9, 8),
            (10, 4),
            (11, 7),
            (14, 5),
            (19, 7),
            (22, 4),
            (32, 4),
            (42, 2),
            (18, 3),
        ]
    ]
    with RawClient(broker.bootstrap) as neighbour:
        for _ in range(400):
            frame = bytearray(dice.choice(sound))
            for _ in range(dice.randint(0, 6)):
                position = dice.randrange(8, len(frame))
                frame[position] = dice.randrange(256)
            if dice.random() < 0.3:
                frame = bytearray(dice.randbytes(dice.randint(1, 300)))
            with RawClient(broker.bootstrap) as stranger:
                stranger.socket.sendall(frame)
        assert serves_at_all(neighbour), f"seed {seed}"
    assert counted(broker, "requests_failed") == 0, f"a handler raised; seed {seed}"


def serves_at_all(client: RawClient) -> bool:
    """Return whether the broker answers with metadata (mutated requests may have made topics)."""
    return "t" in [t.name for t in client.call(METADATA, 12, topics=None).topics]
