"""Measure each change of a group: stock Faust, ours eager and cooperative, and Kafka Streams, in one run.

    python -m benchmarks.gaps                                   # Kafka and the embedded broker, 15 minutes
    python -m benchmarks.gaps --partitions 12,32 --preload 0,200000 --rounds 3 --budget 36000   # everything
    python -m benchmarks.gaps --brokers embedded --arms cooperative --events join --preload 0   # one event

Real processes, RocksDB, one standby, dynamic members except in static events. Records arrive steadily. A
partition's gap is the longest time between two of its processed records around the event. Kept partitions
stay with their process; moved partitions go to another process. "nothing" is the control event. Gaps are
median/maximum in seconds (number of partitions). "cold" counts partitions whose new owner had neither a copy
nor files; "replayed" counts changelog records in its recovery (for Kafka Streams: in its active tasks).
Events beyond the budget are left out and listed.
"""

from __future__ import annotations

import itertools
import logging
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import click

from benchmarks.gaps.arms import ARMS, BROKER_SETTINGS, Arm, fleet_of, streams_classes
from benchmarks.gaps.measured import Row, rows
from benchmarks.gaps.story import EVENTS, STATIC_EVENTS, Story
from benchmarks.gaps.table import beyond, line, table
from faust_assigner.testing.broker import broker_process
from faust_assigner.testing.kafka import kafka_server
from tests.support.workers.load import Load

#: Events that need an earlier event.
NEEDS = {"return": "SIGKILL", "6 to 3": "3 to 6"}
#: A run starts only if at least this much of the budget is left.
LEAST_S = 90.0


@dataclass(frozen=True)
class Cell:
    """The setting of a table."""

    broker: str
    partitions: int
    preload: int

    def __str__(self) -> str:
        return f"{self.broker}, {self.partitions} partitions, {self.preload} records preloaded"


@dataclass
class Bench:
    """The options and failures of all runs of a call."""

    arms: tuple[str, ...]
    events: tuple[str, ...]
    rounds: int
    seed: int
    rate: float
    ends_at: float
    #: Folder for logs, journals and files; None deletes them.
    logs: Path | None = None
    classes: str = ""
    failures: list[str] = field(default_factory=list)

    def cell(self, cell: Cell, address: str) -> None:
        """Run all arms of a cell, round by round; then print their table."""
        print(f"\n== {cell}", flush=True)
        found: dict[str, list[list[Row]]] = {}
        for number, name in itertools.product(range(self.rounds), self.arms):
            if ARMS[name].java and cell.broker != "kafka":
                continue
            if time.monotonic() > self.ends_at - LEAST_S:
                print(
                    f"left out, the budget is used up: {name}, seed {self.seed + number}",
                    flush=True,
                )
                continue
            found.setdefault(name, []).append(
                self.run(cell, address, ARMS[name], self.seed + number)
            )
        print(f"\n-- {cell}: side by side, {self.rounds} round(s) from seed {self.seed}")
        print("\n".join(table(found, 10.0)), flush=True)

    def run(self, cell: Cell, address: str, arm: Arm, seed: int) -> list[Row]:
        """Run both groups of an arm; the second has static members."""
        plain = tuple(event for event in self.events if event not in STATIC_EVENTS)
        static = tuple(
            event for event in self.events if event in STATIC_EVENTS and arm.has_static_members
        )
        played = self.group(cell, address, arm, seed, plain, static=False) if plain else []
        more = self.group(cell, address, arm, seed, static, static=True) if static else []
        return played + (more[1:] if plain else more)  # drop the second group's first start

    def group(
        self,
        cell: Cell,
        address: str,
        arm: Arm,
        seed: int,
        events: tuple[str, ...],
        *,
        static: bool,
    ) -> list[Row]:
        """Play a new group's events, check its rows and print progress."""
        began, app_id = time.monotonic(), f"{arm.name}-{time.time_ns() % 10**10}"
        with ExitStack() as ends:
            folder = (
                str(self.logs / app_id)
                if self.logs
                else ends.enter_context(tempfile.TemporaryDirectory(prefix="faust-assigner-gaps-"))
            )
            fleet = fleet_of(
                arm,
                app_id,
                address,
                cell.partitions,
                Path(folder),
                static=static,
                classes=self.classes,
            )
            ends.callback(fleet.stop)
            load = Load(address, app_id, cell.partitions, cell.preload, self.rate, seed)
            ends.callback(load.stop)
            story = Story(fleet, load, self.ends_at, tell=partial(click.echo, err=True))
            wrong: tuple[str, ...] = ()
            try:
                story.play(events)
                wrong = story.finish(judged=not arm.java)
            except (RuntimeError, TimeoutError, OSError) as error:
                self.fail(arm, f"{arm.name}, seed {seed}: {type(error).__name__} {error}")
            load.stop()
            if story.left_out:
                print(
                    f"left out, the budget is used up: {arm.name}, seed {seed}: "
                    f"{', '.join(story.left_out)}",
                    flush=True,
                )
            found = rows(story.history(), story.windows)
        lost = sum(row.lost for row in found)
        control = next((row for row in found if row.event == EVENTS[0]), None)
        for row in found:
            print(line(arm.name, row, beyond(row, control, fleet.session_s)), flush=True)
        print(
            f"{arm.name}{', static members' * static}: {sum(load.sent)} orders, {lost} lost, "
            f"{'rows not looked at' if arm.java else f'{len(wrong)} wrong rows'}, "
            f"{time.monotonic() - began:.0f} s (seed {seed})",
            flush=True,
        )
        if lost or wrong:
            self.fail(arm, f"{arm.name}, seed {seed}: {lost} lost, wrong rows: {wrong[:3]}")
        return found

    def fail(self, arm: Arm, said: str) -> None:
        """Print the failure; count it if it is ours."""
        print(f"FAILED: {said}", flush=True)
        if arm.ours:
            self.failures.append(said)


