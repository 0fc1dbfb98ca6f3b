"""The acts on a group. A run is a list of acts, and any sub-list is a run too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
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
    """Let time pass; each timer fires when due."""

    ms: int


@dataclass(frozen=True)
class Stall:
    """Let time pass without timers: the next requests arrive before the due timers fire."""

    ms: int


@dataclass(frozen=True)
class Restart:
    """Restart the broker from its disk."""


@dataclass(frozen=True)
class DiskFails:
    """The next write fails."""


@dataclass(frozen=True)
class Topics:
    """Set the existing topics with their partition counts."""

    partitions: Mapping[str, int]


@dataclass(frozen=True)
class AnswerTarget:
    """Return the oldest pending computation, or let the computation fail."""

    fails: bool = False


@dataclass(frozen=True)
class Configs:
    """Replace the group's own configs; a config that is None is deleted."""

    session_ms: int | None = None
    heartbeat_ms: int | None = None
    interval_ms: int | None = None


Act = Ask | Wait | Stall | Restart | DiskFails | Topics | AnswerTarget | Configs


@dataclass(frozen=True)
class Setting:
    """The broker's settings in a run; ``with_configs`` puts a group's own configs before them."""

    policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    interval_ms: int = 0
    inline_size: int = 1_000
    max_size: int = 100
    session_ms: int = 45_000
    partitions: tuple[tuple[str, int], ...] = (("a", 4), ("b", 2))
    heartbeat_ms: int = 5_000

    def with_configs(self, configs: Configs) -> Setting:
        """Return the settings that apply to the group."""
        own = {f.name: getattr(configs, f.name) for f in fields(configs)}
        return replace(self, **{name: value for name, value in own.items() if value is not None})


def told(value: Any) -> str:
    """Return a line of the transcript: the fields with values other than the defaults."""
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
