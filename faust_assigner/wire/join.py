"""A member's metadata in a JoinGroup: versioned, bounded user_data <-> :class:`JoinData`.

The bytes are JSON that stock Faust reads, with our data in one extra key ``faust_assigner``:
``"<version>:<base64 of tagged fields>"``. A topic is written as its index in the sorted subscription,
which travels beside the user_data, so that no name occurs twice. Stock's own part repeats the
claims as long as a stock leader may read them; its distributions, which no leader reads, stay
empty. A reader skips unknown fields and keys; the version of an answer is the lowest version
among the members.
"""

from __future__ import annotations

import binascii
import json
import math
import struct
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from faust_assigner.errors import MetadataRefused
from faust_assigner.model import Claims, Positions
from faust_assigner.wire.bounded import (
    LARGEST_INT,
    TOPICS,
    URL_CHARS,
    USER_DATA_BYTES,
    read_json,
    read_label,
)
from faust_assigner.wire.positions import decode_positions, encode_positions
from faust_assigner.wire.runs import Reader, Runs, Writer, decode_text

#: Our extra key in stock's JSON, and the version of its content.
KEY = "faust_assigner"
VERSION = 1
#: The version of a member without the key.
STOCK = 0
#: The protocols that members offer, the preferred first: cooperative rebalances, and stock's name.
COOPERATIVE, EAGER = "faust-cooperative", "faust"

_GENERATION, _ACTIVES, _STANDBYS, _ON_DISK, _INSTANCE, _RACK, _CAPACITY = range(1, 8)
_GROUP_IDS, _CHANGELOGS, _GLOBALS, _SOFTWARE, _FORMER = range(8, 13)
_POSITIONS, _AWAITED, _OVERDUE = range(13, 16)
_HOLDS, _PROMISED, _LEAVES, _COOPERATIVE = range(20, 24)

LARGEST_CAPACITY = 1e6
_ENCODER = json.JSONEncoder(separators=(",", ":"))

#: Fields decoded earlier in this round: (tag, bytes, topics) -> value.
Memo: TypeAlias = dict[tuple[int, bytes, tuple[str, ...]], Any]


