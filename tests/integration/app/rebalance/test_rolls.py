"""From stock to ours, eager, to cooperative rounds, and all the way back, under load, either kind leading."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from faust_assigner.testing.broker import broker_process
from faust_assigner.testing.kafka import KafkaServer
from tests.soak.outputs import Outputs
from tests.support.workers.fleet import Fleet
from tests.support.workers.interleaved import Journals, interleaved, read, together
from tests.support.workers.load import Load

COOPERATIVE, EAGER = {"faust_assigner_cooperative": True}, {"faust_assigner_cooperative": False}
AT_LEAST_ONCE, EXACTLY_ONCE = "at_least_once", "exactly_once"
NAMES = ("w1", "w2", "w3")
#: Seconds after which a worker that has ended is started again.
RESTART_S = 3.0


def said(fleet: Fleet, text: str) -> bool:
    """Whether a living worker has said it."""
    return any(text in (worker.folder / "log").read_text() for worker in fleet.living())


def start(fleet: Fleet, name: str, assignor: str) -> None:
    """Start it, with the files of its former life.

    Under ``exactly_once`` stock takes a changelog that it has not read for empty, and ends at a file that has
    more: people turn its check off.
    """
    unchecked = assignor == "stock" and fleet.settings["processing_guarantee"] == EXACTLY_ONCE
    fleet.settings = {**fleet.settings, "recovery_consistency_check": not unchecked}
    fleet.start(name, assignor)


class Supervisor:
    """Starts stock workers that have ended again, after a while; one of ours must not end.

    Under ``exactly_once`` stock ends at many a rebalance: it sends beside its transactions.
    """

    def __init__(self, fleet: Fleet) -> None:
        self.fleet, self.ended = fleet, dict[str, float]()

    def look(self) -> None:
        """To be called again and again."""
        for name, worker in self.fleet.workers.items():
            if worker.alive:
                self.ended.pop(name, None)
                continue
            assert worker.assignor == "stock", worker.log_tail()
            if time.monotonic() - self.ended.setdefault(name, time.monotonic()) > RESTART_S:
                start(self.fleet, name, "stock")


def settle(fleet: Fleet, after: int = -1) -> None:
    """Until all are at rest."""
    fleet.settle(workers=len(NAMES), after=after, timeout_s=240.0, meanwhile=Supervisor(fleet).look)


def replace(
    fleet: Fleet, assignor: str, settings: dict[str, bool], names: Sequence[str] = NAMES
) -> None:
    """One roll: each worker in turn; every replacement comes to rest."""
    fleet.settings = {**fleet.settings, **settings}
    for name in names:
        generation = fleet.generation()
        if fleet.workers[name].alive:
            fleet.terminate(name)
        start(fleet, name, assignor)
        settle(fleet, generation)


def leader(fleet: Fleet) -> str:
    """The living worker that was elected last, by the logs."""
    elected = {}
    for worker in fleet.living():
        said = [
            line
            for line in (worker.folder / "log").read_text().splitlines()
            if "Elected group leader" in line
        ]
        elected[worker.name] = said[-1][: len("[2026-01-01 00:00:00,000]")] if said else ""
    return max(elected, key=lambda name: elected[name])


def lead(fleet: Fleet, kind: str) -> None:
    """Restart whoever leads until one of ``kind`` does; the oldest member leads, and stock may have ended."""
    for _ in range(8):
        name = leader(fleet)
        if fleet.workers[name].assignor == kind:
            return
        replace(fleet, fleet.workers[name].assignor, EAGER, [name])
    raise AssertionError(f"no worker of {kind} leads")


def change_over(fleet: Fleet, old: str, new: str) -> None:
    """From one kind to the other by way of two mixed groups: the old leads the one, the new the other."""
    first = leader(fleet)
    replace(fleet, new, EAGER, [name for name in NAMES if name != first])
    lead(fleet, old)
    lead(fleet, new)
    replace(fleet, new, EAGER, [first])


@dataclass(frozen=True)
class Before:
    """What there was ``at`` the moment when the last stock worker had gone: what those lost is theirs.

    ``once``: from then on nothing is done twice.
    """

    once: bool
    at: float
    sent: list[int]
    lost_by_stock: int
    orders: dict[str, int]
    totals: Mapping[str, Mapping[str, int]]

    def lost(self, fleet: Fleet, load: Load) -> int:
        """Orders since then that nobody was done with."""
        done = {row[1:] for row in fleet.orders()}
        return sum(
            (partition, offset) not in done
            for partition, (since, until) in enumerate(zip(self.sent, load.sent, strict=True))
            for offset in range(since, until)
        )

    def meetings(self, fleet: Fleet) -> list[str]:
        """Where two workers processed one partition at the same time: from then on, or ever.

        Under ``exactly_once`` a stock worker that is fenced goes on, and commits nothing.
        """
        found = read({name: worker.folder / "journal" for name, worker in fleet.workers.items()})
        since = self.at if self.once else 0.0
        found = Journals([one for one in found.done if one.began > since], found.told)
        return interleaved(found) + together(found, {})

    def wrong_rows(self, load: Load, totals: Mapping[str, Mapping[str, int]]) -> list[str]:
        """Customers whose rows do not differ from then by the orders since."""
        wrong = []
        for customer, amounts in sorted(load.amounts.items()):
            since = self.totals.get(customer, dict.fromkeys(("amount", "missing", "repeats"), 0))
            row, more = totals[customer], sum(amounts[self.orders.get(customer, 0) :])
            repeats = since["repeats"] if self.once else row["repeats"]
            if (
                row["numbers"],
                row["amount"] - since["amount"],
                row["missing"],
                row["repeats"],
            ) != (len(amounts), more, since["missing"], repeats):
                wrong.append(
                    f"{customer}: {since}, then {row}; expected {len(amounts)} orders, {more} more"
                )
        return wrong

    def wrong_outputs(self, load: Load, outputs: Outputs, patience_s: float = 15.0) -> list[str]:
        """Orders since then that have no output that is committed, or one too many."""
        deadline = time.monotonic() + patience_s
        while True:
            found = [
                f"{customer} {number}: {count}"
                for customer, amounts in sorted(load.amounts.items())
                for number in range(self.orders.get(customer, 0), len(amounts))
                if (count := outputs.times(customer, number)) != 1 and (self.once or not count)
            ]
            if not found or time.monotonic() > deadline:
                return found
            outputs.read(0.5)


def at_rest(fleet: Fleet, load: Load, once: bool) -> Before:
    """The load pauses until all is consumed that will be."""
    load.stop()
    fleet.drain(sum(load.sent), patience_s=10.0)
    lost = sum(load.sent) - len({row[1:] for row in fleet.orders()})
    orders = {customer: len(amounts) for customer, amounts in load.amounts.items()}
    before = Before(once, time.time(), list(load.sent), lost, orders, fleet.totals())
    load.resume()
    return before


def roll(bootstrap: str, folder: Path, guarantee: str) -> None:
    """No two workers meet; without stock every order is processed once, and rows are those of the model."""
    app_id = f"rolls-{time.time_ns()}"
    fleet = Fleet(
        app_id,
        bootstrap,
        6,
        folder,
        "stock",
        work_s=0.01,
        outputs=True,
        settings={"processing_guarantee": guarantee},
    )
    load = Load(bootstrap, app_id, 6, orders_per_s=5.0)
    outputs = Outputs(bootstrap, app_id, 6)
    try:
        load.prepare(5)
        for name in NAMES:
            start(fleet, name, "stock")
        load.start()
        settle(fleet)
        change_over(fleet, "stock", "ours")
        before = at_rest(fleet, load, guarantee == EXACTLY_ONCE)
        assert not said(fleet, "using faust-cooperative")
        replace(fleet, "ours", COOPERATIVE)
        replace(fleet, "ours", COOPERATIVE, NAMES[-1:])
        assert said(fleet, "using faust-cooperative")
        assert said(fleet, "a second round follows")
        replace(fleet, "ours", EAGER)
        load.stop()
        fleet.drain(sum(load.sent) - before.lost_by_stock)
        assert (before.lost(fleet, load), before.wrong_rows(load, fleet.totals())) == (0, [])
        assert before.wrong_outputs(load, outputs) == []
        assert not before.once or before.meetings(fleet) == []
        load.resume()
        change_over(fleet, "ours", "stock")
        assert all(worker.actives for worker in fleet.living())
        assert before.once or before.meetings(fleet) == []
    finally:
        load.stop()
        fleet.stop()
        outputs.close()


# Each guarantee and each broker is met once: a roll takes minutes.


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(1200)
def test_up_in_one_roll_and_back_in_two(tmp_path: Path) -> None:
    """At least once, on the embedded broker."""
    with broker_process() as broker:
        roll(broker.bootstrap, tmp_path, AT_LEAST_ONCE)


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.timeout(1800)
def test_up_in_one_roll_and_back_in_two_on_kafka(kafka: KafkaServer, tmp_path: Path) -> None:
    """Exactly once, on Apache Kafka."""
    roll(kafka.bootstrap, tmp_path, EXACTLY_ONCE)
