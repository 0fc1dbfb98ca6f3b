"""Compute the cost of a group's change from its processes' journals. Pure functions.

A partition is *kept* if a single process did all its records around the change, and *moved* if another
process did some; a restarted worker is another process. The gap is the longest time between two of the
partition's processed records, without repeats. The measurement starts at the last record before the change
and ends when the group is at rest.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median
from typing import NamedTuple, TypeAlias

#: A worker's name and the number of its process, from 1 on.
Process: TypeAlias = tuple[str, int]
Held: TypeAlias = Mapping[str, frozenset[int]]


class Done(NamedTuple):
    """A record that an agent has processed."""

    at: float
    partition: int
    offset: int
    by: Process


class Given(NamedTuple):
    """An assignment of a process."""

    at: float
    by: Process
    actives: frozenset[int]
    standbys: frozenset[int]


@dataclass(frozen=True)
class Window:
    """A change, in seconds since the epoch, with the copies and owners at its begin."""

    event: str
    since: float
    until: float
    #: Whether the group came to rest in time.
    rested: bool
    held: Held
    owners_before: Held
    owners_after: Held


@dataclass(frozen=True)
class Row:
    """The cost of an event. Gaps are in seconds, one for each partition (of each step and round)."""

    event: str
    moves: int = 0
    cold: int = 0
    replayed: int = 0
    most_replayed: int = 0
    kept: tuple[float, ...] = ()
    moved: tuple[float, ...] = ()
    repeated: int = 0
    lost: int = 0
    #: Steps or rounds without rest in time.
    restless: int = 0

    def __add__(self, other: Row) -> Row:
        """Add two steps or two rounds of an event."""
        return Row(
            self.event,
            self.moves + other.moves,
            self.cold + other.cold,
            self.replayed + other.replayed,
            max(self.most_replayed, other.most_replayed),
            self.kept + other.kept,
            self.moved + other.moved,
            self.repeated + other.repeated,
            self.lost + other.lost,
            self.restless + other.restless,
        )


@dataclass(frozen=True)
class History:
    """All journal entries of a run's processes, by time."""

    done: Sequence[Done]
    given: Sequence[Given]
    #: (time, process, partition, records)
    replays: Sequence[tuple[float, Process, int, int]] = ()
    #: Number of sent records of each partition.
    sent: Sequence[int] = field(default_factory=list)


def rows(history: History, windows: Sequence[Window]) -> list[Row]:
    """Return a row for each event, in order; several windows of an event are its steps."""
    first = list(progress(history.done))
    repeats, losses = repeated(history.done, windows), lost(history, windows)
    found: dict[str, Row] = {}
    for number, window in enumerate(windows):
        row = replace(
            measure(history, first, window), repeated=repeats[number], lost=losses[number]
        )
        found[window.event] = found[window.event] + row if window.event in found else row
    return list(found.values())


def progress(done: Iterable[Done]) -> Iterable[Done]:
    """Yield records with an offset above all earlier offsets of the partition, without repeats."""
    reached: dict[int, int] = {}
    for record in done:
        if record.offset > reached.get(record.partition, -1):
            reached[record.partition] = record.offset
            yield record


def measure(history: History, first: Iterable[Done], window: Window) -> Row:
    """Return the row of a window from its ``first``-time records, without repeats and losses."""
    by_partition: dict[int, list[Done]] = defaultdict(list)
    for record in first:
        by_partition[record.partition].append(record)
    kept, moved, cold, replayed = [], [], 0, []
    for partition in range(len(history.sent)):
        around = surroundings(by_partition[partition], window)
        gap, takeovers = longest_gap(around, window), newcomers(around, window)
        if not takeovers and around:
            kept.append(gap)
            continue
        moved.append(gap)
        cold += any(
            not warm(history, window, partition, process, at) for process, at in takeovers.items()
        )
        replayed += [
            records
            for at, process, number, records in history.replays
            if number == partition and process in takeovers and window.since <= at <= window.until
        ]
    was, now = owners(window.owners_before), owners(window.owners_after)
    return Row(
        window.event,
        sum(was.get(p) != worker for p, worker in now.items()),
        cold,
        sum(replayed),
        max(replayed, default=0),
        tuple(kept),
        tuple(moved),
        restless=int(not window.rested),
    )


def owners(held: Held) -> dict[int, str]:
    """Return partition -> worker."""
    return {partition: worker for worker, owned in held.items() for partition in owned}


def surroundings(records: Sequence[Done], window: Window) -> Sequence[Done]:
    """Return the records in the window and the last record before it."""
    begin = bisect_left(records, window.since, key=lambda record: record.at)
    end = bisect_right(records, window.until, key=lambda record: record.at)
    return records[max(0, begin - 1) : end]


def longest_gap(around: Sequence[Done], window: Window) -> float:
    """Return the longest gap in seconds; the window's end counts as a record.

    Without a record before the window, its begin counts too. A pause that outlasts the window belongs to the
    next change.
    """
    times = [record.at for record in around]
    before = [] if times and times[0] < window.since else [window.since]
    return max(later - sooner for sooner, later in pairwise([*before, *times, window.until]))


def newcomers(around: Sequence[Done], window: Window) -> dict[Process, float]:
    """Return process -> time of its first record, for processes that took the partition over."""
    found: dict[Process, float] = {}
    owner = around[0].by if around and around[0].at < window.since else None
    for record in around:
        if record.by != owner:
            found.setdefault(record.by, record.at)
            owner = record.by
    return found


def warm(history: History, window: Window, partition: int, process: Process, at: float) -> bool:
    """Whether the process had a copy or files at the window's begin, or a standby since then."""
    return partition in window.held.get(process[0], frozenset()) or any(
        given.by == process and given.at <= at and partition in given.standbys
        for given in history.given
    )


def number_of(windows: Sequence[Window], at: float) -> int:
    """Return the last window that began by ``at``; the first window for earlier times."""
    return max(0, bisect_right([window.since for window in windows], at) - 1)


def repeated(done: Iterable[Done], windows: Sequence[Window]) -> Counter[int]:
    """Count repeated records by window."""
    seen: set[tuple[int, int]] = set()
    found: Counter[int] = Counter()
    for record in done:
        if (record.partition, record.offset) in seen:
            found[number_of(windows, record.at)] += 1
        seen.add((record.partition, record.offset))
    return found


def lost(history: History, windows: Sequence[Window]) -> Counter[int]:
    """Count lost records, by the window of the partition's next processed record."""
    done = {(record.partition, record.offset) for record in history.done}
    first = sorted(
        (record.partition, record.offset, record.at) for record in progress(history.done)
    )
    found: Counter[int] = Counter()
    for partition, sent in enumerate(history.sent):
        for offset in (offset for offset in range(sent) if (partition, offset) not in done):
            place = bisect_right(first, (partition, offset, float("inf")))
            later = first[place] if place < len(first) else (-1, 0, 0.0)
            found[number_of(windows, later[2]) if later[0] == partition else len(windows) - 1] += 1
    return found


def middle_and_most(seconds: Sequence[float]) -> str:
    """Format median / maximum."""
    return f"{median(seconds):.2f}/{max(seconds):.2f}" if seconds else "-"
