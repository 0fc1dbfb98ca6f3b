"""The partition to which the app's producer sends a key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faust.exceptions import NotReady
from faust.types.tuples import TP

if TYPE_CHECKING:
    from faust.types.app import AppT


def partition_of(app: AppT, topic: str, key: bytes) -> TP:
    """Return the partition to which producers send ``key``. Raises KeyError if unknown."""
    try:
        tp: TP | None = app.producer.key_partition(topic, key)
    except NotReady:
        raise KeyError(topic) from None
    except TypeError:  # before its first write to the topic, the producer has no metadata of it
        number = app.consumer.key_partition(topic, key)
        tp = None if number is None else TP(topic, number)
    if tp is None:
        raise KeyError(topic)
    return TP(*tp)
