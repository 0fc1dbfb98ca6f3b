"""The model of a broker: logs, transactions and committed offsets as plain values."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Final

Place = tuple[uuid.UUID, int]
Key = tuple[str, int]  # topic and partition
Record = tuple[int, bytes | None, bytes | None]  # offset, key, value
SESSION: Final = "consumer.session.timeout.ms"
INTERVAL: Final = "consumer.heartbeat.interval.ms"
#: The default of each config of a group, and other values.
CONFIGS: Final = {
    SESSION: (45_000, 50_000, 60_000),
    INTERVAL: (5_000, 7_000, 8_000),
    "consumer.assignment.interval.ms": (1_000, 0, 2_000),
}
PLAIN, OPEN, COMMITTED, ABORTED, MARKER = "plain", "open", "committed", "aborted", "marker"
TOMBSTONE: Final = None


@dataclass
class Written:
    """An acknowledged batch, or the marker of a transaction."""

    base: int
    records: list[tuple[bytes | None, bytes | None]]
    time: int  # the time that decides on retention
    state: str = PLAIN
    name: str = ""  # of the transaction

    @property
    def beyond(self) -> int:
        """The offset after the batch."""
        return self.base + max(len(self.records), 1)


@dataclass
class Log:
    """A partition: its batches, also the deleted ones."""

    is_compacted: bool
    start: int = 0
    end: int = 0
    batches: list[Written] = field(default_factory=list)

    def add(self, written: Written) -> None:
        """Append a batch or a marker."""
        self.batches.append(written)
        self.end = written.beyond

    @property
    def stable(self) -> int:
        """The last stable offset."""
        firsts = [one.base for one in self.batches if one.state == OPEN]
        return max(min(firsts, default=self.end), self.start)

    def records(self, *, committed: bool) -> list[Record]:
        """Return the records that a reader gets, if nothing was compacted."""
        states = (PLAIN, COMMITTED) if committed else (PLAIN, OPEN, COMMITTED, ABORTED)
        beyond = self.stable if committed else self.end
        return [
            (offset, *record)
            for one in self.batches
            if one.state in states
            for offset, record in enumerate(one.records, one.base)
            if self.start <= offset < beyond
        ]

    def newest(self, *, committed: bool) -> set[Record]:
        """Return the records that no compaction may remove: the last record of each key."""
        last: dict[bytes | None, Record] = {}
        kept = set()
        for one in self.batches:
            for offset, (key, value) in enumerate(one.records, one.base):
                if offset < self.start or (committed and offset >= self.stable):
                    continue
                if one.state in (PLAIN, COMMITTED):
                    last[key] = (offset, key, value)
                elif one.state == OPEN:
                    kept.add((offset, key, value))
        kept |= {record for record in last.values() if record[2] is not TOMBSTONE}
        return kept

    def end_transaction(self, name: str, *, commits: bool, time: int) -> None:
        """Decide the open batches of a transaction and append its marker."""
        for one in self.batches:
            if one.state == OPEN and one.name == name:
                one.state = COMMITTED if commits else ABORTED
        self.add(Written(self.end, [], time, MARKER, name))

    def retain(self, oldest: int) -> None:
        """Delete the first batches that are older than ``oldest``."""
        for one in self.batches:
            if one.beyond <= self.start:
                continue
            if one.time >= oldest:
                return
            self.start = one.beyond


@dataclass
class Topic:
    """A topic with its logs."""

    name: str
    topic_id: uuid.UUID
    configs: dict[str, str]
    logs: list[Log]


@dataclass
class Offset:
    """A committed or pending offset; ``is_outdated``: a later plain commit replaces the pending one."""

    offset: int
    at: int
    is_outdated: bool = False


@dataclass
class Producer:
    """A producer: its id, its epoch, and the next sequence of each partition."""

    name: str  # empty for an idempotent producer
    second_version: bool = False
    producer_id: int = -1
    epoch: int = -1
    timeout: int = 0
    is_ready: bool = False  # whether it may write, or must begin anew
    sequences: dict[Place, int] = field(default_factory=dict)
    latest: dict[Place, tuple[bytes, int]] = field(default_factory=dict)  # batch, base offset
    started: int | None = None  # None without an open transaction
    places: set[Place] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)


class Model:
    """The acknowledged state of a broker."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.offsets: dict[str, dict[Key, Offset]] = {}
        self.pending: dict[str, dict[str, dict[Key, Offset]]] = {}  # group, transactional id
        self.configs: dict[str, dict[str, int]] = {}  # the own configs of each group

    def config(self, group: str, name: str) -> int:
        """Return the value of a config that applies to a group now."""
        return self.configs.get(group, {}).get(name, CONFIGS[name][0])

    def log(self, place: Place) -> Log | None:
        """Return the log of a partition, unless its topic was deleted."""
        for topic in self.topics.values():
            if topic.topic_id == place[0]:
                return topic.logs[place[1]]
        return None

    def delete_topic(self, name: str) -> None:
        """Forget a topic and its offsets."""
        del self.topics[name]
        tables = [*self.offsets.values()]
        tables += [table for by_name in self.pending.values() for table in by_name.values()]
        for table in tables:
            for key in [key for key in table if key[0] == name]:
                del table[key]

    def commit(self, group: str, key: Key, offset: Offset) -> None:
        """Commit an offset outside transactions."""
        self.offsets.setdefault(group, {})[key] = offset
        for table in self.pending.get(group, {}).values():
            if key in table:
                table[key].is_outdated = True

    def end(self, producer: Producer, *, commits: bool, time: int) -> None:
        """End the open transaction of a producer."""
        for place in producer.places:
            log = self.log(place)
            if log is not None:
                log.end_transaction(producer.name, commits=commits, time=time)
        for group in list(self.pending):
            table = self.pending[group].pop(producer.name, {})
            if commits:
                fresh = {key: one for key, one in table.items() if not one.is_outdated}
                self.offsets.setdefault(group, {}).update(fresh)
        producer.started = None
        producer.places, producer.groups = set(), set()

    def is_pending(self, group: str, key: Key) -> bool:
        """Whether an open transaction may change an offset."""
        return any(key in table for table in self.pending.get(group, {}).values())

    def waiting(self) -> list[tuple[str, Key]]:
        """Return the groups and partitions with a pending offset."""
        return [
            (group, key)
            for group, by_name in self.pending.items()
            for table in by_name.values()
            for key in table
        ]

    def forget(self, group: str, keys: list[Key] | None = None) -> None:
        """Forget offsets of a group, and pending ones; None: all."""
        tables = [self.offsets.get(group, {}), *self.pending.get(group, {}).values()]
        for table in tables:
            for key in list(table) if keys is None else keys:
                table.pop(key, None)