@contextmanager
def running(broker: str) -> Iterator[str]:
    """Start a broker; yield its address."""
    if broker == "embedded":
        with broker_process() as server:
            yield server.bootstrap
    else:
        with kafka_server(BROKER_SETTINGS) as server:
            yield server.bootstrap


def some_of(*known: str) -> Callable[[click.Context, click.Parameter, str], tuple[str, ...]]:
    """Parse known names, separated by commas; return them in the order of ``known``."""

    def chosen(_: click.Context, __: click.Parameter, value: str) -> tuple[str, ...]:
        wanted = [name.strip() for name in value.split(",")]
        if strangers := set(wanted) - set(known):
            raise click.BadParameter(f"{', '.join(sorted(strangers))}; known: {', '.join(known)}")
        return tuple(
            name for name in known if name in {*wanted, *(NEEDS.get(name) for name in wanted)}
        )

    return chosen


def numbers(_: click.Context, __: click.Parameter, value: str) -> tuple[int, ...]:
    """Parse integers, separated by commas."""
    try:
        return tuple(int(number) for number in value.split(","))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


POSITIVE = click.FloatRange(0, min_open=True)


@click.command()
@click.option(
    "--brokers", default="kafka,embedded", callback=some_of("kafka", "embedded"), show_default=True
)
@click.option("--partitions", default="12", callback=numbers, show_default=True)
@click.option(
    "--preload", default="200000", callback=numbers, show_default=True, help="Changelog records."
)
@click.option("--arms", default=",".join(ARMS), callback=some_of(*ARMS), show_default=True)
@click.option(
    "--events",
    default=",".join(EVENTS + STATIC_EVENTS),
    show_default=True,
    callback=some_of(*EVENTS, *STATIC_EVENTS),
)
@click.option("--rounds", type=click.IntRange(1), default=1, show_default=True)
@click.option(
    "--seed", default=1, show_default=True, help="The first round's; the next has the next."
)
@click.option(
    "--rate",
    type=POSITIVE,
    default=20.0,
    show_default=True,
    help="Orders a second on each partition.",
)
@click.option(
    "--logs", type=click.Path(path_type=Path), help="Keep logs, journals and files there."
)
@click.option(
    "--budget",
    type=POSITIVE,
    default=840.0,
    show_default=True,
    help="Seconds; what does not fit is left out.",
)
def main(
    brokers: tuple[str, ...],
    partitions: tuple[int, ...],
    preload: tuple[int, ...],
    arms: tuple[str, ...],
    events: tuple[str, ...],
    rounds: int,
    seed: int,
    rate: float,
    logs: Path | None,
    budget: float,
) -> None:
    """Print the tables; exit with 1 if ours lost records, had wrong rows or stopped with an error."""
    # a new topic has no leader for a moment
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    for number in (signal.SIGINT, signal.SIGTERM):  # an early end must stop all processes
        signal.signal(number, lambda *_: sys.exit(130))
    bench = Bench(arms, events, rounds, seed, rate, time.monotonic() + budget, logs)
    with ExitStack() as ends:
        if any(ARMS[arm].java for arm in arms) and "kafka" in brokers:
            bench.classes = ends.enter_context(streams_classes())
        for broker in brokers:
            with running(broker) as address:
                for count, records in itertools.product(partitions, preload):
                    bench.cell(Cell(broker, count, records), address)
    print(f"\nfailures of ours: {len(bench.failures)}")
    raise SystemExit(1 if bench.failures else 0)


if __name__ == "__main__":
    main()
