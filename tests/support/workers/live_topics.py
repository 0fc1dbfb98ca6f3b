"""An app that begins to read a second topic while it processes the first; it commits at rounds only."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import faust

app: Any = faust.App(
    "live",
    broker=f"kafka://{os.environ['BROKER']}",
    PartitionAssignor="faust_assigner:PartitionAssignor",
    datadir=os.environ["FOLDER"],
    store="memory://",
    processing_guarantee=os.environ["GUARANTEE"],
    topic_partitions=1,
    web_enabled=False,
    broker_commit_interval=600.0,
    consumer_auto_offset_reset="earliest",
    FAUST_ASSIGNER_LEAVE_S=0,
)
first: Any = app.topic("first", value_type=int, partitions=1)
second: Any = app.topic("second", value_type=int, partitions=1)
# Faust waits so long for further topics.
app.topics._resubscribe_sleep_lock_seconds = 0.2


@app.agent(first)  # type: ignore[untyped-decorator]
async def process(numbers: Any) -> None:
    """Print each number."""
    async for number in numbers:
        print(f"FIRST-{number}", flush=True)


async def read() -> None:
    """Print the first number of the second topic, then end the process without a commit."""
    async for number in app.stream(second):
        print(f"SECOND-{number}", flush=True)
        await asyncio.sleep(1.0)
        os._exit(0)


@app.task  # type: ignore[untyped-decorator]
async def send() -> None:
    """Send numbers to both topics, and begin to read the second topic meanwhile."""
    await second.maybe_declare()
    for number in range(20):
        await first.send(value=number)
    await second.send(value=7)
    await asyncio.sleep(2.0)
    app.add_future(read())


if __name__ == "__main__":
    app.main()
