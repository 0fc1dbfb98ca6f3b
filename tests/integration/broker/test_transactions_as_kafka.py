"""Transactions step by step: Apache Kafka and the embedded broker answer the same requests alike."""

from __future__ import annotations

import functools
import operator
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.testing.kafka import KafkaServer
from tests.support.clients.raw_client import RawClient
from tests.support.clients.raw_transactions import (
    NOT_YET,
    PASSING,
    RawProducer,
    committed_offset,
    fetched,
    listed,
    settled,
)

UNSTABLE = 88
LATEST, EARLIEST, NEWEST = -1, -2, -3
Story = Callable[[RawClient, str, str], dict[str, Any]]


def await_end(client: RawClient, topic: str, end: int, partition: int = 0) -> None:
    """Wait until the partition ends at ``end``: Kafka answers before it writes the markers."""
    deadline = time.monotonic() + 60
    while listed(client, topic, LATEST, committed=False, partition=partition) != (0, end):
        assert time.monotonic() < deadline, f"{topic}-{partition} does not end at {end}"
        time.sleep(0.02)


def commit_and_abort(client: RawClient, topic: str, name: str) -> dict[str, Any]:
    """Both kinds of readers see two transactions: before, between and after their ends."""
    one, two = RawProducer(client, f"{name}-1", topic), RawProducer(client, f"{name}-2", topic)
    seen: dict[str, Any] = {"init": [one.init(), two.init(), one.epoch, two.epoch]}

    def look(step: str, end: int) -> None:
        await_end(client, topic, end)
        time.sleep(0.01)  # so that every marker has its own time, too
        seen[f"{step}: fetched"] = [
            fetched(client, topic, offset, committed=committed)
            for offset in (0, 1, 3)
            for committed in (False, True)
        ]
        seen[f"{step}: listed"] = [
            listed(client, topic, when, committed=committed)
            for when in (LATEST, EARLIEST, NEWEST, 0)
            for committed in (False, True)
        ]

    seen["add"] = [one.add(0, 1), two.add(0)]
    look("empty", 0)
    since_ms = int(time.time() * 1000) - 60_000  # every record has its own time
    writes = ((one, 0), (two, 0), (one, 0), (one, 1))
    seen["write"] = [
        made.write(partition, timestamp_ms=since_ms + number)
        for number, (made, partition) in enumerate(writes)
    ]
    look("open", 3)
    seen["first end"] = two.end(commits=False)
    look("second aborted", 4)
    seen["more"] = [two.add(0), two.write(timestamp_ms=since_ms + 10)]
    seen["second end"] = one.end(commits=True)
    look("first committed", 6)
    seen["third end"] = two.end(commits=False)
    look("all over", 7)
    await_end(client, topic, 2, 1)
    seen["other partition"] = fetched(client, topic, committed=True, partition=1)
    return seen


def errors_of_an_open_one(client: RawClient, topic: str, name: str) -> dict[str, Any]:
    """Requests with a wrong id, epoch, partition or order."""
    producer = RawProducer(client, name, topic)
    seen: dict[str, Any] = {}
    stranger = RawProducer(client, f"{name}-stranger", topic)
    stranger.producer_id, stranger.epoch = 77_777, 0
    seen["nobody"] = [
        stranger.add(0),
        stranger.add_group("g"),
        stranger.end(commits=True),
        stranger.end(commits=False),
    ]
    seen["init"] = producer.init()
    seen["end of nothing"] = [producer.end(commits=True), producer.end(commits=False)]
    seen["missing partition"] = [producer.add(0, 99), producer.add(0, topic=f"{name}-none")]
    seen["internal topic"] = producer.add(0, topic="__consumer_offsets")
    for field, value in (("producer_id", 77_777), ("epoch", 7), ("epoch", -1)):
        wrong = producer.twin()
        setattr(wrong, field, value)
        seen[f"wrong {field} {value}"] = [
            *(wrong.add(0, version=version) for version in (0, 1, 2, 3)),
            *(wrong.add_group("g", version=version) for version in (0, 1, 2, 3)),
            *(wrong.end(commits=True, version=version) for version in (0, 1, 2, 3)),
        ]
    seen["not added"] = [producer.write(version=version) for version in (8, 9, 10, 11)]
    seen["added"] = [producer.add(0), producer.add(0), producer.add(0, 1)]
    seen["written"] = [producer.write(), producer.write(transactional=False)]
    seen["without the id"] = producer.write(names_id=False)
    seen["committed"] = [producer.end(commits=True), producer.end(commits=True)]
    seen["then aborted"] = producer.end(commits=False)
    seen["written after"] = producer.write()
    seen["again"] = [producer.add(0), producer.write(), producer.end(commits=False)]
    seen["then"] = [producer.end(commits=False), producer.end(commits=True)]
    return seen


