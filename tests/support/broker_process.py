"""``faust-assigner broker`` as a process of its own, to be stopped or killed."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path


class BrokerProcess:
    """A running broker; ``bootstrap`` is where it listens."""

    def __init__(self, data: Path | None, *settings: str, port: int = 0) -> None:
        command = [sys.executable, "-m", "faust_assigner.cli", "broker", "--port", str(port)]
        command += ["--data", str(data)] if data is not None else []
        for setting in ("group.initial.rebalance.delay.ms=0", *settings):
            command += ["--set", setting]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.fullmatch(r"listening on (127\.0\.0\.1:(\d+))\n", line)
        if found is None:
            self.kill()
            raise AssertionError(
                f"the broker said {line!r}, {self.process.stderr.read() if self.process.stderr else ''}"
            )
        self.bootstrap, self.port = found[1], int(found[2])
        self._errors: list[str] = []
        self._reader = threading.Thread(target=self._collect, daemon=True)
        self._reader.start()

    def _collect(self) -> None:
        assert self.process.stderr is not None
        self._errors.extend(self.process.stderr)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """A polite signal; returns the exit code."""
        self.process.send_signal(number)
        return self.process.wait(20)


@contextlib.contextmanager
def broker_process(data: Path | None, *settings: str, port: int = 0) -> Iterator[BrokerProcess]:
    """A broker that is gone when the block ends."""
    broker = BrokerProcess(data, *settings, port=port)
    try:
        yield broker
    finally:
        if broker.process.poll() is None:
            broker.kill()
