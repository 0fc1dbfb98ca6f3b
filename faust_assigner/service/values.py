"""The JSON values of the store's keys: the first Kafka Assigner's, with additional fields.

The first Kafka Assigner finds all its fields in these values. This package adds fields, and
ignores unknown fields.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from faust_assigner.service.errors import BadRequest
from faust_assigner.service.handoff import Handoff, Phase, TopicPartition
from faust_assigner.service.keys import MAX_PARTITIONS
from faust_assigner.service.records import (
    Assigned,
    Consumer,
    Leader,
    Pause,
    Pin,
    Status,
    TopicConfig,
)
from faust_assigner.service.store.base import KeyValue

T = TypeVar("T")
#: The errors that the ``load_`` functions below raise for a value of a different kind.
UNREADABLE: Final = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
MAX_OFFSET = 2**63 - 1  # Kafka's highest offset
#: The highest base of epochs, low enough that a base plus a revision fits into 64 bits.
MAX_BASE = 2**62
#: The maximum bytes of a value. etcd refuses requests above 1.5 MiB, with an error that suggests a
#: retry.
MAX_VALUE_BYTES = 1 << 20


def _dump(document: Mapping[str, object]) -> bytes:
    return json.dumps(document, separators=(",", ":"), sort_keys=False).encode()


def _load(value: bytes) -> dict[str, Any]:
    document = json.loads(value)
    if not isinstance(document, dict):
        raise ValueError(f"not an object: {value[:100]!r}")
    return document


def readable(load: Callable[[bytes], T], kv: KeyValue | None) -> T | None:
    """Return the key's decoded value; ``None`` if the key is absent or its value is unreadable."""
    try:
        return None if kv is None else load(kv.value)
    except UNREADABLE:
        return None


def _strings(said: Iterable[object]) -> tuple[str, ...]:
    return tuple(map(str, said))


def _text(said: object) -> str | None:
    return None if said is None else str(said)


