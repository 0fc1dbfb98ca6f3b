"""The page docs/reference/duties.md, from the table of duties."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Final

from faust_assigner.app.host.duties.table import (
    CALLS,
    HERE,
    ORIGINAL,
    PUT,
    TAKEN,
    Duty,
    ReplacedAttribute,
    ReplacedMethod,
)

HEAD = """\
# Duties of the methods that this package replaces

Generated from `faust_assigner/app/host/duties/duties.toml`: `python -m docs.generate`.

A method of Faust, mode or aiokafka (here called the *original*) has more effects than its name shows: it
sends signals, calls sensors and callbacks, checks values, sets flags and writes log lines. Code that
replaces the method has to keep these effects; this page calls them *duties*. The page
lists:

- {replaced} methods that our code replaces in some cases, or does the work of in a cooperative
  rebalance. They have {duties} duties.
- {calling} methods that our code overrides and that always call the original.
- {put} attributes of Faust's, mode's or aiokafka's objects that our code sets to its own function or object.

`tests/unit/app/host/test_duties.py` finds our methods in the classes of an app, and reads the duties
from the source of the originals. The test fails in four cases: a method has no row, a duty has neither a
place nor a reason, a place does not exist, or an original gains or loses a duty. Of a long log text the
page shows the beginning (…).

Names of our code are relative to `faust_assigner.app`. The column *where* shows the function that
fulfils the duty: *here* is our method of the same row; *original* is the original method, which our
method calls; *nowhere* means that no function fulfils the duty, for the reason in the last column.
"""


def page() -> str:
    """Return the page's Markdown text, made from the tables."""
    calling = sum(len(names.split()) for names in CALLS.values())
    text = HEAD.format(
        replaced=len(TAKEN),
        duties=sum(len(row.duties) for row in TAKEN),
        calling=calling,
        put=len(PUT),
    )
    text += "\n## Replaced methods\n"
    by_class: list[ReplacedMethod] = sorted(TAKEN, key=_host_class)
    for host, rows in groupby(by_class, key=_host_class):
        text += f"\n### `{host}`\n" + "".join(map(_method_section, rows))
    text += "\n## Methods that always call the original\n\n| our class | methods |\n| --- | --- |\n"
    text += "".join(f"| `{ours}` | {_codes(names.split())} |\n" for ours, names in CALLS.items())
    text += "\n## Attributes that our code sets\n\n| attribute | our function or class | remark |\n"
    return text + "| --- | --- | --- |\n" + "".join(map(_attribute_row, PUT))


#: A log text of this length is the beginning of a longer text: ``duties.toml`` has 40 characters of each
#: text, without a last blank.
_CUT: Final = 39
#: Kind of a duty in ``duties.toml`` -> the verb on the page, if it differs.
_VERBS: Final[Mapping[str, str]] = {
    "event": "calls",
    "does": "calls",
    "state": "sets the consumer's state",
    "transaction": "uses",
}


def _host_class(row: ReplacedMethod) -> str:
    return row.host.rpartition(".")[0]


def _method_section(row: ReplacedMethod) -> str:
    text = f"\n**`{row.host.rpartition('.')[2]}`**: `{row.ours}`."
    text += f" {row.why}\n" if row.why else "\n"
    if not row.duties:
        return text
    text += "\n| duty | where | remark |\n| --- | --- | --- |\n"
    return text + "".join(map(_duty_row, row.duties))


def _duty_row(duty: Duty) -> str:
    kind, _, what = duty.what.partition(" ")
    cut = "…" if kind == "logs" and len(what) >= _CUT and what[-1] != "." else ""
    text = what if kind == "also" else f"{_VERBS.get(kind, kind)} `{what}{cut}`"
    places = (p if p in (HERE, ORIGINAL) else f"`{p}`" for p in duty.where.split())
    return f"| {text} | {', '.join(places) or 'nowhere'} | {duty.why} |\n"


def _attribute_row(row: ReplacedAttribute) -> str:
    return f"| `{row.host}` | `{row.made}` | {row.why} |\n"


def _codes(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
