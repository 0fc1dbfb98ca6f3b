"""The kinds of settings: their declarations with bounds and help texts, and the conversion of a value."""

from __future__ import annotations

import re
from dataclasses import Field, field
from typing import Any

from faust_assigner.errors import ConfigError

ASSIGNORS = ("uniform", "range", "copartition")
_PLUG_IN = re.compile(r"[A-Za-z0-9._-]+=[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def number(default: int, low: int, high: int, doc: str) -> Any:
    """Declare a whole number from ``low`` to ``high``."""
    return field(default=default, metadata={"low": low, "high": high, "doc": doc})


def ratio(default: float, doc: str) -> Any:
    """Declare a number from 0 to 1."""
    return field(default=default, metadata={"doc": doc})


def flag(default: bool, doc: str) -> Any:
    """Declare true or false."""
    return field(default=default, metadata={"doc": doc})


def choice(default: str, choices: tuple[str, ...], doc: str) -> Any:
    """Declare one of ``choices``."""
    return field(default=default, metadata={"choices": choices, "doc": doc})


def names(default: str, choices: tuple[str, ...], doc: str) -> Any:
    """Declare some of ``choices``, separated by commas."""
    return field(default=default, metadata={"choices": choices, "doc": doc, "several": True})


def text(default: str, doc: str) -> Any:
    """Declare any text."""
    return field(default=default, metadata={"doc": doc, "text": True})


def assignor_names(doc: str) -> Any:
    """Declare a list of server-side assignors; the default is all built-in ones."""
    return field(default=",".join(ASSIGNORS), metadata={"assignors": True, "doc": doc})


def as_text(value: object) -> str:
    """Format a value as Kafka does."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def convert(name: str, setting: Field[Any], value: object) -> object:
    """Convert a given value, text or typed, to the type of its setting. Raises ConfigError."""
    text = as_text(value).strip()
    if isinstance(setting.default, bool):
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"{name} must be true or false, not {text!r}")
        return text.lower() == "true"
    if isinstance(setting.default, float):
        return _convert_ratio(name, text)
    if "text" in setting.metadata:
        return text
    if "assignors" in setting.metadata:
        return _assignors(name, text)
    if "several" in setting.metadata:
        return _several(name, setting, text)
    if "choices" in setting.metadata:
        if text not in setting.metadata["choices"]:
            raise ConfigError(
                f"{name} must be one of {', '.join(setting.metadata['choices'])}, not {text!r}"
            )
        return text
    try:
        number = int(text)
    except ValueError:
        raise ConfigError(f"{name} must be a whole number, not {text!r}") from None
    low, high = setting.metadata["low"], setting.metadata["high"]
    if not low <= number <= high:
        raise ConfigError(f"{name} must be between {low} and {high}, not {number}")
    return number


def _convert_ratio(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ConfigError(f"{name} must be a number, not {text!r}") from None
    if not 0.0 <= number <= 1.0:
        raise ConfigError(f"{name} must be between 0 and 1, not {text}")
    return number


def _assignors(name: str, text: str) -> str:
    items = [part.strip() for part in text.split(",")]
    names = [item.partition("=")[0] for item in items]
    is_known = [
        item in ASSIGNORS or (_PLUG_IN.fullmatch(item) and one not in ASSIGNORS)
        for item, one in zip(items, names, strict=True)
    ]
    if not all(is_known) or len(set(names)) < len(names):
        raise ConfigError(
            f"{name} must be some of {', '.join(ASSIGNORS)} and NAME=MODULE:FUNCTION, "
            f"each name once, not {text!r}"
        )
    return ",".join(items)


def _several(name: str, setting: Field[Any], text: str) -> str:
    names = [part.strip() for part in text.split(",")]
    choices = setting.metadata["choices"]
    if not set(names) <= set(choices) or len(set(names)) < len(names):
        raise ConfigError(f"{name} must be some of {', '.join(choices)}, each once, not {text!r}")
    return ",".join(names)
