"""Check all lengths and counts of a request, in one pass along kio's own schema, before it is decoded.

kio reserves memory for any array count that a frame claims: five bytes can end the process. kio also
refuses unknown tagged fields, but the protocol requires servers to ignore them. So each length and count must
fit into the remaining bytes. The number of array elements is limited. Unknown tagged fields are noted for
removal, and times beyond kio's range for replacement. The pass skips over record batches and other opaque
bytes. Cost: O(bytes of the request's structure).
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, fields
from typing import Any, Final

from kio.serial._introspect import (
    EntityField,
    EntityTupleField,
    classify_field,
    get_field_tag,
    get_schema_field_type,
    is_optional,
)

from faust_assigner.broker.limits import MAX_ARRAY_ELEMENTS, MAX_STRING_BYTES
from faust_assigner.errors import FaustAssignerError

FIXED_SIZES: Final[Mapping[str, int]] = {
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "float64": 8,
    "bool": 1,
    "uuid": 16,
    "error_code": 2,
    "timedelta_i32": 4,
    "datetime_i64": 8,
}
#: Longer times, in ms, are cut to this time, because kio decodes at most 2**63 us.
MAX_SPAN_MS: Final = 2**53


class MalformedFrame(FaustAssignerError, ValueError):
    """The bytes are not a valid message; the broker closes the connection that sent them."""


class NullArray(FaustAssignerError, ValueError):
    """A null array where the protocol requires a list; the broker answers an error, without closing."""


class LongRequest(FaustAssignerError):
    """A request has more elements than may be decoded on the event loop."""


@dataclass(slots=True)
class Walk:
    """One pass over a request: its bytes, the elements counted so far, and the pieces to replace."""

    data: bytes
    limit: int = MAX_ARRAY_ELEMENTS
    elements: int = 0
    cuts: list[tuple[int, int, bytes]] | None = None

    def count(self, number: int, minimum: int, position: int) -> None:
        """Count an array of ``number`` elements of at least ``minimum`` bytes each.

        Raises MalformedFrame for too few remaining bytes or too many elements, or LongRequest.
        """
        self.elements += number
        if number * minimum > len(self.data) - position or self.elements > MAX_ARRAY_ELEMENTS:
            raise MalformedFrame(
                f"an array claims {number} elements with {len(self.data) - position} bytes left"
            )
        if self.elements > self.limit:
            raise LongRequest

    def cut(self, start: int, stop: int, kept: bytes, *, before: int | None = None) -> None:
        """Replace a piece of the request before it is decoded; insert it at index ``before`` of ``cuts``."""
        self.cuts = self.cuts or []
        self.cuts.insert(len(self.cuts) if before is None else before, (start, stop, kept))


Skip = Callable[[Walk, int], int]


@dataclass(frozen=True, slots=True)
class Shape:
    """The rule to skip one value: its minimum size, and whether its size is fixed."""

    minimum: int
    fixed: bool
    skip: Skip
    #: Skips many values in one call, if one call per value would dominate the cost.
    skip_many: Callable[[Walk, int, int], int] | None = None


def _fixed_size_rule(size: int) -> Shape:
    def skip(walk: Walk, position: int) -> int:
        if position + size > len(walk.data):
            raise MalformedFrame("the frame ends inside a number")
        return position + size

    return Shape(size, True, skip)


def _skip_long_span(walk: Walk, position: int) -> int:
    """Skip a time of 8 bytes. Kafka allows every value, so a value that kio cannot decode is limited."""
    end = position + 8
    if end > len(walk.data):
        raise MalformedFrame("the frame ends inside a number")
    (value,) = struct.unpack_from(">q", walk.data, position)
    if abs(value) > MAX_SPAN_MS:
        walk.cut(position, end, struct.pack(">q", MAX_SPAN_MS if value > 0 else -MAX_SPAN_MS))
    return end


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Read an unsigned varint of at most five bytes; return its value and its end."""
    value = 0
    for shift in range(0, 35, 7):
        if position >= len(data):
            raise MalformedFrame("the frame ends inside a varint")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise MalformedFrame("a varint has more than five bytes")


def _length_prefixed_rule(width: int, *, compact: bool) -> Shape:
    fmt = ">h" if width == 2 else ">i"

    def skip(walk: Walk, position: int) -> int:
        if compact:
            length, position = read_varint(walk.data, position)
            length -= 1
        else:
            if position + width > len(walk.data):
                raise MalformedFrame("the frame ends inside a length")
            (length,) = struct.unpack_from(fmt, walk.data, position)
            position += width
        if length < -1 or (width == 2 and length > MAX_STRING_BYTES):
            raise MalformedFrame(f"a length is {length}, which is out of range")
        end = position + max(length, 0)
        if end > len(walk.data):
            raise MalformedFrame(
                f"a value claims {length} bytes, {len(walk.data) - position} are left"
            )
        return end

    def skip_short(walk: Walk, position: int, count: int) -> int:
        """Skip many values. Lengths of one byte are inlined, because most names in lists are short."""
        data, size = walk.data, len(walk.data)
        for _ in range(count):
            if position < size and 0 < (length := data[position]) < 0x80:
                position += length
            else:
                position = skip(walk, position)
        if position > size:
            raise MalformedFrame(f"a value ends {position - size} bytes after the frame")
        return position

    return Shape(1 if compact else width, False, skip, skip_short if compact else None)


