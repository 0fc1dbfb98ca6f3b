"""Worker processes: started, watched through their journals, killed, restarted with their files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

ROOT = Path(__file__).resolve().parents[2]

#: The script takes a minute: a sample every half would say little.
LEDGER_SAMPLE_S = 3.0

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

    def log_tail(self, characters: int = 1500) -> str:
        """The end of its log."""
        return (self.folder / "log").read_text(errors="replace")[-characters:]

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

    def carry_on(self, before: Worker) -> None:
        """What its former life was done with is its own."""
        self.position, self.done = before.position, before.done


W = TypeVar("W", bound=Journaled)


class Processes(Generic[W]):
    """Processes by name, each with a folder of its own below ``folder``: its files, its journal, its log."""

    folder: Path
    workers: dict[str, W]

    def launch(
        self, name: str, module: str, environment: Mapping[str, str], *, level: str
    ) -> subprocess.Popen[bytes]:
        """Start the Faust app of ``module`` as ``name``, with the files of its former life."""
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", module, "worker", "-l", level, "--without-web"],
                cwd=ROOT,
                env=os.environ | environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def kill(self, name: str) -> None:
        """SIGKILL: no goodbye to the group, no flush."""
        self.workers[name].process.kill()
        self.workers[name].process.wait()

    def terminate(self, *names: str, timeout_s: float = 20.0) -> None:
        """SIGTERM; SIGKILL to one that does not end in time."""
        for name in names:
            self.workers[name].process.terminate()
        for name in names:
            try:
                self.workers[name].process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.kill(name)

    def living(self) -> list[W]:
        """The workers whose process runs, by name, with all journals read."""
        for worker in self.workers.values():
            worker.read_journal()
        return [worker for _, worker in sorted(self.workers.items()) if worker.alive]

    def answers(self, suffix: str, timeout_s: float) -> Iterator[Any]:
        """What each living worker writes beside its journal when it is sent SIGUSR1."""
        for worker in self.living():
            answer = worker.folder / f"journal.{suffix}"
            answer.unlink(missing_ok=True)
            worker.process.send_signal(signal.SIGUSR1)
            deadline = time.monotonic() + timeout_s
            while not answer.exists():
                if time.monotonic() > deadline or not worker.alive:
                    raise TimeoutError(
                        f"{worker.name} did not write its {suffix}\n{worker.log_tail()}"
                    )
                time.sleep(0.02)
            yield json.loads(answer.read_text())


@dataclass
class Fleet(Processes[Worker]):
    """All workers of one app, by name; a restarted worker keeps its name, folder and history."""

    app_id: str
    bootstrap: str
    assignor: str
    folder: Path
    session_timeout_s: float
    #: Where workers keep their ledger; None: they keep none.
    ledger: Path | None = None
    workers: dict[str, Worker] = field(default_factory=dict)

    def start(self, name: str) -> None:
        """Start a worker, with the files of its former life when it had one."""
        folder, before = self.folder / name, self.workers.get(name)
        process = self.launch(
            name,
            "examples.orders.worker",
            {
                "ORDERS_APP_ID": self.app_id,
                "ORDERS_BROKER": self.bootstrap,
                "ORDERS_ASSIGNOR": self.assignor,
                "ORDERS_INSTANCE": name,
                "ORDERS_DATA": str(folder / "data"),
                "ORDERS_JOURNAL": str(folder / "journal"),
                "ORDERS_SESSION_TIMEOUT_S": str(self.session_timeout_s),
                **self._ledger_settings(),
            },
            level="warn",
        )
        self.workers[name] = Worker(name, folder, process, time.time())
        if before is not None:
            self.workers[name].carry_on(before)

    def _ledger_settings(self) -> dict[str, str]:
        if self.ledger is None:
            return {}
        return {
            "FAUST_ASSIGNER_LEDGER": str(self.ledger),
            "FAUST_ASSIGNER_LEDGER_SAMPLE_S": str(LEDGER_SAMPLE_S),
        }

    def stop(self) -> None:
        """SIGTERM to every living worker; SIGKILL to one that does not end within 15 s."""
        self.terminate(
            *(worker.name for worker in self.workers.values() if worker.alive), timeout_s=15
        )

    def done(self, topic: str) -> list[Done]:
        """Every record of ``topic`` any worker was done with, by time; repeats are in it twice."""
        return sorted(row for worker in self.workers.values() for row in worker.done[topic])

    def last_words(self, lines: int = 3) -> str:
        """The last log lines of every worker, without Faust's banner, for when something is wrong."""
        said = []
        for name, worker in sorted(self.workers.items()):
            logged = [line for line in worker.log_tail(20_000).splitlines() if line[:1] == "["]
            said += [f"{name}, {'alive' if worker.alive else 'ended'}:", *logged[-lines:]]
        return "\n  ".join(said)

    def tables(self, timeout_s: float = 10.0) -> tuple[dict[str, int], dict[str, dict[str, int]]]:
        """The union of the workers' active parts of (rates, totals), asked for by SIGUSR1."""
        rates: dict[str, int] = {}
        totals: dict[str, dict[str, int]] = {}
        for tables in self.answers("tables", timeout_s):
            rates |= tables["rates"]
            totals |= tables["totals"]
        return rates, totals
