"""The acts on a broker's groups. A run is a list of acts, and any sub-list is a run too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Any

from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import CommitOffsets, Event, Protocol

Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Ask:
    """A request to the group; ``token`` in the event is the simulator's own ticket."""

    event: Event


@dataclass(frozen=True, slots=True)
class Commit:
    """An OffsetCommit through the broker's handler, to the group or to a group of tools."""

    event: CommitOffsets
    offsets: Mapping[Place, int]
    note: str = ""
    retention_ms: int = -1
    version: int = 8
    group: str = "g"


@dataclass(frozen=True, slots=True)
class Wait:
    """Let time pass; each timer fires when due."""

    ms: int


@dataclass(frozen=True, slots=True)
class Stall:
    """Let time pass without timers: the next requests arrive before the due timers fire."""

    ms: int


@dataclass(frozen=True, slots=True)
class Restart:
    """Restart the broker from its disk, perhaps with another ``group.max.size``."""

    max_size: int


@dataclass(frozen=True, slots=True)
class DiskFails:
    """The next write of a stable group or of offsets fails."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """Expire offsets."""

    retention_ms: int


@dataclass(frozen=True, slots=True)
class DeleteOffsets:
    """Delete offsets of a topic as an administrator."""

    topic: str
    partitions: tuple[int, ...] = (0, 1)


@dataclass(frozen=True, slots=True)
class DropTopic:
    """Delete a topic."""

    topic: str


Act = Ask | Commit | Wait | Stall | Restart | DiskFails | Sweep | DeleteOffsets | DropTopic


@dataclass
class Setting:
    """The broker's configuration in a run."""

    delay_ms: int = 0
    max_size: int = 100
    max_pending: int = 100
    topics: Mapping[bytes, tuple[str, ...] | None] = field(default_factory=dict)


def told(act: Any) -> str:
    """Return a line of the transcript: the fields with values other than the defaults."""
    if isinstance(act, Ask):
        return told(act.event)
    shown = []
    for f in fields(act):
        value = getattr(act, f.name)
        usual = f.default_factory() if f.default_factory is not MISSING else f.default
        if value != usual and f.name not in ("client_id", "client_host"):
            shown.append(f"{f.name}={_shown(value)}")
    return f"{type(act).__name__}({', '.join(shown)})"


def _shown(value: Any) -> str:
    if isinstance(value, Protocol):
        return f"{value.name}:{value.metadata[-8:]!r}"
    if isinstance(value, tuple):
        return f"({' '.join(_shown(v) for v in value)})"
    if isinstance(value, Code):
        return value.name
    return told(value) if is_dataclass(value) else repr(value)
