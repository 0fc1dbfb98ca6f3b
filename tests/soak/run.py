"""Rounds of random faults on a group of real workers; tables and outputs against the model.

    python -m tests.soak.run --broker embedded --rounds 20 --seed 1
    python -m tests.soak.run --broker kafka --guarantee exactly_once --rounds 20 --seed 2

Each round prints a line. After every few rounds, and at the end, the load pauses and all results
are compared with the model. A round fails, and the run ends, if a record, an output or a row is
lost, if an output occurs twice under exactly_once, or if a living worker is idle for longer than 60
s. Then the exit code is 1 and the workers' logs are kept. ``--keep-going`` continues with a fresh
group and the next seed.

Full disks are mounted, which needs root.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import click

from tests.soak import brokers
from tests.soak.outputs import Outputs
from tests.soak.quiesce import balance
from tests.soak.report import HEADER, Row, table
from tests.soak.schedule import Fault, faults_of
from tests.soak.world import Broken, World
from tests.support import leaks
from tests.support.workers.fleet import Fleet
from tests.support.workers.load import Load
from tests.support.workers.measure import measure
from tests.support.workers.troubled import small_disk

PARTITIONS = 8
DISK_MIB = 96
#: Short, to keep rounds short; all are public settings.
SESSION_S = 6.0
SETTINGS = {"broker_request_timeout": 10.0, "table_cleanup_interval": 1.0}


@dataclass
class Soak:
    """A group through its rounds; ``tell`` receives each printed line."""

    broker: str
    guarantee: str
    seed: int
    folder: Path
    workers: int = 4
    check_every: int = 5
    tell: Callable[[str], None] = print
    rows: list[Row] = field(default_factory=list)
    strangers: dict[str, int] = field(default_factory=dict)

    @property
    def static(self) -> bool:
        """Members are static under odd seeds."""
        return self.seed % 2 == 1

    def run(self, rounds: int) -> str | None:
        """Play the rounds; return the broken promise or None. Logs are in ``folder``."""
        with brokers.running(self.broker, self.folder) as broker, self._world(broker) as world:
            try:
                self._begin(world)
                for number in range(1, rounds + 1):
                    self._play(world, number, last=number == rounds)
            except Broken as broken:
                return str(broken)
            except Exception as error:  # the soak itself failed, which is a failure too
                return f"{type(error).__name__}: {error}"
            finally:
                (self.folder / "story").write_text("\n".join(world.story) + "\n")
                (self.folder / "broker.log").write_text(broker.words())
        return None

    @contextlib.contextmanager
    def _world(self, broker: brokers.Broker) -> Iterator[World]:
        app_id = f"soak-{self.seed}-{time.time_ns()}"
        names = [f"worker-{n + 1}" for n in range(self.workers)]
        settings = {**SETTINGS, "processing_guarantee": self.guarantee}
        fleet = Fleet(
            app_id,
            broker.bootstrap,
            PARTITIONS,
            self.folder,
            session_s=SESSION_S,
            static=self.static,
            outputs=True,
            windows=True,
            settings=settings,
        )
        load = Load(
            broker.bootstrap,
            app_id,
            PARTITIONS,
            orders_per_s=5.0,
            seed=self.seed,
            request_timeout_s=600.0,
        )
        with contextlib.ExitStack() as stack:
            disks = {
                name: stack.enter_context(small_disk(self.folder / name / "data", DISK_MIB))
                for name in names
            }
            load.prepare(20)
            world = World(fleet, load, Outputs(broker.bootstrap, app_id, PARTITIONS), broker, disks)
            stack.callback(world.clean_up)
            yield world

    def _begin(self, world: World) -> None:
        for name in world.disks:
            world.start(name)
        world.load.start()
        world.rest()

    def _play(self, world: World, number: int, *, last: bool) -> None:
        faults = faults_of(self.seed, number, tuple(world.disks), broker_dies=world.broker.dies)
        row = Row(self.seed, number, faults)
        self.rows.append(row)
        repeats, before, began = world.progress.repeats, world.state(), time.monotonic()
        world.exits = 0
        world.tell(f"round {number}: {', '.join(map(str, faults))}")
        try:
            self._befall(world, faults)
            row.rest_s = world.rest()
            event = measure(
                "", before, world.state(), world.files, {}, dict.fromkeys(range(PARTITIONS), 0.0)
            )
            row.moves, row.cold = event.moves, event.cold
            if last or number % self.check_every == 0:
                row.balance = balance(
                    world, exactly_once=self.guarantee == "exactly_once", strangers=self.strangers
                )
                if row.balance.faults:
                    raise Broken("; ".join(row.balance.faults[:8]))
                world.idleness.excuse(world.disks, time.time())
                world.load.start()
            row.kept = True
        except Broken as broken:
            world.tell(f"BROKEN: {broken}")
            raise
        finally:
            row.repeats, row.exits = world.progress.repeats - repeats, world.exits
            row.seconds = time.monotonic() - began
            self.tell(row.line())

    @staticmethod
    def _befall(world: World, faults: tuple[Fault, ...]) -> None:
        """Begin and end all faults at their times."""
        acts = sorted(
            [(fault.at_s, 0, n, fault) for n, fault in enumerate(faults)]
            + [(fault.at_s + fault.for_s, 1, n, fault) for n, fault in enumerate(faults)]
        )
        began = time.monotonic()
        for at_s, ends, _, fault in acts:
            while time.monotonic() - began < at_s:
                world.tick()
            (world.end if ends else world.begin)(fault)


def soak(
    broker: str,
    guarantee: str,
    rounds: int,
    seed: int,
    *,
    keep_going: bool = False,
    tell: Callable[[str], None] = print,
) -> tuple[list[Row], int]:
    """Run all rounds, with a fresh group after a failure; return the rows and the failures."""
    rows: list[Row] = []
    failures = 0
    while len(rows) < rounds:
        folder = Path(tempfile.mkdtemp(prefix=f"soak-{broker}-{seed}-"))
        life = Soak(broker, guarantee, seed, folder, tell=tell)
        members = "static" if life.static else "dynamic"
        tell(f"seed {seed}: {broker}, {guarantee}, {members} members, {folder}")
        broken = life.run(rounds - len(rows))
        rows += life.rows
        if broken is None:
            shutil.rmtree(folder, ignore_errors=True)
            break
        failures += 1
        tell(f"FAILED (seed {seed}, round {len(life.rows)}): {broken}\n  faults so far:")
        for row in life.rows[-5:]:
            tell(f"    {row.number}: {', '.join(map(str, row.faults))}")
        tell(f"  logs: {folder}")
        if not keep_going or not life.rows:
            break
        seed += 100
    return rows, failures


@click.command()
@click.option(
    "--broker", type=click.Choice(["embedded", "kafka"]), default="embedded", show_default=True
)
@click.option(
    "--guarantee",
    type=click.Choice(["at_least_once", "exactly_once"]),
    default="at_least_once",
    show_default=True,
)
@click.option("--rounds", type=click.IntRange(1), default=20, show_default=True)
@click.option("--seed", default=1, show_default=True, help="Members are static under odd seeds.")
@click.option(
    "--keep-going", is_flag=True, help="After a failure, go on with a fresh group, seed + 100."
)
def main(broker: str, guarantee: str, rounds: int, seed: int, keep_going: bool) -> None:
    """Print a line for each round and a table; see the module's docstring."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # brokers start and stop
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    began = time.monotonic()
    tell: Callable[[str], None] = lambda line: print(line, flush=True)  # noqa: E731
    tell(HEADER)
    rows, failures = soak(broker, guarantee, rounds, seed, keep_going=keep_going, tell=tell)
    tell(table(broker, guarantee, rows, failures, time.monotonic() - began))
    if left := [what for _, what in leaks.children()]:
        tell(f"LEFT RUNNING: {left}")
    sys.exit(1 if failures or left else 0)


if __name__ == "__main__":
    main()
