"""The group under a soak: its workers, their faults, and a supervisor for ended workers."""

from __future__ import annotations

import math
import random
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from faust_assigner.app.rebalance.memory_file import NAME as MEMORY
from tests.soak.brokers import Broker
from tests.soak.outputs import Outputs
from tests.soak.progress import Idleness, Progress
from tests.soak.schedule import DEPLOYS, Fault
from tests.support.workers.damage import Damage, remove, replace_by_file, scramble, truncate
from tests.support.workers.fleet import Fleet, Worker
from tests.support.workers.load import Load
from tests.support.workers.measure import State
from tests.support.workers.troubled import fill

#: The maximum seconds of an idle living worker.
IDLE_S = 60.0
#: The promise is ``stream_wait`` + 10 s; a machine with other work may need longer.
LEAVE_S = 45.0
#: A group without idle workers must be at rest by then; a start takes a minute on a busy machine.
REST_S = 240.0
#: The group is at rest after this time with all partitions flowing and no change.
QUIET_S = 1.0
TICK_S = 0.1
#: After a longer pause between two ticks, as during a broker's start, no worker counts as idle.
PAUSE_S = 5.0
#: A process stands still after this time from a SIGSTOP.
STOPPED_AFTER_S = 0.05
#: A worker that ends by itself is restarted, up to a limit.
MOST_EXITS = 6

DAMAGES: tuple[Damage, ...] = (
    scramble("MANIFEST*"),
    remove("MANIFEST*"),
    truncate("MANIFEST*"),
    truncate("CURRENT"),
    remove("CURRENT"),
    scramble("*.sst"),
    truncate("*.sst"),
    remove("*.sst"),
    scramble("*.log"),
    truncate("*.log"),
    replace_by_file,
)


class Broken(Exception):
    """A broken promise."""


