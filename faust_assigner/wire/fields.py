"""Tagged fields: a table has one :class:`Field` for each field, and its kind encodes and decodes the value.

A member's metadata (:mod:`faust_assigner.wire.join`) and its answer (:mod:`faust_assigner.wire.answer`) are
lists of such fields. A topic is written as its index in a sorted list of topics that both sides have:
``row`` maps topics to indexes for the writer, ``topics`` is the list for the reader.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from faust_assigner.errors import MetadataRefused
from faust_assigner.model import Claims, PartitionNumbers
from faust_assigner.wire.bounded import read_label
from faust_assigner.wire.runs import Reader, Runs, Writer, decode_text


@dataclass(frozen=True, slots=True)
class Kind:
    """The encoding of one type of value. ``encode(value, row)`` returns None if no field is written."""

    encode: Callable[[Any, Mapping[str, int]], bytes | None]
    decode: Callable[[Reader, Sequence[str]], Any]


@dataclass(frozen=True, slots=True)
class Field:
    """A field: its tag, its kind, and the attributes ``names`` that its value fills (one, or a pair)."""

    tag: int
    kind: Kind
    names: tuple[str, ...]
    #: Whether members with equal subscriptions usually send the same bytes.
    is_alike: bool = False

    def write(self, out: Writer, value: object, row: Mapping[str, int]) -> None:
        """Append the field, unless its kind leaves out this ``value``."""
        body = self.kind.encode(value, row)
        if body is not None:
            out.field(self.tag, body)

    def named(self, value: Any) -> Iterable[tuple[str, Any]]:
        """Return the attributes of a decoded value, as pairs of name and value."""
        return zip(self.names, value if len(self.names) > 1 else (value,), strict=True)


def row_of(topics: Collection[str]) -> dict[str, int]:
    """Return the index of each topic in the sorted list."""
    return {topic: i for i, topic in enumerate(sorted(topics))}


def encode_count(count: int) -> bytes:
    """Encode a whole number, 0 or more."""
    body = Writer()
    body.varint(count)
    return bytes(body.data)


def _encode_generation(generation: int) -> bytes:
    return encode_count(max(generation, -1) + 1)


def _decode_name(body: Reader, topics: Sequence[str]) -> str:
    return read_label(decode_text(body.data), "a name")


def encode_numbers(values: PartitionNumbers) -> bytes:
    """Encode a set of partition numbers, or of topics' indexes."""
    body = Writer()
    body.numbers(values)
    return bytes(body.data)


def decode_rows(body: Reader, topics: Sequence[str]) -> list[str]:
    """Decode a set of indexes, and return the topics with these indexes."""
    rows = body.runs()
    if rows.end > len(topics):
        raise MetadataRefused(f"a topic index is beyond the {len(topics)} subscribed topics")
    return [topics[i] for i in rows]


def _encode_claims(claims: Claims, row: Mapping[str, int]) -> bytes | None:
    """Encode claims as pairs (topics, their common numbers); topics without numbers are left out."""
    sets: dict[bytes, list[int]] = {}
    for topic in sorted(row.keys() & claims.keys()):
        numbers = encode_numbers(claims[topic])
        if len(numbers) > 1:
            sets.setdefault(numbers, []).append(row[topic])
    return b"".join(encode_numbers(rows) + numbers for numbers, rows in sets.items()) or None


def _decode_claims(body: Reader, topics: Sequence[str]) -> dict[str, Runs]:
    """Decode claims. Raises :class:`MetadataRefused` if a topic occurs twice."""
    claims: dict[str, Runs] = {}
    while not body.is_done:
        named = decode_rows(body, topics)
        numbers = body.runs()
        for topic in named:
            if topic in claims:
                raise MetadataRefused("a topic is claimed twice")
            claims[topic] = numbers
    return claims


def _encode_former(former: tuple[int, Claims], row: Mapping[str, int]) -> bytes | None:
    generation, claims = former
    coded = _encode_claims(claims, row)
    return None if coded is None else _encode_generation(generation) + coded


def _encode_promised(promised: tuple[int, Claims], row: Mapping[str, int]) -> bytes | None:
    among, claims = promised
    return encode_count(among) + (_encode_claims(claims, row) or b"") if among else None


GENERATION = Kind(
    lambda generation, row: _encode_generation(generation), lambda body, topics: body.varint() - 1
)
NAME = Kind(lambda name, row: name.encode() or None, _decode_name)
#: A name, or None for an empty name.
LABEL = Kind(
    lambda label, row: label.encode() if label else None,
    lambda body, topics: _decode_name(body, topics) or None,
)
#: A field without bytes, written only for True.
FLAG = Kind(lambda is_so, row: b"" if is_so else None, lambda body, topics: True)
CLAIMS = Kind(_encode_claims, _decode_claims)
#: A generation, and the claims of this generation.
FORMER = Kind(
    _encode_former, lambda body, topics: (body.varint() - 1, _decode_claims(body, topics))
)
#: The number of members of a round that a second round follows, and the claims for this second round.
PROMISED = Kind(
    _encode_promised, lambda body, topics: (body.varint(), _decode_claims(body, topics))
)
