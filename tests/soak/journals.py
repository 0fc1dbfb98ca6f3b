"""Lives of a group of real workers under overlapping events, with a journal of every record.

    python -m tests.soak.journals --broker kafka --guarantee exactly_once --events 100 --seed 1

The events are SIGKILL, SIGSTOP and SIGTERM of workers, joins, and restarts, kills and freezes of
the broker. Each event begins before the group is at rest after the previous events. From 20 events
on there are rolling deploys: the workers restart in turn with another agent, topic and table, later
without these, and so on. Then all faults end, the group must come to rest by itself, and

- no two workers may have processed a partition at once, by the journals of all lives;
- every order must be processed, with an output; under ``exactly_once`` only once;
- the rows of owners and standbys, and the sets of owners, must equal a model in plain Python;
- the agent added by deploys must have processed all records of its topic, like the other agents;
- every expired window must have closed with its last value; under ``exactly_once`` only once.

``--windows`` plays joins, SIGTERMs and SIGKILLs of workers with windows instead (``closings.py``).

The seed decides the times of the events, except for a broker's start. ``--busy`` processes compute
meanwhile. With them, or on a machine that is busy at the start, sessions and deadlines are longer.
The exit code is 1 after a broken promise; then the logs and the broker's data are kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click

from tests.soak import brokers, closings
from tests.soak.joins import busy
from tests.soak.outputs import Outputs
from tests.soak.quiesce import balance
from tests.soak.run import PARTITIONS, SESSION_S, SETTINGS
from tests.soak.schedule import DEPLOYS, Fault, overlapping
from tests.soak.world import Broken, World
from tests.support import leaks
from tests.support.clients.topics import create_topics
from tests.support.workers.fleet import APP, Fleet
from tests.support.workers.interleaved import interleaved, read, together
from tests.support.workers.load import Load

WORKERS = ("worker-1", "worker-2", "worker-3", "worker-4")
SPARES = ("worker-5", "worker-6")
#: The seconds for each order, so that two workers on a partition overlap.
WORK_S = 0.01
#: For a busy machine: an unfrozen worker sends a heartbeat within such a session.
BUSY_SESSION_S, BUSY_PATIENCE = 15.0, 2.0
#: A machine with more runnable processes per processor counts as busy.
MOST_WAITING = 2.0
#: Orders per partition: a single worker on a busy machine can process all of them.
ORDERS_PER_S = 2.0


@dataclass
class Played:
    """The outcome of a life; ``clean`` counts its events without a broken promise.

    ``overlapping`` counts events that began before the group was at rest. ``rounds`` counts
    revocations in cooperative rounds, ``closed`` the closed windows.
    """

    events: int = 0
    overlapping: int = 0
    records: int = 0
    repeats: int = 0
    exits: int = 0
    rounds: int = 0
    closed: int = 0
    rest_s: float = 0.0
    seconds: float = 0.0
    faults: tuple[str, ...] = ()

    @property
    def clean(self) -> int:
        """All or no events are clean."""
        return 0 if self.faults else self.events

    def line(self) -> str:
        """The printed line."""
        return (
            f"{self.clean} of {self.events} events clean, {self.overlapping} overlapping; "
            f"{self.records} orders, {self.repeats} repeated, {self.rounds} cooperative rounds, "
            f"{self.closed} windows closed, "
            f"{self.exits} exits; at rest after {self.rest_s:.1f} s; {self.seconds:.0f} s"
        )


@contextlib.contextmanager
def world_of(
    broker: str,
    guarantee: str,
    seed: int,
    folder: Path,
    *,
    module: str = APP,
    is_busy: bool = False,
) -> Iterator[World]:
    """Start a broker and prepare a group and waiting orders; the logs stay in ``folder``.

    Members are static under odd seeds. ``is_busy``: other processes compute, so all steps take
    longer.
    """
    app_id = f"journal-{seed}-{time.time_ns()}"
    settings = {**SETTINGS, "processing_guarantee": guarantee}
    if is_busy:  # Faust refuses a session longer than a request
        settings["broker_request_timeout"] = BUSY_SESSION_S + 5.0
    with brokers.running(broker, folder) as running:
        fleet = Fleet(
            app_id,
            running.bootstrap,
            PARTITIONS,
            folder,
            session_s=BUSY_SESSION_S if is_busy else SESSION_S,
            work_s=WORK_S,
            static=seed % 2 == 1,
            outputs=True,
            windows=True,
            module=module,
            settings=settings,
        )
        make_load = partial(
            Load, running.bootstrap, app_id, PARTITIONS, seed=seed, request_timeout_s=600.0
        )
        load = make_load(orders_per_s=ORDERS_PER_S)
        load.prepare(20)
        returns = make_load(orders_per_s=ORDERS_PER_S / 2, topic="returns")
        topics = {f"{app_id}-{name}": PARTITIONS for name in ("returns", "returned")}
        asyncio.run(create_topics(running.bootstrap, topics))
        disks = {name: folder / name / "data" for name in (*WORKERS, *SPARES)}
        outputs, returned = (
            Outputs(running.bootstrap, app_id, PARTITIONS, topic)
            for topic in ("outputs", "returned")
        )
        patience = BUSY_PATIENCE if is_busy else 1.0
        world = World(fleet, load, outputs, running, disks, (returns, returned), patience)
        try:
            yield world
        finally:
            (folder / "story").write_text("\n".join(world.story) + "\n")
            world.clean_up()
            (folder / "broker.log").write_text(running.words())


def two_owners(world: World) -> list[str]:
    """Return the overlaps of two workers on a partition, from all journals."""
    world.fleet.living()
    journals = {name: worker.folder / "journal" for name, worker in world.fleet.workers.items()}
    done = read({name: journal for name, journal in journals.items() if journal.exists()})
    return interleaved(done) + together(done, world.stops)


@dataclass
class Life:
    """A group through its events; the logs are in ``folder``."""

    broker: str
    guarantee: str
    seed: int
    folder: Path
    tell: Callable[[str], None] = print
    is_busy: bool = False

    def run(self, events: int) -> Played:
        """Play and judge the life."""
        played, began = Played(), time.monotonic()
        faults = overlapping(self.seed, events, WORKERS, SPARES)
        flows = 1 + any(fault.kind in DEPLOYS for fault in faults)
        with world_of(
            self.broker, self.guarantee, self.seed, self.folder, is_busy=self.is_busy
        ) as world:
            try:
                for name in WORKERS:
                    world.start(name)
                self._begin(world, flows)
                self._play(world, faults, played)
                self._judge(world, flows, played)
            except Broken as broken:
                world.tell(f"BROKEN: {broken}")
                played.faults = (str(broken),)
            played.repeats, played.exits = world.progress.repeats, played.exits + world.exits
            played.faults += tuple(two_owners(world))
            if played.faults:
                world.broker.keep(self.folder)
        played.rounds = sum(
            (self.folder / name / "log").read_text(errors="replace").count("Revoked ")
            for name in world.fleet.workers
        )
        played.seconds = time.monotonic() - began
        return played

    @staticmethod
    def _begin(world: World, flows: int) -> None:
        for load, _ in world.flows()[:flows]:
            load.start()
        world.rest()

    def _judge(self, world: World, flows: int, played: Played) -> None:
        """Judge at rest, and once more with the added agent, which resumes after its removal."""
        exactly_once, strangers = self.guarantee == "exactly_once", dict[str, int]()
        played.rest_s = world.rest()
        found = balance(world, exactly_once=exactly_once, strangers=strangers)
        if flows == 2 and not found.faults and not world.takes_returns:
            world.takes_returns = True
            self._begin(world, flows)
            found = balance(world, exactly_once=exactly_once, strangers=strangers)
        played.records, played.faults = found.orders, found.faults
        played.closed = found.closed

    def _play(self, world: World, faults: tuple[Fault, ...], played: Played) -> None:
        """Begin and end each fault; the next begins at its time or before the group is at rest."""
        acts = sorted(
            [(fault.at_s, 1, n, fault) for n, fault in enumerate(faults)]
            + [(fault.at_s + fault.for_s, 0, n, fault) for n, fault in enumerate(faults)]
        )
        now_s, at = 0.0, time.monotonic()
        for at_s, begins, _, fault in acts:
            due = at + at_s - now_s
            while time.monotonic() < due and not (
                played.events and world.is_at_rest(world.fleet.living())
            ):
                world.tick()
            # A broker's start delays the other faults: they shall hit a working broker.
            now_s, at = at_s, time.monotonic()
            if begins:
                played.events += 1
                played.overlapping += not world.is_at_rest(world.fleet.living())
                played.exits, world.exits = played.exits + world.exits, 0
                self.tell(f"{time.strftime('%H:%M:%S')} {played.events:4d} {fault}")
            (world.begin if begins else world.end)(fault)


def play(
    broker: str,
    guarantee: str,
    events: int,
    seed: int,
    tell: Callable[[str], None],
    *,
    is_busy: bool = False,
) -> Played:
    """Run a life; its logs are kept after a broken promise."""
    folder = Path(tempfile.mkdtemp(prefix=f"journal-{broker}-{guarantee}-{seed}-"))
    life = Life(broker, guarantee, seed, folder, tell, is_busy)
    tell(
        f"seed {seed}: {broker}, {guarantee}, {'static' if seed % 2 else 'dynamic'} members, {folder}"
    )
    played = life.run(events)
    tell(f"seed {seed}: {played.line()}")
    if not played.faults:
        shutil.rmtree(folder, ignore_errors=True)
    for fault in played.faults[:20]:
        tell(f"  BROKEN: {fault}")
    return played


def play_windows(
    broker: str, guarantee: str, events: int, seed: int, tell: Callable[[str], None]
) -> Played:
    """Run a story of windows (``closings.py``); its logs are kept after a wrong window."""
    folder = Path(tempfile.mkdtemp(prefix=f"windows-{broker}-{guarantee}-{seed}-"))
    tell(f"seed {seed}: windows, {broker}, {guarantee}, {folder}")
    try:
        with brokers.running(broker, folder) as running:
            closed = closings.story(running.bootstrap, folder, guarantee, events, seed, tell)
    except Exception as error:  # a broken promise, or a failure of the run, which is a failure too
        tell(f"seed {seed}: FAILED: {type(error).__name__}: {error}\n  logs: {folder}")
        return Played(events, faults=(str(error),))
    shutil.rmtree(folder, ignore_errors=True)
    tell(f"seed {seed}: {closed.line()}")
    return Played(events, closed=closed.windows, seconds=closed.seconds, records=closed.records)


@click.command()
@click.option("--windows", is_flag=True, help="Play the stories of windows instead (closings.py).")
@click.option(
    "--broker", type=click.Choice(["embedded", "kafka"]), default="kafka", show_default=True
)
@click.option(
    "--guarantee",
    "guarantees",
    type=click.Choice(["at_least_once", "exactly_once"]),
    multiple=True,
    help="May be given twice; default: what the broker can.",
)
@click.option("--events", type=click.IntRange(1), default=100, show_default=True)
@click.option(
    "--busy",
    "processes",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="So many processes compute meanwhile.",
)
@click.option(
    "--seed",
    "seeds",
    type=int,
    multiple=True,
    default=(1,),
    show_default=True,
    help="May be given several times. Members are static under odd seeds.",
)
def main(
    windows: bool,
    broker: str,
    guarantees: tuple[str, ...],
    events: int,
    processes: int,
    seeds: tuple[int, ...],
) -> None:
    """Print each event and a line for each life; see the module's docstring."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # brokers start and stop
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    tell: Callable[[str], None] = lambda line: print(line, flush=True)  # noqa: E731
    is_busy = processes > 0 or os.getloadavg()[0] > MOST_WAITING * (os.cpu_count() or 1)
    playing = play_windows if windows else partial(play, is_busy=is_busy)
    chosen = guarantees or ("at_least_once", "exactly_once")
    with busy(processes):
        lives = [
            (guarantee, seed, playing(broker, guarantee, events, seed, tell))
            for guarantee in chosen
            for seed in seeds
        ]
    for guarantee, seed, played in () if windows else lives:
        tell(f"{broker} {guarantee} seed {seed}: {played.line()}")
    if left := [what for _, what in leaks.children()]:
        tell(f"LEFT RUNNING: {left}")
    sys.exit(1 if left or any(played.faults for _, _, played in lives) else 0)


if __name__ == "__main__":
    main()