def _numbers(said: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {
        str(topic): tuple(number for number in map(int, numbers) if number >= 0)
        for topic, numbers in said.items()
    }


def _weights(said: Mapping[str, Any]) -> dict[str, dict[int, float]]:
    return {
        str(topic): dict(zip(map(int, numbers), map(float, weights), strict=True))
        for topic, (numbers, weights) in said.items()
    }


def _capacity(said: Any) -> float:
    return capacity if 0 < (capacity := float(said)) < math.inf else 1.0


def _offset(said: Any) -> int | None:
    if said is None:
        return None
    if not 0 <= (offset := int(said)) <= MAX_OFFSET:
        raise ValueError(f"an offset is 0 to {MAX_OFFSET}, got {offset}")
    return offset


#: An additional field -> the function that reads its value. A field is left out of the document if
#: it has its default value.
Fields = Mapping[str, Callable[[Any], Any]]
_OF_CONSUMER: Final[Fields] = {
    "topics": _strings,
    "rack": _text,
    "endpoint": str,
    "identity": str,
    "capabilities": _strings,
    "co_partitioned": lambda groups: tuple(map(_strings, groups)),
    "holds": _numbers,
    "former": _numbers,
    "weights": _weights,
    "capacity": _capacity,
    "leaves": bool,
    "dismissed": bool,
    "incarnation": str,
    "replaced": _strings,
    "by_operator": bool,
}
_OF_ASSIGNED: Final[Fields] = {"offset": _offset, "incarnation": str}
_OF_HANDOFF: Final[Fields] = {
    "strict": bool,
    "released": bool,
    "offset": _offset,
    "unreleased": _text,
    "expelled": bool,
    "failed": _text,
    "progress": float,
    "old_incarnation": str,
    "new_incarnation": str,
}


def _additional(record: object, default: object, fields: Fields) -> dict[str, object]:
    """Return the additional fields whose values differ from the values in the ``default`` record."""
    changed = (name for name in fields if getattr(record, name) != getattr(default, name))
    return {name: getattr(record, name) for name in changed}


def _read(document: Mapping[str, Any], fields: Fields) -> dict[str, Any]:
    return {name: read(document[name]) for name, read in fields.items() if name in document}


def _place(at: TopicPartition) -> dict[str, object]:
    return {"topic": at.topic, "partition": at.partition}


def _partition_of(document: Mapping[str, Any]) -> TopicPartition:
    return TopicPartition(str(document["topic"]), int(document["partition"]))


def dump_consumer(consumer: Consumer) -> bytes:
    """Encode a consumer. Additional fields with default values are left out.

    Raises ``BadRequest`` if the document has more than :data:`MAX_VALUE_BYTES`.
    """
    document: dict[str, object] = {
        "consumer_name": consumer.name,
        "status": consumer.status.value,
        "registered_at": int(consumer.registered_at),
        "session": consumer.session,
    }
    document |= _additional(consumer, Consumer(name=""), _OF_CONSUMER)
    if consumer.weights:
        # Write weights as columns, which are fast to encode: a consumer may have very many
        # weights, and encoding blocks the event loop.
        document["weights"] = {
            topic: [list(known), list(known.values())] for topic, known in consumer.weights.items()
        }
    value = _dump(document)
    if len(value) > MAX_VALUE_BYTES:
        limit = f"at most {MAX_VALUE_BYTES} are accepted"
        raise BadRequest(f"{consumer.name} sends {len(value)} bytes about itself; {limit}")
    return value


def load_consumer(value: bytes) -> Consumer:
    """Decode a consumer. Raises one of :data:`UNREADABLE` for an unreadable value."""
    d = _load(value)
    return Consumer(
        name=str(d["consumer_name"]),
        status=Status(d["status"]),
        registered_at=float(d["registered_at"]),
        session=str(d.get("session", "")),
        **_read(d, _OF_CONSUMER),
    )


def dump_assigned(assigned: Assigned) -> bytes:
    """Encode an assignment without its epoch: the epoch is the key's revision."""
    document = {**_place(assigned.at), "owner": assigned.owner, "status": "Active"}
    return _dump(document | _additional(assigned, Assigned(assigned.at, ""), _OF_ASSIGNED))


def load_assigned(value: bytes, mod_revision: int) -> Assigned:
    """Decode an assignment. Raises the errors of :func:`load_consumer`."""
    d = _load(value)
    return Assigned(_partition_of(d), str(d["owner"]), mod_revision, **_read(d, _OF_ASSIGNED))


def dump_handoff(handoff: Handoff) -> bytes:
    """Encode a hand-off. Additional fields with default values are left out."""
    document = {
        **_place(handoff.at),
        "old_owner": handoff.old_owner,
        "new_owner": handoff.new_owner,
        "phase": handoff.phase.value,
        "started_at": int(handoff.started_at),
    }
    blank = Handoff(handoff.at, "", "", Phase.WARMING, 0.0)
    return _dump(document | _additional(handoff, blank, _OF_HANDOFF))


def load_handoff(value: bytes) -> Handoff:
    """Decode a hand-off. Raises the errors of :func:`load_consumer`."""
    d = _load(value)
    owners = str(d["old_owner"]), str(d["new_owner"])
    begun = Phase(d["phase"]), float(d["started_at"])
    return Handoff(_partition_of(d), *owners, *begun, **_read(d, _OF_HANDOFF))


def dump_topic(config: TopicConfig) -> bytes:
    """Encode a topic as the first Kafka Assigner does, with the field ``in_kafka`` added."""
    document = {"topic": config.topic, "partition_count": config.partition_count}
    return _dump(document | ({"in_kafka": True} if config.in_kafka else {}))


def load_topic(value: bytes) -> TopicConfig:
    """Decode a topic. Raises the errors of :func:`load_consumer`."""
    d = _load(value)
    count = int(d["partition_count"])
    if not 0 <= count <= MAX_PARTITIONS:
        raise ValueError(f"a topic with {count} partitions")
    return TopicConfig(str(d["topic"]), count, bool(d.get("in_kafka", False)))


def dump_leader(leader: Leader) -> bytes:
    """Encode the leader as the first Kafka Assigner does."""
    return _dump({"holder": leader.holder, "lease_id": leader.lease_id})


def load_leader(value: bytes) -> Leader:
    """Decode the leader. Raises the errors of :func:`load_consumer`."""
    d = _load(value)
    return Leader(str(d["holder"]), int(d["lease_id"]))


def dump_base(base: int) -> bytes:
    """Encode the base of epochs."""
    return _dump({"base": base})


def load_base(value: bytes) -> int:
    """Decode the base of epochs. Raises the errors of :func:`load_consumer`."""
    base = int(_load(value)["base"])
    if not 0 <= base <= MAX_BASE:
        raise ValueError(f"the base of epochs is {base}, expected 0 to {MAX_BASE}")
    return base


def dump_until(until: float) -> bytes:
    """Encode a cool-down's end, in unix seconds."""
    return _dump({"until": until})


def load_until(value: bytes) -> float:
    """Decode a cool-down's end, in unix seconds. Raises the errors of :func:`load_consumer`."""
    return float(_load(value)["until"])


def dump_pin(pin: Pin) -> bytes:
    """Encode an operator's order to put a partition on a consumer."""
    document = {**_place(pin.at), "consumer": pin.consumer}
    return _dump(document | ({"once": True} if pin.once else {}))


def load_pin(value: bytes) -> Pin:
    """Decode a pin. Raises the errors of :func:`load_consumer`."""
    d = _load(value)
    return Pin(_partition_of(d), str(d["consumer"]), bool(d.get("once", False)))


def dump_pause(pause: Pause) -> bytes:
    """Encode a pause of moves for balance."""
    return _dump({"reason": pause.reason, "since": pause.since})


def load_pause(value: bytes) -> Pause:
    """Decode a pause. Raises the errors of :func:`load_consumer`."""
    d = _load(value)
    return Pause(str(d["reason"]), float(d["since"]))


def dump_partitions(partitions: tuple[TopicPartition, ...]) -> bytes:
    """Encode a consumer's replicas, grouped by topic to keep the value below the size limit."""
    found: dict[str, list[int]] = {}
    for at in partitions:
        found.setdefault(at.topic, []).append(at.partition)
    return _dump({"partitions": found})


def load_partitions(value: bytes) -> tuple[TopicPartition, ...]:
    """Decode a consumer's replicas. Raises the errors of :func:`load_consumer`."""
    return tuple(
        TopicPartition(topic, int(number))
        for topic, numbers in _load(value)["partitions"].items()
        for number in numbers
    )
