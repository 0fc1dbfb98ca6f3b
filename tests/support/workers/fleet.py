"""Worker processes: started, watched through their journals, killed, restarted with their files."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from examples.orders.demo import broker_process
from examples.orders.fleet import Journaled

ROOT = Path(__file__).resolve().parents[3]
APP = "tests.support.workers.app"


class NotAtRestError(RuntimeError):
    """The group did not come to rest in time; the message says what each worker said last."""


@dataclass
class Worker(Journaled):
    """One worker, over all of its lives: what its journal says, and what lies on its disk."""

    assignor: str
    generation: int = -1
    ready: int = -1
    actives: frozenset[int] = frozenset()
    standbys: frozenset[int] = frozenset()
    replay: dict[int, int] = field(default_factory=dict)
    orders: list[tuple[float, int, int]] = field(default_factory=list)

    @property
    def on_disk(self) -> frozenset[int]:
        """Partitions it has a database of."""
        databases = self.folder.glob("data/**/totals-*.db")
        return frozenset(int(path.stem.rpartition("-")[2]) for path in databases)

    @property
    def held(self) -> frozenset[int]:
        """Partitions whose state it has, or had when it ended."""
        return self.actives | self.standbys

    def _take(self, row: Mapping[str, Any]) -> None:
        if row["kind"] == "order":
            self.orders.append((row["at"], row["partition"], row["offset"]))
        elif row["kind"] == "assigned":
            self.generation = row["generation"]
            self.actives, self.standbys = frozenset(row["actives"]), frozenset(row["standbys"])
        elif row["kind"] == "recovery":
            self.replay = {int(partition): records for partition, records in row["replay"].items()}
        elif row["kind"] == "ready":
            self.ready = row["generation"]

    def log_tail(self, characters: int = 1500) -> str:
        """The end of its log."""
        return (self.folder / "log").read_text(errors="replace")[-characters:]


@dataclass
class Fleet:
    """All workers of one app, by name; a restarted worker keeps its name, folder and history."""

    app_id: str
    bootstrap: str
    partitions: int
    folder: Path
    assignor: str = "ours"
    replicas: int = 1
    session_s: float = 10.0
    static: bool = False
    workers: dict[str, Worker] = field(default_factory=dict)

    def start(self, name: str, assignor: str | None = None) -> None:
        """Start a worker, with the files of its former life when it had one."""
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        before, chosen = self.workers.get(name), assignor or self.assignor
        environment = os.environ | {
            "FLEET_APP_ID": self.app_id, "FLEET_BOOTSTRAP": self.bootstrap, "FLEET_ASSIGNOR": chosen,
            "FLEET_PARTITIONS": str(self.partitions), "FLEET_REPLICAS": str(self.replicas),
            "FLEET_NAME": name, "FLEET_INSTANCE": name if self.static else "",
            "FLEET_SESSION_S": str(self.session_s),
            "FLEET_DATA": str(folder / "data"), "FLEET_JOURNAL": str(folder / "journal"),
        }
        with (folder / "log").open("ab") as log:
            process = subprocess.Popen([sys.executable, "-m", APP, "worker", "-l", "info", "--without-web"],
                                       cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT)
        self.workers[name] = Worker(name, folder, process, chosen)
        if before is not None:
            before.read_journal()
            self.workers[name].position, self.workers[name].orders = before.position, before.orders

    def kill(self, name: str) -> None:
        """SIGKILL: no goodbye to the group, no flush."""
        self.workers[name].process.kill()
        self.workers[name].process.wait()

    def terminate(self, name: str, timeout_s: float = 20.0) -> None:
        """SIGTERM; SIGKILL to one that does not end in time."""
        process = self.workers[name].process
        process.terminate()
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill(name)

    def stop(self) -> None:
        """SIGKILL to all, at the end of a run whose results are in."""
        for worker in self.workers.values():
            if worker.alive:
                self.kill(worker.name)

    def living(self) -> list[Worker]:
        """The workers whose process runs, by name, with all journals read."""
        for worker in self.workers.values():
            worker.read_journal()
        return [worker for _, worker in sorted(self.workers.items()) if worker.alive]

    def orders(self) -> list[tuple[float, int, int]]:
        """(time, partition, offset) of every order a worker was done with, by time, repeats included."""
        return sorted(row for worker in self.workers.values() for row in worker.orders)

    def at_rest(self) -> bool:
        """Whether the living workers are ready in one generation and own each partition once."""
        workers = self.living()
        owned = sorted(p for worker in workers for p in worker.actives)
        return (len({worker.generation for worker in workers}) == 1 and owned == list(range(self.partitions))
                and all(worker.ready == worker.generation for worker in workers))

    def generation(self) -> int:
        """The highest any worker has seen."""
        return max((worker.generation for worker in self.workers.values()), default=-1)

    def settle(self, *, workers: int, after: int = -1, quiet_s: float = 1.0,
               timeout_s: float = 120.0) -> None:
        """Wait until ``workers`` are at rest in a generation later than ``after``, every partition flowing.

        Flowing: an order has been done on it since the rest began, at least ``quiet_s`` ago.
        """
        deadline, calm, since = time.monotonic() + timeout_s, -1, time.time()
        while time.monotonic() < deadline:
            time.sleep(0.05)
            living, generation = self.living(), self.generation()
            if len(living) != workers or generation <= after or generation != calm or not self.at_rest():
                calm, since = generation, time.time()
                continue
            flowing = {p for worker in living for at, p, _ in worker.orders[-2000:] if at > since}
            if len(flowing) == self.partitions and time.time() - since >= quiet_s:
                return
        said = [f"{w.name} ({w.assignor}): generation {w.generation}, ready {w.ready}, {sorted(w.actives)}\n"
                f"{w.log_tail()}" for w in self.living()]
        raise NotAtRestError(f"no rest within {timeout_s:.0f} s\n" + "\n".join(said))

    def drain(self, orders: int, patience_s: float = 45.0) -> None:
        """Wait until as many distinct orders were done as were sent, or none came for ``patience_s``."""
        done, progress = -1, time.monotonic()
        while done < orders and time.monotonic() - progress < patience_s:
            time.sleep(0.2)
            self.living()
            now = len({row[1:] for row in self.orders()})
            if now > done:
                done, progress = now, time.monotonic()

    def totals(self, timeout_s: float = 20.0) -> dict[str, dict[str, int]]:
        """The union of the workers' active parts of the table."""
        rows: dict[str, dict[str, int]] = {}
        for worker in self.living():
            answer = worker.folder / "journal.totals"
            answer.unlink(missing_ok=True)
            worker.process.send_signal(signal.SIGUSR1)
            deadline = time.monotonic() + timeout_s
            while not answer.exists():
                if time.monotonic() > deadline or not worker.alive:
                    raise TimeoutError(f"{worker.name} did not write its totals\n{worker.log_tail()}")
                time.sleep(0.02)
            rows |= json.loads(answer.read_text())
        return rows


def embedded_broker() -> contextlib.AbstractContextManager[str]:
    """The demo's broker process, with sessions as short as these workers use."""
    return broker_process("group.min.session.timeout.ms=1000")
