"""Members of a group by librdkafka (confluent-kafka) in either protocol, each in its own thread."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterable
from concurrent.futures import Future
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.waiting import wait_until as until

DEADLINE_S = 60.0
Owned = frozenset[tuple[str, int]]


class Ledger:
    """The owner of each partition by the members' callbacks; every double owner is recorded."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.owner: dict[tuple[str, int], str] = {}
        self.doubles: list[str] = []
        self.moves: list[tuple[str, str, list[int]]] = []

    def gained(self, who: str, partitions: Iterable[TopicPartition]) -> None:
        """Record the gained partitions of a member."""
        with self.lock:
            parts = [(p.topic, p.partition) for p in partitions]
            self.moves.append((who, "+", sorted(number for _, number in parts)))
            for key in parts:
                if key in self.owner:
                    self.doubles.append(f"{key} is given to {who} and still {self.owner[key]}'s")
                self.owner[key] = who

    def lost(self, who: str, partitions: Iterable[TopicPartition]) -> None:
        """Record the lost partitions of a member."""
        with self.lock:
            parts = [(p.topic, p.partition) for p in partitions]
            self.moves.append((who, "-", sorted(number for _, number in parts)))
            for key in parts:
                if self.owner.get(key) == who:
                    del self.owner[key]

    def of(self, who: str) -> Owned:
        """Return the partitions of a member."""
        with self.lock:
            return frozenset(key for key, owner in self.owner.items() if owner == who)


class Member:
    """A consumer in a thread: it polls, records its reads, and commits on request."""

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topics: list[str],
        ledger: Ledger,
        name: str,
        **config: Any,
    ) -> None:
        self.name, self.ledger = name, ledger
        self.seen: list[tuple[str, int, int]] = []
        self.errors: list[str] = []
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": name,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 1_000,
        } | config
        self.consumer = Consumer(
            {key: value for key, value in settings.items() if value is not None}
        )
        self.consumer.subscribe(
            topics,
            on_assign=lambda _, parts: ledger.gained(name, parts),
            on_revoke=(lose := lambda _, parts: ledger.lost(name, parts)),
            on_lost=lose,
        )
        self._over = threading.Event()
        # only the polling thread may use the consumer
        self._asked: SimpleQueue[Future[str]] = SimpleQueue()
        self._thread = threading.Thread(target=self._poll, name=f"member-{name}")
        self._thread.start()

    def _poll(self) -> None:
        while not self._over.is_set():
            while not self._asked.empty():
                self._asked.get().set_result(self._commit())
            message = self.consumer.poll(0.05)
            if message is None:
                continue
            if message.error() is not None:
                self.errors.append(str(message.error()))
            else:
                self.seen.append((message.topic(), message.partition(), message.offset()))

    @property
    def owned(self) -> Owned:
        """The current partitions."""
        return self.ledger.of(self.name)

    def commit(self) -> str:
        """Commit the read offsets; return the error's name, or an empty text."""
        done: Future[str] = Future()
        self._asked.put(done)
        return done.result(DEADLINE_S)

    def _commit(self) -> str:
        try:
            self.consumer.commit(asynchronous=False)
        except KafkaException as failed:
            return str(failed.args[0].name())
        return ""

    def stop(self) -> None:
        """Leave the group; a static member stays registered until its session expires."""
        if not self._over.is_set():
            self._over.set()
            self._thread.join()
            self.consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


class Cluster:
    """A broker for a test: its address, topics, records, and groups as administrators see them."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})

    def create(self, topic: str, partitions: int, records: int = 0) -> None:
        """Create a topic with ``records`` records in each partition."""
        self.admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result()
        until(lambda: topic in self.admin.list_topics().topics, f"topic {topic}")
        if records:
            self.produce(topic, partitions, records)

    def produce(self, topic: str, partitions: int, records: int) -> None:
        """Write records into every partition."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for number in range(records):
            for partition in range(partitions):
                producer.produce(topic, b"%d" % number, partition=partition)
        assert producer.flush(30) == 0

    def close(self) -> None:
        """Delete the client, which ends librdkafka's own threads and sockets."""
        del self.admin
        gc.collect()

    def group(self, group: str) -> Any:
        """Return the answer of DescribeConsumerGroups, for either protocol."""
        return self.admin.describe_consumer_groups([group])[group].result()
