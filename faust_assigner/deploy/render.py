"""Renders the answer as text: first the verdict, then every check, then the effect of each event."""

from __future__ import annotations

from collections.abc import Iterator

from rich.box import SIMPLE
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from faust_assigner.deploy.report import (
    CANNOT_TELL,
    FAILED,
    NOT_SAFE,
    OK,
    SAFE,
    UNKNOWN,
    Move,
    Report,
    Step,
)
from faust_assigner.deploy.steps import shown_bytes
from faust_assigner.status.words import span, table_of

#: The maximum number of listed moves per event; the number of further moves is shown.
MOST_MOVES = 8
_VERDICTS = {SAFE: ("SAFE", "bold green"), NOT_SAFE: ("NOT SAFE", "bold red")}
_STATES = {OK: "green", FAILED: "bold red", UNKNOWN: "yellow"}


def render(report: Report) -> RenderableType:
    """Render the whole answer."""
    word, style = _VERDICTS.get(report.verdict, ("CANNOT TELL", "bold yellow"))
    head = Text.assemble((word, style), f": {report.question} (group {report.group})")
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    order = {FAILED: 0, UNKNOWN: 1, OK: 2}
    for check in sorted(report.checks, key=lambda check: order[check.state]):
        table.add_row(Text(f"  {check.state}", style=_STATES[check.state]), check.name, check.text)
    parts: list[RenderableType] = [head, table]
    if len(report.steps) == 1:
        parts += [Text(), Text(f"when {report.steps[0].event}", style="bold")]
        parts += _event(report.steps[0], report.group)
    elif report.steps:
        parts += [Text(), _render_events(report)]
    if report.problems:
        parts += [Text(), Text("not known", style="bold")]
        parts += [Text(f"  {problem}") for problem in report.problems]
    if report.verdict != SAFE:
        parts += [Text(), Text(_advice_text(report), style="dim")]
    return Group(*parts)


def _render_events(report: Report) -> RenderableType:
    """Render several events as a table, one line for each event."""
    table = Table(box=SIMPLE, show_edge=False, pad_edge=False)
    for name in ("event", "move at once", "cold", "behind", "later", "new copies", "longest pause"):
        table.add_column(name, justify="left" if name in ("event", "longest pause") else "right")
    for step in report.steps:
        size = (
            ""
            if step.copy_bytes is None or not step.copies
            else f", {shown_bytes(step.copy_bytes)}"
        )
        counts = (len(step.moves), step.cold, step.behind, step.later_moves)
        table.add_row(
            f"{step.event}{' (static)' if step.static else ''}",
            *map(str, counts),
            f"{step.copies}{size}",
            "not known" if step.pause_s is None else f"{step.pause_s:.1f} s",
        )
    table.add_row("in all", *map(str, _event_sums(report)), "", "")
    return table


def _event_sums(report: Report) -> tuple[int, int, int, int]:
    return report.moves, report.cold, report.behind, report.later_moves


def _event(step: Step, group: str) -> Iterator[RenderableType]:
    """Render one event with its moves."""
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(overflow="fold")
    table.add_row("  moves", _moves_text(step))
    table.add_row("  longest pause", _pause_text(step))
    if step.copies:
        size = "" if step.copy_bytes is None else f", {shown_bytes(step.copy_bytes)}"
        table.add_row("  new copies", f"{step.copies} partitions of tables{size}")
    yield table
    for move in step.moves[:MOST_MOVES]:
        yield Text(f"    {_move(move, group)}")
    if len(step.moves) > MOST_MOVES:
        yield Text(f"    and {len(step.moves) - MOST_MOVES} more (--json lists all)", style="dim")


def _count(moves: int) -> str:
    return f"{moves} {'task' if moves == 1 else 'tasks'}"


def _moves_text(step: Step) -> str:
    if step.stopped and not step.members:
        return "no worker is left, and nothing is processed"
    cold = f"{step.cold} cold" + (
        f", {step.behind} to a copy that is behind" if step.behind else ""
    )
    text = f"{_count(len(step.moves))} at once, {cold}"
    if step.static:
        several = len(step.static) > 1
        limit = (
            "the session timeout"
            if step.session_timeout_s is None
            else f"{span(step.session_timeout_s)}"
        )
        names, verb = ", ".join(step.static), "are" if several else "is"
        text = (
            f"none for {limit} ({names} {verb} static; at once where retired first); then {text}"
            if step.is_for_good
            else f"none if {names} {verb} back within {limit} (static); else {text}"
        )
    if step.later_moves:
        text += f"; {step.later_moves} later, each when its copy has caught up"
    return text


def _pause_text(step: Step) -> str:
    return step.pause if step.pause_s is not None else f"not known: {step.pause}"


def _move(move: Move, group: str) -> str:
    sources = [topic for topic in move.topics if not table_of(topic, group)]
    name = f"{(sources or move.topics)[0]}/{move.partition}"
    state = "cold" if move.is_cold else "its copy is behind" if move.is_behind else "warm"
    if all(not table_of(topic, group) for topic in move.topics) and move.records == 0:
        return f"{name}  {move.was or '-'} -> {move.to}  no table"
    records = "unknown" if move.records is None else f"{move.records:,}"
    return f"{name}  {move.was or '-'} -> {move.to}  {state}, {records} records to read"


def _advice_text(report: Report) -> str:
    failed = {check.name for check in report.checks if check.state == FAILED}
    if report.verdict == CANNOT_TELL:
        return "Repeat with the missing data, or see faust-assigner status."
    if failed:
        return "--wait 600 repeats the check until it is safe. faust-assigner status shows lagging workers."
    return ""
