"""A worker of ``app.py`` with its own broker: to be frozen, starved of disk or given damaged files."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faust_assigner.testing.broker import BrokerProcess, broker_process
from tests.support.workers.fleet import Fleet, Worker
from tests.support.workers.load import Load

NAME = "worker-1"


@dataclass
class Troubled:
    """The worker, its load, and the broker between them."""

    broker: BrokerProcess
    fleet: Fleet
    load: Load

    @property
    def worker(self) -> Worker:
        """The worker with its journal read."""
        self.fleet.living()
        return self.fleet.workers[NAME]

    def start(self) -> None:
        """Start the worker with its files."""
        self.fleet.start(NAME)

    def until(self, condition: Callable[[Worker], bool], timeout_s: float = 60.0) -> bool:
        """Wait for ``condition(worker)``; return whether it became true."""
        deadline = time.monotonic() + timeout_s
        while not condition(self.worker):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    @property
    def done(self) -> int:
        """The number of distinct processed orders."""
        return len({row[1:] for row in self.worker.orders})

    def log(self) -> str:
        """Return the worker's log of all runs."""
        return (self.worker.folder / "log").read_text(errors="replace")

    @contextlib.contextmanager
    def frozen_broker(self) -> Iterator[None]:
        """Freeze the broker's process within the block; its sockets stay open."""
        self.broker.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.broker.process.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def troubled(
    folder: Path,
    *,
    partitions: int = 2,
    waiting: int = 10,
    preload: int = 0,
    session_s: float = 3.0,
    **settings: Any,
) -> Iterator[Troubled]:
    """A broker with ``waiting`` orders on each partition; no worker runs yet or after the block."""
    app_id = f"troubled-{time.time_ns()}"
    # Without compaction, which may remove the row before a row that does not decode.
    with broker_process(
        None, "group.min.session.timeout.ms=1000", "log.cleaner.backoff.ms=3600000"
    ) as broker:
        wanted: Mapping[str, Any] = {"broker_request_timeout": 4.0} | settings
        fleet = Fleet(
            app_id,
            broker.bootstrap,
            partitions,
            folder,
            replicas=0,
            session_s=session_s,
            settings=wanted,
        )
        load = Load(broker.bootstrap, app_id, partitions, preload, orders_per_s=20.0)
        load.prepare(waiting)
        try:
            yield Troubled(broker, fleet, load)
        finally:
            load.stop()
            fleet.stop()


@contextlib.contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """A file system of that size, mounted on ``folder``: in memory if allowed, else in a file.

    Raises RuntimeError if neither can be mounted.
    """
    folder.mkdir(parents=True, exist_ok=True)
    image = folder.with_name(folder.name + ".image")
    with image.open("wb") as file:
        file.truncate(megabytes * 2**20)
    ways = (
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)],
        ["sh", "-c", f"mkfs.ext4 -q -F '{image}' && mount -o loop '{image}' '{folder}'"],
    )
    said = []
    for command in ways:
        mounted = subprocess.run(command, capture_output=True, text=True)
        if mounted.returncode == 0:
            break
        said.append(mounted.stderr)
    else:
        raise RuntimeError(f"no small disk can be mounted here: {said}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Fill the disk of ``folder``; return the file whose removal makes room."""
    ballast = folder / "ballast"
    with contextlib.suppress(OSError), ballast.open("ab", buffering=0) as file:
        for size in (2**16, 2**12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"\0" * size)
    return ballast
