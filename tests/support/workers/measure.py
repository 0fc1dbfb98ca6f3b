"""The cost of a group change: moves, cold takeovers, idle workers, seconds of standstill. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from examples.orders.score import Ownership, minimum_moves


@dataclass(frozen=True)
class State:
    """The owner and the holders of the state of each partition while the group is at rest."""

    actives: dict[str, frozenset[int]]
    held: dict[str, frozenset[int]]


@dataclass(frozen=True)
class Event:
    """A change; gaps are in seconds, one for each partition."""

    name: str
    loads: tuple[int, ...]
    moves: int
    minimum_moves: int
    cold: int
    replayed: int
    moved_gaps: tuple[float, ...]
    kept_gaps: tuple[float, ...]

    @property
    def idle(self) -> int:
        """The number of workers without an active partition."""
        return self.loads.count(0)


def measure(
    name: str,
    before: State,
    after: State,
    files: Ownership,
    replay: Mapping[int, int],
    gaps: Mapping[int, float],
    between: Sequence[State] = (),
) -> Event:
    """Compare two states at rest, by way of the rounds ``between`` them, in order.

    ``files``: partitions on the disks of workers that came back. ``replay``: records each
    partition's owner had to replay. A move is cold if its new owner had neither the state nor the
    files. An orphan may go to a standby first and even the loads in a later round: these are two
    moves, and the minimum is two.
    """
    was = {p: worker for worker, owned in before.actives.items() for p in owned}
    taken = {
        p: worker
        for state in reversed((*between, after))
        for worker, owned in state.actives.items()
        for p in owned
        if was.get(p) not in after.actives
    }
    was |= taken
    now = {p: worker for worker, owned in after.actives.items() for p in owned}
    moves = [*taken.items(), *((p, worker) for p, worker in now.items() if was.get(p) != worker)]
    warm = {
        (p, worker)
        for owned in (before.held, files)
        for worker, held in owned.items()
        for p in held
    }
    warm |= {
        (p, worker)
        for state in between
        for worker in state.held
        for p in state.held[worker] - state.actives.get(worker, frozenset())
    }
    begun = {worker: frozenset(p for p in was if was[p] == worker) for worker in after.actives}
    moved = sorted({p for p, _ in moves})
    return Event(
        name,
        tuple(sorted(len(owned) for owned in after.actives.values())),
        len(moves),
        len(taken) + minimum_moves(begun, after.actives),
        len(set(moves) - warm),
        sum(replay.get(p, 0) for p in moved),
        tuple(gaps[p] for p in moved),
        tuple(gap for p, gap in sorted(gaps.items()) if p not in moved),
    )


def standstill(
    orders: Iterable[tuple[float, int, int]], partitions: int, since: float, until: float
) -> dict[int, float]:
    """Return, per partition, the longest time without an order from ``since`` to its last order."""
    times: dict[int, list[float]] = {p: [since] for p in range(partitions)}
    for at, partition, _ in orders:
        if since <= at <= until:
            times[partition].append(at)
    return {
        p: max((b - a for a, b in pairwise(ats)), default=until - since) for p, ats in times.items()
    }