def _array_rule(item: Shape, *, compact: bool, name: str, may_be_null: bool) -> Shape:
    def skip(walk: Walk, position: int) -> int:
        if compact:
            count, position = read_varint(walk.data, position)
            count -= 1
        else:
            if position + 4 > len(walk.data):
                raise MalformedFrame("the frame ends inside an array count")
            (count,) = struct.unpack_from(">i", walk.data, position)
            position += 4
        if count < -1:
            raise MalformedFrame(f"an array count is {count}, which is out of range")
        if count < 0 and not may_be_null:
            raise NullArray(f"{name} must not be null")
        if count <= 0:
            return position
        walk.count(count, item.minimum, position)
        if item.fixed:
            return position + count * item.minimum
        if item.skip_many is not None:
            return item.skip_many(walk, position, count)
        for _ in range(count):
            position = item.skip(walk, position)
        return position

    return Shape(1 if compact else 4, False, skip)


def _nullable_rule(inner: Shape) -> Shape:
    def skip(walk: Walk, position: int) -> int:
        if position >= len(walk.data):
            raise MalformedFrame("the frame ends before an optional struct")
        return position + 1 if walk.data[position] == 0xFF else inner.skip(walk, position + 1)

    return Shape(1, False, skip)


def _field_rule(item: Field[Any], flexible: bool, *, tagged: bool) -> Shape:
    kind = classify_field(item)
    optional = is_optional(item) and not tagged
    if isinstance(kind, EntityField | EntityTupleField):
        shape = entity_shape(kind.type_)
        if optional and not kind.is_array:
            shape = _nullable_rule(shape)
    else:
        name = get_schema_field_type(item)
        if name == "timedelta_i64":
            shape = Shape(8, False, _skip_long_span)
        elif name in FIXED_SIZES:
            shape = _fixed_size_rule(FIXED_SIZES[name])
        else:
            shape = _length_prefixed_rule(2 if name == "string" else 4, compact=flexible)
    if not kind.is_array:
        return shape
    return _array_rule(shape, compact=flexible, name=item.name, may_be_null=is_optional(item))


def tag_section(known: Mapping[int, Shape]) -> Shape:
    """Return the rule to skip tagged fields, and to record unknown tagged fields for removal."""

    def skip(walk: Walk, position: int) -> int:
        start = position
        count, position = read_varint(walk.data, position)
        walk.count(count, 2, position)
        counted, cuts, kept = position, len(walk.cuts or ()), 0
        for _ in range(count):
            tag_start = position
            tag, position = read_varint(walk.data, position)
            size, position = read_varint(walk.data, position)
            end = position + size
            if end > len(walk.data):
                raise MalformedFrame(
                    f"tagged field {tag} claims {size} bytes, beyond the frame's end"
                )
            if tag in known:
                if known[tag].skip(walk, position) != end:
                    raise MalformedFrame(f"tagged field {tag} is not {size} bytes long")
                kept += 1
            else:
                walk.cut(tag_start, end, b"")
            position = end
        # More known fields than known tags: one is repeated. The decoder reads other repetitions.
        if kept > len(known):
            raise MalformedFrame("a tagged field is repeated")
        if kept < count:
            walk.cut(start, counted, bytes([kept]), before=cuts)
        return position

    return Shape(1, False, skip)


@functools.cache
def entity_shape(entity: type[Any]) -> Shape:
    """Return the rule to skip one struct of kio's schema."""
    flexible = entity.__flexible__
    steps: list[Shape] = []
    tags: dict[int, Shape] = {}
    for item in fields(entity):
        tag = get_field_tag(item)
        shape = _field_rule(item, flexible, tagged=tag is not None)
        if tag is not None:
            tags[int(tag)] = shape
        else:
            steps.append(shape)
    if flexible:
        steps.append(tag_section(tags))
    minimum = sum(step.minimum for step in steps)
    if all(step.fixed for step in steps):
        return _fixed_size_rule(minimum)
    skips = tuple(step.skip for step in steps)

    def skip(walk: Walk, position: int) -> int:
        for one in skips:
            position = one(walk, position)
        return position

    return Shape(minimum, False, skip)
