"""The smallest and the largest value of every number of every request: each gets an answer."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from dataclasses import Field, fields
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.serial._introspect import (
    EntityField,
    EntityTupleField,
    classify_field,
    get_field_tag,
    get_schema_field_type,
    is_optional,
)

from faust_assigner.broker.api import APIS
from tests.support.asking import read
from tests.support.clients.raw_client import batch
from tests.support.hall import Hall, in_hall

FORMATS = {
    "int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint16": "H", "error_code": "h",
    "timedelta_i32": "i", "timedelta_i64": "q",
}  # fmt: skip
VERSIONS = [
    (api.key, version)
    for api in APIS.values()
    for version in range(api.low, api.high + 1)
    if api.name not in ("SaslHandshake", "SaslAuthenticate")
]
FORGETFUL = -1  # acks of a Produce request: with 0 the broker sends no answer
Pick = Callable[[int, int], int]


def entity(kind: type[Any], pick: Pick) -> bytes:
    """Encode a struct: each list has one element, each text is "t", each number is ``pick(low, high)``."""
    plain = [item for item in fields(kind) if get_field_tag(item) is None]
    tags = sorted(
        (int(tag), item) for item in fields(kind) if (tag := get_field_tag(item)) is not None
    )
    out = b"".join(value(item, pick, flexible=kind.__flexible__) for item in plain)
    if not kind.__flexible__:
        return out
    out += bytes([len(tags)])
    for tag, item in tags:
        data = value(item, pick, flexible=True, is_tagged=True)
        out += bytes([tag, len(data)]) + data
    return out


def value(item: Field[Any], pick: Pick, *, flexible: bool, is_tagged: bool = False) -> bytes:
    """Encode a field."""
    kind = classify_field(item)
    if isinstance(kind, EntityField | EntityTupleField):
        data = entity(kind.type_, pick)
        if is_optional(item) and not kind.is_array and not is_tagged:
            data = b"\1" + data
    else:
        data = number_or_text(item, get_schema_field_type(item), pick, flexible=flexible)
    if not kind.is_array:
        return data
    return (b"\2" if flexible else struct.pack(">i", 1)) + data


def number_or_text(item: Field[Any], name: str, pick: Pick, *, flexible: bool) -> bytes:
    """Encode a plain value."""
    if name in FORMATS:
        bits = 8 * struct.calcsize(FORMATS[name])
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        if FORMATS[name].isupper():
            low, high = 0, 2**bits - 1
        number = FORGETFUL if item.name == "acks" else pick(low, high)
        return struct.pack(">" + FORMATS[name], number)
    if name in ("bool", "uuid", "float64"):
        return bytes({"bool": 1, "uuid": 16, "float64": 8}[name])
    data = {"string": b"t", "records": batch()}.get(name, b"\0\1")
    if flexible:
        return bytes([len(data) + 1]) + data
    return struct.pack(">h" if name == "string" else ">i", len(data)) + data


async def is_answered(hall: Hall, key: int, version: int, pick: Pick) -> bool:
    """Send the request as a fresh peer; return whether the answer can be decoded and no handler failed."""
    schema = load_request_schema(key, version)
    head = struct.pack(">hhih", key, version, 1, 3) + b"raw" + b"\0" * schema.__flexible__
    frame = head + entity(schema, pick)
    peer, wire = hall.connect("peer")
    mine = wire.written = []
    peer.data_received(struct.pack(">i", len(frame)) + frame)
    while not mine and not wire.closed:
        await asyncio.sleep(0)
    if wire.closed or hall.node.counters["requests_failed"]:
        return False
    read(key, version, b"".join(data for _, data in mine))
    return True


@pytest.mark.parametrize(
    "pick",
    [
        pytest.param(lambda low, high: high, id="largest"),
        pytest.param(lambda low, high: low, id="smallest"),
        pytest.param(lambda low, high: high if high >= 2**63 - 1 else 0, id="largest of 8 bytes"),
        pytest.param(lambda low, high: low if high >= 2**63 - 1 else 0, id="smallest of 8 bytes"),
    ],
)
def test_every_request_with_extreme_numbers_is_answered(pick: Pick) -> None:
    """A number beyond Kafka's use is an error code of the request; other partitions get their own."""

    async def story(hall: Hall) -> list[tuple[int, int]]:
        refused = []
        for key, version in VERSIONS:
            if hall.node.catalogue.get("t") is None:
                hall.node.catalogue.create("t", 1, {})
            if not await is_answered(hall, key, version, pick):
                refused.append((key, version))
        return refused

    assert in_hall(story) == []
