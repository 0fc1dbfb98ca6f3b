"""Joins on a busy machine: a second worker joins a loaded first worker; both come to rest.

    python -m tests.soak.joins --broker embedded --joins 25 --busy 10 --seed 1

Each join has its own app: three tables, a table join, a ``group_by`` and standbys. ``--busy``
processes compute meanwhile, and ``--at-once`` joins run in parallel. A join is frozen if the
workers do not share the partitions, all flowing, within ``--patience`` seconds of the second
worker's start. Then its logs are kept and the exit code is 1. Members are dynamic and static in
turn. The seed decides the start of each second worker; the machine's timing differs from run to
run.
"""

from __future__ import annotations

import contextlib
import logging
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import click

from tests.soak import brokers
from tests.soak.run import PARTITIONS
from tests.support.workers.fleet import Fleet, NotAtRestError
from tests.support.workers.load import Load

#: The worker with a ``group_by``.
MODULE = "tests.support.workers.regrouping"
#: The seconds from the first worker's rest to the second worker's start, drawn evenly.
EARLIEST_S, LATEST_S = 2.0, 10.0
#: Orders for each partition: 20 records a second.
ORDERS_PER_S = 2.5
SESSION_S = 20.0
#: The maximum seconds of the first worker's start.
START_S = 240.0
COMPUTE = "while True: sum(i * i for i in range(10_000))"


@dataclass(frozen=True)
class Join:
    """A join: its number, whether its members are static, and the second worker's start."""

    number: int
    static: bool
    wait_s: float

    def play(
        self, bootstrap: str, folder: Path, patience_s: float, stopping: threading.Event
    ) -> str | None:
        """Start a worker, then a second during processing; return the failure's reason or None."""

        def go_on() -> None:
            if stopping.is_set():
                raise RuntimeError("the run was stopped")

        app_id = f"join-{self.number}-{time.time_ns()}"
        fleet = Fleet(
            app_id,
            bootstrap,
            PARTITIONS,
            folder,
            session_s=SESSION_S,
            static=self.static,
            module=MODULE,
        )
        load = Load(bootstrap, app_id, PARTITIONS, orders_per_s=ORDERS_PER_S, seed=self.number)
        try:
            go_on()
            load.prepare(5)
            fleet.start("worker-1")
            load.start()
            fleet.settle(workers=1, timeout_s=START_S, meanwhile=go_on)
            time.sleep(self.wait_s)
            generation = fleet.generation()
            fleet.start("worker-2")
            fleet.settle(workers=2, after=generation, timeout_s=patience_s, meanwhile=go_on)
            return None
        except NotAtRestError as error:
            return str(error).splitlines()[0]
        finally:
            fleet.stop()
            if not stopping.is_set():  # else the broker may have ended, and the load waits for it
                load.stop()


def joins_of(seed: int, count: int) -> list[Join]:
    """Return the joins of ``seed``."""
    rng = random.Random(seed)
    return [Join(n + 1, n % 2 == 1, rng.uniform(EARLIEST_S, LATEST_S)) for n in range(count)]


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """Run ``processes`` computing processes until the block ends."""
    loops = [subprocess.Popen([sys.executable, "-c", COMPUTE]) for _ in range(processes)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def run(
    broker: str, joins: list[Join], at_once: int, processes: int, patience_s: float, folder: Path
) -> int:
    """Play ``joins`` and print a line for each; return the number of failures."""
    failed, stopping = 0, threading.Event()
    with (
        brokers.running(broker, folder) as server,
        busy(processes),
        ThreadPoolExecutor(at_once) as pool,
    ):

        def play(join: Join) -> tuple[Join, str | None, float]:
            began = time.monotonic()
            place = folder / f"join-{join.number}"
            try:
                problem = join.play(server.bootstrap, place, patience_s, stopping)
            except Exception as error:  # the run itself failed, which is a failure too
                problem = f"{type(error).__name__}: {error}"
            if problem is None:
                shutil.rmtree(place, ignore_errors=True)
            return join, problem, time.monotonic() - began

        try:
            for join, problem, seconds in pool.map(play, joins):
                failed += problem is not None
                kind = "static" if join.static else "dynamic"
                outcome = "at rest" if problem is None else f"FAILED: {problem}"
                print(f"join {join.number} {kind}, {seconds:.0f} s: {outcome}", flush=True)
        except BaseException:
            stopping.set()
            pool.shutdown(cancel_futures=True)
            raise
    return failed


@click.command()
@click.option("--broker", type=click.Choice(["embedded", "kafka"]), default="embedded")
@click.option("--joins", type=click.IntRange(1), default=25, show_default=True)
@click.option("--at-once", type=click.IntRange(1), default=4, show_default=True)
@click.option("--busy", "processes", type=click.IntRange(0), default=10, show_default=True)
@click.option("--patience", type=float, default=170.0, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
def main(broker: str, joins: int, at_once: int, processes: int, patience: float, seed: int) -> None:
    """Print a line for each join; see the module's docstring."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # the machine is busy
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="joins-"))
    failed = run(broker, joins_of(seed, joins), at_once, processes, patience, folder)
    print(f"{broker} seed {seed}, {processes} busy processes: {failed} of {joins} joins failed")
    if failed:
        print(f"logs: {folder}")
        sys.exit(1)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
