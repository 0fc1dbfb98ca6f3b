"""A story for a group of real workers: a start, a join, a kill, a return, a leave."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.workers.fleet import Fleet
from tests.support.workers.load import Load, Verdict, judge
from tests.support.workers.measure import Event, State, measure, standstill

#: Our group at rest with uneven loads waits for a warm-up; after these seconds it counts as
#: settled.
UNEVEN_S = 12.0
#: Orders that wait on each partition when the first worker starts.
WAITING = 40
ALL_EVENTS = ("join", "SIGKILL", "restart with files", "SIGTERM")
FIRST_WORKERS = ("worker-1", "worker-2", "worker-3")


@dataclass
class Outcome:
    """The result of a run."""

    events: list[Event]
    verdict: Verdict
    back_with_files: tuple[int, int] | None = None
    seconds: float = 0.0

    @property
    def violations(self) -> list[str]:
        """Promises of ours that this run broke; stock breaks some, too, and is not judged."""
        bad = [f"{self.verdict.lost} orders lost"] * bool(self.verdict.lost) + list(
            self.verdict.wrong_rows
        )
        for event in self.events:
            if event.idle:
                bad.append(f"{event.name}: {event.idle} idle workers")
            if event.moves > event.minimum_moves:
                bad.append(f"{event.name}: {event.moves} moves, {event.minimum_moves} would do")
            if event.cold and event.name != "join":
                bad.append(f"{event.name}: {event.cold} cold takeovers")
        if self.back_with_files is not None and self.back_with_files[0] < self.back_with_files[1]:
            back, could = self.back_with_files
            bad.append(f"restart: {back} of {could} partitions came back to their files")
        return bad


@dataclass
class Script:
    """Play the story with a fleet and a load; ``events`` selects from ``ALL_EVENTS``, in order."""

    fleet: Fleet
    load: Load
    events: tuple[str, ...] = ALL_EVENTS
    tell: Callable[[str], None] = lambda line: None
    outcomes: list[Event] = field(default_factory=list)
    files: dict[str, frozenset[int]] = field(default_factory=dict)
    back_with_files: tuple[int, int] | None = None

    def run(self) -> Outcome:
        """Play the story and judge it; all workers have ended afterwards."""
        began = time.monotonic()
        acts: Mapping[str, Callable[[], None]] = {
            "join": lambda: self.fleet.start("worker-4"),
            "SIGKILL": self._kill,
            "restart with files": lambda: self.fleet.start("worker-2"),
            "SIGTERM": lambda: self.fleet.terminate("worker-3"),
            "bounce": self._bounce,
            "roll": self._roll,
            "nothing": lambda: time.sleep(3.0),
        }
        try:
            self.load.prepare(WAITING)
            for name in FIRST_WORKERS:
                self.fleet.start(name)
            self.load.start()
            self.fleet.settle(workers=len(FIRST_WORKERS))
            for event in self.events:
                self._play(event, acts[event])
            self.load.stop()
            self.fleet.drain(sum(self.load.sent))
            verdict = judge(self.load, self.fleet.orders(), self.fleet.totals())
            return Outcome(self.outcomes, verdict, self.back_with_files, time.monotonic() - began)
        finally:
            self.load.stop()
            self.fleet.stop()

    def _kill(self) -> None:
        self.fleet.kill("worker-2")
        self.files["worker-2"] = self.fleet.workers["worker-2"].on_disk

    def _bounce(self) -> None:
        """Kill a worker and restart it within its session."""
        self.fleet.kill("worker-1")
        time.sleep(1.0)
        self.fleet.start("worker-1")

    def _roll(self) -> None:
        """Stop and restart each worker in turn; continue once the group is at rest."""
        names = [worker.name for worker in self.fleet.living()]
        for name in names:
            generation = self.fleet.generation()
            self.fleet.terminate(name)
            self.fleet.start(name)
            if name != names[-1]:
                self.fleet.settle(workers=len(names), after=generation)

    def _play(self, name: str, act: Callable[[], None]) -> None:
        before, generation, since = self._state(), self.fleet.generation(), time.time()
        act()
        self.fleet.settle(
            workers=len(self.fleet.living()),
            after=-1 if name == "nothing" else generation,
            uneven_s=UNEVEN_S if self.fleet.assignor == "ours" else 0.0,
        )
        until, after = time.time(), self._state()
        replay = {
            p: records for worker in self.fleet.living() for p, records in worker.replay.items()
        }
        gaps = standstill(self.fleet.orders(), self.fleet.partitions, since, until)
        files = self.files if name == "restart with files" else {}
        self.outcomes.append(
            measure(name, before, after, files, replay, gaps, self.fleet.rounds(generation))
        )
        if files:
            # A worker gets at most its share back, and at most the partitions on its disk.
            back = after.actives["worker-2"]
            self.back_with_files = (
                len(back & files["worker-2"]),
                min(len(back), len(files["worker-2"])),
            )
        self.tell(f"{name}: {self.outcomes[-1]}")

    def _state(self) -> State:
        living = self.fleet.living()
        return State({w.name: w.actives for w in living}, {w.name: w.held for w in living})


def play(
    bootstrap: str,
    assignor: str,
    folder: Path,
    *,
    app_id: str,
    partitions: int = 12,
    preload: int = 0,
    events: tuple[str, ...] = ALL_EVENTS,
    seed: int = 1,
    settings: Mapping[str, Any] | None = None,
    orders_per_s: float = 5.0,
    tell: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """Play the story from nothing: first topics, customers, changelog rows and waiting orders."""
    fleet = Fleet(app_id, bootstrap, partitions, folder, assignor, settings=settings or {})
    load = Load(bootstrap, app_id, partitions, preload, orders_per_s, seed)
    return Script(fleet, load, events, tell).run()
