"""The target of all commits: refuses lower epochs, finds partitions with two consumers at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faust_assigner.service.commands import Owned
from faust_assigner.service.handoff import TopicPartition
from tests.property.service_sim.book import must

if TYPE_CHECKING:
    from tests.property.service_sim.consumer import SimConsumer


class Sink:
    """Offsets by partition, fenced by the epoch of the last commit."""

    def __init__(self, *, strict: bool) -> None:
        self.strict = strict
        self.epoch: dict[TopicPartition, int] = {}
        self.offset: dict[TopicPartition, int] = {}
        self.accepted = self.refused = 0
        self._writers: dict[tuple[TopicPartition, int], str] = {}

    def begins(self, owned: Owned) -> None:
        """C2 strict: a new owner begins at the offset where the previous owner stopped."""
        if self.strict and owned.offset is not None and owned.epoch > self.epoch.get(owned.at, 0):
            must(
                owned.offset == self.offset.get(owned.at, 0),
                "C2 strict: nothing twice, nothing left out",
                owned,
                self.offset.get(owned.at, 0),
            )

    def commit(self, at: TopicPartition, epoch: int, incarnation: str) -> bool:
        """Commit a record; return False for too low an epoch. C10: an epoch has one writer."""
        first = self._writers.setdefault((at, epoch), incarnation)
        must(
            first == incarnation,
            "C10 one process writes in an epoch",
            at,
            epoch,
            first,
            incarnation,
        )
        if epoch < self.epoch.get(at, 0):
            self.refused += 1
            return False
        self.epoch[at] = epoch
        self.offset[at] = self.offset.get(at, 0) + 1
        self.accepted += 1
        return True

    def check(self, consumers: list[SimConsumer]) -> None:
        """C2 strict: at most one consumer processes a partition at any time."""
        busy: dict[TopicPartition, SimConsumer] = {}
        for consumer in consumers:
            for at in consumer.processing():
                other = busy.setdefault(at, consumer)
                must(other is consumer, "C2 strict: one at a time", at, other.name, consumer.name)