def fencing(client: RawClient, topic: str, name: str) -> dict[str, Any]:
    """A second producer with the id aborts and fences the first; epochs rise."""
    first = RawProducer(client, name, topic)
    seen: dict[str, Any] = {"init": first.init(), "open": [first.add(0), first.write()]}
    second = RawProducer(client, name, topic)
    seen["second"] = second.init()
    seen["same id, higher epoch"] = [
        second.producer_id == first.producer_id,
        second.epoch > first.epoch,
    ]
    await_end(client, topic, 2)
    seen["aborted"] = fetched(client, topic, committed=True)
    for version in (0, 1, 2, 3):
        seen[f"first is fenced {version}"] = [
            first.add(0, version=version),
            first.add_group("g", version=version),
            first.end(commits=True, version=version),
            first.end(commits=False, version=version),
        ]
    seen["first writes"] = first.write()
    seen["first begins as itself"] = [first.init(keeps=True, version=version) for version in (3, 4)]
    seen["second works"] = [second.add(0), second.write(), second.end(commits=True)]
    before = second.epoch
    again = second.twin()
    seen["raises its epoch"] = [second.init(keeps=True), second.epoch - before]
    seen["asks again"] = [again.init(keeps=True), again.epoch == second.epoch]
    seen["works on"] = [second.add(0), second.write(), second.end(commits=True)]
    await_end(client, topic, 6)
    seen["at the end"] = fetched(client, topic, committed=True)
    return seen


def odd_beginnings(client: RawClient, topic: str, name: str) -> dict[str, Any]:
    """InitProducerId with invalid timeouts, ids and epochs."""
    seen: dict[str, Any] = {}
    for timeout_ms in (0, -1, 900_000, 900_001):
        producer = RawProducer(client, f"{name}{timeout_ms}", topic)
        seen[f"timeout {timeout_ms}"] = producer.init(timeout_ms=timeout_ms)
    seen["no name"] = RawProducer(client, "", topic).init()
    half = RawProducer(client, f"{name}-half", topic)
    half.producer_id = 5
    seen["id without epoch"] = half.init(keeps=True)
    claims = RawProducer(client, f"{name}-claims", topic)
    claims.producer_id, claims.epoch = 55_555, 3
    seen["claims of a new one"] = [claims.init(keeps=True), claims.epoch]
    claims.producer_id = 55_555
    seen["claims of a known one"] = claims.init(keeps=True)
    return seen


def offsets(client: RawClient, topic: str, name: str) -> dict[str, Any]:
    """Offsets are pending until the transaction ends; a commit outside the transaction stays."""
    group = f"{name}-group"
    producer = RawProducer(client, name, topic)
    seen: dict[str, Any] = {"init": producer.init()}

    def look(step: str) -> None:
        seen[step] = [
            committed_offset(client, group, topic, stable=stable, partition=partition)
            for partition in (0, 1)
            for stable in (False, True)
        ]

    def await_written() -> None:
        """Wait until no offset is pending: Kafka answers before it writes the markers."""
        for partition in (0, 1):
            settled(
                lambda partition=partition: committed_offset(
                    client, group, topic, stable=True, partition=partition
                ),
                operator.itemgetter(0),
                (*PASSING, UNSTABLE),
            )

    look("nothing")
    seen["not added"] = [producer.commit_offset(group, 5, version=v) for v in (0, 2, 3, 4)]
    seen["added"] = [producer.add_group(group), producer.add_group(group)]
    seen["committed"] = [
        producer.commit_offset(group, 5),
        producer.commit_offset(group, 6),
        producer.commit_offset(group, 8, partition=1),
    ]
    seen["missing"] = producer.commit_offset(group, 5, partition=99)
    seen["generation"] = producer.commit_offset(group, 5, generation_id=3, member_id="m")
    look("pending")
    seen["aborted"] = producer.end(commits=False)
    await_written()
    look("after the abort")
    seen["second"] = [producer.add_group(group), producer.commit_offset(group, 10)]
    seen["second, other"] = producer.commit_offset(group, 11, partition=1)
    part = {"partition_index": 1, "committed_offset": 99}
    plain = client.call(
        8,
        7,
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[{"name": topic, "partitions": [part]}],
    )
    seen["plain"] = int(plain.topics[0].partitions[0].error_code)
    look("pending again")
    seen["committed again"] = producer.end(commits=True)
    await_written()
    look("after the commit")
    for field, value in (("producer_id", 77_777), ("epoch", 7)):
        wrong = producer.twin()
        setattr(wrong, field, value)
        seen[f"wrong {field}"] = [wrong.commit_offset(group, 1, version=v) for v in (0, 3, 4)]
    return seen


