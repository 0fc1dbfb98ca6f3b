"""Who owns which task, whether the group is at rest, and what moved between two states of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.testing import log
from faust_assigner.testing.reporting import State


class Member(Protocol):
    """One worker over all of its lives, in this process or as one of its own."""

    name: str
    folder: Path
    state: State

    @property
    def is_frozen(self) -> bool:
        """Whether it stands still."""

    @property
    def alive(self) -> bool:
        """Whether it runs, or is frozen."""

    def why_not(self) -> str:
        """What is known of it where something is awaited in vain."""

    def stop(self) -> None:
        """SIGTERM."""

    def kill(self) -> None:
        """SIGKILL."""

    def freeze(self) -> None:
        """SIGSTOP."""

    def thaw(self) -> None:
        """SIGCONT."""


#: (group, number) of a task -> the worker that owns it.
Owners: TypeAlias = Mapping[tuple[int, int], str]
#: task -> (former owner, owner).
Moves: TypeAlias = Mapping[tuple[int, int], tuple[str, str]]


def owners(workers: Iterable[Member]) -> Owners:
    """The owner of each task, as the workers say."""
    return {
        (part.group, part.number): worker.name
        for worker in workers
        for part in worker.state.actives
    }


def rest(living: Sequence[Member], broker: EmbeddedBroker) -> tuple[int, Owners] | None:
    """(generation, owners) where each partition has one owner and no worker waits for more; else None."""
    if len({worker.state.generation for worker in living}) != 1:
        return None
    if any(worker.state.ready != worker.state.generation for worker in living):
        return None
    if any(worker.state.awaited for worker in living):
        return None
    owned = [(part.topic, part.number) for worker in living for part in worker.state.actives]
    topics = {topic for topic, _ in owned}
    every = {(topic, n) for topic in topics for n in range(len(log.ends(broker, topic)))}
    if not owned or len(owned) != len(every) or set(owned) != every:
        return None
    return living[0].state.generation, owners(living)


def moves(before: Owners, now: Owners) -> Moves:
    """The tasks of both states that have another owner now."""
    return {
        task: (owner, now[task])
        for task, owner in sorted(before.items())
        if task in now and now[task] != owner
    }


def named(moved: Moves) -> list[str]:
    """A phrase for each move."""
    return [f"task {group}-{n} from {a} to {b}" for (group, n), (a, b) in moved.items()]


def listed(phrases: Sequence[str], most: int = 10) -> str:
    """The first of them, and how many more there are."""
    more = f" and {len(phrases) - most} more" if len(phrases) > most else ""
    return ", ".join(phrases[:most]) + more
