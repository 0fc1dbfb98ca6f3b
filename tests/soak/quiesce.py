"""Pause the load, let the workers consume all records, and compare the results with the model."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass

from tests.soak.outputs import Outputs
from tests.soak.windows import wrong_sets, wrong_windows
from tests.soak.world import Broken, World
from tests.support.workers.load import Load, wrong_rows

#: If no progress occurs for this time, no further progress will occur.
PATIENCE_S = 60.0
#: A standby reads records already in the changelog.
COPIES_PATIENCE_S = 30.0
#: A committed reader waits up to 60 s for the abort of a dead worker's transaction.
OUTPUT_PATIENCE_S = 75.0


@dataclass(frozen=True)
class Balance:
    """The results beside the expected results."""

    orders: int
    lost: int
    missing_outputs: int
    twice: int
    faults: tuple[str, ...]
    #: The number of closed windows.
    closed: int = 0


def balance(world: World, *, exactly_once: bool, strangers: dict[str, int]) -> Balance:
    """Consume and compare all records; differences raise no error. The load is stopped at the end.

    ``strangers`` counts, by customer, the orders without a rate, which only the first orders may
    lack. The first call fills it.
    """
    load = world.load
    for flow, _ in world.flows():
        flow.stop()
        if flow.failures:
            raise Broken(
                f"the load could not hand over {len(flow.failures)} records: {flow.failures[0]!r}"
            )
    _consume(world)
    lost = world.progress.lost(load.sent)
    missing = world.outputs.wait_for_all(load.amounts, OUTPUT_PATIENCE_S)
    twice = world.outputs.twice()
    ends = world.outputs.log_ends(f"{load.app_id}-orders")
    faults = [f"{lost} orders lost"] * bool(lost) + [
        f"{missing} outputs missing; the reader's errors: {dict(world.outputs.errors)}"
    ] * bool(missing)
    if ends != load.sent:
        faults.append(f"the broker has {ends} orders of {load.sent}")
    if exactly_once and twice:
        faults.append(f"{twice} outputs twice")
    if world.returns is not None and world.takes_returns:
        faults += _returns(world, *world.returns, exactly_once=exactly_once)
    faults += _tables(world, exactly_once=exactly_once, strangers=strangers)
    closed = 0
    if world.fleet.windows:
        closed, wrong = wrong_windows(world, exactly_once=exactly_once)
        faults += wrong_sets(world) + wrong
    return Balance(sum(load.sent), lost, missing, twice, tuple(faults), closed)


def _consume(world: World) -> None:
    done, since = -1, time.monotonic()
    while world.progress.lost(world.load.sent) and time.monotonic() - since < PATIENCE_S:
        # some workers may have no records left
        world.idleness.excuse(world.fleet.workers, time.time())
        world.tick()
        if world.progress.done > done:
            done, since = world.progress.done, time.monotonic()


def _returns(world: World, load: Load, outputs: Outputs, *, exactly_once: bool) -> list[str]:
    """Return the differences of the agent added by deploys, over all its lives."""
    missing = outputs.wait_for_all(load.amounts, OUTPUT_PATIENCE_S)
    rows: dict[str, Mapping[str, int]] = {}
    for _ in world.fleet.answers("totals", 30.0):
        pass
    for worker in world.fleet.living():
        rows |= json.loads((worker.folder / "journal.returned").read_text())
    found = [
        f"{missing} returns have no output; the reader's errors: {dict(outputs.errors)}"
    ] * bool(missing)
    found += [f"returns of {line}" for line in wrong_rows(load, rows)]
    if exactly_once:
        repeats = sum(row["repeats"] for row in rows.values())
        found += [f"{repeats} returns were added to a row twice"] * bool(repeats)
        found += [f"{outputs.twice()} outputs of returns twice"] * bool(outputs.twice())
    return found


def _tables(world: World, *, exactly_once: bool, strangers: dict[str, int]) -> list[str]:
    totals: dict[str, Mapping[str, int]] = {}
    found = []
    generation = world.fleet.generation()
    for answer in world.fleet.answers("totals", 30.0):
        found += [f"{customer} is on two workers" for customer in answer if customer in totals]
        totals |= answer
    world.fleet.living()  # reads the journals
    if world.fleet.generation() != generation:  # the tables were read amid a change of the group
        time.sleep(2.0)
        return _tables(world, exactly_once=exactly_once, strangers=strangers)
    found += wrong_rows(world.load, totals) or _copies(world)
    for customer, row in sorted(totals.items()):
        if exactly_once and row["repeats"]:
            found.append(f"{customer}: {row['repeats']} orders were added to its row twice")
        if row["strangers"] != strangers.setdefault(customer, row["strangers"]):
            found.append(f"{customer}: its rate was lost ({row['strangers']} orders met none)")
    return found


def _copies(world: World) -> list[str]:
    """Return the differences between the standbys' rows and the model, after time to catch up."""
    began = time.monotonic()
    while True:
        copies: dict[str, Mapping[str, int]] = {}
        for _ in world.fleet.answers("totals", 30.0):
            pass
        for worker in world.fleet.living():
            copies |= json.loads((worker.folder / "journal.copies").read_text())
        found = wrong_rows(world.load, copies)
        if not found or time.monotonic() - began > COPIES_PATIENCE_S:
            return [f"a standby's row: {line}" for line in found]
        time.sleep(1.0)
