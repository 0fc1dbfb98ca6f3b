"""A Faust worker that recovers a table, reports the time and the table's state, and exits.

    python workers/recovery.py '{"bootstrap": "127.0.0.1:9092", "app_id": "shop", "datadir": "/tmp/w1", ...}'

Settings (JSON): bootstrap, app_id, datadir, partitions; ``restore``: the app uses our assignor with our
recovery and ledger;
``expect_offsets``: after recovery, wait until the table's changelog has these offsets (partition -> offset);
``standbys``: table_standby_replicas; ``settle_s``: the longest wait for standbys to catch up;
``stay``: after the report, run until stdin closes.
Prints a JSON line: seconds, state (hash and keys over all partitions), sources.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import sys
import time
from typing import Any

import faust
from faust.types import TP

SETTINGS = json.loads(sys.argv[1])
TABLE = "balances"


class Stopwatch(faust.Sensor):  # type: ignore[misc]
    """Measure the time from the assignment of partitions to the ready worker."""

    began = ended = 0.0

    def on_rebalance_return(self, app: Any, state: Any) -> None:
        """Record the start: partitions are assigned and recovery begins."""
        self.began = time.monotonic()

    def on_rebalance_end(self, app: Any, state: Any) -> None:
        """Record the end: streams run."""
        self.ended = time.monotonic()


def make_app() -> tuple[Any, Any, Stopwatch]:
    """Create the app: an agent writes its records into a table."""
    ours = (
        {"PartitionAssignor": "faust_assigner:PartitionAssignor"} if SETTINGS.get("restore") else {}
    )
    app = faust.App(
        SETTINGS["app_id"],
        broker=f"kafka://{SETTINGS['bootstrap']}",
        store="rocksdb://",
        datadir=SETTINGS["datadir"],
        topic_partitions=SETTINGS["partitions"],
        web_enabled=False,
        table_standby_replicas=SETTINGS.get("standbys", 0),
        topic_disable_leader=True,
        stream_wait_empty=False,
        broker_max_poll_records=5000,
        stream_buffer_maxsize=16_384,
        producer_linger=0.005,
        **ours,
        **SETTINGS.get("options", {}),
    )
    source = app.topic(
        f"{SETTINGS['app_id']}-source",
        key_type=str,
        value_type=int,
        partitions=SETTINGS["partitions"],
    )
    table = app.Table(
        TABLE, key_type=str, value_type=int, partitions=SETTINGS["partitions"], default=int
    )

    @app.agent(source)
    async def write(stream: Any) -> None:
        async for key, value in stream.items():
            if value < 0:
                table.pop(key, None)
            else:
                table[key] = value

    watch = Stopwatch()
    app.sensors.add(watch)
    return app, table, watch


def state_of(table: Any) -> dict[str, Any]:
    """Return hash and number of all (partition, key, value), without Faust's offset key."""
    digest, keys, offsets, partitions = hashlib.sha256(), 0, {}, {}
    for partition, database in sorted(table.data._dbs.items()):
        own = hashlib.sha256()
        for key, value in database.items():
            if key == table.data.offset_key:
                offsets[partition] = int(value)
                continue
            line = b"%d %d " % (len(key), len(value)) + key + value
            digest.update(b"%d " % partition + line)
            own.update(line)
            keys += 1
        partitions[partition] = own.hexdigest()
    return {"hash": digest.hexdigest(), "keys": keys, "offsets": offsets, "partitions": partitions}


def sources_of(app: Any) -> dict[int, str]:
    """Return partition -> source of its state, from the recovery."""
    if not SETTINGS.get("restore"):
        return {}
    return {tp.partition: each.source for tp, each in sorted(app.tables.recovery.restored.items())}


async def run(app: Any, table: Any, watch: Stopwatch) -> None:
    """Start, wait until the worker is ready, print the report."""
    await app.start()
    while not watch.ended:
        await asyncio.sleep(0.01)
    recovery = app.tables.recovery
    expected = {
        int(partition): offset for partition, offset in SETTINGS.get("expect_offsets", {}).items()
    }
    while any(
        (table.data.persisted_offset(TP("", partition)) or -1) < offset
        for partition, offset in expected.items()
        if offset >= 0
    ):
        await asyncio.sleep(0.2)
    settle = time.monotonic() + SETTINGS.get("settle_s", 0)
    while time.monotonic() < settle:
        await asyncio.sleep(0.2)
        # Faust does not count the records of a standby whose first record is not read yet.
        followed = recovery.standbys.followed if SETTINGS.get("restore") else recovery.standby_tps
        is_followed = recovery.standby_tps and recovery.standby_tps <= followed
        if is_followed and not recovery.standby_remaining_total():
            recovery.flush_buffers()
            break
    print(
        json.dumps(
            {
                "seconds": watch.ended - watch.began,
                "state": state_of(table),
                "sources": sources_of(app),
                "standby_remaining": recovery.standby_remaining_total()
                if recovery.standby_tps
                else 0,
            }
        ),
        flush=True,
    )
    if SETTINGS.get("stay"):
        await asyncio.to_thread(sys.stdin.read)
    # Leave the group: otherwise the next worker waits for this worker's session to end.
    with contextlib.suppress(Exception):
        async with asyncio.timeout(15):
            await app.stop()


def main() -> None:
    logging.basicConfig(level=SETTINGS.get("log", "INFO"), stream=sys.stderr)
    app, table, watch = make_app()
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    app.finalize()
    loop.run_until_complete(run(app, table, watch))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
