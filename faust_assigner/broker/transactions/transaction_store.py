"""Convert the states of transactional ids to key-value pairs and back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from faust_assigner.broker.storage.store import Store, StoreFailed
from faust_assigner.coordinator.transactions import State, Transaction

PREFIX: Final = b"k"
VERSION: Final = 1


def transaction_key(transactional_id: str) -> bytes:
    """Return the key of a transactional id."""
    return PREFIX + transactional_id.encode()


def dump_transaction(value: Transaction) -> bytes:
    """Encode the state of a transactional id as JSON. Cost: O(partitions)."""
    return json.dumps(
        {
            "kind": "transaction",
            "v": VERSION,
            "producer": value.producer_id,
            "epoch": value.epoch,
            "timeout": value.timeout_ms,
            "state": value.state.value,
            "last_epoch": value.last_epoch,
            "previous": value.previous_producer_id,
            "partitions": sorted([topic.hex(), number] for topic, number in value.partitions),
            "groups": sorted(value.groups),
            "started": value.started_ms,
            "updated": value.updated_ms,
            "bumped": value.is_bumped,
        },
        separators=(",", ":"),
    ).encode()


def load_transactions(store: Store) -> Iterator[Transaction]:
    """Yield the state of every transactional id. Raises StoreFailed for a record of a later version."""
    for key, value in store.scan(PREFIX):
        transactional_id, saved = key[len(PREFIX) :].decode(), json.loads(value)
        if saved.get("v") != VERSION:
            raise StoreFailed(
                f"the record of transactional id {transactional_id!r} has version {saved.get('v')!r}, "
                "which a later version of the broker wrote"
            )
        yield Transaction(
            transactional_id,
            saved["producer"],
            saved["epoch"],
            saved["timeout"],
            State(saved["state"]),
            saved["last_epoch"],
            saved["previous"],
            frozenset((bytes.fromhex(topic), number) for topic, number in saved["partitions"]),
            frozenset(saved["groups"]),
            saved["started"],
            saved["updated"],
            saved.get("bumped", False),
        )
