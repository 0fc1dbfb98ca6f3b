"""Replaces secrets in a report before rendering: passwords, tokens and the users in URLs.

Workers already leave secrets out of their answers. This module is a second guard: an answer of a
worker of a different version, or a broker's error text, could still contain a password.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final, TypeVar

T = TypeVar("T")

HIDDEN: Final = "(hidden)"
#: The values of settings with such names are hidden.
_SECRET_NAME = re.compile(
    r"passw|secret|token|credential|sasl|private|api_?key|access_?key|auth|jaas", re.IGNORECASE
)
_USER_OF_URL = re.compile(r"(://)[^/@\s]*@")
_QUERY_OF_URL = re.compile(r"(://[^\s?#]*)\?[^\s#]*")
_NAMED_SECRET = re.compile(
    r"""((?:passw(?:or)?d|passphrase|secret|token|api_?key|access_?key)\w*["']?\s*[=:]\s*)"""
    r"""("[^"]*"|'[^']*'|[^\s,;&]+)""",
    re.IGNORECASE,
)


def text_of(text: str) -> str:
    """Return the text without passwords, and its URLs without users and queries.

    >>> text_of("kafka://shop:hunter2@kafka-1:9092 is not there")
    'kafka://(hidden)@kafka-1:9092 is not there'
    >>> text_of('sasl.jaas.config: username="shop" password="hunter2";')
    'sasl.jaas.config: username="shop" password=(hidden);'
    """
    if "://" in text:
        text = _USER_OF_URL.sub(rf"\1{HIDDEN}@", text)
        text = _QUERY_OF_URL.sub(rf"\1?{HIDDEN}", text)
    if "=" in text or ":" in text:
        text = _NAMED_SECRET.sub(rf"\1{HIDDEN}", text)
    return text


def setting_of(name: str, value: str) -> str:
    """Return a setting's value for the page, hidden if the setting's name indicates a secret."""
    return HIDDEN if value and _SECRET_NAME.search(name) else text_of(value)


def scrubbed(value: T) -> T:
    """Return a copy of a dataclass in which every text, at any depth, is free of secrets."""
    done: T = _scrub_value(value)
    return done


def _scrub_value(value: object) -> Any:
    if isinstance(value, str):
        return text_of(value)
    if isinstance(value, tuple):
        return value if value and isinstance(value[0], int) else tuple(map(_scrub_value, value))
    if isinstance(value, Mapping):
        return {text_of(str(key)): _scrub_entry(str(key), one) for key, one in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        found = {f.name: _scrub_value(getattr(value, f.name)) for f in fields(value)}
        if "name" in found and isinstance(found.get("values"), Mapping):
            found["values"] = _scrub_members(found["name"], found["values"])
        return replace(value, **found)
    return value


def _scrub_entry(key: str, value: object) -> Any:
    return setting_of(key, value) if isinstance(value, str) else _scrub_value(value)


def _scrub_members(
    name: str, values: Mapping[str, tuple[str, ...]]
) -> Mapping[str, tuple[str, ...]]:
    """Return the members by value, of a setting that differs between workers.

    Each hidden value gets its own number, so that different values stay separate.
    """
    if not _SECRET_NAME.search(name):
        return values
    return {
        f"{HIDDEN} {number}": members for number, members in enumerate(values.values(), start=1)
    }
