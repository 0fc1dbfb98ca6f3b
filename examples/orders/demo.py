"""Run a script of joins, restarts and kill -9 on a Faust app, under the stock assignor and then under ours.

    python -m examples.orders.demo                                              # embedded, both assignors
    python -m examples.orders.demo --assignor ours --bootstrap 127.0.0.1:9092   # your Kafka on loopback
    python -m examples.orders.demo --exactly-once                               # transactions

Exit code 0 only if, under our assignor, every record of the final tables equals the model's, and with
``--exactly-once`` no order was processed twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click
from aiokafka.errors import KafkaConnectionError
from rich.console import Console

from examples.orders import PARTITIONS
from examples.orders.fleet import Done, Fleet
from examples.orders.kept import EXTRA, further, program, recorded, status_file, to_try
from examples.orders.load import Load, Verdict, compare
from examples.orders.score import EventScore, Settled, score, standstill
from examples.orders.screen import EACH_EVENT, INTRODUCTION, Screen, comparison
from faust_assigner.testing.broker import broker_process

ASSIGNORS = {
    "stock": "faust.assignor:PartitionAssignor",
    "ours": "faust_assigner:PartitionAssignor",
}
NAMES = {"stock": "stock Faust", "ours": "faust_assigner (ours)"}
SESSION_TIMEOUT_S = 6.0
#: Length of the control event, about that of the other events: a longer wait measures longer pauses.
CONTROL_S = 5.0
SETTLE_TIMEOUT_S = 60.0
#: The timeout grows with the load average per core, up to this factor.
MOST_PATIENCE = 5.0
QUIET_S = 1.5
#: Orders are lost if the settled group processes none for this time; a member expires in less.
LOST_AFTER_S = 3 * SESSION_TIMEOUT_S
#: A partition flows if an order was processed within this time; a transaction's commit takes less.
FLOWING_S = 2.5
#: An uneven load may wait this long for a warm-up copy; the stock assignor never evens loads out.
UNEVEN_S = 12.0


def patience(load_average: float, cores: int) -> float:
    """Return the factor for timeouts when ``load_average`` processes share ``cores``."""
    return min(MOST_PATIENCE, max(1.0, load_average / cores))


class NotSettledError(RuntimeError):
    """The group did not settle in time."""


@dataclass
class Result:
    """The results of a run of the script."""

    assignor: str
    events: list[EventScore] = field(default_factory=list)
    verdict: Verdict | None = None
    orders: int = 0
    stuck: str = ""
    #: A partition that lost its owner; None if the run stopped before that event.
    story: int | None = None


@dataclass
class Script:
    """The events, equal for both assignors: 3 start, a 4th joins, one restarts, one dies and returns."""

    fleet: Fleet
    load: Load
    screen: Screen
    result: Result
    #: File for snapshots of the group's status; None writes no file.
    status: Path | None = None
    files: dict[str, frozenset[int]] = field(default_factory=dict)
    #: Worker -> partitions of its standbys and warm-ups during this event.
    copies: dict[str, frozenset[int]] = field(default_factory=dict)
    longest_s: float = 0.0
    told: set[str] = field(default_factory=set)
    #: Workers that the script has killed and has not restarted.
    killed: set[str] = field(default_factory=set)

    async def run(self) -> Result:
        """Run the script; return the scores and the verdict on the tables."""
        async with recorded(self.status, self.fleet.bootstrap, self.fleet.app_id):
            await self._play()
        self.result.orders = self.load.orders_sent
        return self.result

    async def _play(self) -> None:
        await self.load.create_topics()
        await self.load.send_customers()
        for name in ("worker-1", "worker-2", "worker-3"):
            self.fleet.start(name)
        await self._drain("customers", len(self.load.rates))
        sender = asyncio.create_task(self.load.send_orders())
        try:
            state = await self._settle("three workers start")
            self.result.story = 0
            state = await self._event(
                "nothing happens, to compare with", state, self._nothing, CONTROL_S
            )
            state = await self._event("a fourth worker joins", state, self._join)
            state = await self._event(
                "worker-2 is killed and back within its session", state, self._bounce
            )
            lost = state.actives["worker-1"]
            state = await self._event("worker-1 dies by SIGKILL", state, self._die)
            state = await self._event("worker-1 returns with its files", state, self._return)
        finally:
            self.load.stopping = True
            await sender
        # If worker-1 got the same partitions back, their last move is at its death.
        self.result.story = min(lost - state.actives["worker-1"] or lost)
        await self._drain("orders", self.load.orders_sent, LOST_AFTER_S)
        self.result.verdict = compare(self.load, *self.fleet.tables())

    def _nothing(self, state: Settled) -> None:
        """Do nothing: the control measures the pauses of the load and the machine alone."""

    def _join(self, state: Settled) -> None:
        self.fleet.start("worker-4")

    def _bounce(self, state: Settled) -> None:
        self.files["worker-2"] = state.held("worker-2")
        self.fleet.kill("worker-2")
        self.fleet.start("worker-2")

    def _die(self, state: Settled) -> None:
        self.files["worker-1"] = state.held("worker-1")
        self.killed.add("worker-1")
        self.fleet.kill("worker-1")

    def _return(self, state: Settled) -> None:
        self.fleet.start("worker-1")
        self.killed.discard("worker-1")

    async def _event(
        self, name: str, before: Settled, act: Callable[[Settled], None], least_s: float = 0.0
    ) -> Settled:
        since = time.time()
        act(before)
        after = await self._settle(name, least_s)
        gaps = standstill(self.fleet.done("orders"), since, time.time())
        copies = {
            worker: self.files.get(worker, frozenset()) | self.copies.get(worker, frozenset())
            for worker in after.actives
        }
        self.result.events.append(score(name, before, after, copies, gaps))
        self.screen.scored(self.result.events[-1])
        return after

    async def _settle(self, event: str, least_s: float = 0.0) -> Settled:
        """Wait until each partition has a living owner, owners process orders and no partition moves."""
        since = calm_since = time.time()
        uneven_s = UNEVEN_S * patience(os.getloadavg()[0], os.cpu_count() or 1)
        last = None
        self.copies = {}
        while time.time() - since < self._timeout_s(event, time.time() - since):
            await asyncio.sleep(0.1)
            workers = self.fleet.living()
            if ended := self.fleet.workers.keys() - {w.name for w in workers} - self.killed:
                raise NotSettledError(f"{event}: {', '.join(sorted(ended))} ended by itself")
            now = {w.name: w.actives for w in workers if w.actives is not None}
            for w in workers:
                self.copies[w.name] = self.copies.get(w.name, frozenset()) | w.standbys
            self.screen.show(event, workers, time.time() - since)
            loads = [len(owned) for owned in now.values()]
            done = self.fleet.done("orders")
            self.load.processed = len(done)
            if now != last or not self._all_flow(now, len(workers), done):
                last, calm_since = now, time.time()
            elif time.time() - since < least_s:
                continue
            elif time.time() - calm_since > (QUIET_S if max(loads) - min(loads) <= 1 else uneven_s):
                return Settled(now, {w.name: w.standbys for w in workers})
        raise NotSettledError(
            f"{event}: no rest within {time.time() - since:.0f} s; last seen "
            f"{ {name: sorted(owned) for name, owned in (last or {}).items()} }"
        )

    def _timeout_s(self, event: str, waited_s: float) -> float:
        """Return the timeout in s, longer on a busy machine; print the reason once per slow event."""
        load_average, cores = os.getloadavg()[0], os.cpu_count() or 1
        times = patience(load_average, cores)
        self.longest_s = max(self.longest_s, SETTLE_TIMEOUT_S * times)
        if times > 1.0 and waited_s > SETTLE_TIMEOUT_S / 2 and event not in self.told:
            self.told.add(event)
            self.screen.console.print(
                f"  {event}: still waiting after {waited_s:.0f} s. The machine is busy: {load_average:.1f} "
                f"processes want its {cores} cores. Waiting up to {self.longest_s:.0f} s",
                highlight=False,
                soft_wrap=True,
            )
        return self.longest_s

    def _all_flow(
        self, actives: dict[str, frozenset[int]], workers: int, done: Sequence[Done]
    ) -> bool:
        owned = [p for partitions in actives.values() for p in partitions]
        since = time.time() - FLOWING_S * patience(os.getloadavg()[0], os.cpu_count() or 1)
        recent = {p for at, p, _ in done[-4000:] if at > since}
        return len(actives) == workers and sorted(owned) == list(range(PARTITIONS)) == sorted(
            recent
        )

    async def _drain(self, topic: str, sent: int, lost_after_s: float = math.inf) -> None:
        """Wait until all ``sent`` distinct records of ``topic`` are processed, or until the timeout.

        The missing ones are lost if no record at all is processed for ``lost_after_s``, longer on a
        busy machine.
        """
        since = progress = time.time()
        event, before = f"waiting for all {topic}", 0
        while time.time() - since < self._timeout_s(event, time.time() - since):
            self.screen.show(event, self.fleet.living(), time.time() - since)
            done = len({row[1:] for row in self.fleet.done(topic)})
            if done > before:
                before, progress = done, time.time()
            factor = patience(os.getloadavg()[0], os.cpu_count() or 1)
            if done >= sent or time.time() - progress > lost_after_s * factor:
                return
            await asyncio.sleep(0.2)


def play(
    assignor: str,
    bootstrap: str,
    console: Console,
    folder: Path,
    ledger: Path | None,
    guarantee: str,
    orders_per_s: int,
) -> Result:
    """Run the script under an assignor, with Faust's ``guarantee``."""
    console.print(
        f"\n[bold]{NAMES[assignor]}[/bold]: {PARTITIONS} partitions, two tables, one standby "
        f"each, {Load.customers:,} customers, session {SESSION_TIMEOUT_S:.0f} s, static members, {guarantee}",
        soft_wrap=True,
    )
    result = Result(assignor)
    kept = ledger if assignor == "ours" else None
    status = None if kept is None else status_file(kept)
    fleet = Fleet(
        f"shop-{assignor}",
        bootstrap,
        ASSIGNORS[assignor],
        folder / assignor,
        SESSION_TIMEOUT_S,
        kept,
        guarantee,
    )
    with Screen(console) as screen:
        try:
            load = Load(bootstrap, orders_per_s=orders_per_s)
            return asyncio.run(Script(fleet, load, screen, result, status).run())
        except (NotSettledError, TimeoutError) as reason:
            console.print(f"  [red]stuck[/red]: {reason}", soft_wrap=True)
            console.print(f"  {fleet.last_words()}", soft_wrap=True, highlight=False, markup=False)
            result.stuck = str(reason)
            return result
        finally:
            fleet.stop()


