"""Limits the pauses of Python's cyclic garbage collector in an instance with a large group.

A collection of the oldest generation visits every object. With 100,000 partitions it blocks the
event loop for some 400 ms of processor time. The copy of the store and a plan live long and have no
cycles. ``gc.freeze`` therefore excludes them from collections; reference counts still free them.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

#: The growth of the copy of the store, in keys, after which its objects are frozen again.
GROWN_BY = 5_000
#: More new objects than this are frozen; to collect this number of objects takes some 5 ms.
MANY = 30_000


class GrowthFreezer:
    """Freezes the objects of a growing copy, step by step."""

    def __init__(self) -> None:
        self._hidden = 0

    def freeze_if_grown(self, keys: int) -> None:
        """Freeze the new objects if the copy, which now has ``keys`` keys, has grown by a step.

        Cost: a collection of the young objects, once per step of :data:`GROWN_BY` keys.
        """
        if keys < self._hidden + GROWN_BY:
            return
        self._hidden = keys
        freeze_all()


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Disable collections in the block; then, if the block made many objects, freeze them."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if gc.get_count()[0] > MANY:
                gc.freeze()
            gc.enable()


def freeze_all() -> None:
    """Free the young garbage, and freeze the remaining objects."""
    gc.collect(1)
    gc.freeze()
