"""Settings and their reader: an argument has priority over the environment.

An argument comes from code (a keyword of ``faust.App``, a parameter), and the environment from the
operator. Without both, the default counts. ``None`` and an empty text count as unset.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from ipaddress import ip_network
from os.path import expanduser
from pathlib import Path
from typing import Any, Generic, TypeVar

from faust_assigner.errors import ConfigError

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
#: The key under which a field's metadata holds its setting.
_SETTING = "setting"
_MIB = 1024 * 1024


@dataclass(frozen=True)
class Kind(Generic[T_co]):
    """A kind of values: a description, and a function that checks and converts a value.

    ``parse`` raises TypeError, ValueError or OverflowError for a wrong value. ``metavar`` is the
    name of the value in the help of a command.
    """

    words: str
    parse: Callable[[Any], T_co]
    metavar: str = ""


@dataclass(frozen=True)
class Setting(Generic[T_co]):
    """A setting; ``name`` is the name of its environment variable.

    The keyword argument has the same name in lower case. ``shown`` describes the default for
    readers if the value alone is not clear. ``unit`` is the value's unit if ``kind.words`` does not
    contain the unit.
    ``is_keyword`` is True if ``faust.App`` accepts the setting as a keyword. ``of_worker`` is True
    if workers of one group may have different values.
    """

    name: str
    kind: Kind[T_co]
    default: T_co
    meaning: str
    shown: str = ""
    unit: str = ""
    is_keyword: bool = True
    of_worker: bool = False

    @property
    def keyword(self) -> str:
        """The name of the setting as an argument."""
        return self.name.lower()

    @property
    def default_text(self) -> str:
        """The default as text, for pages and help texts."""
        if self.shown:
            return self.shown
        if isinstance(self.default, bool):
            return "1" if self.default else "0"
        if isinstance(self.default, int) and self.default and self.default % _MIB == 0:
            return f"{self.default}, {self.default // _MIB} MiB"
        return f"{self.default:g}" if isinstance(self.default, float) else str(self.default)

    @property
    def metavar(self) -> str:
        """The name of the value in the help of a command."""
        return self.kind.metavar or self.kind.words


def declared(kind: Kind[T], default: T, meaning: str, *, shown: str = "") -> T:
    """Declare a field of a dataclass as a setting, which :func:`declared_in` then returns."""
    setting = Setting("", kind, default, meaning, shown, is_keyword=False)
    return field(default=default, metadata={_SETTING: setting})


def declared_in(owner: type[Any], name: Callable[[str], str]) -> dict[str, Setting[Any]]:
    """Return the settings of a dataclass by field; ``name`` converts the field's name."""
    return {
        one.name: replace(one.metadata[_SETTING], name=name(one.name))
        for one in fields(owner)
        if _SETTING in one.metadata
    }


def parse(setting: Setting[T], said: object) -> T:
    """Convert a given value to the setting's kind.

    Raises ConfigError, which names the setting and the value.
    """
    try:
        return setting.kind.parse(said)
    except (TypeError, ValueError, OverflowError):  # int(infinity) raises OverflowError
        raise ConfigError(f"{setting.name} must be {setting.kind.words}, got {said!r}") from None


def read(setting: Setting[T], *, argument: object = None, environment: Mapping[str, str]) -> T:
    """Return the argument, else the environment's value, else the default.

    Raises ConfigError, which names the setting and the value.
    """
    for said in (argument, environment.get(setting.name)):
        if said is not None and said != "":
            return parse(setting, said)
    return setting.default


def number(words: str, *, least: float = math.ulp(0.0), most: float = math.inf) -> Kind[float]:
    """Accept a finite number from ``least`` to ``most``."""

    def parse(said: Any) -> float:
        value = float(said)
        if not (least <= value <= most and value < math.inf):
            raise ValueError(said)
        return value

    return Kind(words, parse)


def whole(words: str, *, least: int) -> Kind[int]:
    """Accept a whole number of ``least`` or more, also in the form 1e6."""

    def parse(said: Any) -> int:
        value = int(said) if isinstance(said, str) and said.strip().isdecimal() else float(said)
        if not least <= value < math.inf or value != int(value):
            raise ValueError(said)
        return int(value)

    return Kind(words, parse)


def one_of(*names: str) -> Kind[str]:
    """Accept one of ``names``."""

    def parse(said: object) -> str:
        if said not in names:
            raise ValueError(said)
        return str(said)

    return Kind(f"one of {', '.join(names)}", parse)


def _parse_switch(said: object) -> bool:
    text = str(said).strip().lower()
    if text not in (*_YES, *_NO):
        raise ValueError(said)
    return text in _YES


def _parse_label(said: object) -> str:
    if not isinstance(said, str) or len(said) > 255 or not said.isprintable() or " " in said:
        raise ValueError(said)
    return said


def _parse_places(said: Any) -> tuple[str, ...]:
    """Return patterns of hosts and networks in lower case; ValueError for a wrong network."""
    names = said.split(",") if isinstance(said, str) else list(said)
    patterns = tuple(str(name).strip().lower() for name in names if str(name).strip())
    for pattern in patterns:
        if "/" in pattern:
            ip_network(pattern, strict=False)
    return patterns


def _parse_path(said: Any) -> Path:
    """Return a path; ``~`` is the home folder, also where no shell has replaced it."""
    return Path(expanduser(said))


def _parse_path_topic_or_off(said: Any) -> Path | str | None:
    """Return a text ``topic:NAME`` for a topic, a path for a folder, and None for off."""
    text = str(said).strip()
    if text.lower() in _NO:
        return None
    if not text.startswith(TOPIC):
        return _parse_path(said)
    if _TOPIC.fullmatch(text.removeprefix(TOPIC)) is None:
        raise ValueError(said)
    return text


def _span(said: Any) -> tuple[float, float]:
    low, high = (float(part) for part in (said.split(":") if isinstance(said, str) else said))
    if not 0 < low <= 1 <= high < math.inf:
        raise ValueError(said)
    return low, high


#: The prefix of a value that names a topic in the app's own cluster.
TOPIC = "topic:"
#: Kafka's rule for topic names.
_TOPIC = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
_YES, _NO = ("1", "yes", "on", "true"), ("0", "no", "off", "false")

SWITCH = Kind("1, yes, on, true or 0, no, off, false", _parse_switch)
TEXT = Kind("a text", str)
LABEL = Kind("a text of up to 255 characters without blanks", _parse_label)
FOLDER = Kind("a folder", _parse_path)
FOLDER_TOPIC_OR_OFF = Kind("a folder, topic:NAME, or off", _parse_path_topic_or_off)
FILE = Kind("a file", _parse_path)
PLACES = Kind("hosts, host:port or networks like 10.0.0.0/8, with commas between", _parse_places)
SPAN = Kind("LOWEST:HIGHEST around 1, like 0.25:4", _span)
