"""The workers' output topic as seen by a committed reader: missing and repeated outputs."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import Consumer, TopicPartition

from tests.support.clients.end_offsets import end_offset


@dataclass
class Outputs:
    """A reader of all partitions from their start; call :meth:`read` regularly."""

    bootstrap: str
    app_id: str
    partitions: int
    topic: str = "outputs"
    #: How often each number of a customer was seen, by customer.
    seen: dict[str, bytearray] = field(default_factory=lambda: defaultdict(bytearray))
    #: How often each error of the client was seen.
    errors: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.reader = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": f"{self.app_id}-reader",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "reconnect.backoff.max.ms": 1000,
                "log_level": 0,
            }
        )
        self.reader.assign(
            [
                TopicPartition(f"{self.app_id}-{self.topic}", partition, 0)
                for partition in range(self.partitions)
            ]
        )

    def read(self, seconds: float = 0.0) -> int:
        """Read the available outputs, waiting up to ``seconds``; return their number."""
        came = 0
        for message in self.reader.consume(5000, timeout=seconds):
            if message.error() is None:
                came += 1
                self._count(message.key().decode().strip('"'), int(message.value()))
            else:
                self.errors[str(message.error())] += 1
        return came

    def _count(self, customer: str, number: int) -> None:
        times = self.seen[customer]
        times.extend(bytes(max(0, number + 1 - len(times))))
        times[number] = min(255, times[number] + 1)

    def times(self, customer: str, number: int) -> int:
        """Return the number of times an output was seen."""
        times = self.seen[customer]
        return times[number] if number < len(times) else 0

    def missing(self, amounts: Mapping[str, Sequence[int]]) -> int:
        """Return the number of the model's orders without an output."""
        return sum(
            len(sent) - sum(map(bool, self.seen[customer])) for customer, sent in amounts.items()
        )

    def twice(self) -> int:
        """Return the number of repeated outputs."""
        return sum(count - 1 for times in self.seen.values() for count in times if count > 1)

    def wait_for_all(self, amounts: Mapping[str, Sequence[int]], patience_s: float) -> int:
        """Read until all outputs are there or none arrives for a while; return the missing."""
        last = time.monotonic()
        while missing := self.missing(amounts):
            if self.read(0.2):
                last = time.monotonic()
            elif time.monotonic() - last > patience_s:
                break
        return missing

    def log_ends(self, topic: str) -> list[int]:
        """Return the end offsets of another topic's partitions."""
        return [end_offset(self.reader, topic, partition) for partition in range(self.partitions)]

    def close(self) -> None:
        """End the threads and sockets."""
        self.reader.close()
