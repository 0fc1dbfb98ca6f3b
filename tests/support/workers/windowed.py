"""A worker that counts in windows and sends each closed window; ``WINDOWED_*`` are its settings.

A record is ``{"number": n, "at": seconds}``: its key's numbers count up, and ``at`` is the windows'
time. A window's row has its number of records and the last number. Closed windows go to a topic.
"""

from __future__ import annotations

import os
from typing import Any

import faust

ENV = {
    name.removeprefix("WINDOWED_"): value
    for name, value in os.environ.items()
    if name.startswith("WINDOWED_")
}
APP_ID, PARTITIONS = ENV["APP_ID"], 4
SIZE, EXPIRES = 10.0, 10.0

app = faust.App(
    APP_ID,
    broker="kafka://" + ENV["BOOTSTRAP"],
    PartitionAssignor="faust_assigner:PartitionAssignor",
    processing_guarantee=ENV["GUARANTEE"],
    datadir=ENV["DATA"],
    store="rocksdb://",
    topic_partitions=PARTITIONS,
    topic_disable_leader=True,
    table_standby_replicas=1,
    table_cleanup_interval=0.3,
    broker_session_timeout=6.0,
    broker_heartbeat_interval=1.0,
    broker_commit_interval=0.5,
    consumer_auto_offset_reset="earliest",
    web_enabled=False,
)
records = app.topic(f"{APP_ID}-records", key_type=str, value_serializer="json")
closed = app.topic(f"{APP_ID}-closed", key_type=str, value_serializer="json")


async def close(key: Any, row: Any) -> None:
    """Send the closed window."""
    await closed.send(key=key[0], value={"begin": key[1][0], "row": row})


windows = (
    app.Table("windows", key_type=str, partitions=PARTITIONS, default=dict, on_window_close=close)
    .tumbling(SIZE, expires=EXPIRES)
    .relative_to(lambda event: event.value["at"])
)


@app.agent(records)
async def count(stream: Any) -> None:
    """Change a row for each record."""
    async for key, record in stream.items():
        row = windows[key].value()
        windows[key] = {"count": row.get("count", 0) + 1, "last": record["number"]}


if __name__ == "__main__":
    app.main()
