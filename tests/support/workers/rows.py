"""A worker that changes rows as fast as it can; ``ROWS_*`` are its settings.

Each number is added to its key's row of ``sums``; a row that reaches a multiple of 7 is deleted.
Each number is also counted in a window of ``counts`` and, in a table of all workers, under another
key of ``shared``. Its key's set in ``seen`` gains one of five elements and loses another.
"""

from __future__ import annotations

import os
from typing import Any

import faust

ENV = {
    name.removeprefix("ROWS_"): value
    for name, value in os.environ.items()
    if name.startswith("ROWS_")
}
APP_ID, PARTITIONS = ENV["APP_ID"], 2

app = faust.App(
    APP_ID,
    broker="kafka://" + ENV["BOOTSTRAP"],
    PartitionAssignor="faust_assigner:PartitionAssignor",
    processing_guarantee=ENV["GUARANTEE"],
    consumer_group_instance_id="one",
    datadir=ENV["DATA"],
    store="rocksdb://",
    topic_partitions=PARTITIONS,
    topic_disable_leader=True,
    table_standby_replicas=0,
    broker_session_timeout=6.0,
    broker_heartbeat_interval=1.0,
    broker_commit_interval=0.3,
    consumer_auto_offset_reset="earliest",
    web_enabled=False,
)
numbers = app.topic(f"{APP_ID}-numbers", key_type=str, value_type=int, partitions=PARTITIONS)
sums = app.Table("sums", key_type=str, value_type=int, partitions=PARTITIONS, default=int)
counts = app.Table(
    "counts", key_type=str, value_type=int, partitions=PARTITIONS, default=int
).tumbling(3600.0)
shared = app.GlobalTable(
    "shared", key_type=str, value_type=int, partitions=PARTITIONS, default=int, use_partitioner=True
)
seen = app.SetTable("seen", key_type=str, value_type=int, partitions=PARTITIONS)


@app.agent(numbers)
async def add(stream: Any) -> None:
    """Change the tables for each record."""
    async for key, value in stream.items():
        sums[key] += value
        if sums[key] % 7 == 0:
            del sums[key]
        counts[key] += 1
        shared[f"all-{key}"] += 1
        turn = value // 50  # of a key, which occurs with every fiftieth number
        seen[key].add(turn % 5)
        seen[key].discard((turn + 2) % 5)


if __name__ == "__main__":
    app.main()
