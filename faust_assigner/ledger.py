"""The ledger's tables: the reasons of each placement as rows, encoded to and parsed from lines of JSON.

Each line is a JSON object; ``table`` names an entry of :data:`TABLES` and the other keys are its columns.
Readers ignore unknown keys, so a writer may add keys. The pipeline derives its Spark schemas from these
definitions, so there is a single schema.

>>> line = encode("recovery", {"group_id": "shop", "decision_id": "d1", "topic": "t", "partition": 0,
...     "member_id": "m", "source": "standby", "started": 1.0, "ended": 1.5,
...     "start_offset": 7, "end_offset": 9, "records": 2, "bytes": 64})
>>> parse(line).values["started"].isoformat()
'1970-01-01T00:00:01+00:00'
>>> parse(b'{"table": "recovery", "group_id": "shop"}').reason
"recovery: column 'decision_id' is missing"
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Final, TypeAlias

#: The allowed column types. ``string_map`` is map<string,string>; ``structs`` is array<struct>.
STRING: Final = "string"
INT: Final = "int"
LONG: Final = "long"
DOUBLE: Final = "double"
BOOLEAN: Final = "boolean"
TIMESTAMP: Final = "timestamp"
STRING_MAP: Final = "map<string,string>"
STRUCTS: Final = "array<struct>"

#: The key in a decision's config for the weightless topics, separated by blanks.
WEIGHTLESS: Final = "weightless"

#: Longer lines are refused unread; no decision of a group within Kafka's limits comes near this length.
MAX_LINE_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its type, whether its value is optional, and the values of a closed vocabulary."""

    name: str
    type: str
    optional: bool = False
    words: tuple[str, ...] = ()
    fields: tuple[Column, ...] = ()


def columns(text: str) -> tuple[Column, ...]:
    """Parse columns from ``name type`` pairs; ``?`` after the name marks an optional column."""
    pairs = (entry.split() for entry in text.split(","))
    return tuple(Column(name.rstrip("?"), kind, name.endswith("?")) for name, kind in pairs)


GROUP: Final = Column("group_id", STRING)

DECISION = (
    GROUP,
    *columns("decision_id string, ts timestamp, generation int, trigger string, policy string"),
    Column("config", STRING_MAP),
    Column(
        "members",
        STRUCTS,
        fields=columns(
            "member_id string, rack? string, capacity double, epoch int, instance_id? string"
        ),
    ),
    Column("solve_ms", DOUBLE),
    Column("session_timeout_s", DOUBLE, optional=True),
)
ASSIGNMENT = (
    GROUP,
    *columns("decision_id string, topic string, partition int"),
    Column("role", STRING, words=("active", "standby", "warmup")),
    *columns(
        "member_id string, prev_member_id? string, moved boolean, standby_hit boolean, cold boolean"
    ),
)
RECOVERY = (
    GROUP,
    *columns("decision_id string, topic string, partition int, member_id string"),
    Column("source", STRING, words=("local", "standby", "snapshot", "replay")),
    *columns(
        "started timestamp, ended timestamp, start_offset long, end_offset long, "
        "records long, bytes long"
    ),
)
PARTITION_SAMPLE = (
    GROUP,
    *columns(
        "ts timestamp, topic string, partition int, end_offset long, committed_offset long, "
        "bytes_in long, records_in long, cpu_ms double, state_bytes long"
    ),
)

#: Columns that must not be negative. Samples may be negative after a counter reset.
_AMOUNTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "decision": ("solve_ms",),
        "assignment": (),
        "recovery": ("records", "bytes"),
        "partition_sample": (),
    }
)

#: The tables that a ledger line may name.
TABLES: Mapping[str, tuple[Column, ...]] = MappingProxyType(
    {
        "decision": DECISION,
        "assignment": ASSIGNMENT,
        "recovery": RECOVERY,
        "partition_sample": PARTITION_SAMPLE,
    }
)


@dataclass(frozen=True, slots=True)
class Row:
    """An accepted line: the table's columns only, times as aware datetimes, missing values as None."""

    table: str
    #: A dict of the columns of ``table``.
    values: Any


@dataclass(frozen=True, slots=True)
class Refusal:
    """A line that matches no table, with a reason for the operator of the ledger."""

    reason: str