@dataclass(frozen=True)
class JoinData:
    """One member's metadata in a rebalance.

    ``actives``, ``standbys`` and ``on_disk`` map topics to partition numbers: the assignment of
    ``generation``, and the table partitions with files on the member's disk (a claim of state, never of
    ownership). ``former_actives`` are the member's partitions of ``former_generation``, before its process
    ended: a wish. ``changelogs`` are the topics that the member knows as changelogs; ``globals_`` maps
    changelogs of global tables to whether every partition must also be a standby. ``version`` is ``STOCK``
    for a member without our key. ``positions`` is the member's progress in each changelog, None if unknown.
    ``awaited`` and ``overdue`` are the standbys whose task was to move here, and those that took too long
    (:mod:`faust_assigner.warmup`). ``holds``: the member keeps processing ``actives`` during the round, so
    no other member may get them. ``promised`` are the partitions that the round of ``generation`` reserves
    for this member until their owners have revoked them; ``among`` is the number of members of that round, 0
    without a second round. ``leaves``: the member hands its partitions over. ``cooperative``: the member
    offers cooperative rebalances.
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
        """Whether the member understands more than stock Faust."""
        return self.version > STOCK


def encode_join(data: JoinData, topics: Collection[str], *, for_stock: bool = True) -> bytes:
    """Encode the user_data of a member that subscribes to ``topics``.

    ``for_stock`` repeats the claims for a stock leader. Claims on other topics are dropped.
    """
    shown = _plain if for_stock else _nothing
    stock = {
        "assignment": {"actives": shown(data.actives), "standbys": shown(data.standbys)},
        "url": data.url,
        "changelog_distribution": {},
        "external_topic_distribution": {},
        "topic_groups": {},
        KEY: f"{VERSION}:{b64encode(_fields(data, sorted(set(topics)))).decode()}",
    }
    return _ENCODER.encode(stock).encode()


def _fields(data: JoinData, topics: Sequence[str]) -> bytes:
    row = {topic: i for i, topic in enumerate(topics)}
    out = Writer()
    out.field(_GENERATION, _encode_generation(data.generation))
    for tag, claims in (
        (_ACTIVES, data.actives),
        (_STANDBYS, data.standbys),
        (_ON_DISK, data.on_disk),
        (_AWAITED, data.awaited),
        (_OVERDUE, data.overdue),
    ):
        if coded := encode_claims(claims, row):
            out.field(tag, coded)
    if coded := encode_claims(data.former_actives, row):
        out.field(_FORMER, _encode_generation(data.former_generation) + coded)
    for tag, is_so in (
        (_HOLDS, data.holds),
        (_LEAVES, data.leaves),
        (_COOPERATIVE, data.cooperative),
    ):
        if is_so:
            out.field(tag, b"")
    if data.among:
        out.field(_PROMISED, encode_count(data.among) + encode_claims(data.promised, row))
    for tag, label in (
        (_INSTANCE, data.instance_id),
        (_RACK, data.rack_id),
        (_SOFTWARE, data.software),
    ):
        if label:
            out.field(tag, label.encode())
    if data.capacity != 1.0:
        out.field(_CAPACITY, struct.pack("<d", data.capacity))
    if coded := _encode_group_ids(data.group_ids, row):
        out.field(_GROUP_IDS, coded)
    if known := [row[t] for t in data.changelogs if t in row]:
        out.field(_CHANGELOGS, _encode_rows(known))
    if known := [row[t] for t in data.globals_ if t in row]:
        full = [row[t] for t, is_full in data.globals_.items() if is_full and t in row]
        out.field(_GLOBALS, _encode_rows(known) + _encode_rows(full))
    if data.positions is not None:
        out.field(_POSITIONS, encode_positions(data.positions, row))
    return bytes(out.data)


def _encode_generation(generation: int) -> bytes:
    return encode_count(max(generation, -1) + 1)


def encode_count(count: int) -> bytes:
    """Encode a whole number, 0 or more."""
    body = Writer()
    body.varint(count)
    return bytes(body.data)


def _encode_rows(rows: Collection[int]) -> bytes:
    body = Writer()
    body.numbers(rows)
    return bytes(body.data)


def encode_claims(claims: Claims, row: Mapping[str, int]) -> bytes:
    """Encode (topics, numbers) pairs: topics with equal numbers share a pair; empty topics are left out."""
    sets: dict[bytes, list[int]] = {}
    for topic in sorted(row.keys() & claims.keys()):
        body = Writer()
        body.numbers(claims[topic])
        if len(body.data) > 1:
            sets.setdefault(bytes(body.data), []).append(row[topic])
    return b"".join(_encode_rows(rows) + coded for coded, rows in sets.items())


def _encode_group_ids(ids: Mapping[str, int], row: Mapping[str, int]) -> bytes:
    rows: dict[int, list[int]] = {}
    for topic in sorted(ids.keys() & row.keys()):
        rows.setdefault(ids[topic], []).append(row[topic])
    body = Writer()
    for group_id, named in rows.items():
        body.varint(group_id)
        body.numbers(named)
    return bytes(body.data)


def decode_join(
    user_data: bytes | None, topics: Collection[str], *, memo: Memo | None = None
) -> JoinData:
    """Decode the user_data of :func:`encode_join`, or stock's own metadata.

    Claims are returned as :class:`~faust_assigner.wire.runs.Runs`, so a claim costs its bytes and not its
    numbers. ``memo``, a dict that the caller keeps for one round, saves decoding the common parts of
    members with equal subscriptions. Raises :class:`MetadataRefused`.
    """
    stock = read_json(bytes(user_data or b""), limit=USER_DATA_BYTES)
    url = read_label(stock.get("url"), "url", chars=URL_CHARS)
    ours = stock.get(KEY)
    if ours is None:
        actives, standbys = read_stock_claims(stock.get("assignment"))
        return JoinData(
            url,
            actives,
            standbys,
            version=STOCK,
            group_ids=read_group_ids(stock.get("topic_groups")),
        )
    version, raw = split_value(ours)
    return _read_fields(
        Reader(raw), url, tuple(sorted(set(topics))), version, {} if memo is None else memo
    )


def url_of(user_data: bytes | None) -> str:
    """Return the URL in otherwise refused metadata; "" if unreadable."""
    try:
        return read_label(read_json(bytes(user_data or b"")).get("url"), "url", chars=URL_CHARS)
    except MetadataRefused:
        return ""


def split_value(value: object) -> tuple[int, bytes]:
    """Split ``"<version>:<base64>"`` into (version, bytes)."""
    if type(value) is not str:
        raise MetadataRefused(f"{KEY} is a {type(value).__name__}, not a text")
    version, colon, text = value.partition(":")
    if (
        not colon
        or not (version.isascii() and version.isdigit())
        or len(version) > 4
        or int(version) < 1
    ):
        raise MetadataRefused(f"{KEY} without a version")
    return int(version), decode_base64(text)


def decode_base64(text: str) -> bytes:
    """Decode strict base64."""
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise MetadataRefused("not base64") from None


def _read_fields(
    fields: Reader, url: str, topics: tuple[str, ...], version: int, memo: Memo
) -> JoinData:
    found: dict[int, Any] = {}
    for tag, body in fields.fields():
        if tag in found:
            raise MetadataRefused(f"field {tag} twice")
        if tag in _ALIKE:
            key = (tag, body.data, topics)
            if key not in memo:
                memo[key] = _READERS[tag](body, topics)
            found[tag] = memo[key]
        elif tag in _READERS:
            found[tag] = _READERS[tag](body, topics)
    former_generation, former_actives = found.get(_FORMER, (-1, {}))
    among, promised = found.get(_PROMISED, (0, {}))
    return JoinData(
        url,
        found.get(_ACTIVES, {}),
        found.get(_STANDBYS, {}),
        found.get(_ON_DISK, {}),
        former_actives=former_actives,
        former_generation=former_generation,
        holds=_HOLDS in found,
        leaves=_LEAVES in found,
        cooperative=_COOPERATIVE in found,
        promised=promised,
        among=among,
        generation=found.get(_GENERATION, -1),
        instance_id=found.get(_INSTANCE),
        rack_id=found.get(_RACK),
        capacity=found.get(_CAPACITY, 1.0),
        group_ids=found.get(_GROUP_IDS, {}),
        changelogs=frozenset(found.get(_CHANGELOGS, ())),
        globals_=found.get(_GLOBALS, {}),
        version=min(version, VERSION),
        software=found.get(_SOFTWARE) or "",
        positions=found.get(_POSITIONS),
        awaited=found.get(_AWAITED, {}),
        overdue=found.get(_OVERDUE, {}),
    )


def _read_generation(body: Reader, topics: Sequence[str]) -> int:
    return body.varint() - 1


def _read_former(body: Reader, topics: Sequence[str]) -> tuple[int, dict[str, Runs]]:
    return body.varint() - 1, decode_claims(body, topics)


def _read_promised(body: Reader, topics: Sequence[str]) -> tuple[int, dict[str, Runs]]:
    return body.varint(), decode_claims(body, topics)


def _read_nothing(body: Reader, topics: Sequence[str]) -> None:
    return None


def _read_text(body: Reader, topics: Sequence[str]) -> str | None:
    return read_label(decode_text(body.data), "a name") or None


def _read_kinds(body: Reader, topics: Sequence[str]) -> dict[str, bool]:
    """Decode topics, with a flag for global tables that are followed in full."""
    named = _decode_rows(body, topics)
    full = set() if body.is_done else set(_decode_rows(body, topics))
    return {topic: topic in full for topic in named}


def _read_capacity(body: Reader, topics: Sequence[str]) -> float:
    if len(body.data) != 8:
        raise MetadataRefused(f"a capacity of {len(body.data)} bytes")
    (capacity,) = struct.unpack("<d", body.data)
    if not (math.isfinite(capacity) and 1 / LARGEST_CAPACITY <= capacity <= LARGEST_CAPACITY):
        raise MetadataRefused(f"a capacity of {capacity!r}")
    return float(capacity)


def _decode_rows(body: Reader, topics: Sequence[str]) -> list[str]:
    rows = body.runs()
    if rows.end > len(topics):
        raise MetadataRefused(f"a topic index beyond the {len(topics)} subscribed topics")
    return [topics[i] for i in rows]


def decode_claims(body: Reader, topics: Sequence[str]) -> dict[str, Runs]:
    """Decode the claims of :func:`encode_claims`; each topic at most once."""
    claims: dict[str, Runs] = {}
    while not body.is_done:
        named = _decode_rows(body, topics)
        numbers = body.runs()
        for topic in named:
            if topic in claims:
                raise MetadataRefused("a topic is claimed twice")
            claims[topic] = numbers
    return claims


def _decode_group_ids(body: Reader, topics: Sequence[str]) -> dict[str, int]:
    ids: dict[str, int] = {}
    while not body.is_done:
        group_id = body.varint()
        ids.update(dict.fromkeys(_decode_rows(body, topics), group_id))
    return ids


_READERS: Mapping[int, Callable[[Reader, Sequence[str]], Any]] = {
    _GENERATION: _read_generation,
    _ACTIVES: decode_claims,
    _STANDBYS: decode_claims,
    _ON_DISK: decode_claims,
    _INSTANCE: _read_text,
    _RACK: _read_text,
    _CAPACITY: _read_capacity,
    _GROUP_IDS: _decode_group_ids,
    _CHANGELOGS: _read_kinds,
    _GLOBALS: _read_kinds,
    _SOFTWARE: _read_text,
    _FORMER: _read_former,
    _POSITIONS: decode_positions,
    _AWAITED: decode_claims,
    _OVERDUE: decode_claims,
    _HOLDS: _read_nothing,
    _LEAVES: _read_nothing,
    _COOPERATIVE: _read_nothing,
    _PROMISED: _read_promised,
}
#: The fields that members with equal subscriptions usually share.
_ALIKE = frozenset({_GROUP_IDS, _CHANGELOGS, _GLOBALS, _SOFTWARE})


def read_stock_claims(assignment: object) -> tuple[dict[str, Runs], dict[str, Runs]]:
    """Read stock's ``{"actives": {topic: [numbers]}, "standbys": {...}}`` with type checks."""
    if not isinstance(assignment, dict):
        raise MetadataRefused(f"assignment is a {type(assignment).__name__}, not an object")
    return _read_topics(assignment.get("actives"), "actives"), _read_topics(
        assignment.get("standbys"), "standbys"
    )


