"""The writes accepted and refused by a sink, and breaches of strict mode's promises. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

#: A writer with a check of ``may_work()`` within this time cannot be a late writer.
FRESH_S = 1.0


@dataclass(frozen=True)
class Written:
    """A write, with times in seconds of the machine's monotonic clock.

    ``number`` counts the processes of the consumer's name from 1. ``checked`` is the time of the
    ``may_work()`` check, ``received`` the time of the sink's read.
    """

    name: str
    number: int
    partition: int
    epoch: int
    checked: float
    received: float

    def __str__(self) -> str:
        return (
            f"process {self.number} of {self.name} wrote to partition {self.partition} under epoch "
            f"{self.epoch}, {self.received - self.checked:.2f} s after may_work()"
        )


@dataclass
class Book:
    """The writes to all partitions.

    The sink accepts a write unless its epoch is below the partition's highest epoch. ``faults`` are
    breaches that a sink cannot detect or refuse. Two processes write in the same epoch, a process
    writes after its successor, or a process is sure of its partition after the next owner's write.
    """

    partitions: Iterable[int]
    last: dict[int, float] = field(default_factory=dict)
    taken: int = 0
    late: int = 0
    faults: list[str] = field(default_factory=list)
    owners: Counter[int] = field(default_factory=Counter)
    _highest: dict[int, Written] = field(default_factory=dict)
    _youngest: dict[tuple[int, str], int] = field(default_factory=dict)

    def write(self, said: Written) -> bool:
        """Accept or refuse a write; return whether it is accepted."""
        at, before = said.partition, self._highest.get(said.partition)
        if before is not None and said.epoch < before.epoch:
            self._refuse(said, before)
            return False
        process = (said.name, said.number)
        if before is None or (before.name, before.number) != process:
            self.owners[at] += 1
            if before is not None and said.epoch == before.epoch:
                self.faults.append(f"two processes in one epoch: {said}; before it {before}")
        youngest = self._youngest.get((at, said.name), 0)
        if said.number < youngest:
            self.faults.append(f"an old process is not fenced: {said}; {youngest} wrote before it")
        self._youngest[at, said.name] = max(youngest, said.number)
        self._highest[at], self.last[at] = said, said.received
        self.taken += 1
        return True

    def _refuse(self, said: Written, before: Written) -> None:
        self.late += 1
        if said.received - said.checked < FRESH_S:
            self.faults.append(f"two owners at a time: {said}; before it {before}")

    def silent(self, since: float, now: float, *, most_s: float = 1.0) -> list[int]:
        """Return the partitions without a write after ``since`` or in the last ``most_s``."""
        return [
            at
            for at in self.partitions
            if not (last := self.last.get(at, 0.0)) > since or now - last > most_s
        ]
