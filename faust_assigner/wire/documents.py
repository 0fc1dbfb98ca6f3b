"""Converts dataclasses to JSON documents and back; the reader checks the type of each field.

A reader skips unknown keys and uses the default of missing keys.
"""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeAlias, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from faust_assigner.errors import MetadataRefused

_TEXT_CHARS = 4096
_BEYOND = 1 << 63

T = TypeVar("T")
_Read: TypeAlias = Callable[[object, str], Any]


def dumps(value: object) -> str:
    """Encode dataclasses, nested and in plain containers, as JSON."""
    return json.dumps(value, default=vars, separators=(",", ":"))


def of_json(kind: type[T], document: Mapping[str, object]) -> T:
    """Convert the result of :func:`dumps` to a dataclass. Raises :class:`MetadataRefused`."""
    read: _Read = _reader_for(cast(Any, kind))
    found: T = read(document, "document")
    return found


def printable(text: str) -> str:
    """Replace unprintable characters, which could move a terminal's cursor or hide text, by ``?``."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def whole_number(text: str) -> int | None:
    """Return the number that ``text`` spells; None for other text and for 19 digits or more.

    Python refuses to read some thousand digits.
    """
    return int(text) if len(text) < 19 and text.isdecimal() else None


def read_text(value: object, name: str) -> str:
    """Return the text, cut to 4,096 characters and printable. Raises :class:`MetadataRefused`."""
    if type(value) is not str:
        raise _wrong_type(name, "a text", value)
    return printable(value[:_TEXT_CHARS])


@cache
def _reader_for(kind: Any) -> _Read:
    if dataclasses.is_dataclass(kind):
        return _dataclass_reader(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (types.UnionType, Union):
        (inner,) = (argument for argument in arguments if argument is not type(None))
        read = _reader_for(inner)
        return lambda value, name: None if value is None else read(value, name)
    if origin is tuple:
        return _list_reader(_reader_for(arguments[0]))
    if origin is not None:
        return _mapping_reader(_reader_for(arguments[1]))
    return _PLAIN[kind]


def _dataclass_reader(kind: Any) -> _Read:
    hints = get_type_hints(kind)
    readers = [(f.name, _reader_for(hints[f.name])) for f in dataclasses.fields(kind)]
    needed = [
        f.name
        for f in dataclasses.fields(kind)
        if f.default is f.default_factory is dataclasses.MISSING
    ]

    def read(value: object, name: str) -> Any:
        if not isinstance(value, dict):
            raise _wrong_type(name, "an object", value)
        missing = [key for key in needed if key not in value]
        if missing:
            raise MetadataRefused(f"{name} without {', '.join(missing)}")
        return kind(**{key: read(value[key], key) for key, read in readers if key in value})

    return read


def _list_reader(read_one: _Read) -> _Read:
    def read(value: object, name: str) -> tuple[object, ...]:
        if not isinstance(value, list):
            raise _wrong_type(name, "a list", value)
        return tuple([read_one(entry, name) for entry in value])

    return read


def _mapping_reader(read_one: _Read) -> _Read:
    def read(value: object, name: str) -> dict[str, object]:
        if not isinstance(value, dict):
            raise _wrong_type(name, "an object", value)
        return {read_text(key, name): read_one(entry, name) for key, entry in value.items()}

    return read


def _whole(value: object, name: str) -> int:
    if type(value) is not int or abs(value) >= _BEYOND:
        raise _wrong_type(name, "a whole number", value)
    return value


def _read_number(value: Any, name: str) -> float:
    if type(value) not in (int, float) or not -_BEYOND < value < _BEYOND:  # refuses NaN as well
        raise _wrong_type(name, "a number", value)
    return float(value)


def _read_boolean(value: object, name: str) -> bool:
    if type(value) is not bool:
        raise _wrong_type(name, "true or false", value)
    return value


_PLAIN: Mapping[Any, _Read] = {
    str: read_text,
    int: _whole,
    float: _read_number,
    bool: _read_boolean,
    object: lambda value, name: value,  # checked by its user
}


def _wrong_type(name: str, wanted: str, value: object) -> MetadataRefused:
    return MetadataRefused(f"{name} is {type(value).__name__}, not {wanted}")