def offer(console: Console, ledger: Path, story: int) -> None:
    """Print the commands that read the run's files."""

    def listed(title: str, commands: tuple[tuple[str, str], ...]) -> None:
        console.print(f"\n{title}", soft_wrap=True, markup=False, highlight=False)
        for question, command in commands:
            console.print(
                f"  {question}\n    {command}", soft_wrap=True, markup=False, highlight=False
            )

    listed(f"The ledger answers more, after {program('pip')} install {EXTRA}:", further(ledger))
    listed(
        "All workers and brokers have ended. Three commands to try on what they left:",
        to_try(ledger, story),
    )


def is_right(verdict: Verdict | None, *, exactly_once: bool) -> bool:
    """Return whether the run ended with the model's tables, and without repeats under exactly_once."""
    if verdict is None or not verdict.equal:
        return False
    return not (exactly_once and (verdict.repeated_orders or verdict.lost_orders))


@click.command()
@click.option(
    "--bootstrap",
    help="A broker on loopback, one for each assignor; default: the embedded one.",
    multiple=True,
)
@click.option(
    "--assignor",
    "assignors",
    type=click.Choice(list(ASSIGNORS)),
    multiple=True,
    help="Which to run; default: stock, then ours.",
)
@click.option(
    "--ledger",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Keep our assignor's ledger there, and looks at its group in demo-status.jsonl beside it.",
)
@click.option(
    "--exactly-once", is_flag=True, help="Run the apps with processing_guarantee='exactly_once'."
)
@click.option(
    "--orders-per-s",
    type=click.IntRange(2 * PARTITIONS),
    default=Load.orders_per_s,
    show_default=True,
    help="Orders a second, over all partitions. Fewer orders leave a small machine more of its processor.",
)
def main(
    bootstrap: tuple[str, ...],
    assignors: tuple[str, ...],
    ledger: Path | None,
    exactly_once: bool,
    orders_per_s: int,
) -> None:
    """Run the demo; see the module's docstring."""
    # the workers and the broker end with this process
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # aiokafka logs an error while a new topic has no leader
    logging.getLogger("aiokafka").setLevel(logging.ERROR)
    assignors = assignors or tuple(ASSIGNORS)
    if bootstrap and len(bootstrap) != len(assignors):
        raise click.BadParameter(
            f"one for each of {', '.join(assignors)}; on one they would share topics",
            param_hint="--bootstrap",
        )
    console = Console()
    began = time.monotonic()
    guarantee = "exactly_once" if exactly_once else "at_least_once"
    results = []
    for line in (INTRODUCTION, EACH_EVENT):
        console.print(line, highlight=False, soft_wrap=True)
    with tempfile.TemporaryDirectory(prefix="faust-assigner-demo-") as folder:
        for index, assignor in enumerate(assignors):
            with contextlib.ExitStack() as stack:
                address = (
                    bootstrap[index]
                    if bootstrap
                    else stack.enter_context(
                        broker_process(None, "group.initial.rebalance.delay.ms=500")
                    ).bootstrap
                )
                try:
                    results.append(
                        play(
                            assignor,
                            address,
                            console,
                            Path(folder),
                            ledger,
                            guarantee,
                            orders_per_s,
                        )
                    )
                except KafkaConnectionError as error:
                    raise click.ClickException(str(error)) from None
    console.print(comparison(results))
    console.print(f"done in {time.monotonic() - began:.0f} s")
    judged = [r for r in results if r.assignor == "ours"] or results
    if ledger is not None and "ours" in assignors and judged[0].story is not None:
        offer(console, ledger, judged[0].story)
    sys.exit(0 if all(is_right(r.verdict, exactly_once=exactly_once) for r in judged) else 1)


if __name__ == "__main__":
    main()