def sequences(client: RawClient, topic: str, name: str) -> dict[str, Any]:
    """Sequences continue from transaction to transaction, and restart with a new epoch."""
    producer = RawProducer(client, name, topic)
    seen: dict[str, Any] = {"init": producer.init()}
    seen["first"] = [
        producer.add(0),
        producer.write(),
        producer.write(),
        producer.end(commits=True),
    ]
    seen["second"] = [producer.add(0), producer.write()]
    producer.sequences[0] = 2
    seen["repeated"] = producer.write()
    producer.sequences[0] = 7
    seen["gap"] = producer.write()
    seen["end"] = producer.end(commits=False)
    producer.sequences[0] = 3
    seen["third"] = [producer.add(0), producer.write(), producer.end(commits=True)]
    seen["new epoch"] = [producer.init(), producer.add(0)]
    producer.sequences[0] = 5
    seen["does not begin at 0"] = producer.write()
    producer.sequences[0] = 0
    seen["begins at 0"] = [producer.write(), producer.end(commits=True)]
    await_end(client, topic, 9)
    seen["at the end"] = fetched(client, topic, committed=True)
    return seen


def views(client: RawClient, topic: str, name: str) -> dict[str, Any]:
    """DescribeTransactions, ListTransactions and DescribeProducers in every state of a transaction."""
    made = RawProducer(client, name, topic)
    seen: dict[str, Any] = {"init": made.init()}

    def described(*names: str) -> list[Any]:
        answer = client.call(65, 0, transactional_ids=names)
        return [
            (
                int(one.error_code),
                one.transaction_state,
                one.transaction_timeout,
                one.transaction_start_time.timestamp() > 1_000,
                one.producer_id - (0 if one.error_code else made.producer_id),
                one.producer_epoch,
                [tuple(sorted(part.partitions)) for part in one.topics],
            )
            for one in answer.transaction_states
        ]

    def listed_as(version: int, **filters: Any) -> Any:
        given = {"state_filters": (), "producer_id_filters": (made.producer_id,), **filters}
        answer = client.call(66, version, **given)
        states = [
            (one.transactional_id == name, one.transaction_state)
            for one in answer.transaction_states
        ]
        return int(answer.error_code), answer.unknown_state_filters, states

    def producers() -> list[Any]:
        asked = [{"name": topic, "partition_indexes": (0, 1, 9)}]
        answer = client.call(61, 0, topics=asked)
        return [
            (
                part.partition_index,
                int(part.error_code),
                [
                    (
                        one.producer_id == made.producer_id,
                        one.producer_epoch,
                        one.last_sequence,
                        one.coordinator_epoch,
                        one.current_txn_start_offset,
                    )
                    for one in part.active_producers
                ],
            )
            for part in answer.topics[0].partitions
        ]

    def look(step: str) -> None:
        seen[step] = [described(name), listed_as(0), producers()]

    # Without a transaction the start is -1, which kio cannot read: look for its eight bytes.
    client.send(65, 0, transactional_ids=(name,))
    frame = client.receive_frame()
    seen["empty"] = [frame.count(b"\xff" * 8), b"Empty" in frame, listed_as(0), producers()]
    seen["open"] = [made.add(0, 1), made.write(), made.write()]
    look("open")
    seen["unknown"] = described(f"{name}-none", "", name)
    pattern = {"transactional_id_pattern": f"{name[:-2]}.*"}
    seen["listed"] = [
        listed_as(0, state_filters=("Ongoing",)),
        listed_as(0, state_filters=("Empty", "Dead", "Strange")),
        listed_as(0, producer_id_filters=(77_777,)),
        listed_as(1, duration_filter=-1),
        listed_as(1, duration_filter=600_000),
        listed_as(2, **pattern),
        listed_as(2, transactional_id_pattern="nothing"),
        listed_as(2, transactional_id_pattern="("),
    ]
    seen["end"] = made.end(commits=True)
    await_end(client, topic, 3)
    await_end(client, topic, 1, 1)
    while described(name)[0][1] == "PrepareCommit":
        time.sleep(0.02)
    look("committed")
    return seen


