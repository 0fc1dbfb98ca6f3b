"""Keeps Python's cyclic garbage collector from stopping an instance that has a large group in memory.

A collection of the oldest generation looks at every object: with 100,000 partitions it holds the event loop
up for some 400 ms of a processor. The copy of the store and a plan live long and have no cycles, so that they
are taken out of the collector's sight (``gc.freeze``); reference counts free them as before.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

#: Keys that the copy of the store grows by until its objects are taken out of sight once more.
GROWN_BY = 5_000
#: New objects from which they are taken out of sight: to look at so many takes some 5 ms.
MANY = 30_000


class Grown:
    """Takes a copy that grows out of the collector's sight, step by step."""

    def __init__(self) -> None:
        self._hidden = 0

    def look(self, keys: int) -> None:
        """The copy has so many keys now. Cost: a collection of the young objects, once per step."""
        if keys < self._hidden + GROWN_BY:
            return
        self._hidden = keys
        hide()


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """No collection meanwhile; what was made meanwhile and lives on is taken out of sight."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if gc.get_count()[0] > MANY:
                gc.freeze()
            gc.enable()


def hide() -> None:
    """Free the young garbage, and take what is left out of sight."""
    gc.collect(1)
    gc.freeze()
