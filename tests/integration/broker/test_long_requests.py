"""A small request must not block other clients: lists are sets, long work yields, memory is limited."""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.broker.node import Node
from faust_assigner.testing.kafka import KafkaServer
from tests.support.clients.raw_client import RawClient, batch, request_frame
from tests.support.waiting import wait_until

METADATA, LIST_OFFSETS, FETCH, HEARTBEAT, DESCRIBE_GROUPS, OFFSET_FETCH = 3, 2, 1, 12, 15, 9
DESCRIBE_CONFIGS, OFFSET_COMMIT, FIND_COORDINATOR = 32, 8, 10
WIDE = 10_000
NOT_YET = (3, 5, 6, 14, 15, 16)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """A broker with ten topics of 10,000 partitions, and a topic of two partitions with records."""
    with EmbeddedBroker() as running:

        def fill(node: Node) -> None:
            for number in range(10):
                node.catalogue.create(f"wide{number}", WIDE, {})
            node.catalogue.create("t", 2, {})

        running.call(fill)
        with RawClient(running.bootstrap) as client:
            for partition in range(2):
                assert client.produce("t", partition, batch()).error_code == 0
        yield running


def parts(*numbers: int, timestamp: int = -1) -> list[dict[str, int]]:
    """Return partitions for ListOffsets."""
    return [{"partition_index": number, "timestamp": timestamp} for number in numbers]


def answers_of(client: RawClient) -> list[Any]:
    """Return the answers to requests with repeated names; order and ids are left out."""
    found: list[Any] = []
    named = [{"name": name} for name in ("twice", "twice", "other", "nope", "nope")]
    topics = client.call(METADATA, 12, topics=named, allow_auto_topic_creation=False).topics
    found.append(sorted((t.name, int(t.error_code)) for t in topics))
    asked = [
        {"name": "twice", "partitions": parts(0, 0, 1)},
        {"name": "twice", "partitions": [*parts(7, 7), *parts(8)]},
    ]
    listed = client.call(LIST_OFFSETS, 5, topics=asked).topics
    found.append(
        sorted((p.partition_index, int(p.error_code)) for t in listed for p in t.partitions)
    )
    new = {"name": "twice-new", "num_partitions": 1, "replication_factor": 1}
    found.append(
        [(t.name, int(t.error_code)) for t in client.call(19, 5, topics=[new, new]).topics]
    )
    grown = {"name": "twice", "count": 3, "assignments": None}
    found.append(
        [(t.name, int(t.error_code)) for t in client.call(37, 1, topics=[grown, grown]).results]
    )
    gone = client.call(20, 5, topic_names=("twice", "twice")).responses
    found.append([(t.name, int(t.error_code)) for t in gone])
    both = client.call(
        20, 6, topics=[{"name": "twice", "topic_id": topics[0].topic_id or named}]
    ).responses
    found.append([(t.name, int(t.error_code)) for t in both])
    config = {"name": "retention.ms", "config_operation": 0, "value": "1000"}
    for resources in ([[config], [config]], [[config, config]]):
        changes = [{"resource_type": 2, "resource_name": "twice", "configs": c} for c in resources]
        answer = client.call(44, 1, resources=changes, validate_only=True).responses
        found.append([(r.resource_name, int(r.error_code)) for r in answer])
    found.append(
        [
            (g.group_id, int(g.error_code))
            for g in client.call(42, 2, groups_names=("no", "no")).results
        ]
    )
    want = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 10**6}
    fetched = client.call(
        FETCH, 11, max_bytes=10**6, topics=[{"topic": "twice", "partitions": [want, want]}]
    )
    found.append(
        [(p.partition_index, int(p.error_code)) for t in fetched.responses for p in t.partitions]
    )
    twice = [{"name": "twice", "partition_data": [{"index": 0, "records": batch()}] * 2}]
    produced = client.call(0, 9, acks=-1, topic_data=twice).responses
    found.append([(p.index, int(p.error_code)) for t in produced for p in t.partition_responses])
    return found


@pytest.mark.kafka
def test_what_is_named_twice_is_answered_as_kafka_answers_it(kafka: KafkaServer) -> None:
    """Topics, partitions, resources and groups: answered once, or refused."""
    found = []
    with EmbeddedBroker() as ours:
        for bootstrap in (kafka.bootstrap, ours.bootstrap):
            with RawClient(bootstrap, 30) as client:
                for name in ("twice", "other"):
                    new = {"name": name, "num_partitions": 2, "replication_factor": 1}
                    client.call(19, 5, topics=[new])
                for partition in range(2):
                    while client.produce("twice", partition, batch()).error_code in NOT_YET:
                        time.sleep(0.1)
                while client.call(FIND_COORDINATOR, 3, key="no").error_code in NOT_YET:
                    time.sleep(0.1)
                while client.call(42, 2, groups_names=("no",)).results[0].error_code in NOT_YET:
                    time.sleep(0.1)
                found.append(answers_of(client))
    theirs, mine = found
    assert [pair for pair in zip(mine, theirs, strict=True) if pair[0] != pair[1]] == []


