"""The embedded broker as a separate process, which a test may stop or kill.

>>> with broker_process() as broker:                                      # doctest: +SKIP
...     print(broker.bootstrap)                                           # '127.0.0.1:40123'
"""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

#: Test defaults that differ from production: no wait for more members, and short sessions.
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1000"}
#: Seconds in which a broker must listen; a large store on a busy machine needs the most time.
START_S = 300.0


class BrokerUnavailable(RuntimeError):
    """Raised if the broker did not start; the message has its output."""


class BrokerProcess:
    """A running broker at the address ``bootstrap``.

    ``data`` is the broker's folder, None for a broker in memory. ``settings`` are texts
    ``NAME=VALUE`` with priority over ``SETTINGS``. Raises BrokerUnavailable if the process ends
    before it listens, or does not listen within START_S. Cost: about a second.
    """

    def __init__(self, data: Path | None = None, *settings: str, port: int = 0) -> None:
        command = [sys.executable, "-m", "faust_assigner.cli", "broker", "--port", str(port)]
        command += ["--data", str(data)] if data is not None else []
        chosen = SETTINGS | dict(setting.split("=", 1) for setting in settings)
        for name, value in chosen.items():
            command += ["--set", f"{name}={value}"]
        # A file, not a pipe: a pipe without a reader would fill up and block the broker.
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self._said, text=True
        )
        assert self.process.stdout is not None
        deadline = threading.Timer(START_S, self.process.kill)  # so that the read below ends
        deadline.start()
        line = self.process.stdout.readline()
        deadline.cancel()
        found = re.fullmatch(r"listening on (?:[A-Z_]+://)?(127\.0\.0\.1:(\d+))\n", line)
        if found is None:
            self.kill()
            raise BrokerUnavailable(f"the broker printed {line!r}, {self.errors()}")
        self.bootstrap, self.port = found[1], int(found[2])

    def errors(self) -> str:
        """Return the process's standard error output so far."""
        self._said.seek(0)
        return self._said.read()

    def kill(self) -> None:
        """Send SIGKILL and wait until the process has ended."""
        self.process.kill()
        self.process.wait()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, wait up to 20 s for the end, and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(20)


@contextlib.contextmanager
def broker_process(
    data: Path | None = None, *settings: str, port: int = 0
) -> Iterator[BrokerProcess]:
    """Run a broker until the end of the block."""
    broker = BrokerProcess(data, *settings, port=port)
    try:
        yield broker
    finally:
        if broker.process.poll() is None:
            broker.kill()
