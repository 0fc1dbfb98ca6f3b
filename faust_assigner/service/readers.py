"""Readers that decode each kind of key for the copy of the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from faust_assigner.service import values
from faust_assigner.service.handoff import TopicPartition
from faust_assigner.service.keys import MAX_PARTITIONS
from faust_assigner.service.store.base import KeyValue

Load = Callable[[KeyValue], Any]


def _value(load: Callable[[bytes], Any]) -> Load:
    """Return a reader that decodes only the key's value."""
    return lambda kv: load(kv.value)


@dataclass(frozen=True)
class Reader:
    """The reader of one kind of key.

    ``field``   the view's field for entries of this kind
    ``name``    makes the entry's key in the view from the parts of the store's key
    ``load``    decodes the value
    ``named``   the value's attribute that must equal the entry's key in the view; "" for none
    """

    field: str
    name: Callable[[tuple[str, ...]], Any]
    load: Load = lambda kv: kv.value
    named: str = ""

    def read(self, kv: KeyValue, name: object) -> Any:
        """Return the decoded value. Raises one of ``UNREADABLE``, also if it names another key."""
        value = self.load(kv)
        if self.named and getattr(value, self.named) != name:
            raise ValueError(f"the value of key {kv.key} belongs to a different key")
        return value


def _partition_at(names: tuple[str, ...]) -> TopicPartition:
    """Return the partition that a key names. Raises ``ValueError`` for an invalid number.

    Each partition has exactly one key: a different spelling of the number is invalid, too.
    """
    topic, number = names
    if number != str(int(number)) or not 0 <= int(number) < MAX_PARTITIONS:
        raise ValueError(f"no partition: {number}")
    return TopicPartition(topic, int(number))


def _process(names: tuple[str, ...]) -> tuple[str, str]:
    """Return the consumer's name and the incarnation that a key names."""
    return names[0], "" if names[1] == "-" else names[1]


def _first_name(names: tuple[str, ...]) -> str:
    return names[0]


#: The key's kind and its number of further parts -> the reader of such keys.
READERS: Final[Mapping[tuple[str, int], Reader]] = {
    ("consumers", 1): Reader("consumers", _first_name, _value(values.load_consumer), "name"),
    ("assignments", 2): Reader(
        "assignments",
        _partition_at,
        lambda kv: values.load_assigned(kv.value, kv.mod_revision),
        "at",
    ),
    ("handoffs", 2): Reader("handoffs", _partition_at, _value(values.load_handoff), "at"),
    ("fences", 2): Reader("fences", _process),
    ("resyncs", 1): Reader("resyncs", _first_name, _value(bytes.decode)),
    ("awaiting", 1): Reader("awaiting", _first_name),
    ("removed", 1): Reader("removed", _first_name),
    ("paused", 1): Reader("pauses", _first_name, _value(values.load_pause)),
    ("pins", 2): Reader("pins", _partition_at, _value(values.load_pin), "at"),
    ("departed", 1): Reader("departed", _first_name),
    ("expelled", 2): Reader("expelled", _process),
    ("config", 2): Reader("topics", lambda names: names[1], _value(values.load_topic), "topic"),
    ("cooldowns", 3): Reader(
        "cooldowns", lambda n: (_partition_at(n[:2]), n[2]), _value(values.load_until)
    ),
    ("replicas", 1): Reader("replicas", _first_name, _value(values.load_partitions)),
    ("epochs", 1): Reader("bases", _first_name, _value(values.load_base)),
    ("assigner", 1): Reader("leaders", _first_name, _value(values.load_leader)),
}
