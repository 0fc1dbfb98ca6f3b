"""One Faust worker under full load; its metrics, page and ledger are switched off and on, block by block.

    python workers/busy.py '{"bootstrap": "127.0.0.1:9092", "app_id": "shop", "datadir": "/tmp/w1", ...}'

Settings (JSON): bootstrap, app_id, datadir, partitions, ``blocks`` of ``block`` records each,
``deadline_s``: after so long it ends with 1. Blocks are
``off, on, on, off, off, on, on, ...``. While they are off the app has none of our two sensors, nothing
is read regularly, and nobody has the page open. Prints one JSON line: ``off`` and ``on`` hold, for each
block after the first four, microseconds of this process's processor time per record, and the records per
second.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import faust

from faust_assigner.app.metrics.sensor import ASK_S, LOOK_S
from faust_assigner.page.watch import EVERY_S

SETTINGS = json.loads(sys.argv[1])
WARM_UP = 4
#: So often the page's thread asks whether the page is open by now.
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
    """Takes our sensors out of the app and puts them back; their regular tasks do nothing while they are off.

    Regular tasks go by processor time, not by the clock. A busy worker has a core of its own: the work of a
    second must not be shared out over the few records that it gets through beside other processes.
    """

    def __init__(self) -> None:
        metrics, ledger = app._faust_assigner_metrics, app._faust_assigner_ledger
        # As with a Prometheus monitor: the broker is asked regularly how far copies are behind.
        metrics._exporters.is_measured = True
        self.sensors = (metrics, ledger)
        self.is_on, self.turned_at, self.spent = True, time.process_time(), 0.0
        self.looks = 0
        self.due: dict[Any, float] = {}
        # What was begun before a sensor came has no state for it.
        for end in ("on_send_completed", "on_commit_completed"):
            setattr(app.sensors, end, partial(self._end, end))
        metrics._look_once = self._if_due(LOOK_S, metrics._look_once)
        metrics._ask = self._if_due_async(ASK_S, metrics._ask)
        ledger._sample = self._if_due_async(ledger._sample_s, ledger._sample)
        self._open(app._faust_assigner_page.watch)

    def _open(self, watch: Any) -> None:
        """Somebody has the page open while it is on: the group is looked at, the page drawn and packed."""
        look = watch._once

        async def if_due(looks: Any) -> float:
            if self._is_due(look, EVERY_S):
                pause_s = await look(looks)
                self.due[look] += pause_s - EVERY_S
                self.looks += 1
            return OPEN_S

        watch._once, watch._is_wanted = if_due, lambda: True
        watch.touch()

    @staticmethod
    def _end(name: str, whom: Any, state: Any, *more: Any) -> None:
        for sensor in app.sensors:
            if sensor in state:
                getattr(sensor, name)(whom, state[sensor], *more)

    def _is_due(self, name: Any, every_s: float) -> bool:
        """Whether so much processor time has been spent while on, since it was due the last time."""
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
        """On or off."""
        now = time.process_time()
        if self.is_on:
            self.spent += now - self.turned_at
        self.is_on, self.turned_at = is_on, now
        for sensor in set(self.sensors) - set(app.sensors) if is_on else self.sensors:
            (app.sensors.add if is_on else app.sensors.remove)(sensor)


class Blocks:
    """Counts records, and at the end of a block its time."""

    def __init__(self) -> None:
        self.records = 0
        self.switch: Switch | None = None
        self.found: dict[str, list[tuple[float, float]]] = {"off": [], "on": []}
        self.number = 0

    def begin(self) -> None:
        """A block begins."""
        is_on = self.number % 4 in (1, 2)
        if self.switch is None:
            self.switch = Switch()
        self.switch.turn(is_on)
        self.way = "on" if is_on else "off"
        self.cpu, self.at = time.process_time(), time.monotonic()

    def count(self) -> None:
        """One record more."""
        if self.records % SETTINGS["block"] == 0:
            if self.records:
                self.end()
            self.begin()
        self.records += 1

    def end(self) -> None:
        """A block ends."""
        cpu, passed = time.process_time() - self.cpu, time.monotonic() - self.at
        if self.number >= WARM_UP:
            each = cpu / SETTINGS["block"] * 1e6, SETTINGS["block"] / passed
            self.found[self.way].append(each)
        self.number += 1
        if self.number == SETTINGS["blocks"]:
            print(f"the page was drawn {self.switch.looks} times", file=sys.stderr)
            print(json.dumps(self.found), flush=True)
            os._exit(0)


blocks = Blocks()


@app.agent(source)
async def add(stream: Any) -> None:
    """Add up the values of each key."""
    async for key, value in stream.items():
        totals[key] += value
        blocks.count()


def main() -> None:
    """Until the last block is over."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    app.finalize()
    loop.run_until_complete(app.start())
    loop.run_until_complete(asyncio.sleep(SETTINGS["deadline_s"]))
    os._exit(1)


if __name__ == "__main__":
    main()