@dataclass
class World:
    """The whole group; :meth:`tick` must be called ten times a second, and raises Broken."""

    fleet: Fleet
    load: Load
    outputs: Outputs
    broker: Broker
    #: The disk of each worker, by the worker's name.
    disks: Mapping[str, Path]
    #: Input and output of the agent added by deploys.
    returns: tuple[Load, Outputs] | None = None
    #: The factor on workers' deadlines while other processes compute.
    patience: float = 1.0
    progress: Progress = field(init=False)
    idleness: Idleness = field(init=False)
    away: Counter[str] = field(default_factory=Counter)
    frozen: Counter[str] = field(default_factory=Counter)
    full: Counter[str] = field(default_factory=Counter)
    broker_hindered: int = 0
    #: Whether new workers run the returns agent; running workers are restarted in turn.
    takes_returns: bool = False
    #: The worker restarted last by the deploy.
    deploying: str = ""
    #: Workers with a requested end and no restart since -> time of the request.
    planned: dict[str, float] = field(default_factory=dict)
    damages: dict[str, list[int]] = field(default_factory=dict)
    #: The start and end of each worker's stops by a signal, over all its lives.
    stops: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    #: Partitions on the worker's disk at its last start.
    files: dict[str, frozenset[int]] = field(default_factory=dict)
    #: The events with times, for readers of the logs.
    story: list[str] = field(default_factory=list)
    exits: int = 0
    ticked_at: float = 0.0

    def __post_init__(self) -> None:
        self.progress = Progress(self.fleet.partitions)
        self.idleness = Idleness(IDLE_S * self.patience)

    def tell(self, line: str) -> None:
        """Add a line to the story."""
        self.story.append(f"{time.strftime('%H:%M:%S')} {line}")

    def start(self, name: str) -> None:
        """Start the worker with its remaining files."""
        for seed in self.damages.pop(name, ()):
            self._damage(name, random.Random(seed))
        self.planned.pop(name, None)
        self.fleet.start(name)
        self.files[name] = self.fleet.workers[name].on_disk
        self.idleness.excuse([name], time.time())
        self.tell(f"{name} starts, pid {self.fleet.workers[name].process.pid}")

    def _damage(self, name: str, rng: random.Random) -> None:
        memories = sorted(self.disks[name].rglob(MEMORY))
        if memories and rng.random() < 0.3:
            memories[0].write_bytes(memories[0].read_bytes()[: rng.randrange(40)])
            self.tell(f"{name}: its memory was cut")
        databases = sorted(path for path in self.disks[name].rglob("*.db") if path.is_dir())
        for database in rng.sample(
            databases, min(len(databases), rng.choice((1, 1, 2, len(databases))))
        ):
            which = rng.randrange(len(DAMAGES))
            DAMAGES[which](database)
            self.tell(f"{name}: damage {which} to {database.name}")

    def tick(self) -> None:
        """Read new results, restart ended workers, check for idle workers, then sleep a little."""
        living = {worker.name: worker for worker in self.fleet.living()}
        for name, worker in self.fleet.workers.items():
            self.progress.take(name, worker.orders)
            worker.orders.clear()
        # librdkafka counts a reader that is not polled for five minutes as stuck.
        for _, outputs in self.flows():
            outputs.read()
        now, before = time.time(), self.ticked_at
        self.ticked_at = now
        # A worker outside the group sends no heartbeats; if it never joins, the group does not come
        # to rest. While versions differ, returns form their own group, and a worker may own nothing
        # else.
        hindered = (
            self.fleet.workers
            if self.broker_hindered or now - before > PAUSE_S
            else [
                name
                for name, worker in self.fleet.workers.items()
                if name not in living
                or name in self.planned
                or self.frozen[name]
                or self.full[name]
                or worker.generation < 0
                or (not worker.actives and self._outdated())
            ]
        )
        self.idleness.excuse(hindered, now)
        self._supervise(living, now)
        self._deploy(now)
        for name, seconds in self.idleness.idle(living, self.progress, now).items():
            worker = self.fleet.workers[name]
            raise Broken(
                f"{name} is alive and idle for {seconds:.0f} s: generation {worker.generation}, "
                f"ready {worker.ready}, owns {sorted(worker.actives)}; its log ends with\n"
                f"{worker.log_tail(3_000)}"
            )
        time.sleep(TICK_S)

    def _supervise(self, living: Mapping[str, Worker], now: float) -> None:
        for name in sorted(self.fleet.workers):
            if name in living:
                if self.frozen[name]:
                    self.planned.update({name: now} if name in self.planned else {})
                elif now - self.planned.get(name, now) > LEAVE_S * self.patience:
                    raise Broken(
                        f"{name} has not ended {LEAVE_S * self.patience:.0f} s after SIGTERM"
                    )
            elif not self.away[name]:
                if name not in self.planned:
                    self._ended_by_itself(self.fleet.workers[name])
                self.start(name)

    def _deploy(self, now: float) -> None:
        """Restart the next outdated worker after the last restarted worker is a member or hindered.

        A worker that ends before its turn starts with its old version. A worker that is away at its
        turn starts with the new version.
        """
        last = self.deploying
        hindered = not last or self.away[last] or self.frozen[last]
        if not hindered and (last in self.planned or self.fleet.workers[last].generation < 0):
            return
        self.deploying = name = next(iter(self._outdated()), "")
        if not name:
            return
        self.fleet.returns ^= {name}
        self.tell(f"deploy: {name} {'takes' if self.takes_returns else 'leaves'} returns")
        if self.fleet.workers[name].alive and name not in self.planned:
            self.planned[name] = now
            self.fleet.workers[name].process.send_signal(signal.SIGTERM)

    def _outdated(self) -> list[str]:
        """Return the workers without the version of the last deploy."""
        return [
            name
            for name in sorted(self.fleet.workers)
            if (name in self.fleet.returns) != self.takes_returns
        ]

    def _ended_by_itself(self, worker: Worker) -> None:
        self.exits += 1
        said = [
            line
            for line in worker.log_tail(20_000).splitlines()
            if "rror" in line or "CannotGo" in line
        ]
        self.tell(
            f"{worker.name} ended by itself with {worker.process.returncode}: {' | '.join(said[-3:])}"
        )
        if self.exits > MOST_EXITS:
            raise Broken(f"workers end again and again: {worker.name}, {said[-1:]}")
        time.sleep(1.0)

    def begin(self, fault: Fault) -> None:
        """Begin the fault."""
        self.tell(f"{fault} begins")
        if fault.kind in ("kill", "leave", "damage", "all"):
            for name in [fault.worker] if fault.worker else list(self.fleet.workers):
                self.away[name] += 1
                self.planned.setdefault(name, time.time())
                self.fleet.workers[name].process.send_signal(fault.number)
        elif fault.kind == "join":
            self.away[fault.worker] = 0
            if fault.worker not in self.fleet.workers:
                self.fleet.returns |= {fault.worker} if self.takes_returns else set()
                self.start(fault.worker)
        elif fault.kind in DEPLOYS:
            self.takes_returns = fault.kind == DEPLOYS[0]
        elif fault.kind == "freeze":
            self.frozen[fault.worker] += 1
            self.fleet.workers[fault.worker].process.send_signal(signal.SIGSTOP)
            self.stops[fault.worker].append((time.time() + STOPPED_AFTER_S, math.inf))
        elif fault.kind == "full disk":
            self.full[fault.worker] += 1
            fill(self.disks[fault.worker])
        else:
            self.broker_hindered += 1
            BROKER[fault.kind](self.broker)

    def end(self, fault: Fault) -> None:
        """End the fault; the next tick restarts the removed workers."""
        self.tell(f"{fault} ends")
        if fault.kind in ("kill", "leave", "damage", "all"):
            for name in [fault.worker] if fault.worker else list(self.fleet.workers):
                self.away[name] -= 1
            if fault.kind == "damage":
                self.damages.setdefault(fault.worker, []).append(fault.seed)
        elif fault.kind == "join":
            self.away[fault.worker] = 1
            self.planned.setdefault(fault.worker, time.time())
            self.fleet.workers[fault.worker].process.send_signal(fault.number)
        elif fault.kind == "freeze":
            self.frozen[fault.worker] -= 1
            if not self.frozen[fault.worker]:
                since, _ = self.stops[fault.worker][-1]
                self.stops[fault.worker][-1] = since, time.time()
                self.fleet.workers[fault.worker].process.send_signal(signal.SIGCONT)
        elif fault.kind == "full disk":
            self.full[fault.worker] -= 1
            if not self.full[fault.worker]:
                (self.disks[fault.worker] / "ballast").unlink(missing_ok=True)
        elif fault.kind not in DEPLOYS:  # which end when all workers have the same version
            self.broker.ensure()  # a minute on a busy machine
            self.idleness.excuse(self.fleet.workers, time.time())
            self.broker_hindered -= 1

    def rest(self) -> float:
        """Wait until the group is at rest and every partition flows; return the seconds."""
        began, calm, since = time.time(), -1, time.time()
        while time.time() - began < REST_S * self.patience:
            self.tick()
            living, generation = self.fleet.living(), self.fleet.generation()
            if not self.is_at_rest(living) or generation != calm:
                calm, since = generation, time.time()
            elif self.progress.flows_since(since) and time.time() - since >= QUIET_S:
                return time.time() - began
        raise Broken(
            f"no rest within {REST_S * self.patience:.0f} s: "
            + ", ".join(
                f"{w.name} generation {w.generation}, ready {w.ready}, owns {sorted(w.actives)}"
                for w in self.fleet.living()
            )
        )

    def is_at_rest(self, living: Sequence[Worker]) -> bool:
        """Whether all expected workers live, are unhindered, and agree on the owners."""
        if self.broker_hindered or any(self.frozen.values()) or self._outdated():
            return False
        expected = sum(not self.away[name] for name in self.fleet.workers)
        leaving = [name for name in self.planned if not self.away[name]]
        return (
            len(living) == expected
            and not leaving
            and self.fleet.at_rest()
            and all(worker.actives for worker in living)
        )

    def flows(self) -> list[tuple[Load, Outputs]]:
        """Return the orders, and the returns if there are any."""
        return [(self.load, self.outputs), *filter(None, [self.returns])]

    def state(self) -> State:
        """Return the owned and held partitions of each worker."""
        living = self.fleet.living()
        return State({w.name: w.actives for w in living}, {w.name: w.held for w in living})

    def clean_up(self) -> None:
        """Stop all processes except the broker."""
        self.broker.ensure()
        self.fleet.stop()
        for load, outputs in self.flows():
            load.stop()
            outputs.close()


BROKER: Mapping[str, Callable[[Broker], None]] = {
    "freeze broker": lambda broker: broker.signal(signal.SIGSTOP),
    "kill broker": lambda broker: broker.end(signal.SIGKILL),
    "stop broker": lambda broker: broker.end(signal.SIGTERM),
}
