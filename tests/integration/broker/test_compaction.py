"""Compaction under real clients: a log of many updates shrinks while clients write and read it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer

from faust_assigner.broker import EmbeddedBroker

UPDATES, KEYS, DEADLINE_S = 20_000, 50, 90.0
SETTINGS = {"log.cleaner.backoff.ms": 50, "group.min.session.timeout.ms": 1_000}


class Follower:
    """The only member of a group; reads from the beginning and checks the order of each key."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self.latest: dict[bytes, int] = {}
        self.count = self.joins = 0
        self.reader = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 1_000,
                "heartbeat.interval.ms": 200,
            }
        )
        self.reader.subscribe(["t"], on_assign=self.assigned)

    def assigned(self, *_: Any) -> None:
        """Count a rebalance; only the first is expected."""
        self.joins += 1

    def poll(self, timeout_s: float) -> int:
        """Read some; return how many records came."""
        messages = self.reader.consume(2_000, timeout_s)
        for message in messages:
            assert message.error() is None, message.error()
            number = json.loads(message.value())
            assert number > self.latest.get(message.key(), -1), "an older value came later"
            self.latest[message.key()] = number
        self.count += len(messages)
        return len(messages)

    def read_to(self, wanted: dict[bytes, int]) -> None:
        """Read until the latest value of every key is there."""
        deadline = time.monotonic() + DEADLINE_S
        while self.latest != wanted:
            assert time.monotonic() < deadline, (
                f"{len(self.latest)} keys after {self.count} records"
            )
            self.poll(0.2)


def wait_for_end_of_cleaning(broker: EmbeddedBroker) -> int:
    """Wait until only the last batches are not compacted; return the number of indexed records."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        size, dirty = broker.call(
            lambda node: (
                (log := node.catalogue.partition("t", 0)).size,
                log.end_offset - log.cleaned_to,
            )
        )
        if dirty < UPDATES // 10:
            return size
        assert time.monotonic() < deadline, f"{dirty} offsets are still dirty"
        time.sleep(0.05)


def test_many_updates_of_few_keys_shrink_while_they_are_written_and_read(tmp_path: Path) -> None:
    """A member that reads meanwhile keeps its session and gets all latest values."""
    with EmbeddedBroker(tmp_path / "data", settings=SETTINGS) as broker:
        broker.call(lambda node: node.catalogue.create("t", 1, {"cleanup.policy": "compact"}))
        along = Follower(broker.bootstrap, "along")
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
        latest: dict[bytes, int] = {}
        for number in range(UPDATES):
            key = b"key-%d" % (number * 7 % KEYS)
            producer.produce("t", key=key, value=json.dumps(number))
            latest[key] = number
            if number % 1_000 == 0:
                producer.flush(30)
                along.poll(0)
        assert producer.flush(60) == 0
        along.read_to(latest)
        wait_for_end_of_cleaning(broker)
        assert along.joins == 1
        assert broker.call(lambda node: node.counters["log_compactions"]) > 1
        late = Follower(broker.bootstrap, "late")
        late.read_to(latest)
        assert late.count < UPDATES // 5
        for follower in (along, late):
            follower.reader.close()
        broker.restart()
        again = Follower(broker.bootstrap, "again")
        again.read_to(latest)
        again.reader.close()
