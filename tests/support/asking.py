"""Single requests to a broker without sockets, and their answers."""

from __future__ import annotations

import asyncio
from typing import Any

from kio.serial import entity_reader

from tests.support.clients.raw_client import response_schema
from tests.support.hall import Hall, frames


async def ask(hall: Hall, api_key: int, version: int, **values: Any) -> Any:
    """Send a request as a fresh peer; return its answer."""
    peer, wire = hall.connect("peer")
    mine = wire.written = []
    peer.data_received(next(frames(api_key, 1, version, **values)))
    while not mine:
        await asyncio.sleep(0)
    return read(api_key, version, b"".join(data for _, data in mine))


def read(api_key: int, version: int, frame: bytes) -> Any:
    """Return the values of a response."""
    schema = response_schema(api_key, version)
    start = 9 if schema.__header_schema__.__flexible__ else 8
    return entity_reader(schema)(frame, start)[0]


def to_topic(*parts: bytes, partition: int = 0) -> dict[str, Any]:
    """The values of a Produce request with batches for one partition of "t"."""
    data = [{"index": partition, "records": part} for part in parts]
    return {"acks": -1, "timeout_ms": 1_000, "topic_data": [{"name": "t", "partition_data": data}]}


def wanting(partitions: int, offset: int = 0, **more: Any) -> list[dict[str, Any]]:
    """Return partitions of "t" for a Fetch."""
    part = {"fetch_offset": offset, "partition_max_bytes": 10_000, **more}
    return [{"topic": "t", "partitions": [{"partition": n, **part} for n in range(partitions)]}]
