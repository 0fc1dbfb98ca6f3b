"""The windows closed by the workers, and their customers' sets, compared with the model."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from tests.soak.world import World
from tests.support.workers.load import WINDOW

#: The workers' setting: a window closes this many offsets later in its partition.
EXPIRES = 60
#: If no window closes for this time, no further window will close.
PATIENCE_S = 45.0

Window = tuple[int, str, int]


def due(world: World) -> set[Window]:
    """Return the windows expired by the sent records."""
    load = world.load
    return {
        window
        for window in load.windows
        if window[2] + WINDOW <= (load.sent[window[0]] - 1 - EXPIRES) // WINDOW * WINDOW
    }


def rows(world: World) -> dict[Window, list[Any]]:
    """Return the rows of closed windows, as seen by a committed reader."""
    found = defaultdict(list)
    for key, value in _read(world, "closed"):
        partition = int(key.split("-")[1])
        found[partition, key, int(value["begin"])].append(value["row"])
    return found


def _read(world: World, name: str) -> Iterator[tuple[str, Any]]:
    load = world.load
    reader = Consumer(
        {
            "bootstrap.servers": load.bootstrap,
            "group.id": f"{load.app_id}-windows",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    try:
        topic = f"{load.app_id}-{name}"
        reader.assign([TopicPartition(topic, p, 0) for p in range(load.partitions)])
        ends, deadline = 0, time.monotonic() + 60.0
        while ends < load.partitions and time.monotonic() < deadline:
            message = reader.poll(1.0)
            if message is None:
                continue
            if message.error() is not None:
                ends += 1
                continue
            key = (message.key() or b"").decode().strip('"')
            yield key, json.loads(message.value() or b"null")
    finally:
        reader.close()


def wrong_windows(world: World, *, exactly_once: bool) -> tuple[int, list[str]]:
    """Return the number of closed windows, and the differences from the model.

    Every expired window must have closed with its last value; under ``exactly_once`` only once. A window
    in which the load stopped must have closed.
    """
    expected, most, since = due(world), -1, time.monotonic()
    while (missing := expected - (found := rows(world)).keys()) and (
        time.monotonic() - since < PATIENCE_S
    ):
        if len(found) > most:
            most, since = len(found), time.monotonic()
        # All orders are done: workers that only close windows now are not idle.
        world.idleness.excuse(world.fleet.workers, time.time())
        world.tick()
    model = world.load.windows
    wrong = [f"{len(missing)} windows of {len(expected)} were not closed: {sorted(missing)[:3]}"]
    wrong = wrong if missing else []
    for window, closed in sorted(found.items()):
        if (window[0], window[2]) in world.load.interrupted:
            continue
        count, last = model.get(window, (0, -1))
        if any(row is None for row in closed):
            wrong.append(f"window {window} was closed without a value")
        elif any(row["last"] != last or row["count"] < count for row in closed):
            wrong.append(f"window {window} was closed with {closed}, expected {count}, {last}")
        elif exactly_once and (len(closed) > 1 or closed[0]["count"] > count):
            wrong.append(f"window {window} was closed {len(closed)} times, with {closed[0]}")
    return len(found), wrong


def wrong_sets(world: World) -> list[str]:
    """Return the differences: each customer's set has the numbers of all its orders."""
    sets: dict[str, list[int]] = {}
    for worker in world.fleet.living():
        sets |= json.loads((worker.folder / "journal.sets").read_text())
    return [
        f"{customer}: its set has {len(sets.get(customer, []))} of {len(amounts)} numbers"
        for customer, amounts in sorted(world.load.amounts.items())
        if sets.get(customer) != list(range(len(amounts)))
    ]