def test_groups_offsets_and_settings_named_twice_are_answered_once(broker: EmbeddedBroker) -> None:
    """The answer grows with the existing groups, not with the number of repetitions."""
    with RawClient(broker.bootstrap) as client:
        part = {"partition_index": 0, "committed_offset": 1, "committed_metadata": "x" * 4_000}
        topics = [{"name": "t", "partitions": [part]}]
        client.call(
            OFFSET_COMMIT,
            5,
            group_id="g",
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=topics,
        )
        groups = client.call(DESCRIBE_GROUPS, 5, groups=("g", "h", "g") * 100).groups
        assert [g.group_id for g in groups] == ["g", "h"]
        asked = [
            {"group_id": "g", "topics": None},
            {"group_id": "g", "topics": [topic_of(0, 0)]},
        ] * 100
        fetched = client.call(OFFSET_FETCH, 8, groups=asked).groups
        assert [[len(t.partitions) for t in g.topics] for g in fetched] == [[1]]
        old = client.call(OFFSET_FETCH, 5, group_id="g", topics=[topic_of(0, 0, 1)] * 3).topics
        assert [[p.partition_index for p in t.partitions] for t in old] == [[0, 1]]
        resource = {"resource_type": 2, "resource_name": "t"}
        assert len(client.call(DESCRIBE_CONFIGS, 4, resources=[resource] * 200).results) == 1


def topic_of(*partitions: int) -> dict[str, Any]:
    """Return a topic for OffsetFetch."""
    return {"name": "t", "partition_indexes": partitions}


def names(count: int, size: int) -> list[dict[str, str]]:
    """Return ``count`` unknown topic names."""
    return [{"name": f"{number:0{size}d}"} for number in range(count)]


LONG: dict[str, Callable[[RawClient], object]] = {
    "all metadata": lambda c: c.send(METADATA, 12, topics=None),
    "unknown topics": lambda c: c.send(
        METADATA, 12, topics=names(80_000, 6), allow_auto_topic_creation=False
    ),
    "listed partitions": lambda c: c.send(
        LIST_OFFSETS, 5, topics=[{"name": "wide0", "partitions": parts(*range(60_000))}]
    ),
    "wide fetch": lambda c: c.send(
        FETCH,
        11,
        max_bytes=10**6,
        topics=[
            {
                "topic": "wide1",
                "partitions": [
                    {"partition": n, "fetch_offset": 0, "partition_max_bytes": 10}
                    for n in range(30_000)
                ],
            }
        ],
    ),
    "wide commit": lambda c: c.send(
        OFFSET_COMMIT,
        5,
        group_id="wide",
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[
            {
                "name": f"wide{t}",
                "partitions": [{"partition_index": n, "committed_offset": 1} for n in range(WIDE)],
            }
            for t in range(4)
        ],
    ),
    "described configs": lambda c: c.send(
        DESCRIBE_CONFIGS,
        4,
        resources=[
            {"resource_type": 2, "resource_name": f"wide{n % 10}x{n}"} for n in range(40_000)
        ],
    ),
    "groups": lambda c: c.send(DESCRIBE_GROUPS, 5, groups=tuple(f"g{n}" for n in range(80_000))),
}


@pytest.mark.slow
@pytest.mark.parametrize("attack", LONG)
def test_a_short_request_is_answered_while_a_long_one_is_worked_on(
    broker: EmbeddedBroker, attack: str
) -> None:
    """Several heartbeats of another client are answered before the long answer arrives."""
    with RawClient(broker.bootstrap, 200) as slow, RawClient(broker.bootstrap) as member:
        beat = {"group_id": "g", "generation_id": 1, "member_id": "m"}
        member.call(HEARTBEAT, 4, **beat)
        LONG[attack](slow)
        time.sleep(0.01)
        between = 0
        while not select.select([slow.socket], [], [], 0)[0]:
            assert member.call(HEARTBEAT, 4, **beat).error_code == 25
            between += 1
        assert between >= 3, "the heartbeats waited until the long request was done"


@pytest.mark.slow
def test_many_unknown_tagged_fields_cost_one_pass(broker: EmbeddedBroker) -> None:
    """40,000 topics, each with an unknown field: all are cut out in one pass."""
    frame = bytearray(request_frame(METADATA, 12, 1, {"topics": names(40_000, 6)}))
    plain, tagged = b"\0" * 16 + b"\7", b"\1\x7f\1?"
    head, *entries = bytes(frame).split(plain)
    assert len(entries) == 40_000
    data = (plain[:-1] + plain[-1:]).join([head, *entries])
    pieces = [head]
    for entry in entries:
        name, rest = entry[:6], entry[6:]
        pieces.append(plain + name + tagged + rest[1:])
    data = b"".join(pieces)
    with RawClient(broker.bootstrap, 200) as client:
        client.socket.sendall(struct.pack(">i", len(data) - 4) + data[4:])
        answer = client.receive(METADATA, 12)
        assert len(answer.topics) == 40_000


def test_half_sent_frames_share_a_budget() -> None:
    """queued.max.request.bytes: the oldest frames are dropped, and a new client is served."""
    settings = {"queued.max.request.bytes": 8 * 2**20, "socket.request.max.bytes": 4 * 2**20}
    with EmbeddedBroker(settings=settings) as broker, ExitStack() as stack:
        senders = [stack.enter_context(RawClient(broker.bootstrap)) for _ in range(8)]
        for sender in senders:
            sender.socket.sendall(struct.pack(">i", 4 * 2**20))
            sender.socket.sendall(b"x" * (3 * 2**20))
        with RawClient(broker.bootstrap) as client:
            assert client.call(METADATA, 12, topics=None).cluster_id
        wait_until(lambda: broker.call(lambda node: node.counters["frames_over_budget"]) == 6)
        gone = [is_gone(sender.socket) for sender in senders]
        assert gone == [True] * 6 + [False] * 2
        assert broker.call(lambda node: node.counters["frames_over_budget"]) == 6


def is_gone(peer: socket.socket) -> bool:
    """Return whether the broker has closed the connection."""
    peer.settimeout(0.5)
    try:
        return peer.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True
