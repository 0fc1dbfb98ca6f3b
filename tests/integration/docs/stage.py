"""Run the shell blocks of a page as a reader would: in order, in one folder, services in background."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.pages import ROOT, Block

#: Commands that run until they are stopped -> the output that means ready.
SERVES = {
    re.compile(r"faust-assigner broker\b"): re.compile(r"listening on "),
    re.compile(r"\bfaust -A \S+ worker\b"): re.compile(r"Worker ready|the tables are ready"),
    re.compile(r"python -m examples\.orders\.load\b"): re.compile(r"customers sent"),
    re.compile(r"faust-assigner serve\b"): re.compile(r"listening on "),
    re.compile(r"faust-assigner scaler\b(?!.*--once)"): re.compile(r"The scaler of group shop listens on "),
    re.compile(r"faust-assigner ui\b"): re.compile(r"The page of group shop: http://"),
    re.compile(r"python -m examples\.warm_counts\.app\b"): re.compile(r"^counting", re.MULTILINE),
    re.compile(r"python -m examples\.leased_job\.job\b"): re.compile(r"^registered", re.MULTILINE),
}
PATIENCE_S = 120


@dataclass
class Service:
    """A process in the background and its log file."""

    command: str
    process: subprocess.Popen[bytes]
    log: Path

    def said(self) -> str:
        """Return the output so far."""
        return self.log.read_text(errors="replace")

    def wait_for(self, pattern: re.Pattern[str], *, after: int = 0) -> re.Match[str]:
        """Return the first match in the output after the first ``after`` characters."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if found := pattern.search(self.said(), after):
                return found
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        raise AssertionError(f"{self.command}: no {pattern.pattern!r} in\n{self.said()[-4000:]}")

    def stop(self, number: int = signal.SIGINT) -> int:
        """Stop the process as Ctrl-C does; return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise


@dataclass
class Stage:
    """A folder, an environment, and this machine's values for the names on a page."""

    folder: Path
    stands_for: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    services: list[Service] = field(default_factory=list)
    #: Whether a service keeps running during later blocks; else it is stopped once it is ready.
    keeps_services: bool = False

    def __post_init__(self) -> None:
        binaries = str(Path(sys.executable).parent)
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "COLUMNS": "100",
                            "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}", **self.environment}

    def run(self, block: Block) -> list[Service]:
        """Run every command of a block; return the services that it started."""
        if block.language == "console":
            self._compare(block)
            return []
        return [service for command in block.commands if (service := self._run(self.local(command)))]

    def local(self, text: str) -> str:
        """Return ``text`` with this machine's names: whole words, each replaced once (ports share digits)."""
        names = "|".join(map(re.escape, self.stands_for))
        return re.sub(rf"(?<!\w)({names})(?!\w)", lambda name: self.stands_for[name[1]], text) if names else text

    def _run(self, command: str) -> Service | None:
        if command.startswith("export "):
            self.environment.update(word.split("=", 1) for word in shlex.split(command)[1:])
            return None
        for served, ready in SERVES.items():
            if served.search(command):
                service = self.start(command)
                service.wait_for(ready)
                if not self.keeps_services:
                    assert service.stop() == 0, service.said()[-4000:]
                return service
        self.output(command)
        return None

    def start(self, command: str, extra: Mapping[str, str] | None = None) -> Service:
        """Start a service in the background."""
        log = self.folder / f"service-{len(self.services)}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(["bash", "-c", f"exec env {command}"], cwd=self.folder, stdout=out,
                                       env={**self.environment, **(extra or {})}, stderr=subprocess.STDOUT)
        self.services.append(Service(command, process, log))
        return self.services[-1]

    def output(self, command: str) -> str:
        """Return the output of a command that ends; assert exit code 0."""
        done = subprocess.run(["bash", "-c", command], cwd=self.folder, env=self.environment, timeout=600,
                              capture_output=True, text=True)
        assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
        return done.stdout

    def _compare(self, block: Block) -> None:
        """Check a console block: below each ``$`` is the command's output, ``...`` is any text."""
        for session in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            command, _, shown = session.partition("\n")
            expected = ".*".join(map(re.escape, shown.split("...")))
            got = self.output(self.local(command))
            assert re.fullmatch(expected, got, re.DOTALL), f"{block}: {command}\n{got}"

    def close(self) -> None:
        """End running services by SIGTERM, and then by SIGKILL."""
        for service in reversed(self.services):
            if service.process.poll() is None:
                service.process.terminate()
        for service in self.services:
            try:
                service.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                service.process.kill()
                service.process.wait()
