"""Where things lie in the store and how they are written there: the original's keys and JSON, and ours.

A reader of the original finds what it knows; fields it does not know are ours, and we ignore those we do
not. Names are escaped so that Kafka's legal ones, which have dots, are one part of a key.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import unquote

from faust_assigner.service.errors import BadRequest
from faust_assigner.service.handoff import Handoff, Phase, TopicPartition
from faust_assigner.service.records import (
    Assigned,
    Consumer,
    Leader,
    Pause,
    Pin,
    Status,
    TopicConfig,
)

_CONSUMER_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")
_INCARNATION = re.compile(r"[A-Za-z0-9._:-]{0,128}")
_ENDPOINT = re.compile(r"[!-~]{0,512}")
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_TO_ESCAPE = re.compile(r"[^A-Za-z0-9_-]")
T = TypeVar("T")
#: What the readers below raise where a value is not theirs.
UNREADABLE: Final = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
MAX_PARTITIONS = 1_000_000
MAX_OFFSET = 2**63 - 1  # Kafka's
#: Of epochs, which go over the wire in 64 bits: there is room for as many revisions above it.
MAX_BASE = 2**62
#: etcd refuses a request of 1.5 MiB, with an error that looks as if another try might help.
MAX_VALUE_BYTES = 1 << 20


def checked_consumer(name: str) -> str:
    """The name, if it can be one. Raises ``BadRequest``."""
    if not _CONSUMER_NAME.fullmatch(name):
        raise BadRequest(f"a consumer's name is 1 to 128 of A-Z a-z 0-9 . _ -, got {name[:200]!r}")
    return name


def checked_incarnation(incarnation: str) -> str:
    """The incarnation, if it can be one; "" is none. Raises ``BadRequest``."""
    if not _INCARNATION.fullmatch(incarnation) or incarnation == "-":
        raise BadRequest(
            f"an incarnation is up to 128 of A-Z a-z 0-9 . _ : -, got {incarnation[:200]!r}"
        )
    return incarnation


def checked_endpoint(endpoint: str) -> str:
    """The endpoint, if it can be one; "" is none. Raises ``BadRequest``."""
    if not _ENDPOINT.fullmatch(endpoint):
        raise BadRequest(
            f"an endpoint is up to 512 printable ASCII characters without spaces, got {endpoint[:200]!r}"
        )
    return endpoint


def checked_topic(name: str) -> str:
    """The name, if Kafka takes it. Raises ``BadRequest``."""
    if not _TOPIC_NAME.fullmatch(name) or name in (".", ".."):
        raise BadRequest(f"a topic's name is 1 to 249 of A-Z a-z 0-9 . _ -, got {name[:300]!r}")
    return name


def escape(name: str) -> str:
    """One part of a key: what is no letter, digit, dash or underscore is written %XX."""
    return _TO_ESCAPE.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), name)


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one group."""

    prefix: str

    @property
    def leader(self) -> str:
        """Who leads; bound to its lease."""
        return f"{self.prefix}assigner/leader"

    def consumer(self, name: str) -> str:
        """A consumer; bound to its lease."""
        return f"{self.prefix}consumers/{escape(name)}"

    def fence(self, name: str, incarnation: str) -> str:
        """A replaced incarnation; bound to its lease: it may be working until the key is gone. Ours alone."""
        return f"{self.prefix}fences/{escape(name)}/{escape(incarnation) or '-'}"

    def expelled(self, name: str, incarnation: str) -> str:
        """An incarnation whose session was ended because it did not release a partition. Ours alone."""
        return f"{self.prefix}expelled/{escape(name)}/{escape(incarnation) or '-'}"

    @property
    def awaiting(self) -> str:
        """While it is there, the leader waits for the consumers that were there before; bound to a lease of
        the rebalance delay. Ours alone."""
        return f"{self.prefix}awaiting/group"

    def departed(self, name: str) -> str:
        """A consumer that said goodbye and had to leave its partitions behind. Ours alone."""
        return f"{self.prefix}departed/{escape(name)}"

    def resync(self, name: str) -> str:
        """The session of a consumer that is to be told everything again; bound to its lease. Ours alone."""
        return f"{self.prefix}resyncs/{escape(name)}"

    @property
    def paused(self) -> str:
        """While it is there, the leader moves nothing for balance. Ours alone."""
        return f"{self.prefix}paused/group"

    def pin(self, at: TopicPartition) -> str:
        """The consumer on which an operator wants a partition. Ours alone."""
        return f"{self.prefix}pins/{escape(at.topic)}/{at.partition}"

    def topic(self, name: str) -> str:
        """A topic's partition count."""
        return f"{self.prefix}config/topics/{escape(name)}"

    def removed(self, name: str) -> str:
        """A topic that an operator removed, or that was deleted in Kafka: it does not come back by itself.
        Ours alone."""
        return f"{self.prefix}removed/{escape(name)}"

    def assignment(self, at: TopicPartition) -> str:
        """Whose a partition is."""
        return f"{self.prefix}assignments/{escape(at.topic)}/{at.partition}"

    def handoff(self, at: TopicPartition) -> str:
        """A partition on its way."""
        return f"{self.prefix}handoffs/{escape(at.topic)}/{at.partition}"

    def cooldown(self, at: TopicPartition, consumer: str) -> str:
        """Until when a consumer is not asked for a partition. Ours alone."""
        return f"{self.prefix}cooldowns/{escape(at.topic)}/{at.partition}/{escape(consumer)}"

    def replicas(self, name: str) -> str:
        """What a consumer is to keep warm. Ours alone."""
        return f"{self.prefix}replicas/{escape(name)}"

    @property
    def epochs(self) -> str:
        """What epochs begin above: raised where a store was restored. Ours alone."""
        return f"{self.prefix}epochs/base"

    def kind(self, key: str) -> tuple[str, tuple[str, ...]]:
        """(kind, unescaped names) of a key under the prefix: ``("assignments", ("orders", "0"))``."""
        kind, *names = key[len(self.prefix) :].split("/")
        return kind, tuple(unquote(name) for name in names)


