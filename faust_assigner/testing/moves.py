"""The owners of tasks, and the moves between two states of a group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from faust_assigner.testing.in_process import InProcess
from faust_assigner.testing.processes import Worker

#: A worker that may be stopped and started again, in the test's process or in its own process.
Member: TypeAlias = InProcess | Worker
#: (group, number) of a task -> its owner.
Owners: TypeAlias = Mapping[tuple[int, int], str]
#: task -> (former owner, owner).
Moves: TypeAlias = Mapping[tuple[int, int], tuple[str, str]]


def owners(workers: Iterable[Member]) -> Owners:
    """Return the owner of each task, as the workers report."""
    return {
        (part.group, part.number): worker.name
        for worker in workers
        for part in worker.state.actives
    }


def moves(before: Owners, now: Owners) -> Moves:
    """Return the tasks in both states whose owner differs."""
    return {
        task: (owner, now[task])
        for task, owner in sorted(before.items())
        if task in now and now[task] != owner
    }


def move_phrases(moved: Moves) -> list[str]:
    """Return a phrase for each move."""
    return [f"task {group}-{n} from {a} to {b}" for (group, n), (a, b) in moved.items()]


def join_phrases(phrases: Sequence[str], most: int = 10) -> str:
    """Join the first phrases, with a count of the omitted phrases."""
    more = f" and {len(phrases) - most} more" if len(phrases) > most else ""
    return ", ".join(phrases[:most]) + more
