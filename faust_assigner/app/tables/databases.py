"""Opening and closing of databases beside streams that read others of the same table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mode import get_logger

logger = get_logger(__name__)


def open_for_streams(store: Any, partition: int) -> None:
    """In a thread, to its end: a database that nobody knows of would lock out the next one.

    Noted where streams run, before anybody goes on who has waited for this: they look through all of them.
    """
    database = store._open_for_partition(partition)
    store.app.loop.call_soon_threadsafe(store._dbs.__setitem__, partition, database)


def close_all(databases: Iterable[Any]) -> None:
    """In a thread; what does not close is told of."""
    for database in databases:
        if database is not None:
            try:
                database.close()
            except Exception as error:
                logger.warning("A database did not close: %s", error)