def second_version(client: RawClient, topic: str, name: str) -> dict[str, Any]:
    """KIP-890: writes and offsets add themselves, each end raises the epoch, and may be repeated."""
    group, made = f"{name}-group", RawProducer(client, name, topic)
    software = {"client_software_name": "raw", "client_software_version": "1"}
    answer = client.call(18, 4, **software)
    features = {one.name: one.max_version_level for one in answer.finalized_features}
    seen: dict[str, Any] = {"feature": features["transaction.version"], "init": made.init()}
    first = made.epoch

    def after(step: str, *errors: int) -> None:
        seen[step] = [*errors, made.epoch - first]

    after("nothing committed", made.end(commits=True, version=5))
    after("nothing aborted", made.end(commits=False, version=5))
    after("written", made.write(version=12), made.write(version=12))
    after("offsets", made.commit_offset(group, 5, version=5))
    old = made.twin()
    after("committed", made.end(commits=True, version=5))
    await_end(client, topic, 3)
    seen["read"] = fetched(client, topic, committed=True)
    repeated = old.twin()
    seen["repeated"] = [
        repeated.end(commits=True, version=5),
        repeated.epoch == made.epoch,
        old.twin().end(commits=False, version=5),
    ]
    seen["late writes"] = [
        old.twin().write(version=12),
        old.twin().write(version=11),
        old.twin().commit_offset(group, 6, version=5),
        old.twin().add(0),
    ]
    seen["offset"] = settled(
        lambda: committed_offset(client, group, topic, stable=True),
        operator.itemgetter(0),
        (*PASSING, UNSTABLE),
    )
    after("second", made.write(version=12), made.write(1, version=12))
    old = made.twin()
    after("aborted", made.end(commits=False, version=5))
    await_end(client, topic, 5)
    await_end(client, topic, 2, 1)
    seen["read again"] = [
        fetched(client, topic, committed=True, partition=partition) for partition in (0, 1)
    ]
    seen["abort repeated"] = [
        old.twin().end(commits=commits, version=5) for commits in (False, True)
    ]
    after("aborted without a write", made.end(commits=False, version=5))
    after("first version", *made.add(0), made.write(version=11), made.end(commits=True, version=4))
    for field, value in (("producer_id", 77_777), ("epoch", 30_000), ("epoch", 0)):
        wrong = made.twin()
        setattr(wrong, field, value)
        seen[f"wrong {field} {value}"] = [
            wrong.write(version=12),
            wrong.commit_offset(group, 1, version=5),
            wrong.end(commits=True, version=5),
            wrong.end(commits=False, version=5),
        ]
    zombie = made.twin()
    after("fenced", made.init(), zombie.end(commits=False, version=5), zombie.write(version=12))
    after("works on", made.write(version=12), made.end(commits=True, version=5))
    return seen


def told(bootstrap: str, story: Story) -> dict[str, Any]:
    """Run the story on a broker, on its own topic of two partitions."""
    topic, name = f"topic-{uuid.uuid4().hex[:8]}", f"producer-{uuid.uuid4().hex[:8]}"
    with RawClient(bootstrap, 30) as client:
        client.call(19, 5, topics=[{"name": topic, "num_partitions": 2, "replication_factor": 1}])
        for partition in (0, 1):
            settled(
                functools.partial(
                    listed, client, topic, LATEST, committed=False, partition=partition
                ),
                operator.itemgetter(0),
                NOT_YET,
            )
        for kind in (0, 1):  # the first look-up makes Kafka create the coordinator's own topic
            settled(
                functools.partial(client.call, 10, 3, key=name, key_type=kind),
                lambda answer: int(answer.error_code),
            )
        return story(client, topic, name)


STORIES = (
    commit_and_abort,
    errors_of_an_open_one,
    fencing,
    odd_beginnings,
    offsets,
    sequences,
    second_version,
    views,
)


@pytest.mark.kafka
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_kafka_and_the_broker_answer_the_same_in_a_transaction(
    kafka: KafkaServer, story: Story
) -> None:
    """Errors, epochs, offsets, last stable offsets and aborted transactions are compared."""
    theirs = told(kafka.bootstrap, story)
    with EmbeddedBroker() as broker:
        ours = told(broker.bootstrap, story)
    differences = {
        step: (ours[step], theirs[step]) for step in theirs if ours[step] != theirs[step]
    }
    assert differences == {}
