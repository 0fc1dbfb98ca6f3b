"""The workers' processed records in compact form, and the idle workers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass
class Progress:
    """The progress of each partition: offsets below ``whole`` and in ``ahead`` are processed."""

    partitions: int
    whole: list[int] = field(default_factory=list)
    ahead: list[set[int]] = field(default_factory=list)
    repeats: int = 0
    #: The last time (s since the epoch) of a processed record, by partition and by worker.
    partition_at: list[float] = field(default_factory=list)
    worker_at: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.whole = [0] * self.partitions
        self.ahead = [set() for _ in range(self.partitions)]
        self.partition_at = [0.0] * self.partitions

    def take(self, worker: str, orders: Iterable[tuple[float, int, int]]) -> None:
        """Add the (time, partition, offset) of the records processed by ``worker``."""
        for at, partition, offset in orders:
            ahead = self.ahead[partition]
            if offset < self.whole[partition] or offset in ahead:
                self.repeats += 1
            else:
                ahead.add(offset)
                while self.whole[partition] in ahead:
                    ahead.remove(self.whole[partition])
                    self.whole[partition] += 1
            self.partition_at[partition] = max(at, self.partition_at[partition])
            self.worker_at[worker] = max(at, self.worker_at.get(worker, 0.0))

    @property
    def done(self) -> int:
        """The number of distinct processed records."""
        return sum(self.whole) + sum(map(len, self.ahead))

    def lost(self, sent: Sequence[int]) -> int:
        """Return the number of unprocessed records of ``sent[partition]``."""
        return sum(sent) - self.done

    def flows_since(self, at: float) -> bool:
        """Whether a record of each partition was processed after ``at``."""
        return min(self.partition_at) > at


@dataclass
class Idleness:
    """The time since each worker has no excuse for being idle."""

    limit_s: float
    _excused_at: dict[str, float] = field(default_factory=dict)

    def excuse(self, workers: Iterable[str], at: float) -> None:
        """Excuse the workers hindered at ``at``: away, frozen, without disk or without a broker."""
        for worker in workers:
            self._excused_at[worker] = at

    def idle(self, living: Iterable[str], progress: Progress, now: float) -> dict[str, float]:
        """Return the unexcused workers without progress for longer than ``limit_s`` -> seconds."""
        found = {}
        for worker in living:
            since = max(self._excused_at.get(worker, now), progress.worker_at.get(worker, 0.0))
            if now - since > self.limit_s:
                found[worker] = now - since
        return found
