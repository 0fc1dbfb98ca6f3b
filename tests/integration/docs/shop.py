"""The app ``shop`` of the how-to pages: a table on disk."""

from __future__ import annotations

import os

import faust

app = faust.App(
    "shop",
    broker="kafka://" + os.environ["SHOP_BROKER"],
    PartitionAssignor="faust_assigner:PartitionAssignor",
    store="rocksdb://",
    datadir=os.environ["SHOP_DATA"],
    topic_partitions=4,
    consumer_auto_offset_reset="earliest",
)
transfers = app.topic("transfers", key_type=str, value_type=int)
balances = app.Table("balances", default=int, partitions=4)


@app.agent(transfers)
async def book(stream: faust.StreamT[int]) -> None:
    """Add each transfer to its account."""
    async for account, amount in stream.items():
        balances[account] += amount


@app.task
async def say_ready() -> None:
    """Print a line once every table is restored."""
    await app.tables.recovery.completed.wait()
    print("the tables are ready", flush=True)
