"""The worker process of ``readers.py``: numbers in a table, read over HTTP; set up by ``READER_*``."""

from __future__ import annotations

import json
import os
from typing import Any

import faust
from faust.web import Request, Response, View

ENV = {n.removeprefix("READER_"): v for n, v in os.environ.items() if n.startswith("READER_")}
APP_ID, PARTITIONS, PORT = ENV["APP_ID"], int(ENV["PARTITIONS"]), int(ENV["PORT"])

app = faust.App(
    APP_ID,
    broker="kafka://" + ENV["BOOTSTRAP"],
    PartitionAssignor={
        "ours": "faust_assigner:PartitionAssignor",
        "stock": "faust.assignor:PartitionAssignor",
    }[ENV["ASSIGNOR"]],
    datadir=ENV["DATA"],
    store="rocksdb://",
    topic_partitions=PARTITIONS,
    topic_disable_leader=True,
    table_standby_replicas=int(ENV["REPLICAS"]),
    broker_session_timeout=float(ENV["SESSION_S"]),
    broker_heartbeat_interval=float(ENV["SESSION_S"]) / 8,
    consumer_auto_offset_reset="earliest",
    web_bind="127.0.0.1",
    web_port=PORT,
    canonical_url=f"http://127.0.0.1:{PORT}",
    **json.loads(ENV["SETTINGS"]),
)
numbers_topic = app.topic(f"{APP_ID}-numbers", key_type=str, value_type=int)
latest = app.Table("latest", key_type=str, value_type=int, partitions=PARTITIONS)
recent = app.Table("recent", key_type=str, value_type=int, partitions=PARTITIONS).tumbling(3600.0)


@app.agent(numbers_topic)
async def keep(numbers: faust.StreamT[int]) -> None:
    """Keep the highest number of each key, so that repeats change no row."""
    async for key, number in numbers.items():
        latest[key] = max(number, latest.get(key) or 0)
        recent[key] = number


def _row(view: View, key: str) -> Response:
    return view.json({"number": latest.get(key), "port": PORT})


@app.page("/latest/{key}")
@app.table_route(latest, match_info="key")
async def by_path(view: View, request: Request, key: str) -> Response:
    """Answer for the key in the path."""
    return _row(view, key)


@app.page("/latest")
@app.table_route(latest, query_param="key")
async def by_query(view: View, request: Request, **_: Any) -> Response:
    """Answer for the key in the query."""
    return _row(view, request.query["key"])


@app.page("/recent/{key}")
@app.table_route(recent, match_info="key")
async def by_window(view: View, request: Request, key: str) -> Response:
    """Answer from the windowed table."""
    return view.json({"number": recent[key].now(), "port": PORT})


if __name__ == "__main__":
    app.main()
