"""Convert classic groups and committed offsets to key-value pairs and back."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from faust_assigner.broker.storage.store import Store, StoreFailed
from faust_assigner.coordinator.effects import GroupRecord, MemberRecord
from faust_assigner.coordinator.events import Protocol
from faust_assigner.coordinator.offsets import Committed, TopicPartition

OFFSET: Final = struct.Struct(">qiqq")
NEVER: Final = -1
#: Stored metadata per byte of Kafka's record: the broker stores all protocols, Kafka the chosen protocol.
STORED_PER_RECORD: Final = 4
KIND, VERSION = "classic", 1  # in a group record; older records lack both
#: Key in the JSON of a group -> field of the record. The members are encoded separately.
_GROUP: Final = {
    "generation": "generation",
    "protocol_type": "protocol_type",
    "protocol": "protocol_name",
    "leader": "leader",
    "since": "state_since_ms",
    "settled": "settled",
}
#: Key in the JSON of a member -> field of its record. The opaque bytes are encoded separately.
_MEMBER: Final = {
    "id": "member_id",
    "instance": "instance_id",
    "client": "client_id",
    "host": "client_host",
    "session": "session_timeout_ms",
    "rebalance": "rebalance_timeout_ms",
}


def group_key(group_id: str) -> bytes:
    """Return the key of a group's record."""
    return b"g" + group_id.encode()


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """Return the key of one committed offset; all offsets of a group share a prefix."""
    return offsets_prefix(group_id) + packed_text(topic) + struct.pack(">i", partition)


def offsets_prefix(group_id: str) -> bytes:
    """Return the key prefix of a group's offsets; the id's length in it separates 'a' from 'ab'."""
    return b"o" + packed_text(group_id)


def pending_key(group_id: str, producer_id: int, topic: str, partition: int) -> bytes:
    """Return the key of an offset that waits for the end of a producer's transaction."""
    place = packed_text(topic) + struct.pack(">i", partition)
    return b"w" + packed_text(group_id) + struct.pack(">q", producer_id) + place


def dump_pending(entry: Committed, *, is_outdated: bool) -> bytes:
    """Encode a pending offset; ``is_outdated``: a later commit outside the transaction replaces it."""
    return bytes([is_outdated]) + dump_offset(entry)


def load_pending(store: Store) -> Iterator[tuple[str, int, TopicPartition, Committed, bool]]:
    """Yield every pending offset: group, producer id, partition, offset, whether it is outdated."""
    for key, value in store.scan(b"w"):
        group_id, position = read_text(key, 1)
        (producer_id,) = struct.unpack_from(">q", key, position)
        topic, position = read_text(key, position + 8)
        (partition,) = struct.unpack_from(">i", key, position)
        yield group_id, producer_id, (topic, partition), _load_offset(value[1:]), bool(value[0])


def packed_text(value: str) -> bytes:
    """Encode a text with its length before it."""
    raw = value.encode()
    return struct.pack(">H", len(raw)) + raw


def dump_offset(entry: Committed) -> bytes:
    """Encode one committed offset."""
    expires = NEVER if entry.expires_at_ms is None else entry.expires_at_ms
    return (
        OFFSET.pack(entry.offset, entry.leader_epoch, entry.committed_at_ms, expires)
        + entry.metadata.encode()
    )


def load_offsets(store: Store) -> Iterator[tuple[str, TopicPartition, Committed]]:
    """Yield every committed offset in the store."""
    for key, value in store.scan(b"o"):
        group_id, position = read_text(key, 1)
        topic, position = read_text(key, position)
        (partition,) = struct.unpack_from(">i", key, position)
        yield group_id, (topic, partition), _load_offset(value)


def _load_offset(value: bytes) -> Committed:
    offset, epoch, committed_at, expires = OFFSET.unpack_from(value)
    return Committed(
        offset,
        epoch,
        value[OFFSET.size :].decode(),
        committed_at,
        None if expires == NEVER else expires,
    )


def read_text(data: bytes, position: int) -> tuple[str, int]:
    """Decode the text at ``position``; return the text, and the position after it."""
    (length,) = struct.unpack_from(">H", data, position)
    end = position + 2 + length
    return data[position + 2 : end].decode(), end


def record_size(record: GroupRecord) -> int:
    """Return the approximate size in bytes of Kafka's own record of this group."""
    return sum(
        len(m.member_id)
        + len(m.client_id)
        + len(m.client_host)
        + len(m.instance_id or "")
        + 24
        + len(next((p.metadata for p in m.protocols if p.name == record.protocol_name), b""))
        + len(m.assignment)
        for m in record.members
    )


def limited_size(record: GroupRecord) -> int:
    """Return the size to compare with message.max.bytes.

    The size of Kafka's record, or a quarter of the metadata of all protocols if that is larger: the broker
    stores the metadata of all protocols.
    """
    stored = sum(len(p.metadata) for m in record.members for p in m.protocols)
    return max(record_size(record), stored // STORED_PER_RECORD)


def dump_group(record: GroupRecord) -> bytes:
    """Encode a group record as JSON, opaque bytes in base64."""
    return json.dumps(
        {
            "kind": KIND,
            "v": VERSION,
            **{key: getattr(record, name) for key, name in _GROUP.items()},
            "members": [_dump_member(m) for m in record.members],
        }
    ).encode()


def _dump_member(member: MemberRecord) -> dict[str, object]:
    return {
        **{key: getattr(member, name) for key, name in _MEMBER.items()},
        "assignment": base64.b64encode(member.assignment).decode(),
        "protocols": dump_protocols(member.protocols),
    }


def _load_member(saved: Mapping[str, Any]) -> MemberRecord:
    return MemberRecord(
        **{name: saved[key] for key, name in _MEMBER.items()},
        protocols=load_protocols(saved["protocols"]),
        assignment=base64.b64decode(saved["assignment"]),
    )


def dump_protocols(protocols: Iterable[Protocol]) -> list[list[str]]:
    """Return the names of protocols, each with its opaque bytes in base64."""
    return [[p.name, base64.b64encode(p.metadata).decode()] for p in protocols]


def load_protocols(saved: Iterable[Sequence[str]]) -> tuple[Protocol, ...]:
    """Decode protocols that :func:`dump_protocols` encoded."""
    return tuple(Protocol(name, base64.b64decode(data)) for name, data in saved)


def load_groups(store: Store) -> Iterator[GroupRecord]:
    """Yield every classic group. Raises StoreFailed on a record of a later version."""
    for key, value in store.scan(b"g"):
        saved = json.loads(value)
        if saved.get("v", VERSION) != VERSION or saved.get("kind", KIND) != KIND:
            raise StoreFailed(
                f"the record of group {key[1:].decode()!r} was written by a later version"
            )
        yield GroupRecord(
            key[1:].decode(),
            **{name: saved[word] for word, name in _GROUP.items()},
            members=tuple(map(_load_member, saved["members"])),
        )
