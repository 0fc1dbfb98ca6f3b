"""A Faust worker that replays a changelog, reports its time and the delay of live records, and exits.

    python workers/replay.py '{"bootstrap": "127.0.0.1:9092", "app_id": "shop", "datadir": "/tmp/w1", ...}'

Settings (JSON): bootstrap, app_id, datadir, partitions, ``stock``: without our assignor, ``share``: of a core
for the restore beside live records, ``live_for_s``: live records arrive for partition 0, which has no
state to restore, during the restore and at least this long. Prints a JSON line: ``seconds`` and
processor seconds ``cpu_s`` from the assignment to the ready worker, ``keys`` in its tables, ``during_ms`` and
``after_ms``: each live record's time from the producer to the agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import subprocess
import sys
import time
from typing import Any

import faust

SETTINGS = json.loads(sys.argv[1])
#: Live records a second.
LIVE_RATE = 200
#: A program that sends the time in nanoseconds to partition 0 until its standard input ends.
PRODUCER = """
import sys, threading, time
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": sys.argv[1], "linger.ms": 0})
over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
due = time.monotonic()
while not over.is_set():
    producer.produce(sys.argv[2], b"%d" % time.time_ns(), b'"live"', 0)
    producer.poll(0)
    due += 1 / float(sys.argv[3])
    time.sleep(max(0.0, due - time.monotonic()))
producer.flush(10)
"""


class Stopwatch(faust.Sensor):  # type: ignore[misc]
    """Measure the time from the assignment of partitions to the ready worker."""

    began = ended = cpu_s = 0.0

    def on_rebalance_return(self, app: Any, state: Any) -> None:
        """Record the start: partitions are assigned and recovery begins."""
        self.began, self.cpu_s = time.monotonic(), time.process_time()

    def on_rebalance_end(self, app: Any, state: Any) -> None:
        """Record the end: streams run."""
        self.ended, self.cpu_s = time.monotonic(), time.process_time() - self.cpu_s


def make_app() -> tuple[Any, Any, Stopwatch, list[tuple[float, float]]]:
    """Create an app whose agent records each live record's send and arrival time."""
    ours = (
        {}
        if SETTINGS["stock"]
        else {
            "PartitionAssignor": "faust_assigner:PartitionAssignor",
            "faust_assigner_restore_share": SETTINGS["share"],
        }
    )
    app = faust.App(
        SETTINGS["app_id"],
        broker=f"kafka://{SETTINGS['bootstrap']}",
        store="rocksdb://",
        datadir=SETTINGS["datadir"],
        topic_partitions=SETTINGS["partitions"],
        web_enabled=False,
        table_standby_replicas=0,
        topic_disable_leader=True,
        stream_wait_empty=False,
        **ours,
    )
    source = app.topic(
        f"{SETTINGS['app_id']}-source",
        key_type=str,
        value_type=int,
        partitions=SETTINGS["partitions"],
    )
    table = app.Table("rows", key_type=str, value_type=str, partitions=SETTINGS["partitions"])
    arrivals: list[tuple[float, float]] = []

    @app.agent(source)
    async def note(stream: Any) -> None:
        async for sent_ns in stream:
            arrivals.append((sent_ns / 1e9, time.time()))

    watch = Stopwatch()
    app.sensors.add(watch)
    return app, table, watch, arrivals


def keys_of(table: Any) -> int:
    """Count the keys in all partitions, without Faust's offset key."""
    return sum(
        key != table.data.offset_key
        for database in table.data._dbs.values()
        for key, _ in database.items()
    )


async def run(app: Any, table: Any, watch: Stopwatch, arrivals: list[tuple[float, float]]) -> None:
    """Start, wait until the worker is ready and the control is measured, print the report."""
    live: subprocess.Popen[bytes] | None = None
    if SETTINGS["live_for_s"]:
        live = subprocess.Popen(
            [
                sys.executable,
                "-c",
                PRODUCER,
                SETTINGS["bootstrap"],
                f"{SETTINGS['app_id']}-source",
                str(LIVE_RATE),
            ],
            stdin=subprocess.PIPE,
        )
    await app.start()
    while not watch.ended:
        await asyncio.sleep(0.01)
    # In senders' wall time; the worker may be ready long before start() returns.
    ahead = time.time() - time.monotonic()
    began, ended = watch.began + ahead, watch.ended + ahead
    if live is not None:
        await asyncio.sleep(max(SETTINGS["live_for_s"], ended - began))
        assert live.stdin is not None
        live.stdin.close()
        await asyncio.to_thread(live.wait, 30)
        await asyncio.sleep(0.5)
    waits = [(sent, (got - sent) * 1000) for sent, got in arrivals]
    print(
        json.dumps(
            {
                "seconds": watch.ended - watch.began,
                "cpu_s": watch.cpu_s,
                "keys": await asyncio.to_thread(keys_of, table),
                "arrived": len(arrivals),
                # Earlier records waited for the rebalance, not for the restore.
                "during_ms": [wait for sent, wait in waits if began + 0.5 <= sent < ended],
                "after_ms": [wait for sent, wait in waits if sent >= ended + 0.5],
            }
        ),
        flush=True,
    )
    with contextlib.suppress(Exception):
        async with asyncio.timeout(15):
            await app.stop()


def main() -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    app, table, watch, arrivals = make_app()
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    app.finalize()
    loop.run_until_complete(run(app, table, watch, arrivals))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
