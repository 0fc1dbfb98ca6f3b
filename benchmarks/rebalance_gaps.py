"""What each change of a group costs: stock Faust, ours with eager rounds, ours with cooperative ones.

    python -m benchmarks.rebalance_gaps                              # three kinds, both brokers, all events
    python -m benchmarks.rebalance_gaps --broker embedded --kind cooperative --event join

Real workers, RocksDB, one standby. A gap is the longest time, in seconds, without a processed order on one
partition while the event lasts; median / maximum over those that kept their owner and those that moved. The
event "nothing" is the control: what the machine and the clients do by themselves.
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import click

from benchmarks.real_workers import running
from tests.support.workers.measure import Event
from tests.support.workers.script import play

KINDS = {"stock": ("stock", {}), "eager": ("ours", {"faust_assigner_cooperative": False}),
         "cooperative": ("ours", {"faust_assigner_cooperative": True})}
EVENTS = ("nothing", "join", "SIGKILL", "restart with files", "SIGTERM", "bounce", "roll")
HEADER = (f"{'broker':<9}{'kind':<12}{'event':<19}{'moves':>6}{'cold':>5}   "
          f"{'kept gap s':>12}{'moved gap s':>12}")


def gaps(seconds: Sequence[float]) -> str:
    """Median / maximum."""
    return f"{median(seconds):.2f}/{max(seconds):.2f}" if seconds else "-"


def row(broker: str, kind: str, event: Event) -> str:
    """One line of the table."""
    return (f"{broker:<9}{kind:<12}{event.name:<19}{event.moves:>6}{event.cold:>5}   "
            f"{gaps(event.kept_gaps):>12}{gaps(event.moved_gaps):>12}")


def run(broker: str, address: str, kind: str, events: tuple[str, ...], partitions: int, preload: int,
        seed: int) -> bool:
    """One run of all events, printed; whether it came to its end with nothing lost."""
    assignor, settings = KINDS[kind]
    with tempfile.TemporaryDirectory(prefix="faust-assigner-gaps-") as folder:
        try:
            outcome = play(address, assignor, Path(folder), app_id=f"{kind}-{time.time_ns() % 10**9}",
                           partitions=partitions, preload=preload, seed=seed, events=events,
                           settings=settings, orders_per_s=20.0)
        except (RuntimeError, TimeoutError) as error:
            print(f"{broker:<9}{kind:<12}FAILED (seed {seed}): {error}", flush=True)
            return False
    for event in outcome.events:
        print(row(broker, kind, event), flush=True)
    verdict = outcome.verdict
    print(f"{broker:<9}{kind:<12}orders {verdict.orders}, lost {verdict.lost}, repeated {verdict.repeated}, "
          f"wrong rows {len(verdict.wrong_rows)}, {outcome.seconds:.0f} s", flush=True)
    return not verdict.lost and not verdict.wrong_rows


@click.command()
@click.option("--broker", "brokers", type=click.Choice(["kafka", "embedded"]), multiple=True,
              default=("embedded", "kafka"))
@click.option("--kind", "kinds", type=click.Choice(list(KINDS)), multiple=True, default=tuple(KINDS))
@click.option("--event", "events", type=click.Choice(EVENTS), multiple=True, default=EVENTS)
@click.option("--partitions", default=12, show_default=True)
@click.option("--preload", default=0, show_default=True, help="Changelog records written beforehand.")
@click.option("--runs", default=1, show_default=True)
@click.option("--seed", default=1, show_default=True)
def main(brokers: tuple[str, ...], kinds: tuple[str, ...], events: tuple[str, ...], partitions: int,
         preload: int, runs: int, seed: int) -> None:
    """Print the table; exit code 1 where a run of ours lost something or came to no end."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # a new topic has no leader for a moment
    print(HEADER, flush=True)
    good = True
    for broker in brokers:
        with running(broker) as address:
            for number in range(runs):
                for kind in kinds:
                    good &= run(broker, address, kind, events, partitions, preload, seed + number) \
                        or kind == "stock"
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
