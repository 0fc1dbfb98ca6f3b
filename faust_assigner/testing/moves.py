"""The owners of tasks, and the moves between two states of a group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

from faust_assigner.testing.reporting import State


class Member(Protocol):
    """A worker over all of its lives, in this process or in its own process."""

    name: str
    folder: Path
    state: State

    @property
    def is_frozen(self) -> bool:
        """Whether the worker is frozen."""

    @property
    def alive(self) -> bool:
        """Whether the worker has started and not ended; a frozen worker is alive."""

    def check(self) -> None:
        """Raise the worker's own error, if any. An end ordered by the test is no error."""

    def why_not(self) -> str:
        """Describe the worker's state for the message of a failed wait."""

    def stop(self) -> None:
        """SIGTERM."""

    def kill(self) -> None:
        """SIGKILL."""

    def freeze(self) -> None:
        """SIGSTOP."""

    def thaw(self) -> None:
        """SIGCONT."""


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


def named(moved: Moves) -> list[str]:
    """Return a phrase for each move."""
    return [f"task {group}-{n} from {a} to {b}" for (group, n), (a, b) in moved.items()]


def listed(phrases: Sequence[str], most: int = 10) -> str:
    """Join the first phrases, with a count of the rest."""
    more = f" and {len(phrases) - most} more" if len(phrases) > most else ""
    return ", ".join(phrases[:most]) + more
