"""A worker that sums numbers and passes each one on, exactly once; ``EXACTLY_*`` tells it how."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import faust

ENV = {name.removeprefix("EXACTLY_"): value for name, value in os.environ.items()
       if name.startswith("EXACTLY_")}
#: Seconds within each record, between its change of the table and what it sends.
WORK_S = float(ENV.get("WORK_S", "0"))

app = faust.App(
    ENV["APP_ID"],
    broker="kafka://" + ENV["BOOTSTRAP"],
    PartitionAssignor="faust_assigner:PartitionAssignor",
    processing_guarantee="exactly_once",
    consumer_group_instance_id=ENV["NAME"],
    canonical_url=f"http://{ENV['NAME']}:6066",
    datadir=ENV["DATA"],
    store="rocksdb://",
    topic_partitions=4,
    topic_disable_leader=True,
    table_standby_replicas=1,
    broker_session_timeout=6.0,
    broker_heartbeat_interval=1.0,
    broker_commit_interval=float(ENV.get("COMMIT_S", "2.8")),
    consumer_auto_offset_reset="earliest",
    web_enabled=False,
)
numbers = app.topic(f"{ENV['APP_ID']}-numbers", key_type=str, value_type=int, partitions=4)
passed_on = app.topic(f"{ENV['APP_ID']}-passed-on", key_type=str, value_type=int, partitions=4)
sums = app.Table("sums", key_type=str, value_type=int, partitions=4, default=int)


@app.agent(numbers)
async def add(stream: Any) -> None:
    """One record in, one change of the table and one record out."""
    async for key, value in stream.items():
        sums[key] += value
        await asyncio.sleep(WORK_S)
        await passed_on.send(key=key, value=value)


if __name__ == "__main__":
    app.main()