def _read_topics(value: object, what: str) -> dict[str, Runs]:
    if not isinstance(value, dict) or len(value) > TOPICS:
        raise MetadataRefused(f"{what} is not an object of at most {TOPICS} topics")
    return {topic: _read_numbers(numbers, what) for topic, numbers in value.items()}


def _read_numbers(value: object, what: str) -> Runs:
    # bool passes isinstance(int); a partition is neither a bool nor a float.
    if not isinstance(value, list) or not set(map(type, value)) <= {int}:
        raise MetadataRefused(f"{what} with a value that is not a list of whole numbers")
    if value and not 0 <= min(value) <= max(value) <= LARGEST_INT:
        raise MetadataRefused(f"{what} with a partition outside 0..{LARGEST_INT}")
    return Runs.of(value)


def read_group_ids(value: object) -> dict[str, int]:
    """Read stock's optional ``topic_groups``."""
    if value is None:
        return {}
    if not isinstance(value, dict) or len(value) > TOPICS:
        raise MetadataRefused(f"topic_groups is not an object of at most {TOPICS} topics")
    if not set(map(type, value.values())) <= {int} or any(
        not 0 <= v <= LARGEST_INT for v in value.values()
    ):
        raise MetadataRefused("topic_groups with a value that is not a group id")
    return dict(value)


def _plain(claims: Claims) -> dict[str, list[int]]:
    found = {topic: list(Runs.of(claims[topic])) for topic in sorted(claims)}
    return {topic: numbers for topic, numbers in found.items() if numbers}


def _nothing(claims: Claims) -> dict[str, list[int]]:
    return {}
