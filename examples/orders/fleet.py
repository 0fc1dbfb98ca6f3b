"""Worker processes: started, monitored through their journals, killed, restarted with their files."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from faust_assigner.testing.ports import free_port
from faust_assigner.testing.processes import Journaled, Processes, on_loopback

ROOT = Path(__file__).resolve().parents[2]

#: Sample interval of the ledger: the script takes a minute, so the default of 30 s is too long.
LEDGER_SAMPLE_S = 3.0

#: (time in s, partition, offset) of a record that an agent has processed.
Done: TypeAlias = tuple[float, int, int]


@dataclass
class Worker(Journaled):
    """A worker's state, read from its journal."""

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
        """Keep the journal position and the processed records of the worker's previous process."""
        self.position, self.done = before.position, before.done


@dataclass
class Fleet(Processes[Worker]):
    """All workers of an app, by name; a restarted worker keeps its name, folder and history."""

    app_id: str
    bootstrap: str
    assignor: str
    folder: Path
    session_timeout_s: float
    #: Folder of the workers' ledger; None disables the ledger.
    ledger: Path | None = None
    #: Faust's processing_guarantee.
    guarantee: str = "at_least_once"
    #: Ports of web servers by worker; a restarted worker keeps its URL.
    ports: dict[str, int] = field(default_factory=dict)
    workers: dict[str, Worker] = field(default_factory=dict)
    root: ClassVar[Path] = ROOT

    def start(self, name: str) -> None:
        """Start a worker; a restarted worker finds the files of its previous process."""
        folder, before = self.folder / name, self.workers.get(name)
        process = self.launch(
            name,
            "examples.orders.worker",
            {
                "ORDERS_APP_ID": self.app_id,
                "ORDERS_BROKER": self.bootstrap,
                "ORDERS_ASSIGNOR": self.assignor,
                "ORDERS_GUARANTEE": self.guarantee,
                "ORDERS_INSTANCE": name,
                "ORDERS_DATA": str(folder / "data"),
                "ORDERS_JOURNAL": str(folder / "journal"),
                "ORDERS_SESSION_TIMEOUT_S": str(self.session_timeout_s),
                **self._ledger_settings(),
            },
            level="info",
        )
        self.workers[name] = Worker(name, folder, process, time.time())
        if before is not None:
            self.workers[name].carry_on(before)

    def web_options(self, name: str) -> Sequence[str]:
        """Options of a web server on loopback, which ``faust-assigner status`` queries."""
        return on_loopback(self.ports.setdefault(name, free_port()))

    def _ledger_settings(self) -> dict[str, str]:
        if self.ledger is None:
            return {}
        return {
            "FAUST_ASSIGNER_LEDGER": str(self.ledger),
            "FAUST_ASSIGNER_LEDGER_SAMPLE_S": str(LEDGER_SAMPLE_S),
        }

    def stop(self) -> None:
        """Send SIGTERM to every living worker; send SIGKILL to workers still alive after 15 s."""
        self.terminate(
            *(worker.name for worker in self.workers.values() if worker.alive), timeout_s=15
        )

    def done(self, topic: str) -> list[Done]:
        """Every processed record of ``topic`` on any worker, by time; a repeated record appears twice."""
        return sorted(row for worker in self.workers.values() for row in worker.done[topic])

    def last_words(self, lines: int = 3) -> str:
        """The last log lines of every worker, without Faust's banner, for error reports."""
        said = []
        for name, worker in sorted(self.workers.items()):
            logged = [line for line in worker.log_tail(20_000).splitlines() if line[:1] == "["]
            said += [f"{name}, {'alive' if worker.alive else 'ended'}:", *logged[-lines:]]
        return "\n  ".join(said)

    def tables(self, timeout_s: float = 10.0) -> tuple[dict[str, int], dict[str, dict[str, int]]]:
        """Request the workers' active rows by SIGUSR1; return their union as (rates, totals)."""
        rates: dict[str, int] = {}
        totals: dict[str, dict[str, int]] = {}
        for tables in self.answers("tables", timeout_s):
            rates |= tables["rates"]
            totals |= tables["totals"]
        return rates, totals
