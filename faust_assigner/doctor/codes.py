"""The codes of all findings, from ``codes.toml``; docs/reference/doctor.md describes them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

#: An error breaks the group now or at the next rebalance, a warning may break it, a note cannot.
ERROR, WARNING, NOTE = "error", "warning", "note"
LEVELS: Final = (ERROR, WARNING, NOTE)
#: The places where a code is checked: the app's own setup, or a running group.
APP, GROUP = "app", "group"


@dataclass(frozen=True, kw_only=True)
class Code:
    """A kind of finding: its title, level, consequence, fix, and places of the check."""

    code: str
    title: str
    level: str
    why: str
    fix: str
    looks_at: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A problem with the code ``code`` that the doctor found.

    ``subject`` is a member, a setting or a topic; "" for the whole app or group. ``level`` is lower
    than the code's level in a milder case.
    """

    code: str
    level: str
    subject: str
    text: str


def _read_codes() -> Iterator[Code]:
    text = files("faust_assigner.doctor").joinpath("codes.toml").read_text("utf-8")
    for code, row in tomllib.loads(text).items():
        yield Code(code=code, **{**row, "looks_at": tuple(row.get("looks_at", (APP, GROUP)))})


CODES: Final = tuple(_read_codes())
BY_CODE: Final = {code.code: code for code in CODES}


def finding(code: str, text: str, *, subject: str = "", level: str | None = None) -> Finding:
    """Create a finding of ``code``, with the code's level unless ``level`` is given."""
    return Finding(code=code, level=level or BY_CODE[code].level, subject=subject, text=text)
