"""Run real Faust workers on Apache Kafka and on the embedded broker, with our assignor and with stock.

    python -m benchmarks.real_workers                 # every cell once: 2 brokers x 2 assignors x 4 sizes
    python -m benchmarks.real_workers --runs 20       # and 20 runs in a row of ours, small, on each broker
    python -m benchmarks.real_workers --quick         # one cell, both assignors, embedded broker

In each run three workers start with waiting records; a fourth joins; a worker dies by SIGKILL and returns
with its files; a worker leaves by SIGTERM. Exit code 0 only if ours kept every promise in every run: no lost
order, tables equal to the model, no cold takeover after SIGKILL and SIGTERM, moves = the minimum, no idle
worker, a restarted worker back on partitions of its files. Stock is measured without a verdict.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import click

from faust_assigner.testing.broker import broker_process
from faust_assigner.testing.kafka import kafka_server
from tests.support.workers.measure import Event
from tests.support.workers.script import Outcome, play

SIZES = [(12, 0), (12, 200_000), (32, 0), (32, 200_000)]
HEADER = (
    f"{'broker':<9}{'assignor':<9}{'partitions':>10}{'preload':>8}  {'event':<19}{'loads':<13}"
    f"{'moves(min)':>10}{'cold':>5}{'replayed':>9}   {'moved gap s':>13}{'kept gap s':>13}"
)


@contextlib.contextmanager
def running(broker: str) -> Iterator[str]:
    """Start a broker; yield its address."""
    if broker == "embedded":
        with broker_process() as server:
            yield server.bootstrap
    else:
        with kafka_server() as server:
            yield server.bootstrap


def gaps(seconds: Sequence[float]) -> str:
    """Format median/max."""
    return f"{median(seconds):.1f}/{max(seconds):.1f}" if seconds else "-"


def row(cell: str, event: Event) -> str:
    """Format a row of the table."""
    loads = "/".join(map(str, event.loads))
    moves = f"{event.moves} ({event.minimum_moves})"
    return (
        f"{cell}  {event.name:<19}{loads:<13}{moves:>10}{event.cold:>5}"
        f"{event.replayed:>9}   {gaps(event.moved_gaps):>13}{gaps(event.kept_gaps):>13}"
    )


def run(
    broker: str, address: str, assignor: str, partitions: int, preload: int, seed: int
) -> Outcome | None:
    """Play a run and print its events; return None if the group did not come to rest."""
    cell = f"{broker:<9}{assignor:<9}{partitions:>10}{preload:>8}"
    app_id = f"{assignor}-{partitions}-{preload}-{seed}-{time.time_ns() % 10**9}"
    with tempfile.TemporaryDirectory(prefix="faust-assigner-workers-") as folder:
        try:
            outcome = play(
                address,
                assignor,
                Path(folder),
                app_id=app_id,
                partitions=partitions,
                preload=preload,
                seed=seed,
            )
        except (RuntimeError, TimeoutError) as error:
            print(f"{cell}  FAILED (seed {seed}): {error}", flush=True)
            return None
    for event in outcome.events:
        print(row(cell, event), flush=True)
    verdict = outcome.verdict
    back = "/".join(map(str, outcome.back_with_files or ()))
    print(
        f"{cell}  orders {verdict.orders}, lost {verdict.lost}, repeated {verdict.repeated}, "
        f"wrong rows {len(verdict.wrong_rows)}, back with files {back}, {outcome.seconds:.0f} s "
        f"(seed {seed})",
        flush=True,
    )
    if assignor == "ours":
        for violation in outcome.violations:
            print(f"{cell}  BROKEN PROMISE: {violation}", flush=True)
    return outcome


@click.command()
@click.option(
    "--runs",
    default=1,
    show_default=True,
    help="Runs in a row of ours, 12 partitions, on each broker.",
)
@click.option(
    "--quick", is_flag=True, help="Only 12 partitions without preload on the embedded broker."
)
@click.option(
    "--broker",
    "brokers",
    type=click.Choice(["kafka", "embedded"]),
    multiple=True,
    default=("kafka", "embedded"),
)
@click.option(
    "--size",
    "chosen",
    type=click.Choice([f"{p}x{n}" for p, n in SIZES]),
    multiple=True,
    help="Partitions x preloaded changelog records; default: all.",
)
@click.option("--only-runs", is_flag=True, help="Leave out the table; only --runs.")
@click.option("--seed", default=1, show_default=True)
def main(
    runs: int,
    quick: bool,
    brokers: tuple[str, ...],
    chosen: tuple[str, ...],
    only_runs: bool,
    seed: int,
) -> None:
    """Print the table; see the module's docstring."""
    sizes = [(p, n) for p, n in SIZES if not chosen or f"{p}x{n}" in chosen]
    if quick:
        brokers, sizes = ("embedded",), SIZES[:1]
    cells = [] if only_runs else list(itertools.product(sizes, ("stock", "ours")))
    repeats = [(SIZES[0], "ours")] * (runs if only_runs else runs - 1)
    broken = 0
    # a new topic has no leader for a moment
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    print(HEADER, flush=True)
    for broker in brokers:
        with running(broker) as address:
            for number, ((partitions, preload), assignor) in enumerate(cells + repeats):
                outcome = run(broker, address, assignor, partitions, preload, seed + number)
                if assignor == "ours":
                    broken += outcome is None or bool(outcome.violations)
    print(f"runs of ours that broke a promise: {broken}")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
