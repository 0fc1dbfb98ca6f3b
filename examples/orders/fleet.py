"""Worker processes: started, watched through their journals, killed, restarted with their files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

ROOT = Path(__file__).resolve().parents[2]

#: (time in s, partition, offset) of a record that an agent was done with.
Done: TypeAlias = tuple[float, int, int]


@dataclass
class Journaled:
    """A process that writes JSON lines into ``folder/journal``, and where they have been read to."""

    name: str
    folder: Path
    process: subprocess.Popen[bytes]
    position: int = field(default=0, kw_only=True)

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self.process.poll() is None

    def read_journal(self) -> None:
        """Take in the lines written since the last call; a torn last line waits for its end."""
        journal = self.folder / "journal"
        if not journal.exists():
            return
        with journal.open("rb") as lines:
            lines.seek(self.position)
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                self.position += len(line)
                self._take(json.loads(line))

    def _take(self, row: Mapping[str, Any]) -> None:
        raise NotImplementedError


@dataclass
class Worker(Journaled):
    """One worker: what its journal says."""

    started_at: float
    actives: frozenset[int] | None = None
    standbys: frozenset[int] = frozenset()
    done: dict[str, list[Done]] = field(default_factory=lambda: {"customers": [], "orders": []})

    def _take(self, row: Mapping[str, Any]) -> None:
        if row["kind"] in self.done:
            self.done[row["kind"]].append((row["at"], row["partition"], row["offset"]))
        elif row["kind"] == "assigned":
            self.actives, self.standbys = frozenset(row["actives"]), frozenset(row["standbys"])


@dataclass
class Fleet:
    """All workers of one app, by name; a restarted worker keeps its name, folder and history."""

    app_id: str
    bootstrap: str
    assignor: str
    folder: Path
    session_timeout_s: float
    workers: dict[str, Worker] = field(default_factory=dict)

    def start(self, name: str) -> None:
        """Start a worker, with the files of its former life when it had one."""
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        environment = os.environ | {
            "ORDERS_APP_ID": self.app_id, "ORDERS_BROKER": self.bootstrap,
            "ORDERS_ASSIGNOR": self.assignor, "ORDERS_INSTANCE": name,
            "ORDERS_DATA": str(folder / "data"), "ORDERS_JOURNAL": str(folder / "journal"),
            "ORDERS_SESSION_TIMEOUT_S": str(self.session_timeout_s),
        }
        with (folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "examples.orders.worker", "worker", "-l", "warn", "--without-web"],
                cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT,
            )
        before = self.workers.get(name)
        self.workers[name] = Worker(name, folder, process, time.time())
        if before is not None:
            self.workers[name].position, self.workers[name].done = before.position, before.done

    def kill(self, name: str) -> None:
        """SIGKILL: no goodbye to the group, no flush."""
        self.workers[name].process.kill()
        self.workers[name].process.wait()

    def stop(self) -> None:
        """SIGTERM to every living worker; SIGKILL to one that does not end within 15 s."""
        living = [worker for worker in self.workers.values() if worker.alive]
        for worker in living:
            worker.process.terminate()
        for worker in living:
            try:
                worker.process.wait(15)
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()

    def living(self) -> list[Worker]:
        """The workers whose process runs, by name, with their journals read."""
        for worker in self.workers.values():
            worker.read_journal()
        return [worker for _, worker in sorted(self.workers.items()) if worker.alive]

    def done(self, topic: str) -> list[Done]:
        """Every record of ``topic`` any worker was done with, by time; repeats are in it twice."""
        return sorted(row for worker in self.workers.values() for row in worker.done[topic])

    def last_words(self, characters: int = 1500) -> str:
        """The end of every worker's log, for when something is wrong."""
        return "\n".join(
            f"--- {name}, {'alive' if worker.alive else 'ended'}:\n"
            + (worker.folder / "log").read_text(errors="replace")[-characters:]
            for name, worker in sorted(self.workers.items())
        )

    def tables(self, timeout_s: float = 10.0) -> tuple[dict[str, int], dict[str, dict[str, int]]]:
        """The union of the workers' active parts of (rates, totals), asked for by SIGUSR1."""
        rates: dict[str, int] = {}
        totals: dict[str, dict[str, int]] = {}
        for worker in self.living():
            answer = worker.folder / "journal.tables"
            answer.unlink(missing_ok=True)
            worker.process.send_signal(signal.SIGUSR1)
            deadline = time.monotonic() + timeout_s
            while not answer.exists():
                if time.monotonic() > deadline or not worker.alive:
                    raise TimeoutError(f"{worker.name} did not write its tables; see {worker.folder}/log")
                time.sleep(0.02)
            tables = json.loads(answer.read_text())
            rates |= tables["rates"]
            totals |= tables["totals"]
        return rates, totals
