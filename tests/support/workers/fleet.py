"""Worker processes: started, observed by their journals, killed, restarted with their files."""

from __future__ import annotations

import json
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from examples.orders.fleet import ROOT
from faust_assigner.testing.processes import Journaled, Processes
from faust_assigner.testing.waiting import PATIENCE_S, wait_until
from tests.support.workers.measure import State

APP = "tests.support.workers.app"


class NotAtRestError(RuntimeError):
    """The group did not come to rest in time; the message has each worker's last lines."""


@dataclass
class Worker(Journaled):
    """A worker over all of its runs: the state from its journal, and its files."""

    assignor: str
    generation: int = -1
    ready: int = -1
    actives: frozenset[int] = frozenset()
    standbys: frozenset[int] = frozenset()
    replay: dict[int, int] = field(default_factory=dict)
    orders: list[tuple[float, int, int]] = field(default_factory=list)
    #: With ``phases.py``: the places at which it was held.
    held_at: list[str] = field(default_factory=list)
    #: All other lines of the journal, in order, with those of earlier runs.
    told: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def on_disk(self) -> frozenset[int]:
        """The partitions with a database."""
        databases = self.folder.glob("data/**/totals-*.db")
        return frozenset(int(path.stem.rpartition("-")[2]) for path in databases)

    @property
    def held(self) -> frozenset[int]:
        """The partitions whose state the worker has, or had when it ended."""
        return self.actives | self.standbys

    def _take(self, row: Mapping[str, Any]) -> None:
        if row["kind"] == "order":
            self.orders.append((row["at"], row["partition"], row["offset"]))
            return
        self.told.append(row)
        if row["kind"] == "assigned":
            self.generation = row["generation"]
            self.actives, self.standbys = frozenset(row["actives"]), frozenset(row["standbys"])
        elif row["kind"] == "recovery":
            self.replay = {int(partition): records for partition, records in row["replay"].items()}
        elif row["kind"] == "ready":
            self.ready = row["generation"]
        elif row["kind"] == "held":
            self.held_at.append(row["place"])

    def carry_on(self, before: Worker) -> None:
        """Take over the state of the worker's earlier run."""
        before.read_journal()
        self.position, self.orders, self.told = before.position, before.orders, before.told


