"""The kinds of values that the settings of the assigner service have, with their parsers."""

from __future__ import annotations

import re
from dataclasses import replace
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any, Final

from faust_assigner.settings import schema
from faust_assigner.settings.schema import TEXT, Kind, number, one_of, whole


def address(said: Any) -> tuple[str, int]:
    """Parse ``HOST:PORT``, with brackets around an IPv6 host. Raises ValueError, also for a URL."""
    found = re.fullmatch(r"(\[)?([^\[\]/@\s]+)(?(1)\]):(\d{1,5})", str(said))
    if found is None or int(found[3]) > 65_535:
        raise ValueError(said)
    host = found[2]
    if ":" in host:
        IPv6Address(host)
    return host, int(found[3])


def _list(said: Any) -> tuple[str, ...]:
    words = said.split(",") if isinstance(said, str) else said
    return tuple(word.strip() for word in words if word.strip())


def _urls(said: Any) -> tuple[str, ...]:
    found = _list(said)
    for word in found:
        scheme, slashes, rest = word.rpartition("://")
        address(rest)
        if slashes and scheme not in ("http", "https"):
            raise ValueError(word)
    return found


def _topics(said: Any) -> tuple[tuple[str, int], ...]:
    found: dict[str, int] = {}
    for word in _list(said):
        name, equals, count = word.partition("=")
        if not equals or not name or name in found or not count.isdecimal() or int(count) < 1:
            raise ValueError(word)
        found[name] = int(count)
    return tuple(found.items())


def _file(said: Any) -> Path:
    path = schema.FILE.parse(said)
    if not path.is_file():
        raise ValueError(said)
    return path


def _folder_of_keys(said: Any) -> str:
    if not (said.startswith("/") and said.endswith("/")):
        raise ValueError(said)
    return str(said)


ADDRESS: Final = Kind("HOST:PORT", address)
LIST: Final = Kind("names, separated by commas", _list, "NAME,...")
URLS: Final = Kind("URLs http(s)://HOST:PORT, separated by commas", _urls, "URL,...")
TOPICS: Final = Kind("NAME=COUNT, each name once, separated by commas", _topics, "NAME=COUNT")
FILE: Final = Kind("an existing file", _file, "FILE")
LEVEL: Final = replace(one_of("debug", "info", "warning", "error"), metavar="LEVEL")
WORD: Final = replace(TEXT, metavar="TEXT")
PREFIX: Final = Kind("a text that begins and ends with a slash", _folder_of_keys, "TEXT")
SECONDS: Final = replace(number("seconds above 0"), metavar="SECONDS")
SECONDS_OR_ZERO: Final = replace(number("0 or more seconds", least=0.0), metavar="SECONDS")
COUNT: Final = replace(whole("a whole number above 0", least=1), metavar="COUNT")
COUNT_OR_ZERO: Final = replace(whole("0 or more", least=0), metavar="COUNT")
#: The kinds of settings that are lists, so that their flags may be repeated.
REPEATED: Final = (LIST, URLS, TOPICS)
