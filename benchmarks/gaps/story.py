"""Play a run's events on a group of real processes, and wait for rest after each event."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

from benchmarks.gaps.arms import on_disk
from benchmarks.gaps.measured import Done, Given, History, Process, Window
from tests.support.workers.fleet import Fleet, Worker
from tests.support.workers.load import Load, wrong_rows

FIRST = ("worker-1", "worker-2", "worker-3")
NEXT = ("worker-7", "worker-8", "worker-9")
#: In order of play; the control is first.
EVENTS = ("nothing", "join", "SIGKILL", "return", "SIGTERM", "bounce", "roll", "3 to 6", "6 to 3")
#: Events of a separate group with static members.
STATIC_EVENTS = ("static bounce", "static roll")
FIRST_START = "first start"
#: Orders that wait on each partition when the first workers start.
WAITING = 40
CONTROL_S = 10.0
QUIET_S = 2.0
#: A group at rest may stay uneven this long, because a move may wait for a warm-up copy.
UNEVEN_S = 25.0


@dataclass
class Story:
    """The events of a fleet and its load; ``ends_at`` (monotonic, s) limits the whole run."""

    fleet: Fleet
    load: Load
    ends_at: float
    event_s: float = 75.0
    tell: Callable[[str], None] = lambda line: None
    windows: list[Window] = field(default_factory=list)
    #: Events left out for lack of time.
    left_out: tuple[str, ...] = ()

    def play(self, events: tuple[str, ...]) -> None:
        """Start three workers on waiting orders, then play each event; the load runs until the end."""
        acts: dict[str, Callable[[], None]] = {
            "nothing": lambda: time.sleep(CONTROL_S),
            "join": lambda: self.fleet.start("worker-4"),
            "SIGKILL": lambda: self.fleet.kill("worker-2"),
            "return": lambda: self.fleet.start("worker-2"),
            "SIGTERM": lambda: self.fleet.terminate(self._last()),
            "bounce": self._bounce,
            "3 to 6": lambda: self._start(*NEXT),
            "6 to 3": self._shrink,
        }
        self.load.prepare(WAITING)
        self.load.start()
        self.window(FIRST_START, lambda: self._start(*FIRST))
        for number, event in enumerate(events):
            if time.monotonic() > self.ends_at:
                self.left_out = events[number:]
                break
            kind = event.removeprefix("static ")
            if kind == "roll":
                self._roll(event)
            else:
                self.window(event, acts[kind])

    def window(self, event: str, act: Callable[[], object]) -> None:
        """Act and wait for rest; record the owners and copies before and after."""
        owners = {worker.name: worker.actives for worker in self.fleet.living()}
        held = {
            name: worker.held | on_disk(worker) if worker.alive else on_disk(worker)
            for name, worker in self.fleet.workers.items()
        }
        since = time.time()
        act()
        rested = self.rest()
        after = {worker.name: worker.actives for worker in self.fleet.living()}
        self.windows.append(Window(event, since, time.time(), rested, held, owners, after))
        self.tell(
            f"  {event}: {'at rest' if rested else 'NOT AT REST'} after {time.time() - since:.1f} s"
        )

    def rest(self) -> bool:
        """Wait until each partition has a single owner, flows and stays; return whether all did in time."""
        began = time.monotonic()
        deadline, before, since = min(began + self.event_s, self.ends_at), None, began
        while (now := time.monotonic()) < deadline:
            time.sleep(0.1)
            living = self.fleet.living()
            owners = {worker.name: worker.actives for worker in living}
            if owners != before or not self._flows(living):
                before, since = owners, now
            loads = [len(owned) for owned in owners.values()]
            even = bool(loads) and max(loads) - min(loads) <= 1
            if now - since >= (QUIET_S if even else UNEVEN_S):
                return even
        return False

    def _flows(self, living: list[Worker]) -> bool:
        """Whether each partition has a single owner that processed an order in the last second."""
        owned = sorted(chain.from_iterable(worker.actives for worker in living))
        fresh = time.time() - 1.0
        done = {
            (worker.name, p)
            for worker in living
            for at, p, _ in worker.orders[-2000:]
            if at > fresh
        }
        return owned == list(range(self.fleet.partitions)) and all(
            (worker.name, p) in done for worker in living for p in worker.actives
        )

    def _last(self) -> str:
        return self.fleet.living()[-1].name

    def _bounce(self) -> None:
        """Kill worker-1 and start it again within its session."""
        self.fleet.kill("worker-1")
        time.sleep(1.0)
        self.fleet.start("worker-1")

    def _roll(self, event: str) -> None:
        """Restart every worker in turn; continue when the group is at rest."""

        def step(name: str) -> None:
            self.fleet.terminate(name)
            self.fleet.start(name)

        for worker in self.fleet.living():
            if time.monotonic() < self.ends_at:
                self.window(event, partial(step, worker.name))

    def _start(self, *names: str) -> None:
        for name in names:
            self.fleet.start(name)

    def _shrink(self) -> None:
        self.fleet.terminate(*(worker.name for worker in self.fleet.living()[-3:]))

    def finish(self, *, judged: bool) -> tuple[str, ...]:
        """Stop the load, wait for the last orders; if ``judged``, return rows unlike the model's."""
        self.load.stop()
        self.fleet.drain(sum(self.load.sent), patience_s=15.0)
        return wrong_rows(self.load, self.fleet.totals()) if judged else ()

    def history(self) -> History:
        """Collect the journals of all processes, by time."""
        self.fleet.living()
        workers = self.fleet.workers.values()
        done = sorted(chain.from_iterable(map(done_by, workers)))
        given = sorted(
            (row for worker in workers for row in given_to(worker)), key=lambda row: row.at
        )
        replays = [
            (at, by, int(p), records)
            for worker in workers
            for at, by, row in told_by(worker, "recovery")
            for p, records in row["replay"].items()
        ]
        return History(done, given, replays, list(self.load.sent))


def lives(worker: Worker) -> list[float]:
    """Return the start times of the worker's processes."""
    return [row["at"] for row in worker.told if row["kind"] == "start"]


def told_by(worker: Worker, kind: str) -> Iterator[tuple[float, Process, Mapping[str, Any]]]:
    """Yield the rows of a kind, each with its process."""
    life = 0
    for row in worker.told:
        life += row["kind"] == "start"
        if row["kind"] == kind:
            yield row["at"], (worker.name, life), row


def given_to(worker: Worker) -> Iterator[Given]:
    """Yield the worker's assignments in order."""
    for at, by, row in told_by(worker, "assigned"):
        yield Given(at, by, frozenset(row["actives"]), frozenset(row["standbys"]))


def done_by(worker: Worker) -> Iterator[Done]:
    """Yield the worker's processed orders."""
    began = lives(worker)
    for at, partition, offset in worker.orders:
        yield Done(at, partition, offset, (worker.name, sum(start <= at for start in began)))
