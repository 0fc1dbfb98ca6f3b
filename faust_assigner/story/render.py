"""Render an answer as text: headline, timeline, rule, and the changes that avoid the move."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from faust_assigner.status.words import span
from faust_assigner.story.tell import Answer
from faust_assigner.wire.documents import printable


def render(answer: Answer) -> RenderableType:
    """Render the whole answer; times are UTC. Unprintable characters are replaced."""
    return Group(*_answer_parts(answer))


def _styled_text(text: str, style: str = "") -> Text:
    return Text(printable(text), style=style)


def _answer_parts(answer: Answer) -> Iterator[RenderableType]:
    still = "" if answer.restored_s is None else f"; restored {span(answer.restored_s)} later"
    yield _styled_text(f"{answer.headline}{still} (group {answer.group})", "bold")
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    day = ""
    for event in answer.events:
        moment = datetime.fromtimestamp(event.at, UTC)
        if moment.strftime("%Y-%m-%d") != day:
            day = moment.strftime("%Y-%m-%d")
            table.add_row(f"  {day} UTC", "")
        table.add_row(
            f"  {moment.strftime('%H:%M:%S')}.{moment.microsecond // 1000:03}",
            _styled_text(event.text),
        )
    yield table
    if answer.rule:
        yield _styled_text(f"rule: it {answer.rule}")
    if answer.avoided_by:
        best, *others = answer.avoided_by
        yield (
            Text("avoided by: ")
            .append(_styled_text(best.change, "bold"))
            .append(_styled_text(f": {best.then}"))
        )
        for other in others:
            yield _styled_text(f"        or: {other.change}: {other.then}")
    elif answer.rule and not answer.unknown and not answer.is_first:
        yield Text("avoided by: none of the tried changes")
    for sentence in answer.unknown:
        yield _styled_text(f"not known: {sentence}", "yellow")
