"""Faust's tables on real RocksDB without a broker; the test answers their sends."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import faust
from faust.streams import _current_event
from faust.types import TP

from faust_assigner.app.tables.write_behind import install_write_behind


class Event:
    """The current record."""

    def __init__(self, partition: int, timestamp: float = 5.0) -> None:
        self.message = SimpleNamespace(topic="source", partition=partition, timestamp=timestamp)


def process(partition: int, timestamp: float = 5.0) -> Event:
    """Make a record of that partition the current one."""
    event = Event(partition, timestamp)
    _current_event.set(lambda: event)
    return event


def done() -> None:
    """Process no record from here on."""
    _current_event.set(None)


class MadeUp:
    """An app that owns two partitions of each table; ``share()`` returns the current transaction."""

    def __init__(
        self, folder: Path, *names: str, share: Callable[[], Any] | None = None, **settings: Any
    ) -> None:
        guarantee = "at_least_once" if share is None else "exactly_once"
        app = self.app = faust.App(
            "overlaid",
            datadir=str(folder),
            store="rocksdb://",
            processing_guarantee=guarantee,
            **settings,
        )
        app.in_transaction = share is not None  # Faust sets this in a worker
        app._create_directories()
        self.sent: deque[Any] = deque()
        app._producer = SimpleNamespace(send_soon=self.sent.append)
        app._consumer = SimpleNamespace(
            topic_partitions=lambda topic: None, transactions=SimpleNamespace(share_at_hand=share)
        )
        vars(app)["assignor"] = SimpleNamespace(
            assigned_actives=lambda: {
                TP(f"overlaid-{name}-changelog", partition)
                for name in names
                for partition in range(2)
            }
        )
        self.tables = {
            name: app.Table(name, key_type=str, value_type=int, partitions=2) for name in names
        }
        for table in self.tables.values():
            install_write_behind(table)

    def close(self) -> None:
        """Close all databases as a process's end does: unwritten changes are lost."""
        for table in self.tables.values():
            for database in table.data._dbs.values():
                database.close()
            table.data._dbs.clear()


async def answer(*records: tuple[Any, int]) -> None:
    """Acknowledge the records at these offsets, and run the callbacks."""
    for record, offset in records:
        record.set_result(
            SimpleNamespace(
                offset=offset, topic_partition=TP("changelog", record.message.partition)
            )
        )
        record.message.callback(record)
    await asyncio.sleep(0)
