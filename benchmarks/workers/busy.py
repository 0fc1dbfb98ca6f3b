"""A Faust worker under full load; its metrics, page and ledger are switched off and on, block by block.

    python workers/busy.py '{"bootstrap": "127.0.0.1:9092", "app_id": "shop", "datadir": "/tmp/w1", ...}'

Settings (JSON): bootstrap, app_id, datadir, partitions, ``blocks`` of ``block`` records each,
``seed``, ``deadline_s``: seconds until the worker exits with 1. Each pair of blocks has a block without and a
block with them, in an order drawn from the seed: a fixed order could coincide with the consumer's fetches.
In an off block the app has none of our two sensors, runs no regular reading and makes no page. Prints a JSON
line: ``off`` and ``on`` list, for each block after the first four, microseconds of this process's processor
time per record, and the records per second. The page's thread may continue into the next block, so its
processor time, ``page_us`` for each record with them, is excluded from the blocks.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

import faust

from faust_assigner.app.metrics.sensor import ASK_S, LOOK_S
from faust_assigner.page.watch import EVERY_S

SETTINGS = json.loads(sys.argv[1])
WARM_UP = 4
#: Interval in seconds at which the page's thread checks for an open page.
OPEN_S = 0.1

app = faust.App(
    SETTINGS["app_id"],
    broker=f"kafka://{SETTINGS['bootstrap']}",
    store="rocksdb://",
    datadir=SETTINGS["datadir"],
    PartitionAssignor="faust_assigner:PartitionAssignor",
    faust_assigner_ledger=str(Path(SETTINGS["datadir"]) / "ledger"),
    topic_partitions=SETTINGS["partitions"],
    topic_disable_leader=True,
    table_standby_replicas=0,
    stream_wait_empty=False,
    consumer_auto_offset_reset="earliest",
    web_bind="127.0.0.1",
    web_host="127.0.0.1",
    web_port=SETTINGS["web_port"],
)
source = app.topic(f"{SETTINGS['app_id']}-source", key_type=str, value_type=int)
totals = app.Table("totals", key_type=str, value_type=int, default=int)


class Switch:
    """Removes our sensors from the app and restores them; disables their regular tasks meanwhile.

    Regular tasks use processor time instead of the clock. A busy worker has a core of its own: beside other
    processes it processes fewer records a second, and a task's cost must not be divided by those few records.
    """

    def __init__(self) -> None:
        metrics, ledger = app._faust_assigner_metrics, app._faust_assigner_ledger
        # As with a Prometheus monitor: the sensor regularly asks the broker for the lag of copies.
        metrics._exporters.is_measured = True
        self.sensors = (metrics, ledger)
        self.is_on, self.turned_at, self.spent = True, time.process_time(), 0.0
        self.looks, self.page_s = 0, 0.0
        self.due: dict[Any, float] = {}
        app.sensors.on_commit_completed = self._commit_completed
        metrics._look_once = self._if_due(LOOK_S, metrics._look_once)
        metrics._ask = self._if_due_async(ASK_S, metrics._ask)
        ledger._sample = self._if_due_async(ledger._sample_s, ledger._sample)
        self._open(app._faust_assigner_page.watch)

    def _open(self, watch: Any) -> None:
        """Keep the page open while switched on: look at the group, draw and compress the page."""
        look = watch._once

        async def if_due(looks: Any) -> float:
            if self._is_due(look, EVERY_S):
                began = time.thread_time()
                pause_s = await look(looks)
                self.page_s += time.thread_time() - began
                self.due[look] += pause_s - EVERY_S
                self.looks += 1
            return OPEN_S

        watch._once, watch._is_wanted = if_due, lambda: True
        watch.touch()

    @staticmethod
    def _commit_completed(consumer: Any, state: Any) -> None:
        """Call only sensors with a state: a sensor added after the commit's begin has none."""
        for sensor in app.sensors:
            if sensor in state:
                sensor.on_commit_completed(consumer, state[sensor])

    def _is_due(self, name: Any, every_s: float) -> bool:
        """Whether ``every_s`` of processor time was spent while switched on, since the last due time."""
        if not self.is_on:
            return False
        spent = self.spent + time.process_time() - self.turned_at
        if spent < self.due.setdefault(name, every_s):
            return False
        self.due[name] = spent + every_s
        return True

    def _if_due(self, every_s: float, inner: Any) -> Any:
        return lambda: inner() if self._is_due(inner, every_s) else None

    def _if_due_async(self, every_s: float, inner: Any) -> Any:
        async def if_due() -> None:
            if self._is_due(inner, every_s):
                await inner()

        return if_due

    def turn(self, is_on: bool) -> None:
        """Switch sensors and tasks on or off."""
        now = time.process_time()
        if self.is_on:
            self.spent += now - self.turned_at
        self.is_on, self.turned_at = is_on, now
        for sensor in self.sensors:
            if is_on != (sensor in set(app.sensors)):
                (app.sensors.add if is_on else app.sensors.remove)(sensor)


class Blocks:
    """Count records and measure each block's time."""

    def __init__(self) -> None:
        self.records = 0
        self.found: dict[str, list[tuple[float, float]]] = {"off": [], "on": []}
        self.number = 0
        self.draw = random.Random(SETTINGS["seed"])

    def begin(self) -> None:
        """Begin a block."""
        is_on = not self.switch.is_on if self.number % 2 else self.draw.random() < 0.5
        self.switch.turn(is_on)
        self.way = "on" if is_on else "off"
        self.cpu, self.at = self.spent(), time.monotonic()

    def spent(self) -> float:
        """Return the seconds of this process's processor time without the page's thread."""
        return time.process_time() - self.switch.page_s

    def count(self) -> None:
        """Count a record."""
        if self.records % SETTINGS["block"] == 0:
            if self.records:
                self.end()
            else:
                self.switch = Switch()
            self.begin()
        self.records += 1

    def end(self) -> None:
        """End a block."""
        cpu, passed = self.spent() - self.cpu, time.monotonic() - self.at
        if self.number >= WARM_UP:
            each = cpu / SETTINGS["block"] * 1e6, SETTINGS["block"] / passed
            self.found[self.way].append(each)
        self.number += 1
        if self.number == SETTINGS["blocks"]:
            print(f"the page was drawn {self.switch.looks} times", file=sys.stderr)
            page_us = self.switch.page_s / (self.number // 2 * SETTINGS["block"]) * 1e6
            print(json.dumps({**self.found, "page_us": page_us}), flush=True)
            os._exit(0)


blocks = Blocks()


@app.agent(source)
async def add(stream: Any) -> None:
    """Add up the values of each key."""
    async for key, value in stream.items():
        totals[key] += value
        blocks.count()


def main() -> None:
    """Run until the last block ends."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    app.finalize()
    loop.run_until_complete(app.start())
    loop.run_until_complete(asyncio.sleep(SETTINGS["deadline_s"]))
    os._exit(1)


if __name__ == "__main__":
    main()