@dataclass
class Fleet(Processes[Worker]):
    """All workers of an app, by name; a restarted worker keeps its name, folder and history."""

    app_id: str
    bootstrap: str
    partitions: int
    folder: Path
    assignor: str = "ours"
    replicas: int = 1
    session_s: float = 10.0
    static: bool = False
    #: The instance id of every worker, instead of its name.
    instance: str = ""
    outputs: bool = False
    #: Whether orders are also counted in windows and kept in sets.
    windows: bool = False
    #: Workers that start with the version of the app that takes returns.
    returns: set[str] = field(default_factory=set)
    work_s: float = 0.0
    #: The module that workers run.
    module: str = APP
    #: More settings of Faust, by name.
    settings: Mapping[str, Any] = field(default_factory=dict)
    workers: dict[str, Worker] = field(default_factory=dict)
    root: ClassVar[Path] = ROOT

    def start(self, name: str, assignor: str | None = None) -> None:
        """Start a worker, with the files of its earlier run if it had one."""
        folder, before, chosen = (
            self.folder / name,
            self.workers.get(name),
            assignor or self.assignor,
        )
        process = self.launch(
            name,
            self.module,
            {
                "FLEET_APP_ID": self.app_id,
                "FLEET_BOOTSTRAP": self.bootstrap,
                "FLEET_ASSIGNOR": chosen,
                "FLEET_PARTITIONS": str(self.partitions),
                "FLEET_REPLICAS": str(self.replicas),
                "FLEET_NAME": name,
                "FLEET_INSTANCE": self.instance or (name if self.static else ""),
                "FLEET_OUTPUTS": str(int(self.outputs)),
                "FLEET_WINDOWS": str(int(self.windows)),
                "FLEET_RETURNS": str(int(name in self.returns)),
                "FLEET_WORK_S": str(self.work_s),
                "FLEET_SESSION_S": str(self.session_s),
                "FLEET_SETTINGS": json.dumps(dict(self.settings)),
                "FLEET_DATA": str(folder / "data"),
                "FLEET_JOURNAL": str(folder / "journal"),
            },
            level="info",
        )
        self.workers[name] = Worker(name, folder, process, chosen)
        if before is not None:
            self.workers[name].carry_on(before)

    def hold_up(self, name: str, how: str, seconds: float, partition: int) -> None:
        """Let an order take ``seconds``, and wait until it begins; ``how`` is "sleep" or "block".

        A block stops the worker's event loop.
        """
        draft = self.workers[name].folder / "hold.draft"
        draft.write_text(f"{how} {seconds} {partition}")
        hold = draft.rename(draft.with_name("hold"))
        wait_until(lambda: not hold.exists(), f"an order of partition {partition} on {name}")

    def terminate(self, *names: str, timeout_s: float = PATIENCE_S) -> None:
        """Send SIGTERM to the workers; a worker on a busy machine may take long to hand over."""
        super().terminate(*names, timeout_s=timeout_s)

    def end_all(self, number: int, timeout_s: float = PATIENCE_S) -> None:
        """Send all workers the same signal; SIGKILL workers that do not end in time."""
        living = self.living()
        for worker in living:
            worker.process.send_signal(number)
        deadline = time.monotonic() + timeout_s
        for worker in living:
            try:
                worker.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.kill(worker.name)

    def stop(self) -> None:
        """SIGKILL all workers, at the end of a run whose results are read."""
        for worker in self.workers.values():
            if worker.alive:
                self.kill(worker.name)

    def orders(self) -> list[tuple[float, int, int]]:
        """Return (time, partition, offset) of every finished order, by time, with repeats."""
        return sorted(row for worker in self.workers.values() for row in worker.orders)

    def at_rest(self) -> bool:
        """Return whether the living workers are ready in one generation and own all partitions."""
        workers = self.living()
        owned = sorted(p for worker in workers for p in worker.actives)
        return (
            len({worker.generation for worker in workers}) == 1
            and owned == list(range(self.partitions))
            and all(worker.ready == worker.generation for worker in workers)
        )

    def generation(self) -> int:
        """Return the highest generation that any worker has had."""
        return max((worker.generation for worker in self.workers.values()), default=-1)

    def rounds(self, after: int) -> list[State]:
        """Return the assignments of the living workers in each generation after ``after``."""
        given: dict[int, State] = defaultdict(lambda: State({}, {}))
        for worker in self.living():
            for row in worker.told:
                if row["kind"] == "assigned" and row["generation"] > after:
                    state = given[row["generation"]]
                    state.actives[worker.name] = frozenset(row["actives"])
                    state.held[worker.name] = frozenset(row["actives"] + row["standbys"])
        return [given[generation] for generation in sorted(given)]

    def settle(
        self,
        *,
        workers: int,
        after: int = -1,
        quiet_s: float = 1.0,
        uneven_s: float = 0.0,
        timeout_s: float = 120.0,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        """Wait until ``workers`` workers rest in a generation after ``after`` and all partitions
        flow.

        A partition flows if an order on it was done since the rest began. The rest lasts
        ``quiet_s``, or ``uneven_s`` if loads differ by more than one, because a warm-up may be
        open. ``meanwhile`` is called repeatedly.
        """
        deadline, calm, since = time.monotonic() + timeout_s, -1, time.time()
        while time.monotonic() < deadline:
            time.sleep(0.05)
            meanwhile()
            living, generation = self.living(), self.generation()
            if (
                len(living) != workers
                or generation <= after
                or generation != calm
                or not self.at_rest()
            ):
                calm, since = generation, time.time()
                continue
            flowing = {p for worker in living for at, p, _ in worker.orders[-2000:] if at > since}
            loads = [len(worker.actives) for worker in living]
            enough_s = max(quiet_s, uneven_s) if max(loads) - min(loads) > 1 else quiet_s
            if len(flowing) == self.partitions and time.time() - since >= enough_s:
                return
        said = [
            f"{w.name} ({w.assignor}): generation {w.generation}, ready {w.ready}, {sorted(w.actives)}\n"
            f"{w.log_tail()}"
            for w in self.living()
        ]
        raise NotAtRestError(f"no rest within {timeout_s:.0f} s\n" + "\n".join(said))

    def drain(self, orders: int, patience_s: float = 45.0) -> None:
        """Wait until ``orders`` distinct orders are done, or none was done for ``patience_s``."""
        done, progress = -1, time.monotonic()
        while done < orders and time.monotonic() - progress < patience_s:
            time.sleep(0.2)
            self.living()
            now = len({row[1:] for row in self.orders()})
            if now > done:
                done, progress = now, time.monotonic()

    def totals(self, timeout_s: float = PATIENCE_S) -> dict[str, dict[str, int]]:
        """Return the union of the workers' active parts of the table."""
        rows: dict[str, dict[str, int]] = {}
        for answer in self.answers("totals", timeout_s):
            rows |= answer
        return rows
