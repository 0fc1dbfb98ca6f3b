"""Starts, watches and kills worker processes. Workers report to the test by journals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from faust_assigner.testing.reporting import State

#: Seconds after which a request is repeated, because the worker may not have listened yet.
ASK_AGAIN_S = 1.0


@dataclass
class Journaled:
    """A process that writes JSON lines to ``folder/journal``.

    ``position`` is the number of bytes of the journal that have been read.
    """

    name: str
    folder: Path
    process: subprocess.Popen[bytes]
    position: int = field(default=0, kw_only=True)

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self.process.poll() is None

    def read_journal(self) -> None:
        """Read the lines since the last call. The next call reads an incomplete last line."""
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

    def kill(self) -> None:
        """Send SIGKILL: the process neither leaves the group nor flushes its files."""
        self.process.kill()
        self.process.wait()

    def stop(self, timeout_s: float = 20.0) -> None:
        """Send SIGTERM; send SIGKILL after the timeout."""
        self.process.terminate()
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def log_tail(self, characters: int = 1500) -> str:
        """Return the end of the process's log."""
        return (self.folder / "log").read_text(errors="replace")[-characters:]

    def _take(self, row: Mapping[str, Any]) -> None:
        raise NotImplementedError


W = TypeVar("W", bound=Journaled)


def on_loopback(port: int) -> tuple[str, ...]:
    """Return Faust's options for a web server at ``port`` of 127.0.0.1."""
    return ("--web-port", str(port), "--web-bind", "127.0.0.1", "--web-host", "127.0.0.1")


class Processes(Generic[W]):
    """Processes by name, each with its own folder below ``folder`` for files, journal and log."""

    folder: Path
    workers: dict[str, W]
    #: The folder of the workers' modules.
    root: ClassVar[Path]

    def launch(
        self, name: str, module: str, environment: Mapping[str, str], *, level: str
    ) -> subprocess.Popen[bytes]:
        """Start the Faust app of ``module`` as ``name``, with the files of its last run."""
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", module, "worker", "-l", level, *self.web_options(name)],
                cwd=self.root,
                env=os.environ | environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def web_options(self, name: str) -> Sequence[str]:
        """Return Faust's options for the web server of ``name``; by default, no web server runs."""
        return ("--without-web",)

    def kill(self, name: str) -> None:
        """Send SIGKILL: the process neither leaves the group nor flushes its files."""
        self.workers[name].kill()

    def terminate(self, *names: str, timeout_s: float = 20.0) -> None:
        """Send SIGTERM to the processes, then SIGKILL to a process that does not end in time."""
        for name in names:
            self.workers[name].process.terminate()
        for name in names:
            self.workers[name].stop(timeout_s)

    def living(self) -> list[W]:
        """Return the running workers by name, with all journals read."""
        for worker in self.workers.values():
            worker.read_journal()
        return [worker for _, worker in sorted(self.workers.items()) if worker.alive]

    def answers(self, suffix: str, timeout_s: float) -> Iterator[object]:
        """Send SIGUSR1 to each running worker, and yield the content of the worker's file.

        The file is ``journal.SUFFIX``, beside the journal. Raises TimeoutError.
        """
        for worker in self.living():
            answer = worker.folder / f"journal.{suffix}"
            answer.unlink(missing_ok=True)
            ask_at = time.monotonic()
            deadline = ask_at + timeout_s
            while not answer.exists():
                if time.monotonic() >= ask_at:
                    worker.process.send_signal(signal.SIGUSR1)
                    ask_at += ASK_AGAIN_S
                if time.monotonic() > deadline or not worker.alive:
                    raise TimeoutError(
                        f"{worker.name} did not write its {suffix}\n{worker.log_tail()}"
                    )
                time.sleep(0.02)
            yield json.loads(answer.read_text())


@dataclass
class Worker(Journaled):
    """A worker of a fleet in its own process: ``faust_assigner.testing.worker``."""

    state: State = field(default_factory=State)
    failure: str = ""
    is_frozen: bool = False
    #: Whether the test has ended the worker.
    is_ended: bool = False

    @classmethod
    def launch(
        cls, name: str, folder: Path, app: str, settings: Mapping[str, object], state: State
    ) -> Worker:
        """Start the worker, with the files of its last run if it ran before."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "journal").unlink(missing_ok=True)
        orders = {
            "KIT_APP": app,
            "KIT_SETTINGS": json.dumps(dict(settings)),
            "KIT_JOURNAL": str(folder / "journal"),
            "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
        }
        with (folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "faust_assigner.testing.worker"],
                stdin=subprocess.PIPE,  # closes with the test's process, and the worker then ends
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | orders,
            )
        return cls(name, folder, process, state=state)

    def _take(self, row: Mapping[str, Any]) -> None:
        if row["kind"] == "failed":
            self.failure = row["error"]
        else:
            self.state.take(row)

    def check(self) -> None:
        """Read the journal, and check that the worker has not failed.

        Raises AppNotFound if the app was not found, and AssertionError if the worker ended by
        itself.
        """
        self.read_journal()
        if self.failure:
            from faust_assigner.testing.apps import AppNotFound  # imports Faust

            raise AppNotFound(self.failure)
        assert self.alive or self.is_ended, f"the worker {self.name} ended: {self.why_not()}"

    def why_not(self) -> str:
        """Describe the worker's state for the message of a failed wait."""
        return self.failure or f"{self.state}; the end of its log:\n{self.log_tail()}"

    def freeze(self) -> None:
        """Send SIGSTOP."""
        self.process.send_signal(signal.SIGSTOP)
        self.is_frozen = True

    def thaw(self) -> None:
        """Send SIGCONT."""
        if self.is_frozen:
            self.process.send_signal(signal.SIGCONT)
        self.is_frozen = False

    def kill(self) -> None:
        """Send SIGKILL, after which the worker owns no partition."""
        super().kill()
        self._ended()

    def stop(self, timeout_s: float = 20.0) -> None:
        """Send SIGTERM; send SIGKILL after the timeout."""
        self.thaw()
        super().stop(timeout_s)
        self._ended()

    def _ended(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.is_frozen, self.is_ended = False, True
        self.state.end()
