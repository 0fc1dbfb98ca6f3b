"""An app whose agent processes three records and finishes the fourth once the file GO exists, if ever."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import faust

app: Any = faust.App(
    "stuck",
    broker=f"kafka://{os.environ['BROKER']}",
    PartitionAssignor="faust_assigner:PartitionAssignor",
    datadir=os.environ["FOLDER"],
    store="memory://",
    topic_partitions=1,
    web_enabled=False,
    broker_commit_interval=600.0,
    FAUST_ASSIGNER_LEAVE_S=0,
)
source: Any = app.topic("in", value_type=int, partitions=1)


@app.agent(source)  # type: ignore[untyped-decorator]
async def process(numbers: Any) -> None:
    """Leave a commit for the shutdown, and a record that no shutdown can wait for."""
    async for number in numbers:
        if number == 3:
            print("STUCK", flush=True)
            while not Path(os.environ.get("GO", "never")).exists():
                await asyncio.sleep(0.1)


@app.task  # type: ignore[untyped-decorator]
async def send() -> None:
    """Send the records."""
    for number in range(4):
        await source.send(value=number)


if __name__ == "__main__":
    app.main()
