"""A fleet with workers that only record their calls."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from faust_assigner.testing.clock import Alarm
from faust_assigner.testing.fleet import Fleet
from faust_assigner.testing.in_process import InProcess, Progress
from faust_assigner.testing.processes import Worker
from faust_assigner.testing.reporting import Part, State


class Noted(InProcess):
    """A worker in this process that records its calls."""

    def __init__(self, name: str, calls: list[Any]) -> None:
        self.name, self.calls = name, calls
        self.state = State(generation=4, ready=4)
        self.error = None
        self.alarms: list[Alarm] = []
        self.steps: list[Progress] = []
        self.is_alive, self.is_ice = True, False

    alive = property(lambda self: self.is_alive)  # type: ignore[assignment]
    is_frozen = property(lambda self: self.is_ice)  # type: ignore[assignment]

    def start(self, settings: Any) -> None:
        """Begin a life."""
        self.is_alive = True
        self.calls.append(("start", self.name, dict(settings)))

    def stop(self) -> None:
        """End a life."""
        self.is_alive = False
        self.calls.append(("stop", self.name))

    def kill(self) -> None:
        """End a life."""
        self.is_alive = False
        self.calls.append(("kill", self.name))

    def freeze(self) -> None:
        """Freeze."""
        self.is_ice = True
        self.calls.append(("freeze", self.name))

    def thaw(self) -> None:
        """Thaw."""
        self.is_ice = False
        self.calls.append(("thaw", self.name))

    def turn(self) -> Alarm:
        """Return the script's next alarm; repeat the last alarm."""
        return self.alarms.pop(0) if len(self.alarms) > 1 else self.alarms[0]

    def progress(self) -> Progress:
        """Return the script's next step; repeat the last step."""
        return self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]


class Process(Worker):
    """A stand-in for a worker process."""

    def __init__(self, name: str, **more: Any) -> None:
        self.name, self.failure, self.is_frozen, self.is_ended = name, "", False, False
        self.is_alive, self.read = True, 0
        self.state = State(generation=1, ready=1)
        for key, value in more.items():
            setattr(self, key, value)

    alive = property(lambda self: self.is_alive)  # type: ignore[assignment]

    def read_journal(self) -> None:
        """Count the reads."""
        self.read += 1

    def why_not(self) -> str:
        """Return the end of the worker's log."""
        return "the end of its log"


def nothing() -> Any:
    """Fail: the app must not be loaded."""
    raise AssertionError


def made(folder: Path, *names: str, **options: Any) -> tuple[Fleet, list[Any]]:
    """Return a fleet at rest with these workers, and their calls."""
    fleet, calls = Fleet(nothing, folder, **options), []
    fleet.broker = SimpleNamespace(bootstrap="a:1")  # type: ignore[assignment]
    fleet.clock.hold()
    fleet.clock._held_at = 1_000.0  # the sums of steps do not depend on the machine's uptime
    fleet.workers = {name: Noted(name, calls) for name in names}
    fleet._is_at_rest = True
    return fleet, calls


def own(fleet: Fleet, name: str, *numbers: int, cold: tuple[int, ...] = ()) -> None:
    """Let a worker own these partitions of group 1."""
    worker: Any = fleet.workers[name]
    worker.state.actives = frozenset(Part("t", number, 1) for number in numbers)
    worker.state.cold = frozenset(Part("log", number, 1) for number in cold)
