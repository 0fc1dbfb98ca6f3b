"""The JSON values of the store's keys: the first Kafka Assigner's, with additional fields.

A reader of the first Kafka Assigner finds all the fields that it knows. Additional fields are this
package's; this package ignores fields that it does not know.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
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

T = TypeVar("T")
#: The errors that the readers below raise if a value is not of their kind.
UNREADABLE: Final = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
MAX_OFFSET = 2**63 - 1  # Kafka's
#: The highest base of epochs. Epochs have 64 bits on the wire: 2**62 revisions fit above this base.
MAX_BASE = 2**62
#: etcd refuses a request of 1.5 MiB, with an error that looks as if a retry might help.
MAX_VALUE_BYTES = 1 << 20


def _dump(document: Mapping[str, object]) -> bytes:
    return json.dumps(document, separators=(",", ":"), sort_keys=False).encode()


def _load(value: bytes) -> dict[str, Any]:
    document = json.loads(value)
    if not isinstance(document, dict):
        raise ValueError(f"not an object: {value[:100]!r}")
    return document


def readable(load: Callable[[bytes], T], value: bytes) -> T | None:
    """Load the value; ``None`` if the value is unreadable, as if the key did not exist."""
    try:
        return load(value)
    except UNREADABLE:
        return None


def dump_consumer(consumer: Consumer) -> bytes:
    """Encode a consumer. Additional fields with default values are left out."""
    document: dict[str, object] = {
        "consumer_name": consumer.name,
        "status": consumer.status.value,
        "registered_at": int(consumer.registered_at),
        "session": consumer.session,
    }
    ours = {
        "topics": list(consumer.topics),
        "rack": consumer.rack,
        "endpoint": consumer.endpoint,
        "identity": consumer.identity,
        "capabilities": list(consumer.capabilities),
        "co_partitioned": [list(topics) for topics in consumer.co_partitioned],
        "holds": {topic: list(numbers) for topic, numbers in sorted(consumer.holds.items())},
        "former": {topic: list(numbers) for topic, numbers in sorted(consumer.former.items())},
        # In columns: a consumer may have very many weights, and encoding blocks the event loop.
        "weights": {
            topic: [list(known), list(known.values())] for topic, known in consumer.weights.items()
        },
        "capacity": consumer.capacity if consumer.capacity != 1.0 else None,
        "leaves": consumer.leaves,
        "dismissed": consumer.dismissed,
        "incarnation": consumer.incarnation,
        "replaced": list(consumer.replaced),
        "by_operator": consumer.by_operator,
    }
    return _dump(document | {name: value for name, value in ours.items() if value})


def checked_size(name: str, value: bytes) -> bytes:
    """Return a consumer's document. Raises ``BadRequest`` if the store would refuse its size."""
    if len(value) > MAX_VALUE_BYTES:
        raise BadRequest(
            f"{name} sends {len(value)} bytes about itself; at most {MAX_VALUE_BYTES} are accepted"
        )
    return value


def load_consumer(value: bytes) -> Consumer:
    """Decode a consumer. Raises one of :data:`UNREADABLE` for an unreadable value."""
    d = _load(value)
    capacity = float(d.get("capacity", 1.0))
    return Consumer(
        name=str(d["consumer_name"]),
        status=Status(d["status"]),
        registered_at=float(d["registered_at"]),
        topics=tuple(map(str, d.get("topics", ()))),
        rack=_text(d, "rack"),
        endpoint=str(d.get("endpoint", "")),
        identity=str(d.get("identity", "")),
        capacity=capacity if 0 < capacity < math.inf else 1.0,
        capabilities=tuple(map(str, d.get("capabilities", ()))),
        session=str(d.get("session", "")),
        co_partitioned=tuple(tuple(map(str, topics)) for topics in d.get("co_partitioned", ())),
        holds=_numbers(d.get("holds", {})),
        former=_numbers(d.get("former", {})),
        weights={
            str(topic): dict(zip(map(int, numbers), map(float, weights), strict=True))
            for topic, (numbers, weights) in d.get("weights", {}).items()
        },
        leaves=bool(d.get("leaves", False)),
        dismissed=bool(d.get("dismissed", False)),
        incarnation=str(d.get("incarnation", "")),
        replaced=tuple(map(str, d.get("replaced", ()))),
        by_operator=bool(d.get("by_operator", False)),
    )


