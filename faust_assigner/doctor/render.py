"""Formats the doctor's result: each code once, with its subjects and the fix."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from faust_assigner.doctor.codes import BY_CODE, ERROR, NOTE, WARNING
from faust_assigner.doctor.result import Result

_STYLES = {ERROR: "bold red", WARNING: "bold yellow", NOTE: "bold cyan"}
_INDENT = (0, 0, 0, 2)
#: The most subjects that are shown for a code; ``--json`` has all subjects.
MOST = 10


def render(result: Result) -> RenderableType:
    """Render the whole result."""
    parts: list[RenderableType] = [*_render_findings(result)]
    for sentence in result.unchecked:
        parts.append(Text("not checked: ", style="dim").append(sentence))
    if result.unchecked:
        parts.append(Text())
    parts.append(_render_summary(result))
    return Group(*parts)


def _render_findings(result: Result) -> Iterator[RenderableType]:
    for (level, code), found in groupby(result.findings, key=lambda one: (one.level, one.code)):
        entry = BY_CODE[code]
        yield Text.assemble((f"{code} {level}", _STYLES[level]), f": {entry.title}")
        ones = list(found)
        for one in ones[:MOST]:
            subject = f"{one.subject}: " if one.subject else ""
            line = Text(subject, style="bold").append(Text(one.text, style="not bold"))
            yield Padding(line, _INDENT, expand=False)
        if len(ones) > MOST:
            yield Padding(
                Text(f"and {len(ones) - MOST} more (--json has all)"), _INDENT, expand=False
            )
        fix = Text("fix: ", style="green").append(Text(entry.fix, style="default"))
        yield Padding(fix, _INDENT, expand=False)
        yield Text()


def _render_summary(result: Result) -> Text:
    looked = " and ".join(result.looked_at)
    if not result.findings:
        return Text(f"{looked}: nothing found", style="green")
    counts = [
        f"{count} {level}{'s' * (count != 1)}"
        for level in (ERROR, WARNING, NOTE)
        if (count := result.count(level))
    ]
    return Text(
        f"{looked}: {', '.join(counts)}. faust-assigner doctor --explain CODE explains a code"
    )
