"""A broker under attack, and a client that measures the attack's effect on other clients."""

from __future__ import annotations

import contextlib
import datetime
import os
import select
import struct
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faust_assigner.testing.kafka import KafkaServer
from tests.support.clients.raw_client import RawClient, batch

HERE = Path(__file__).parents[1]
LIMIT_S = 25.0
NOT_YET = (3, 5, 6, 14, 15, 16)


@dataclass
class Target:
    """A broker under attack: its start command, its data folder and its address."""

    code: Path | None  # a checkout of ours; None for Kafka
    kafka: KafkaServer | None = None
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="attack-")))
    process: subprocess.Popen[str] | None = None
    bootstrap: str = ""

    def start(self, *settings: str, host: str = "127.0.0.1") -> float | None:
        """Start our broker; return the seconds until it listens, None after the limit."""
        if self.kafka is not None:
            self.bootstrap = self.kafka.bootstrap
            return 0.0
        began = time.monotonic()
        command = [
            sys.executable,
            "-m",
            "faust_assigner.cli",
            "broker",
            "--port",
            "0",
            "--host",
            host,
        ]
        command += ["--data", str(self.folder / "data")]
        for setting in settings:
            command += ["--set", setting]
        with open(self.folder / "stderr", "w") as errors:
            self.process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, "PYTHONPATH": str(self.code)},
                cwd=self.code,
            )
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], LIMIT_S)[0]:
            return None
        line = self.process.stdout.readline()
        if not line:
            return None
        self.bootstrap = "127.0.0.1:" + line.strip().rsplit(":", 1)[1]
        return time.monotonic() - began

    def errors(self) -> str:
        """Return our broker's stderr."""
        return (self.folder / "stderr").read_text()

    def memory_mib(self) -> int:
        """Return the broker's resident memory in MiB."""
        process = self.kafka.process if self.kafka is not None else self.process
        assert process is not None
        with open(f"/proc/{process.pid}/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 2**20

    def kill(self) -> None:
        """Send SIGKILL to our broker; leave Kafka running."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def client(self) -> RawClient:
        """Open a connection."""
        return RawClient(self.bootstrap, LIMIT_S)

    def topic(self, name: str, partitions: int = 1) -> None:
        """Create a topic; wait until its leader and the group coordinator answer."""
        with self.client() as client:
            wanted = {"name": name, "num_partitions": partitions, "replication_factor": 1}
            client.call(19, 5, topics=[wanted], timeout=datetime.timedelta(seconds=20))
            while client.produce(name, 0, batch()).error_code in NOT_YET:
                time.sleep(0.1)
            while client.call(10, 3, key="beating").error_code in NOT_YET:
                time.sleep(0.1)
            while (
                client.call(12, 3, group_id="beating", generation_id=1, member_id="m").error_code
                in NOT_YET
            ):
                time.sleep(0.1)


class Bystander:
    """A member with continuous heartbeats on its own connection; it records its longest wait."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._stop = threading.Event()
        self.worst_s = 0.0
        self._since: float | None = None
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()
        time.sleep(0.1)

    def _beat(self) -> None:
        with contextlib.suppress(OSError), RawClient(self._target.bootstrap, 4 * LIMIT_S) as client:
            while not self._stop.is_set():
                self._since = time.monotonic()
                client.call(12, 3, group_id="beating", generation_id=1, member_id="m")
                self.worst_s = max(self.worst_s, time.monotonic() - self._since)
                time.sleep(0.002)

    def end(self) -> float:
        """Stop; return the longest wait in seconds, including an unfinished wait."""
        self._stop.set()
        self._thread.join(0.5)
        if self._thread.is_alive() and self._since is not None:
            return max(self.worst_s, time.monotonic() - self._since)
        return self.worst_s


def answer_bytes(client: RawClient) -> int:
    """Read and discard an answer; return its size. Raises TimeoutError, ConnectionError."""
    end = time.monotonic() + LIMIT_S
    (size,) = struct.unpack(">i", client._read(4))
    left = size
    while left:
        part = client.socket.recv(min(left, 2**20))
        if not part:
            raise ConnectionError
        if time.monotonic() > end:
            raise TimeoutError
        left -= len(part)
    return int(size)


def felt(target: Target, api_key: int, version: int, **values: Any) -> str:
    """Send a request beside a bystander; format duration, the bystander's delay and the memory growth."""
    before = target.memory_mib()
    bystander = Bystander(target)
    began = time.monotonic()
    outcome = ""
    with target.client() as client:
        client.send(api_key, version, **values)
        try:
            outcome = f"{answer_bytes(client) / 2**20:.1f} MiB in "
        except TimeoutError:
            outcome = "no answer, "
        except ConnectionError:
            outcome = "closed, "
    took = time.monotonic() - began
    grown = max(target.memory_mib() - before, 0)
    return f"{outcome}{took:.1f} s; others {bystander.end():.2f} s; +{grown} MiB"
