"""Transactions by raw requests: one story for any broker, each step with its error codes."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Sequence
from typing import Any

from tests.support.clients.raw_client import RawClient, batch, one_record

TRANSACTIONAL = 0x10
INIT, ADD_PARTITIONS, ADD_OFFSETS, END, COMMIT_OFFSETS = 22, 24, 25, 26, 28
CONCURRENT_TRANSACTIONS = 51
#: Codes of a Kafka that is not ready: a coordinator loads, or markers are not written yet.
PASSING = (5, 6, 14, 15, 16, CONCURRENT_TRANSACTIONS)
NOT_YET = (3, *PASSING)  # for a topic created a moment ago
DEADLINE_S = 30.0


def settled(
    ask: Callable[[], Any], error_of: Callable[[Any], int], passing: Sequence[int] = PASSING
) -> Any:
    """Return the first answer of a broker that is ready."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        answer = ask()
        if error_of(answer) not in passing or time.monotonic() > deadline:
            return answer
        time.sleep(0.02)


def milliseconds(value: int) -> datetime.timedelta:
    """Return milliseconds as kio's time span."""
    return datetime.timedelta(milliseconds=value)


class RawProducer:
    """A transactional producer that sends exactly the requested steps and returns error codes."""

    def __init__(self, client: RawClient, transactional_id: str, topic: str) -> None:
        self.client, self.transactional_id, self.topic = client, transactional_id, topic
        self.producer_id = self.epoch = -1
        self.sequences: dict[int, int] = {}

    def twin(self) -> RawProducer:
        """Return a second producer with the same id and epoch."""
        twin = RawProducer(self.client, self.transactional_id, self.topic)
        twin.producer_id, twin.epoch = self.producer_id, self.epoch
        twin.sequences = dict(self.sequences)
        return twin

    def init(self, *, timeout_ms: int = 60_000, version: int = 4, keeps: bool = False) -> int:
        """InitProducerId; ``keeps`` sends the current id and epoch (KIP-360). Stores the new ones."""
        present = {"producer_id": self.producer_id, "producer_epoch": self.epoch} if keeps else {}
        values = {"transactional_id": self.transactional_id, **present}
        timeout = milliseconds(timeout_ms)
        answer = settled(
            lambda: self.client.call(INIT, version, transaction_timeout=timeout, **values),
            lambda answer: int(answer.error_code),
        )
        if not answer.error_code:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences = {}
        return int(answer.error_code)

    @property
    def _named(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    def add(self, *partitions: int, version: int = 3, topic: str | None = None) -> list[int]:
        """Send AddPartitionsToTxn; return the error of each partition."""
        named = {f"v3_and_below_{name}": value for name, value in self._named.items()}
        topics = [{"name": topic or self.topic, "partitions": partitions}]

        def errors(answer: Any) -> list[int]:
            (found,) = answer.results_by_topic_v3_and_below
            parts = sorted(found.results_by_partition, key=lambda part: part.partition_index)
            return [int(part.partition_error_code) for part in parts]

        answer = settled(
            lambda: self.client.call(ADD_PARTITIONS, version, v3_and_below_topics=topics, **named),
            lambda answer: errors(answer)[0],
        )
        return errors(answer)

    def write(
        self,
        partition: int = 0,
        value: bytes = b"v",
        *,
        version: int = 9,
        transactional: bool = True,
        names_id: bool = True,
        timestamp_ms: int | None = None,
    ) -> int:
        """Write a record in the producer's sequence; an accepted record advances the sequence."""
        sequence = self.sequences.get(partition, 0)
        data = batch(
            one_record(value),
            timestamp=int(time.time() * 1000) if timestamp_ms is None else timestamp_ms,
            attributes=TRANSACTIONAL if transactional else 0,
            producer_id=self.producer_id,
            epoch=self.epoch,
            sequence=sequence,
        )
        part = {"index": partition, "records": data}
        values = {
            "transactional_id": self.transactional_id if names_id else None,
            "acks": -1,
            "timeout": milliseconds(5_000),
            "topic_data": [{"name": self.topic, "partition_data": [part]}],
        }

        def error(answer: Any) -> int:
            return int(answer.responses[0].partition_responses[0].error_code)

        answer = settled(lambda: self.client.call(0, version, **values), error)
        if not error(answer):
            self.sequences[partition] = sequence + 1
        return error(answer)

    def add_group(self, group_id: str, *, version: int = 3) -> int:
        """Send AddOffsetsToTxn."""
        values = {"group_id": group_id, **self._named}
        answer = settled(
            lambda: self.client.call(ADD_OFFSETS, version, **values),
            lambda answer: int(answer.error_code),
        )
        return int(answer.error_code)

    def commit_offset(
        self, group_id: str, offset: int, *, partition: int = 0, version: int = 3, **more: Any
    ) -> int:
        """Send TxnOffsetCommit for one partition."""
        part = {"partition_index": partition, "committed_offset": offset}
        topics = [{"name": self.topic, "partitions": [part]}]
        values = {"group_id": group_id, "topics": topics, **self._named, **more}

        def error(answer: Any) -> int:
            return int(answer.topics[0].partitions[0].error_code)

        return error(settled(lambda: self.client.call(COMMIT_OFFSETS, version, **values), error))

    def end(self, *, commits: bool, version: int = 3) -> int:
        """EndTxn; since version 5 the producer takes over the id and epoch of the answer (KIP-890)."""
        values = {"committed": commits, **self._named}
        answer = settled(
            lambda: self.client.call(END, version, **values), lambda answer: int(answer.error_code)
        )
        if version >= 5 and not answer.error_code:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences = {}
        return int(answer.error_code)


def fetched(
    client: RawClient, topic: str, offset: int = 0, *, committed: bool, partition: int = 0
) -> tuple[int, int, int, list[tuple[int, int]] | None, int]:
    """(error, high watermark, last stable offset, aborted as (first offset, number), bytes of records).

    Producer ids differ between brokers: an aborted transaction is named by the order of first offsets.
    """
    part = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 10**6}
    answer = client.call(
        1,
        11,
        max_wait=milliseconds(0),
        min_bytes=0,
        max_bytes=10**7,
        isolation_level=int(committed),
        topics=[{"topic": topic, "partitions": [part]}],
    )
    found = answer.responses[0].partitions[0]
    aborted = found.aborted_transactions
    named = None if aborted is None else sorted((one.first_offset, 1) for one in aborted)
    return (
        int(found.error_code),
        found.high_watermark,
        found.last_stable_offset,
        named,
        len(bytes(found.records or b"")),
    )


def listed(
    client: RawClient, topic: str, timestamp: int, *, committed: bool, partition: int = 0
) -> tuple[int, int]:
    """(error, offset) of ListOffsets."""
    part = {"partition_index": partition, "timestamp": timestamp, "current_leader_epoch": -1}
    answer = client.call(
        2,
        7,
        replica_id=-1,
        isolation_level=int(committed),
        topics=[{"name": topic, "partitions": [part]}],
    )
    found = answer.topics[0].partitions[0]
    return int(found.error_code), found.offset


def committed_offset(
    client: RawClient, group_id: str, topic: str, *, stable: bool, partition: int = 0
) -> tuple[int, int]:
    """(error, offset) of OffsetFetch."""
    topics = [{"name": topic, "partition_indexes": (partition,)}]
    answer = client.call(9, 7, group_id=group_id, topics=topics, require_stable=stable)
    found = answer.topics[0].partitions[0]
    return int(found.error_code), found.committed_offset
