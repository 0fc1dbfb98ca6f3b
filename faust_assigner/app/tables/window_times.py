"""The time of each partition of a windowed table. Pure: no I/O.

A partition's time is the latest timestamp of its committed records. Uncommitted records do not
count, so that a record processed again after a crash is never late for a closed window. If no
record is left, the time continues from the newest record at the speed of the machine's clock. If no
record has arrived since the assignment, the worker first waits for as long as windows are kept.
After this wait the partition's time is the machine's time.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from faust.types.tuples import TP


class Reached(NamedTuple):
    """A record at ``offset`` of its source advanced the time of ``partition`` to ``timestamp``."""

    offset: int
    partition: int
    timestamp: float


class Times:
    """The times of one table; sources are the topic partitions whose records change the table."""

    def __init__(self) -> None:
        self._waiting: dict[TP, deque[Reached]] = defaultdict(deque)
        self._times: dict[int, float] = {}
        #: Source -> the last offset that changed the table; source -> the committed offset.
        self._last: dict[TP, int] = {}
        self._committed: dict[TP, int] = {}
        #: Partition -> the latest timestamp, committed or not, and when it was reached.
        self._newest: dict[int, tuple[float, float]] = {}
        #: Partition -> the monotonic time since which this worker waits for its first record.
        self._since: dict[int, float] = {}
        #: Topics whose records have changed the table.
        self.topics: set[str] = set()

    def reach(self, source: TP, offset: int, partition: int, timestamp: float, now: float) -> None:
        """Note a record of ``source`` that changes ``partition``; ``now`` is a monotonic time."""
        self.topics.add(source.topic)
        self._last[source] = max(offset, self._last.get(source, -1))
        if timestamp >= self._newest.get(partition, (timestamp, now))[0]:
            self._newest[partition] = timestamp, now
        waiting = self._waiting[source]
        if not waiting or timestamp > waiting[-1].timestamp:
            waiting.append(Reached(offset, partition, timestamp))

    def commit(self, offsets: Mapping[TP, int]) -> None:
        """Note that the records before ``offsets`` are committed."""
        for source in offsets.keys() & self._last.keys():
            self._committed[source] = offsets[source]
            waiting = self._waiting[source]
            while waiting and waiting[0].offset < offsets[source]:
                _, partition, timestamp = waiting.popleft()
                self._times[partition] = max(timestamp, self._times.get(partition, timestamp))

    def time(self, partition: int) -> float | None:
        """Return the latest timestamp of committed records; None before the first."""
        return self._times.get(partition)

    def at_the_end(
        self, partition: int, now: float, clock: float, patience_s: float
    ) -> float | None:
        """Return the time of a fully processed and committed partition; None while unknown.

        ``clock`` is the machine's time; ``patience_s`` is the wait for a partition's first record.
        """
        if partition in self._newest:
            timestamp, at = self._newest[partition]
            return min(clock, timestamp + now - at)
        return clock if now - self._since.setdefault(partition, now) >= patience_s else None

    def is_committed(self, source: TP) -> bool:
        """Return whether every record of ``source`` that changed the table is committed."""
        return self._last.get(source, -1) < self._committed.get(source, 0)

    def forget(self, partition: int) -> None:
        """Forget the partition, which is revoked or begins again at its committed offset."""
        for book in (self._times, self._newest, self._since):
            book.pop(partition, None)
        for source in [source for source in self._last if source.partition == partition]:
            del self._last[source]
            self._waiting.pop(source, None)
            self._committed.pop(source, None)
