"""Kafka's types of configs, for the settings of the broker and the configs of topics."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from faust_assigner.coordinator.settings import ConsumerLimits
from faust_assigner.settings.schema import Kind, declared

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = 1, 2, 3, 5, 6, 7  # Kafka's numbers of config types
BUILT_IN: Final = ConsumerLimits().assignors
_PLUG_IN: Final = re.compile(r"[A-Za-z0-9._-]+=[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True)
class ConfigKind(Kind[T_co], Generic[T_co]):
    """The allowed texts of a config, and its type as DescribeConfigs reports it."""

    config_type: int = STRING

    def check(self, text: str) -> bool:
        """Whether a text is a value of the config."""
        try:
            self.parse(text)
        except ValueError:
            return False
        return True


def as_text(value: object) -> str:
    """Format a value as Kafka does."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def config(kind: ConfigKind[T], default: T, meaning: str) -> T:
    """Declare a setting of the broker."""
    return declared(kind, default, meaning, shown=as_text(default) or "(empty)")


def kafka_name(field: str) -> str:
    """Return Kafka's name of a setting: ``num_partitions`` -> ``num.partitions``."""
    return field.replace("_", ".")


def whole_number(text: str) -> int:
    """Parse a number as Java does: without underscores. Raises ValueError."""
    if "_" in text:
        raise ValueError(f"{text!r} is not a number")
    return int(text)


def whole(low: int, high: int) -> ConfigKind[int]:
    """Accept a whole number from ``low`` to ``high``. The config type is INT if ``high`` fits, else LONG."""

    def parse(text: str) -> int:
        value = whole_number(text)
        if not low <= value <= high:
            raise ValueError(text)
        return value

    config_type = INT if high <= INT32_MAX else LONG
    return ConfigKind(
        f"a whole number from {low} to {high}", parse, "NUMBER", config_type=config_type
    )


def one_of(*choices: str, config_type: int = STRING) -> ConfigKind[str]:
    """Accept one of a few words."""

    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(text)
        return text

    shown = ", ".join(choice or "an empty text" for choice in choices)
    return ConfigKind(f"one of {shown}", parse, config_type=config_type)


def some_of(*choices: str) -> ConfigKind[str]:
    """Accept some of a few words, separated by commas."""

    def parse(text: str) -> str:
        words = [part.strip() for part in text.split(",")]
        if not set(words) <= set(choices) or len(set(words)) < len(words):
            raise ValueError(text)
        return ",".join(words)

    return ConfigKind(f"some of {', '.join(choices)}, each once", parse, config_type=LIST)


def _parse_ratio(text: str) -> float:
    value = float(text)
    if "_" in text or not 0.0 <= value <= 1.0:
        raise ValueError(text)
    return value


def _parse_flag(text: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ValueError(text)
    return word == "true"


def _parse_assignors(text: str) -> str:
    items = [part.strip() for part in text.split(",")]
    names = [item.partition("=")[0] for item in items]
    for item, name in zip(items, names, strict=True):
        if item not in BUILT_IN and (name in BUILT_IN or not _PLUG_IN.fullmatch(item)):
            raise ValueError(text)
    if len(set(names)) < len(names):
        raise ValueError(text)
    return ",".join(items)


def _parse_cleanup_policy(text: str) -> str:
    # An empty list keeps records without limit (KIP-1161).
    if text and not {word.strip() for word in text.split(",")} <= {"delete", "compact"}:
        raise ValueError(text)
    return text


POSITIVE: Final = whole(1, INT32_MAX)
TEXT: Final = ConfigKind("a text", str)
TEXTS: Final = ConfigKind("texts, separated by commas", str, config_type=LIST)
RATIO: Final = ConfigKind("a number from 0 to 1", _parse_ratio, config_type=DOUBLE)
FLAG: Final = ConfigKind("true or false", _parse_flag, config_type=BOOLEAN)
CLEANUP_POLICY: Final = ConfigKind("delete, compact, both or none", _parse_cleanup_policy, "", LIST)
ASSIGNORS: Final = ConfigKind(
    f"some of {', '.join(BUILT_IN)} and NAME=MODULE:FUNCTION, each name once",
    _parse_assignors,
    config_type=LIST,
)
