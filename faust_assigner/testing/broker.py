"""The embedded broker as a process of its own, to be stopped or killed: ``faust-assigner broker``.

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
from collections.abc import Iterator
from pathlib import Path

#: What tests want otherwise than a cluster: no wait for more members, and sessions that end soon.
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1000"}


class BrokerUnavailable(RuntimeError):
    """The broker did not start; the message carries what it said."""


class BrokerProcess:
    """A running broker; ``bootstrap`` is where it listens.

    ``data`` is its folder (None: in memory), ``settings`` are ``NAME=VALUE`` over the defaults above.
    Raises BrokerUnavailable when it ends before it listens. Cost: about a second.
    """

    def __init__(self, data: Path | None = None, *settings: str, port: int = 0) -> None:
        command = [sys.executable, "-m", "faust_assigner.cli", "broker", "--port", str(port)]
        command += ["--data", str(data)] if data is not None else []
        chosen = SETTINGS | dict(setting.split("=", 1) for setting in settings)
        for name, value in chosen.items():
            command += ["--set", f"{name}={value}"]
        # A file, not a pipe: nobody reads it while all is well, and a full pipe would stop the broker.
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self._said, text=True
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.fullmatch(r"listening on (127\.0\.0\.1:(\d+))\n", line)
        if found is None:
            self.kill()
            raise BrokerUnavailable(f"the broker said {line!r}, {self.errors()}")
        self.bootstrap, self.port = found[1], int(found[2])

    def errors(self) -> str:
        """What it has written to standard error so far."""
        self._said.seek(0)
        return self._said.read()

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """A polite signal; returns the exit code."""
        self.process.send_signal(number)
        return self.process.wait(20)


@contextlib.contextmanager
def broker_process(
    data: Path | None = None, *settings: str, port: int = 0
) -> Iterator[BrokerProcess]:
    """A broker that is gone when the block ends."""
    broker = BrokerProcess(data, *settings, port=port)
    try:
        yield broker
    finally:
        if broker.process.poll() is None:
            broker.kill()
