"""Measure an assignor's effect on a group: moves, cold moves, idle workers, pauses in s. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

Ownership = Mapping[str, frozenset[int]]


@dataclass(frozen=True)
class Settled:
    """The owners and the standbys of all partitions after the group has settled."""

    actives: Ownership
    standbys: Ownership

    def held(self, worker: str) -> frozenset[int]:
        """Return the partitions with state on the worker."""
        return self.actives.get(worker, frozenset()) | self.standbys.get(worker, frozenset())


@dataclass(frozen=True)
class EventScore:
    """The measurements of an event."""

    event: str
    loads: tuple[int, ...]
    moves: int
    minimum_moves: int
    cold: int
    moved_gaps_s: tuple[float, ...]
    kept_gaps_s: tuple[float, ...]

    @property
    def idle(self) -> int:
        """Number of workers without an active partition."""
        return sum(load == 0 for load in self.loads)


def score(
    event: str,
    before: Settled,
    after: Settled,
    copies: Mapping[str, frozenset[int]],
    gaps_s: Mapping[int, float],
) -> EventScore:
    """Compare two settled states; ``copies``: files of returned workers, and warm-up copies.

    A move is cold if its new owner was neither active nor standby of the partition and had no copy.
    """
    was = {p: worker for worker, owned in before.actives.items() for p in owned}
    now = {p: worker for worker, owned in after.actives.items() for p in owned}
    moved = sorted(p for p, worker in now.items() if was.get(p) != worker)
    cold = [p for p in moved if p not in before.held(now[p]) | copies.get(now[p], frozenset())]
    return EventScore(
        event,
        tuple(sorted(len(owned) for owned in after.actives.values())),
        len(moved),
        minimum_moves(before.actives, after.actives),
        len(cold),
        tuple(gaps_s[p] for p in moved if p in gaps_s),
        tuple(gap for p, gap in sorted(gaps_s.items()) if p not in moved),
    )


def minimum_moves(before: Ownership, after: Ownership) -> int:
    """Return the fewest owner changes that bring ``after``'s workers to loads within 1 of each other."""
    partitions = sum(map(len, after.values()))
    share, extras = divmod(partitions, len(after))
    held = sorted((len(before.get(worker, ())) for worker in after), reverse=True)
    return partitions - sum(min(count, share + (i < extras)) for i, count in enumerate(held))


def standstill(
    orders: Iterable[tuple[float, int, int]], since: float, until: float
) -> dict[int, float]:
    """Return the longest time in s without progress in [since, until] for each partition.

    Progress is an offset above all earlier offsets: a repeated record does not end a pause.
    """
    progress: dict[int, list[float]] = {}
    reached: dict[int, int] = {}
    for at, partition, offset in orders:
        if offset > reached.get(partition, -1):
            reached[partition] = offset
            if since - 1.0 <= at <= until:
                progress.setdefault(partition, []).append(at)
    return {
        partition: max((later - sooner for sooner, later in pairwise(times)), default=until - since)
        for partition, times in progress.items()
    }