def _numbers(said: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {
        str(topic): tuple(number for number in map(int, numbers) if number >= 0)
        for topic, numbers in said.items()
    }


def _text(document: Mapping[str, object], name: str) -> str | None:
    return None if document.get(name) is None else str(document[name])


def _offset(document: Mapping[str, Any]) -> int | None:
    if document.get("offset") is None:
        return None
    offset = int(document["offset"])
    if not 0 <= offset <= MAX_OFFSET:
        raise ValueError(f"an offset is 0 to {MAX_OFFSET}, got {offset}")
    return offset


def dump_assigned(assigned: Assigned) -> bytes:
    """Encode an assignment without its epoch: the epoch is the key's revision."""
    document = {
        "topic": assigned.at.topic,
        "partition": assigned.at.partition,
        "owner": assigned.owner,
        "status": "Active",
    }
    ours = {"offset": assigned.offset, "incarnation": assigned.incarnation or None}
    return _dump(document | {name: value for name, value in ours.items() if value is not None})


def load_assigned(value: bytes, mod_revision: int) -> Assigned:
    """Decode an assignment. Raises as :func:`load_consumer`."""
    d = _load(value)
    return Assigned(
        TopicPartition(str(d["topic"]), int(d["partition"])),
        str(d["owner"]),
        mod_revision,
        _offset(d),
        str(d.get("incarnation", "")),
    )


def dump_handoff(handoff: Handoff) -> bytes:
    """Encode a hand-off. Additional fields with default values are left out."""
    document = {
        "topic": handoff.at.topic,
        "partition": handoff.at.partition,
        "old_owner": handoff.old_owner,
        "new_owner": handoff.new_owner,
        "phase": handoff.phase.value,
        "started_at": int(handoff.started_at),
    }
    ours = {
        "strict": handoff.strict or None,
        "released": handoff.released or None,
        "offset": handoff.offset,
        "unreleased": handoff.unreleased,
        "expelled": handoff.expelled or None,
        "failed": handoff.failed,
        "progress": handoff.progress or None,
        "old_incarnation": handoff.old_incarnation or None,
        "new_incarnation": handoff.new_incarnation or None,
    }
    return _dump(document | {name: value for name, value in ours.items() if value is not None})


def load_handoff(value: bytes) -> Handoff:
    """Decode a hand-off. Raises as :func:`load_consumer`."""
    d = _load(value)
    return Handoff(
        TopicPartition(str(d["topic"]), int(d["partition"])),
        str(d["old_owner"]),
        str(d["new_owner"]),
        Phase(d["phase"]),
        float(d["started_at"]),
        strict=bool(d.get("strict", False)),
        released=bool(d.get("released", False)),
        offset=_offset(d),
        unreleased=_text(d, "unreleased"),
        expelled=bool(d.get("expelled", False)),
        failed=_text(d, "failed"),
        progress=float(d.get("progress", 0.0)),
        old_incarnation=str(d.get("old_incarnation", "")),
        new_incarnation=str(d.get("new_incarnation", "")),
    )


def dump_topic(config: TopicConfig) -> bytes:
    """Encode a topic as the first Kafka Assigner does, with the field ``in_kafka`` added."""
    document = {"topic": config.topic, "partition_count": config.partition_count}
    return _dump(document | ({"in_kafka": True} if config.in_kafka else {}))


def load_topic(value: bytes) -> TopicConfig:
    """Decode a topic. Raises as :func:`load_consumer`."""
    d = _load(value)
    count = int(d["partition_count"])
    if not 0 <= count <= MAX_PARTITIONS:
        raise ValueError(f"{count} partitions")
    return TopicConfig(str(d["topic"]), count, bool(d.get("in_kafka", False)))


def dump_leader(leader: Leader) -> bytes:
    """Encode the leader as the first Kafka Assigner does."""
    return _dump({"holder": leader.holder, "lease_id": leader.lease_id})


def load_leader(value: bytes) -> Leader:
    """Decode the leader. Raises as :func:`load_consumer`."""
    d = _load(value)
    return Leader(str(d["holder"]), int(d["lease_id"]))


def dump_base(base: int) -> bytes:
    """Encode the base above which epochs begin."""
    return _dump({"base": base})


def load_base(value: bytes) -> int:
    """Decode the base of epochs. Raises as :func:`load_consumer`."""
    base = int(_load(value)["base"])
    if not 0 <= base <= MAX_BASE:
        raise ValueError(f"epochs begin above 0 to {MAX_BASE}, got {base}")
    return base


def dump_until(until: float) -> bytes:
    """Encode a cool-down's end, in unix seconds."""
    return _dump({"until": until})


def load_until(value: bytes) -> float:
    """Decode a cool-down's end, in unix seconds. Raises as :func:`load_consumer`."""
    return float(_load(value)["until"])


def dump_pin(pin: Pin) -> bytes:
    """Encode an operator's order to put a partition on a consumer."""
    document: dict[str, object] = {
        "topic": pin.at.topic,
        "partition": pin.at.partition,
        "consumer": pin.consumer,
    }
    return _dump(document | ({"once": True} if pin.once else {}))


def load_pin(value: bytes) -> Pin:
    """Decode a pin. Raises as :func:`load_consumer`."""
    d = _load(value)
    at = TopicPartition(str(d["topic"]), int(d["partition"]))
    return Pin(at, str(d["consumer"]), bool(d.get("once", False)))


def dump_pause(pause: Pause) -> bytes:
    """Encode the reason and the beginning of a pause."""
    return _dump({"reason": pause.reason, "since": pause.since})


def load_pause(value: bytes) -> Pause:
    """Decode a pause. Raises as :func:`load_consumer`."""
    d = _load(value)
    return Pause(str(d["reason"]), float(d["since"]))


def dump_partitions(partitions: tuple[TopicPartition, ...]) -> bytes:
    """Encode a consumer's replicas, grouped by topic to keep a large value below the size limit."""
    found: dict[str, list[int]] = {}
    for at in partitions:
        found.setdefault(at.topic, []).append(at.partition)
    return _dump({"partitions": found})


def load_partitions(value: bytes) -> tuple[TopicPartition, ...]:
    """Decode a consumer's replicas. Raises as :func:`load_consumer`."""
    return tuple(
        TopicPartition(topic, int(number))
        for topic, numbers in _load(value)["partitions"].items()
        for number in numbers
    )