# -- JSON ----------------------------------------------------------------------------------------------


def _dump(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":"), sort_keys=False).encode()


def _load(value: bytes) -> dict[str, Any]:
    document = json.loads(value)
    if not isinstance(document, dict):
        raise ValueError(f"not an object: {value[:100]!r}")
    return document


def readable(load: Callable[[bytes], T], value: bytes) -> T | None:
    """What ``load`` reads; ``None`` for garbage, which is as if the key were not there."""
    try:
        return load(value)
    except UNREADABLE:
        return None


def dump_consumer(consumer: Consumer) -> bytes:
    """Our own fields only where they say something."""
    document: dict[str, Any] = {
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
        # In columns: there may be very many, and nobody else waits for them meanwhile.
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
    """A consumer's document, if a store takes it. Raises ``BadRequest``."""
    if len(value) > MAX_VALUE_BYTES:
        raise BadRequest(f"{name} says {len(value)} bytes of itself, {MAX_VALUE_BYTES} are taken")
    return value


def load_consumer(value: bytes) -> Consumer:
    """Raises one of :data:`UNREADABLE` where it is none."""
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


def _text(document: Mapping[str, Any], name: str) -> str | None:
    return None if document.get(name) is None else str(document[name])


def _offset(document: Mapping[str, Any]) -> int | None:
    if document.get("offset") is None:
        return None
    offset = int(document["offset"])
    if not 0 <= offset <= MAX_OFFSET:
        raise ValueError(f"an offset is 0 to {MAX_OFFSET}, got {offset}")
    return offset


def dump_assigned(assigned: Assigned) -> bytes:
    """The epoch comes from the key's own revision and is not written."""
    document = {
        "topic": assigned.at.topic,
        "partition": assigned.at.partition,
        "owner": assigned.owner,
        "status": "Active",
    }
    ours = {"offset": assigned.offset, "incarnation": assigned.incarnation or None}
    return _dump(document | {name: value for name, value in ours.items() if value is not None})


def load_assigned(value: bytes, mod_revision: int) -> Assigned:
    """Raises as :func:`load_consumer`."""
    d = _load(value)
    return Assigned(
        TopicPartition(str(d["topic"]), int(d["partition"])),
        str(d["owner"]),
        mod_revision,
        _offset(d),
        str(d.get("incarnation", "")),
    )


def dump_handoff(handoff: Handoff) -> bytes:
    """Our own fields only where they say something."""
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
    """Raises as :func:`load_consumer`."""
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
    """As the original, and that Kafka has named it."""
    document = {"topic": config.topic, "partition_count": config.partition_count}
    return _dump(document | ({"in_kafka": True} if config.in_kafka else {}))


def load_topic(value: bytes) -> TopicConfig:
    """Raises as :func:`load_consumer`."""
    d = _load(value)
    count = int(d["partition_count"])
    if not 0 <= count <= MAX_PARTITIONS:
        raise ValueError(f"{count} partitions")
    return TopicConfig(str(d["topic"]), count, bool(d.get("in_kafka", False)))


def dump_leader(leader: Leader) -> bytes:
    """As the original."""
    return _dump({"holder": leader.holder, "lease_id": leader.lease_id})


def load_leader(value: bytes) -> Leader:
    """Raises as :func:`load_consumer`."""
    d = _load(value)
    return Leader(str(d["holder"]), int(d["lease_id"]))


def dump_base(base: int) -> bytes:
    """What epochs begin above."""
    return _dump({"base": base})


def load_base(value: bytes) -> int:
    """Raises as :func:`load_consumer`."""
    base = int(_load(value)["base"])
    if not 0 <= base <= MAX_BASE:
        raise ValueError(f"epochs begin above 0 to {MAX_BASE}, got {base}")
    return base


def dump_until(until: float) -> bytes:
    """A cool-down's end, unix seconds."""
    return _dump({"until": until})


def load_until(value: bytes) -> float:
    """Raises as :func:`load_consumer`."""
    return float(_load(value)["until"])


def dump_pin(pin: Pin) -> bytes:
    """Where an operator wants a partition."""
    document: dict[str, Any] = {
        "topic": pin.at.topic,
        "partition": pin.at.partition,
        "consumer": pin.consumer,
    }
    return _dump(document | ({"once": True} if pin.once else {}))


def load_pin(value: bytes) -> Pin:
    """Raises as :func:`load_consumer`."""
    d = _load(value)
    at = TopicPartition(str(d["topic"]), int(d["partition"]))
    return Pin(at, str(d["consumer"]), bool(d.get("once", False)))


def dump_pause(pause: Pause) -> bytes:
    """Why nothing is to move for balance, and since when."""
    return _dump({"reason": pause.reason, "since": pause.since})


def load_pause(value: bytes) -> Pause:
    """Raises as :func:`load_consumer`."""
    d = _load(value)
    return Pause(str(d["reason"]), float(d["since"]))


def dump_partitions(partitions: tuple[TopicPartition, ...]) -> bytes:
    """Replicas to keep, by topic: there may be very many, and a value has its limit."""
    found: dict[str, list[int]] = {}
    for at in partitions:
        found.setdefault(at.topic, []).append(at.partition)
    return _dump({"partitions": found})


def load_partitions(value: bytes) -> tuple[TopicPartition, ...]:
    """Raises as :func:`load_consumer`."""
    return tuple(
        TopicPartition(topic, int(number))
        for topic, numbers in _load(value)["partitions"].items()
        for number in numbers
    )
