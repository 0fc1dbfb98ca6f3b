"""What can be done to a group. A run is a list of these values, and any sub-list is a run too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from typing import Any

from faust_assigner.coordinator.events import Event
from faust_assigner.coordinator.settings import MigrationPolicy

GROUP = "g"


@dataclass(frozen=True)
class Ask:
    """A request to the group; ``token`` in the event is the simulator's own ticket."""

    event: Event


@dataclass(frozen=True)
class Wait:
    """Time passes, and every timer rings when it is due."""

    ms: int


@dataclass(frozen=True)
class Stall:
    """Time passes and nothing runs: requests that come next are seen before timers that were due."""

    ms: int


@dataclass(frozen=True)
class Restart:
    """The broker dies and comes back with what is on disk."""


@dataclass(frozen=True)
class DiskFails:
    """The next write fails."""


@dataclass(frozen=True)
class Topics:
    """These topics exist now, with so many partitions."""

    partitions: Mapping[str, int]


@dataclass(frozen=True)
class AnswerTarget:
    """The oldest computation that was asked for comes back, or fails."""

    fails: bool = False


Act = Ask | Wait | Stall | Restart | DiskFails | Topics | AnswerTarget


@dataclass(frozen=True)
class Setting:
    """How one run's group is set up."""

    policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    interval_ms: int = 0
    inline_size: int = 1_000
    max_size: int = 100
    session_ms: int = 45_000
    partitions: tuple[tuple[str, int], ...] = (("a", 4), ("b", 2))


def told(value: Any) -> str:
    """One line of a transcript: the fields that are not as usual."""
    if isinstance(value, Ask):
        return told(value.event)
    shown = []
    for f in fields(value):
        content = getattr(value, f.name)
        usual = f.default_factory() if f.default_factory is not MISSING else f.default
        if content != usual and f.name not in ("client_id", "client_host"):
            shown.append(f"{f.name}={_shown(content)}")
    return f"{type(value).__name__}({', '.join(shown)})"


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_shown(k)}: {_shown(v)}" for k, v in value.items()) + "}"
    if isinstance(value, tuple):
        return f"({' '.join(_shown(v) for v in value)})"
    if isinstance(value, bytes):
        return (
            repr(value.rstrip(b".").decode(errors="replace"))
            if len(value) == 16
            else f"{len(value)} bytes"
        )
    if isinstance(value, Enum):
        return value.name
    return told(value) if is_dataclass(value) else repr(value)
