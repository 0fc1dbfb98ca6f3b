"""Parses lines of JSON as rows of the ledger. The result for any bytes is a row, a refusal or None."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any, TypeAlias

from faust_assigner.ledger.tables import (
    BOOLEAN,
    DOUBLE,
    INT,
    LONG,
    STRING,
    STRING_MAP,
    STRUCTS,
    TABLES,
    TIMESTAMP,
    Column,
)

#: The maximum length of a line; a longer line is refused without parsing. No decision of a group within
#: Kafka's limits is nearly as long.
MAX_LINE_BYTES = 16 * 1024 * 1024


#: The highest number of partitions that a topic may have; far more than Kafka manages. A command that counts
#: a topic's partitions would need all memory for a damaged row.
MOST_PARTITIONS = 1_000_000
#: The largest number in a column of doubles, so that the sums and products of many rows are finite.
MOST_DOUBLE = 1e100

#: Columns that must not be negative. Samples may be negative after a counter reset.
_AMOUNTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "decision": ("solve_ms", "session_timeout_s"),
        "assignment": ("partition",),
        "recovery": ("partition", "records", "bytes"),
        "partition_sample": ("partition",),
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


Check: TypeAlias = Callable[[object], Any]


class _WrongTypeError(ValueError):
    """A value with the wrong type for its column; the text names the found and the expected type."""


def parse(line: bytes) -> Row | Refusal | None:
    """Return the row on ``line``, the reason of its refusal, or None for a blank line.

    Never raises. Cost: about 10 microseconds for a line of 250 bytes.
    """
    if len(line) > MAX_LINE_BYTES:
        return Refusal(f"not read: the line is longer than {MAX_LINE_BYTES} bytes")
    if not line or line.isspace():
        return None
    try:
        found = json.loads(line.decode("utf-8"), parse_constant=_refuse_constant)
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
        return Refusal(_no_table_reason(found))
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
    below = next((name for name in _AMOUNTS[table] if (values[name] or 0) < 0), None)
    if below is not None:
        return Refusal(f"{table}: column {below!r} is below zero: {values[below]}")
    if values.get("partition", 0) >= MOST_PARTITIONS:
        return Refusal(
            f"{table}: column 'partition' is {values['partition']}: a topic has at most {MOST_PARTITIONS} "
            "partitions"
        )
    if table == "recovery" and values["ended"] < values["started"]:
        return Refusal(f"{table}: column 'ended' is before 'started'")
    return Row(table, values)


def _no_table_reason(found: Mapping[str, object]) -> str:
    if "table" not in found:
        return "names no table: column 'table' is missing"
    known = ", ".join(TABLES)
    return f"names no known table: {_shown(found['table'])} is none of {known}"


def _refuse_constant(name: str) -> float:
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


def _wrong_type(value: object, expected: str) -> _WrongTypeError:
    return _WrongTypeError(
        f"has the wrong type: {_kind(value)} {_shown(value)}, expected {expected}"
    )


def _read_string(value: object) -> str:
    if type(value) is not str:
        raise _wrong_type(value, "string")
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise _WrongTypeError("is not valid Unicode: the string has a lone surrogate") from None
    return value


def _read_integer(value: object, bits: int, name: str) -> int:
    # ``type``, not ``isinstance``: in Python True is an int, in the tables a boolean is not a number.
    if type(value) is not int:
        raise _wrong_type(value, name)
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise _WrongTypeError(
            f"has the wrong type: the value does not fit in {bits} bits, expected {name}"
        )
    return value


def _read_int(value: object) -> int:
    return _read_integer(value, 32, INT)


def _read_long(value: object) -> int:
    return _read_integer(value, 64, LONG)


def _read_double(value: object) -> float:
    if type(value) is not int and type(value) is not float:
        raise _wrong_type(value, DOUBLE)
    if not -MOST_DOUBLE <= value <= MOST_DOUBLE:
        raise _WrongTypeError(f"has the wrong type: the number is beyond {MOST_DOUBLE:g}")
    return float(value)


def _read_boolean(value: object) -> bool:
    if type(value) is not bool:
        raise _wrong_type(value, BOOLEAN)
    return value


_STAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z")


def _read_timestamp(value: object) -> datetime:
    expected = "a timestamp like 2026-11-21T03:40:22.123Z"
    if type(value) is not str or _STAMP.fullmatch(value) is None:
        raise _wrong_type(value, expected)
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        raise _wrong_type(value, expected) from None


def _read_string_map(value: object) -> dict[str, str]:
    if type(value) is not dict:
        raise _wrong_type(value, STRING_MAP)
    return {
        _read_string(key): _read_inside(key, _read_string, entry) for key, entry in value.items()
    }


def _read_inside(where: str, read: Check, value: object) -> Any:
    """Return ``read(value)``; on failure the error begins with ``where``."""
    try:
        return read(value)
    except _WrongTypeError as error:
        raise _WrongTypeError(f"at {_shown(where)} {error}") from None


def _words_reader(words: tuple[str, ...]) -> Check:
    def read(value: object) -> str:
        if _read_string(value) not in words:
            raise _wrong_type(value, "|".join(words))
        return str(value)

    return read


def _structs_reader(fields: tuple[Column, ...]) -> Check:
    readers = tuple((field.name, field.optional, _column_reader(field)) for field in fields)

    def read_one(value: object) -> dict[str, object]:
        if type(value) is not dict:
            raise _wrong_type(value, "struct")
        struct: dict[str, object] = {}
        for name, optional, read in readers:
            entry = value.get(name)
            if entry is None and not optional:
                raise _WrongTypeError(f"has the wrong type: a struct without {name!r}")
            struct[name] = None if entry is None else _read_inside(name, read, entry)
        return struct

    def read(value: object) -> list[dict[str, object]]:
        if type(value) is not list:
            raise _wrong_type(value, STRUCTS)
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


def _column_reader(column: Column) -> Check:
    if column.words:
        return _words_reader(column.words)
    if column.type == STRUCTS:
        return _structs_reader(column.fields)
    return _BY_TYPE[column.type]


_READERS = {
    table: tuple((column.name, column.optional, _column_reader(column)) for column in columns)
    for table, columns in TABLES.items()
}
