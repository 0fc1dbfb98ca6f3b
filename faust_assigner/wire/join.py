"""Encodes and decodes a member's metadata in a JoinGroup: the user_data, versioned and bounded.

The bytes are JSON that Faust's own ("stock") assignor can read, with our data in one extra key
``faust_assigner``: ``"<version>:<base64 of tagged fields>"``. A topic is written as its index in the sorted
subscription. A JoinGroup contains the subscription in addition to the user_data, so the user_data repeat no
topic name. The part for stock Faust repeats the claims while a stock leader is possible; its distributions,
which no leader reads, stay empty. A reader skips unknown fields and keys. The version of an answer is the
lowest version among the members.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, TypeAlias

from faust_assigner.errors import MetadataRefused
from faust_assigner.model import Claims, Positions
from faust_assigner.wire.bounded import (
    KEY,
    URL_CHARS,
    USER_DATA_BYTES,
    pack_value,
    plain_claims,
    read_group_ids,
    read_json,
    read_label,
    read_stock_claims,
    split_value,
)
from faust_assigner.wire.fields import (
    CLAIMS,
    FLAG,
    FORMER,
    GENERATION,
    LABEL,
    NAME,
    PROMISED,
    Field,
    Kind,
    decode_rows,
    encode_numbers,
    row_of,
)
from faust_assigner.wire.positions import decode_positions, encode_positions
from faust_assigner.wire.runs import Reader, Writer

#: The version of the value of the key ``faust_assigner``.
VERSION = 1
#: The version of a member without the key.
STOCK = 0
#: The protocols that members offer, the preferred first: for cooperative rebalances, and stock Faust's.
COOPERATIVE, EAGER = "faust-cooperative", "faust"

LARGEST_CAPACITY = 1e6
_ENCODER = json.JSONEncoder(separators=(",", ":"))

#: Fields decoded earlier in this round: (tag, bytes, topics) -> value.
Memo: TypeAlias = dict[tuple[int, bytes, tuple[str, ...]], Any]


@dataclass(frozen=True)
class JoinData:
    """One member's metadata in a rebalance.

    ``actives``, ``standbys`` and ``on_disk`` map topics to partition numbers. ``actives`` and ``standbys``
    are the assignment of ``generation``. ``on_disk`` are table partitions with files on the member's disk,
    which it does not claim to own. ``former_actives`` are the member's partitions of ``former_generation``,
    before its process ended; the planner prefers to return them to this member. ``changelogs`` are the
    topics that the member uses as changelogs; ``globals_`` maps changelogs of global tables to whether every
    partition must also be a standby. ``version`` is ``STOCK`` for a member without our key. ``positions`` is
    the member's progress in each changelog, None if unknown. ``awaited`` are standbys on this member whose
    tasks are to move to it, and ``overdue`` the awaited standbys that took too long
    (:mod:`faust_assigner.warmup`).
    ``holds``: the member keeps
    processing ``actives`` during the round, so no other member may get them. ``promised`` are the partitions
    that the round of ``generation`` reserves for this member until their owners have revoked them; ``among``
    is the number of members of that round, 0 without a second round. ``leaves``: the member hands its
    partitions over. ``cooperative``: the member offers cooperative rebalances.
    """

    url: str = ""
    actives: Claims = field(default_factory=dict)
    standbys: Claims = field(default_factory=dict)
    on_disk: Claims = field(default_factory=dict)
    former_actives: Claims = field(default_factory=dict, kw_only=True)
    former_generation: int = field(default=-1, kw_only=True)
    holds: bool = field(default=False, kw_only=True)
    leaves: bool = field(default=False, kw_only=True)
    cooperative: bool = field(default=False, kw_only=True)
    promised: Claims = field(default_factory=dict, kw_only=True)
    among: int = field(default=0, kw_only=True)
    generation: int = -1
    instance_id: str | None = None
    rack_id: str | None = None
    capacity: float = 1.0
    group_ids: Mapping[str, int] = field(default_factory=dict)
    changelogs: frozenset[str] = frozenset()
    globals_: Mapping[str, bool] = field(default_factory=dict)
    version: int = VERSION
    software: str = ""
    positions: Mapping[str, Positions] | None = None
    awaited: Claims = field(default_factory=dict)
    overdue: Claims = field(default_factory=dict)

    @property
    def is_ours(self) -> bool:
        """Whether the member uses this package, not stock Faust."""
        return self.version > STOCK


# -- how the fields are encoded that only a join has


def _decode_capacity(body: Reader, topics: Sequence[str]) -> float:
    if len(body.data) != 8:
        raise MetadataRefused(f"the capacity has {len(body.data)} bytes instead of 8")
    (capacity,) = struct.unpack("<d", body.data)
    if not (math.isfinite(capacity) and 1 / LARGEST_CAPACITY <= capacity <= LARGEST_CAPACITY):
        raise MetadataRefused(f"the capacity {capacity!r} is out of range")
    return float(capacity)


def _encode_group_ids(ids: Mapping[str, int], row: Mapping[str, int]) -> bytes | None:
    rows: dict[int, list[int]] = {}
    for topic in sorted(ids.keys() & row.keys()):
        rows.setdefault(ids[topic], []).append(row[topic])
    body = Writer()
    for group_id, named in rows.items():
        body.varint(group_id)
        body.numbers(named)
    return bytes(body.data) or None


def _decode_group_ids(body: Reader, topics: Sequence[str]) -> dict[str, int]:
    ids: dict[str, int] = {}
    while not body.is_done:
        group_id = body.varint()
        ids.update(dict.fromkeys(decode_rows(body, topics), group_id))
    return ids


def _encode_changelogs(changelogs: Collection[str], row: Mapping[str, int]) -> bytes | None:
    known = [row[t] for t in changelogs if t in row]
    return encode_numbers(known) if known else None


def _encode_globals(globals_: Mapping[str, bool], row: Mapping[str, int]) -> bytes | None:
    full = [row[t] for t, is_full in globals_.items() if is_full and t in row]
    known = _encode_changelogs(globals_, row)
    return None if known is None else known + encode_numbers(full)


def _decode_globals(body: Reader, topics: Sequence[str]) -> dict[str, bool]:
    """Decode topic -> whether every partition must also be a standby."""
    named = decode_rows(body, topics)
    full = set() if body.is_done else set(decode_rows(body, topics))
    return {topic: topic in full for topic in named}


_CAPACITY = Kind(
    lambda capacity, row: None if capacity == 1.0 else struct.pack("<d", capacity), _decode_capacity
)
_GROUP_IDS = Kind(_encode_group_ids, _decode_group_ids)
_CHANGELOGS = Kind(
    _encode_changelogs, lambda body, topics: frozenset(_decode_globals(body, topics))
)
_GLOBALS = Kind(_encode_globals, _decode_globals)
_POSITIONS = Kind(
    lambda positions, row: None if positions is None else encode_positions(positions, row),
    decode_positions,
)
#: All fields in the order of writing; a reader accepts any order. A removed field's tag is never reused.
FIELDS = (
    Field(1, GENERATION, ("generation",)),
    Field(2, CLAIMS, ("actives",)),
    Field(3, CLAIMS, ("standbys",)),
    Field(4, CLAIMS, ("on_disk",)),
    Field(14, CLAIMS, ("awaited",)),
    Field(15, CLAIMS, ("overdue",)),
    Field(12, FORMER, ("former_generation", "former_actives")),
    Field(20, FLAG, ("holds",)),
    Field(22, FLAG, ("leaves",)),
    Field(23, FLAG, ("cooperative",)),
    Field(21, PROMISED, ("among", "promised")),
    Field(5, LABEL, ("instance_id",)),
    Field(6, LABEL, ("rack_id",)),
    Field(11, NAME, ("software",), is_alike=True),
    Field(7, _CAPACITY, ("capacity",)),
    Field(8, _GROUP_IDS, ("group_ids",), is_alike=True),
    Field(9, _CHANGELOGS, ("changelogs",), is_alike=True),
    Field(10, _GLOBALS, ("globals_",), is_alike=True),
    Field(13, _POSITIONS, ("positions",)),
)
_BY_TAG = {field.tag: field for field in FIELDS}


def encode_join(data: JoinData, topics: Collection[str], *, for_stock: bool = True) -> bytes:
    """Encode the user_data of a member that subscribes to ``topics``.

    ``for_stock`` repeats the claims for a stock leader. Claims on topics outside ``topics`` are dropped.
    """
    row = row_of(set(topics))
    fields = Writer()
    for one in FIELDS:
        one.write(fields, attrgetter(*one.names)(data), row)
    actives, standbys = (data.actives, data.standbys) if for_stock else ({}, {})
    stock = {
        "assignment": {"actives": plain_claims(actives), "standbys": plain_claims(standbys)},
        "url": data.url,
        "changelog_distribution": {},
        "external_topic_distribution": {},
        "topic_groups": {},
        KEY: pack_value(VERSION, fields.data),
    }
    return _ENCODER.encode(stock).encode()


def decode_join(
    user_data: bytes | None, topics: Collection[str], *, memo: Memo | None = None
) -> JoinData:
    """Decode the user_data of :func:`encode_join`, or stock Faust's metadata.

    Claims are returned as :class:`~faust_assigner.wire.runs.Runs`, so their cost grows with their bytes, not
    with the number of partitions. ``memo`` is a dict that the caller keeps for one round: it saves decoding
    the common parts of members with equal subscriptions again. Raises :class:`MetadataRefused`, with the
    member's URL.
    """
    stock = read_json(bytes(user_data or b""), limit=USER_DATA_BYTES)
    url = read_label(stock.get("url"), "url", chars=URL_CHARS)
    try:
        ours = stock.get(KEY)
        if ours is None:
            actives, standbys = read_stock_claims(stock.get("assignment"))
            ids = read_group_ids(stock.get("topic_groups"))
            return JoinData(url, actives, standbys, version=STOCK, group_ids=ids)
        version, raw = split_value(ours)
        found = _read_fields(Reader(raw), tuple(sorted(set(topics))), {} if memo is None else memo)
        return JoinData(url, version=min(version, VERSION), **found)
    except MetadataRefused as refused:
        refused.url = url
        raise


def _read_fields(fields: Reader, topics: tuple[str, ...], memo: Memo) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for tag, body in fields.fields():
        one = _BY_TAG.get(tag)
        if one is None:
            continue
        if one.names[0] in found:
            raise MetadataRefused(f"field {tag} occurs twice")
        if one.is_alike:
            key = (tag, body.data, topics)
            if key not in memo:
                memo[key] = one.kind.decode(body, topics)
            value = memo[key]
        else:
            value = one.kind.decode(body, topics)
        found.update(one.named(value))
    return found


def url_of(user_data: bytes | None) -> str:
    """Return the URL in metadata that :func:`decode_join` refused; "" if the URL is unreadable too."""
    try:
        return read_label(read_json(bytes(user_data or b"")).get("url"), "url", chars=URL_CHARS)
    except MetadataRefused:
        return ""