Problem: TypeAlias = str | None
Check: TypeAlias = Callable[[object], Any]


class _WrongTypeError(ValueError):
    """A value with the wrong type for its column; the text names the found and the expected type."""


def parse(line: bytes) -> Row | Refusal | None:
    """Return the row on ``line``, the reason of its refusal, or None for a blank line.

    Total: any bytes give one of the three results. Cost: about 10 microseconds for a line of 250 bytes.
    """
    if len(line) > MAX_LINE_BYTES:
        return Refusal(f"not read: the line is longer than {MAX_LINE_BYTES} bytes")
    if not line or line.isspace():
        return None
    try:
        found = json.loads(line.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        return Refusal(f"not JSON: not UTF-8 at byte {error.start}")
    except RecursionError:
        return Refusal("not JSON: nested too deep")
    except ValueError as error:
        return Refusal(f"not JSON: {error}")
    if not isinstance(found, dict):
        return Refusal(f"not a JSON object but {_kind(found)}")
    return _to_row(found)


def _to_row(found: Mapping[str, object]) -> Row | Refusal:
    table = found.get("table")
    readers = _READERS.get(table) if isinstance(table, str) else None
    if readers is None or not isinstance(table, str):
        return Refusal(_no_table(found))
    values: dict[str, Any] = {}
    for name, optional, read in readers:
        value = found.get(name)
        if value is None:
            if not optional:
                state = "null" if name in found else "missing"
                return Refusal(f"{table}: column {name!r} is {state}")
            values[name] = None
            continue
        try:
            values[name] = read(value)
        except _WrongTypeError as error:
            return Refusal(f"{table}: column {name!r} {error}")
    below = next((name for name in _AMOUNTS[table] if values[name] < 0), None)
    if below is not None:
        return Refusal(f"{table}: column {below!r} is below zero: {values[below]}")
    if table == "recovery" and values["ended"] < values["started"]:
        return Refusal(f"{table}: column 'ended' is before 'started'")
    return Row(table, values)


def _no_table(found: Mapping[str, object]) -> str:
    if "table" not in found:
        return "names no table: column 'table' is missing"
    known = ", ".join(TABLES)
    return f"names no known table: {_shown(found['table'])} is none of {known}"


def _no_constant(name: str) -> float:
    # Python's parser accepts NaN and Infinity; JSON does not.
    raise ValueError(f"{name} is not a JSON value")


def _kind(value: object) -> str:
    """Return the JSON name for the type of ``value``."""
    kinds = {
        bool: "boolean",
        int: "integer",
        float: "number",
        str: "string",
        list: "array",
        dict: "object",
        type(None): "null",
    }
    return kinds[type(value)]


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _wrong(value: object, expected: str) -> _WrongTypeError:
    return _WrongTypeError(
        f"has the wrong type: {_kind(value)} {_shown(value)}, expected {expected}"
    )


def _read_string(value: object) -> str:
    if type(value) is not str:
        raise _wrong(value, "string")
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise _WrongTypeError("has the wrong type: a lone surrogate, expected text") from None
    return value


def _read_integer(value: object, bits: int, name: str) -> int:
    # ``type``, not ``isinstance``: in Python True is an int, in the tables a boolean is no number.
    if type(value) is not int:
        raise _wrong(value, name)
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise _WrongTypeError(
            f"has the wrong type: {bits}-bit {name} expected, the value is beyond"
        )
    return value


def _read_int(value: object) -> int:
    return _read_integer(value, 32, INT)


def _read_long(value: object) -> int:
    return _read_integer(value, 64, LONG)


def _read_double(value: object) -> float:
    if type(value) is float and math.isfinite(value):
        return value
    if type(value) is int and -(1 << 1023) < value < 1 << 1023:
        return float(value)
    if type(value) in (int, float):
        raise _WrongTypeError("has the wrong type: the number is beyond a double")
    raise _wrong(value, DOUBLE)


def _read_boolean(value: object) -> bool:
    if type(value) is not bool:
        raise _wrong(value, BOOLEAN)
    return value


_STAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z")


def _read_timestamp(value: object) -> datetime:
    expected = "a timestamp like 2026-11-21T03:40:22.123Z"
    if type(value) is not str or _STAMP.fullmatch(value) is None:
        raise _wrong(value, expected)
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        raise _wrong(value, expected) from None


def _read_string_map(value: object) -> dict[str, str]:
    if type(value) is not dict:
        raise _wrong(value, STRING_MAP)
    return {_read_string(key): _inside(key, _read_string, entry) for key, entry in value.items()}


def _inside(where: str, read: Check, value: object) -> Any:
    """Return ``read(value)``; on failure the error begins with ``where``."""
    try:
        return read(value)
    except _WrongTypeError as error:
        raise _WrongTypeError(f"at {_shown(where)} {error}") from None


def _words_reader(words: tuple[str, ...]) -> Check:
    def read(value: object) -> str:
        if _read_string(value) not in words:
            raise _wrong(value, "|".join(words))
        return str(value)

    return read


def _structs_reader(fields: tuple[Column, ...]) -> Check:
    readers = tuple((field.name, field.optional, _reader(field)) for field in fields)

    def read_one(value: object) -> dict[str, object]:
        if type(value) is not dict:
            raise _wrong(value, "struct")
        struct: dict[str, object] = {}
        for name, optional, read in readers:
            entry = value.get(name)
            if entry is None and not optional:
                raise _WrongTypeError(f"has the wrong type: a struct without {name!r}")
            struct[name] = None if entry is None else _inside(name, read, entry)
        return struct

    def read(value: object) -> list[dict[str, object]]:
        if type(value) is not list:
            raise _wrong(value, STRUCTS)
        return [read_one(entry) for entry in value]

    return read


_BY_TYPE: Mapping[str, Check] = {
    STRING: _read_string,
    INT: _read_int,
    LONG: _read_long,
    DOUBLE: _read_double,
    BOOLEAN: _read_boolean,
    TIMESTAMP: _read_timestamp,
    STRING_MAP: _read_string_map,
}


def _reader(column: Column) -> Check:
    if column.words:
        return _words_reader(column.words)
    if column.type == STRUCTS:
        return _structs_reader(column.fields)
    return _BY_TYPE[column.type]


_READERS = {
    table: tuple((column.name, column.optional, _reader(column)) for column in columns)
    for table, columns in TABLES.items()
}

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def stamp(seconds: float) -> str:
    """Format a point in time (seconds since 1970, UTC) for the ledger.

    >>> stamp(1795232422.1239)
    '2026-11-21T03:40:22.123Z'
    """
    # Convert to whole milliseconds first: float error must not round a time up to the next millisecond.
    moment = _EPOCH + timedelta(milliseconds=math.floor(seconds * 1000 + 1e-6))
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def decision_id(group_id: str, generation: int, member_ids: Iterable[str]) -> str:
    """Return the id of a round: equal for two leaders of a generation, new when a group starts over.

    Kafka makes member ids unique, so generation 1 of a recreated group gets a different id.

    >>> decision_id("shop", 7, ["b", "a"]) == decision_id("shop", 7, ["a", "b"])
    True
    """
    said = "\0".join([group_id, str(generation), *sorted(member_ids)])
    return f"{generation}-{hashlib.sha256(said.encode('utf-8', 'replace')).hexdigest()[:16]}"


def encode(table: str, row: Mapping[str, object]) -> bytes:
    """Encode ``row`` as a line of the ledger with its newline; timestamp columns take seconds."""
    line: dict[str, Any] = {"table": table, **row}
    for name in _TIMES[table]:
        line[name] = stamp(line[name])
    text = json.dumps(line, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "replace") + b"\n"


#: The first bytes of a partition sample's line.
SAMPLE: Final = b'{"table":"partition_sample"'


def group_marker(group_id: str) -> bytes:
    """Return the bytes that every line of a group contains and hardly any other line does.

    >>> group_marker("shop") in encode("partition_sample", {"group_id": "shop", "ts": 1.0})
    True
    """
    return f'"group_id":{json.dumps(group_id, ensure_ascii=False)}'.encode("utf-8", "replace")


_TIMES = {
    table: tuple(column.name for column in columns if column.type == TIMESTAMP)
    for table, columns in TABLES.items()
}
