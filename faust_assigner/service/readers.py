"""How the copy of the store reads each kind of key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from faust_assigner.service import values
from faust_assigner.service.handoff import TopicPartition
from faust_assigner.service.keys import MAX_PARTITIONS
from faust_assigner.service.store.base import KeyValue


@dataclass(frozen=True)
class Reader:
    """The reader of one kind of key.

    ``field``  the view's field for entries of this kind
    ``name``   makes the entry's key in the view from the key's names
    ``load``   decodes the value
    ``named``  whether the value agrees with the key
    """

    field: str
    name: Callable[[tuple[str, ...]], Any]
    load: Callable[[KeyValue], Any]
    named: Callable[[Any, Any], bool] = lambda value, name: True


def _at(names: tuple[str, ...]) -> TopicPartition:
    """Return the partition of a key's names. Raises ``ValueError`` for an invalid number.

    A partition has exactly one key: a different spelling of the number is invalid, too.
    """
    topic, number = names
    if number != str(int(number)) or not 0 <= int(number) < MAX_PARTITIONS:
        raise ValueError(f"no partition: {number}")
    return TopicPartition(topic, int(number))


def _process(names: tuple[str, ...]) -> tuple[str, str]:
    """Return the consumer's name and the incarnation of a key's names."""
    return names[0], "" if names[1] == "-" else names[1]


#: (kind, number of names) of a key -> its reader.
READERS: Final[Mapping[tuple[str, int], Reader]] = {
    ("consumers", 1): Reader(
        "consumers",
        lambda n: n[0],
        lambda kv: values.load_consumer(kv.value),
        lambda consumer, name: consumer.name == name,
    ),
    ("assignments", 2): Reader(
        "assignments",
        _at,
        lambda kv: values.load_assigned(kv.value, kv.mod_revision),
        lambda assigned, at: assigned.at == at,
    ),
    ("handoffs", 2): Reader(
        "handoffs",
        _at,
        lambda kv: values.load_handoff(kv.value),
        lambda handoff, at: handoff.at == at,
    ),
    ("fences", 2): Reader("fences", _process, lambda kv: kv.value),
    ("resyncs", 1): Reader("resyncs", lambda n: n[0], lambda kv: kv.value.decode()),
    ("awaiting", 1): Reader("awaiting", lambda n: n[0], lambda kv: kv.value),
    ("removed", 1): Reader("removed", lambda n: n[0], lambda kv: kv.value),
    ("paused", 1): Reader("pauses", lambda n: n[0], lambda kv: values.load_pause(kv.value)),
    ("pins", 2): Reader(
        "pins", _at, lambda kv: values.load_pin(kv.value), lambda pin, at: pin.at == at
    ),
    ("departed", 1): Reader("departed", lambda n: n[0], lambda kv: kv.value),
    ("expelled", 2): Reader("expelled", _process, lambda kv: kv.value),
    ("config", 2): Reader(
        "topics",
        lambda n: n[1],
        lambda kv: values.load_topic(kv.value),
        lambda config, topic: config.topic == topic,
    ),
    ("cooldowns", 3): Reader(
        "cooldowns", lambda n: (_at(n[:2]), n[2]), lambda kv: values.load_until(kv.value)
    ),
    ("replicas", 1): Reader(
        "replicas", lambda n: n[0], lambda kv: values.load_partitions(kv.value)
    ),
    ("epochs", 1): Reader("bases", lambda n: n[0], lambda kv: values.load_base(kv.value)),
    ("assigner", 1): Reader("leaders", lambda n: n[0], lambda kv: values.load_leader(kv.value)),
}
