"""Convert the records of groups to key-value pairs and back: one pair per record, so changes are small.

A key consists of ``m``, group id, kind and member id. A value is JSON with ``kind`` and ``v``, the version
of its layout. A classic group is one pair, with the key ``g`` and the group id. Old values of classic
groups lack ``kind`` and ``v``, and count as version 1. With an unknown kind or version, the start fails.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from faust_assigner.broker.groups import group_store
from faust_assigner.broker.storage.store import Store, StoreFailed
from faust_assigner.coordinator.catalogue import Partitions
from faust_assigner.coordinator.records import (
    ClassicSide,
    CurrentAssignment,
    Epochs,
    GroupEpoch,
    GroupRecord,
    Key,
    Kind,
    MemberMetadata,
    MemberState,
    Record,
    TargetAssignment,
    TargetEpoch,
    Value,
)

Json = Mapping[str, Any]


def records_prefix(group_id: str) -> bytes:
    """Return the key prefix of a consumer group's records.

    The prefix contains the length of the group id, so that the prefix of 'a' does not match 'ab'.
    """
    return b"m" + group_store.packed_text(group_id)


def record_key(key: Key) -> bytes:
    """Return the key of a record in the store."""
    if key.kind is Kind.CLASSIC:
        return group_store.group_key(key.group_id)
    return (
        records_prefix(key.group_id)
        + group_store.packed_text(key.kind.value)
        + key.member_id.encode()
    )


def dump_record(value: Value) -> bytes:
    """Encode a record's value; cost O(its size)."""
    if isinstance(value, GroupRecord):
        return group_store.dump_group(value)
    kind, dump, _ = _BY_TYPE[type(value)]
    return json.dumps(
        {"kind": kind.value, "v": value.version, **dump(value)}, separators=(",", ":")
    ).encode()


def as_writes(records: Iterable[Record]) -> tuple[list[tuple[bytes, bytes]], list[bytes]]:
    """Return the pairs to put and the keys to delete; of records with equal keys, only the last counts."""
    last = {record_key(record.key): record.value for record in records}
    puts = [(key, dump_record(value)) for key, value in last.items() if value is not None]
    return puts, [key for key, value in last.items() if value is None]


def load_records(store: Store) -> Iterator[Record]:
    """Yield every record, first the classic groups. Raises StoreFailed for a record of a later version."""
    for record in group_store.load_groups(store):
        yield Record(Key(Kind.CLASSIC, record.group_id), record)
    for key, value in store.scan(b"m"):
        group_id, position = group_store.read_text(key, 1)
        word, position = group_store.read_text(key, position)
        saved = json.loads(value)
        loader = _BY_WORD.get((word, saved.get("v")))
        if loader is None:
            raise StoreFailed(
                f"group {group_id!r} has a record {word!r} of version {saved.get('v')!r}, "
                "which a later version of the broker wrote"
            )
        yield Record(Key(Kind(word), group_id, key[position:].decode()), loader(saved))


# -- the content of each kind --------------------------------------------------------------------


def _dump_partitions(partitions: Partitions) -> Json:
    return {topic_id.hex(): list(numbers) for topic_id, numbers in partitions.items()}


def _load_partitions(saved: Json) -> Partitions:
    return {bytes.fromhex(key): tuple(numbers) for key, numbers in saved.items()}


def _dump_epochs(epochs: Epochs) -> Json:
    return {topic_id.hex(): sorted(owned.items()) for topic_id, owned in epochs.items()}


def _load_epochs(saved: Json) -> Epochs:
    return {bytes.fromhex(key): dict(pairs) for key, pairs in saved.items()}


def _dump_member(value: MemberMetadata) -> Json:
    classic = value.classic
    return {
        "instance": value.instance_id,
        "rack": value.rack_id,
        "client": value.client_id,
        "host": value.client_host,
        "rebalance": value.rebalance_timeout_ms,
        "topics": sorted(value.topic_names),
        "regex": value.topic_regex,
        "assignor": value.server_assignor,
        "classic": None
        if classic is None
        else {
            "session": classic.session_timeout_ms,
            "protocols": group_store.dump_protocols(classic.protocols),
        },
        "principal": value.principal,
    }


def _load_member(saved: Json) -> MemberMetadata:
    classic = saved["classic"]
    return MemberMetadata(
        saved["instance"],
        saved["rack"],
        saved["client"],
        saved["host"],
        saved["rebalance"],
        frozenset(saved["topics"]),
        saved["regex"],
        saved["assignor"],
        None
        if classic is None
        else ClassicSide(classic["session"], group_store.load_protocols(classic["protocols"])),
        saved.get("principal", ""),
    )


def _dump_current(value: CurrentAssignment) -> Json:
    return {
        "epoch": value.epoch,
        "previous": value.previous_epoch,
        "state": value.state.value,
        "assigned": _dump_epochs(value.assigned),
        "revoking": _dump_epochs(value.revoking),
    }


def _load_current(saved: Json) -> CurrentAssignment:
    return CurrentAssignment(
        saved["epoch"],
        saved["previous"],
        MemberState(saved["state"]),
        _load_epochs(saved["assigned"]),
        _load_epochs(saved["revoking"]),
    )


_BY_TYPE: Final[Mapping[type[Any], tuple[Kind, Callable[[Any], Json], Callable[[Json], Value]]]] = {
    GroupEpoch: (
        Kind.EPOCH,
        lambda value: {"epoch": value.epoch, "fingerprint": value.fingerprint},
        lambda saved: GroupEpoch(saved["epoch"], saved["fingerprint"]),
    ),
    MemberMetadata: (Kind.MEMBER, _dump_member, _load_member),
    TargetEpoch: (
        Kind.TARGET_EPOCH,
        lambda value: {"epoch": value.epoch},
        lambda saved: TargetEpoch(saved["epoch"]),
    ),
    TargetAssignment: (
        Kind.TARGET,
        lambda value: {"partitions": _dump_partitions(value.partitions)},
        lambda saved: TargetAssignment(_load_partitions(saved["partitions"])),
    ),
    CurrentAssignment: (Kind.CURRENT, _dump_current, _load_current),
}
_BY_WORD: Final = {
    (kind.value, entity.version): load for entity, (kind, _, load) in _BY_TYPE.items()
}
