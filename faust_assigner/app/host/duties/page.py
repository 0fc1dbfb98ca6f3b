"""The generator of docs/reference/duties.md.

Usage: ``python -m faust_assigner.app.host.duties.page FILE``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from faust_assigner.app.host.duties.table import (
    CALLS,
    HERE,
    ORIGINAL,
    PUT,
    TAKEN,
    Duty,
    Put,
    Taken,
)

HEAD = """\
# Duties of what we replace

Made from `faust_assigner/app/host/duties/duties.toml`:
`python -m faust_assigner.app.host.duties.page docs/reference/duties.md`.

A method of Faust, mode or aiokafka does more than its name says: it sends signals, calls sensors and
callbacks, checks, sets flags, writes log lines. Whoever replaces it takes these duties over. This page lists
{methods} methods of the host: {replaced} that a method of ours replaces on some path or stands in for in a
cooperative rebalance, with {duties} duties; {calling} of ours that call the host's on every path; and {put}
attributes of the host's objects that are given something of ours.

`tests/unit/app/host/test_duties.py` finds our methods in the classes that an app is made of, and reads the
duties from the host's source: it fails where a method has no row, where a duty has neither a place nor a
reason, where a place does not exist, and where the host's method gains or loses a duty. Names of ours leave
out `faust_assigner.app.`; *here* is the method of the row, *original* the host's own, which ours calls where
the duty is due.
"""


def page() -> str:
    """Return the page's Markdown text, made from the tables."""
    calling = sum(len(names.split()) for names in CALLS.values())
    text = HEAD.format(
        methods=len({row.host for row in TAKEN} | {row.host for row in PUT}) + calling,
        replaced=len(TAKEN),
        duties=sum(len(row.duties) for row in TAKEN),
        calling=calling,
        put=len(PUT),
    )
    text += "\n## Replaced\n"
    by_class: list[Taken] = sorted(TAKEN, key=_class)
    for host, rows in groupby(by_class, key=_class):
        text += f"\n### `{host}`\n" + "".join(map(_taken, rows))
    text += "\n## Called on every path\n\n| ours | methods |\n| --- | --- |\n"
    text += "".join(f"| `{ours}` | {_codes(names.split())} |\n" for ours, names in CALLS.items())
    text += "\n## Attributes that are given something of ours\n\n| the host's | ours | remark |\n"
    return text + "| --- | --- | --- |\n" + "".join(map(_put, PUT))


def _class(row: Taken) -> str:
    return row.host.rpartition(".")[0]


def _taken(row: Taken) -> str:
    text = f"\n**`{row.host.rpartition('.')[2]}`**: `{row.ours}`."
    text += f" {row.why}\n" if row.why else "\n"
    if not row.duties:
        return text
    text += "\n| duty | where | remark |\n| --- | --- | --- |\n"
    return text + "".join(map(_duty, row.duties))


def _duty(duty: Duty) -> str:
    kind, _, what = duty.what.partition(" ")
    said = what if kind == "also" else f"{kind} `{what}`"
    places = (p if p in (HERE, ORIGINAL) else f"`{p}`" for p in duty.where.split())
    return f"| {said} | {', '.join(places) or 'nowhere'} | {duty.why} |\n"


def _put(row: Put) -> str:
    return f"| `{row.host}` | `{row.made}` | {row.why} |\n"


def _codes(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def main(arguments: Sequence[str]) -> None:
    """Write the page to the file that the first argument names."""
    Path(arguments[0]).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
