"""The report as text: a table of members, the waits, and the differences between workers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from rich.box import SIMPLE
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from faust_assigner.clients.group_views import as_ranges
from faust_assigner.status.report import (
    ANSWERED,
    NOT_ASKED,
    MemberReport,
    Numbers,
    Partition,
    Report,
)
from faust_assigner.status.words import (
    NOTHING,
    behind,
    condition,
    count_of,
    leader_topic,
    list_names,
    names_of,
    number,
    span,
    table_of,
    why,
    with_member_names,
)


def render(
    report: Report, *, with_partitions: bool = False, rows: int | None = None
) -> RenderableType:
    """Render the whole report.

    ``rows`` limits the number of members; members in trouble then come first.
    """
    parts: list[RenderableType] = [*_render_head(report), Text()]
    parts += _members_table(report, rows)
    if with_partitions:
        parts += [Text(), _partitions_table(report.partitions)]
    for title, lines in (
        ("waiting", _render_waits(report)),
        ("workers differ in", _render_differences(report)),
        ("not known", (Text(problem) for problem in report.problems)),
    ):
        found = list(lines)
        if found:
            parts += [Text(), Text(title, style="bold"), *(Text("  ").append(one) for one in found)]
    return Group(*parts)


def _render_head(report: Report) -> Iterator[Text]:
    totals = report.totals
    line = Text.assemble("group ", (report.group, "bold"), ": ")
    line.append(report.state, style="green" if report.is_settled else "yellow")
    line.append(
        f", {count_of(totals.members, 'member')}, {totals.answered} answered, {totals.ready} ready; "
    )
    line.append(f"{report.rounds} rebalances; coordinator {report.coordinator or NOTHING}")
    yield line
    yield _decision(report)
    if not totals.answered:
        return
    still = totals.standing_partitions
    heard = "" if totals.answered == totals.members else " by the workers that answered"
    line = Text(f"{_lag(report)}, copies {totals.standby_lag:,} behind; ")
    processed = (
        f"{count_of(still, 'partition')} not processed" if still else "all partitions processed"
    )
    yield line.append(processed + heard, style="yellow" if still else "")


def _lag(report: Report) -> str:
    sources = [
        one
        for one in report.partitions
        if not one.is_changelog
        and one.owner is not None
        and one.topic != leader_topic(report.group)
    ]
    dark = [one for one in sources if one.lag is None]
    if dark and len(dark) == len(sources):
        return "lag not known"
    more = f" (not known of {count_of(len(dark), 'partition')})" if dark else ""
    return f"lag {report.totals.lag:,} records{more}"


def _decision(report: Report) -> Text:
    decision = report.decision
    if decision is None:
        return Text("last decision: not reported by any member")
    ago = "" if decision.at is None else f", {span(max(0.0, report.taken_at - decision.at))} ago"
    by = f" by {decision.leader}" if decision.leader else " by a leader that is no longer known"
    reason = why(with_member_names(decision, names_of(report)))
    line = Text(f"last decision: generation {decision.generation}{ago}{by}, because {reason}: ")
    if not decision.is_planned:
        return line.append(
            "the planner failed; partitions were assigned without regard to their former owners",
            style="red",
        )
    line.append(f"{count_of(decision.tasks, 'task')}, {decision.moved} moved, ")
    line.append(f"{decision.cold} cold", style="yellow" if decision.cold else "")
    line.append(f", {decision.off_target} off target")
    if decision.warming:
        line.append(f", {decision.warming} warming up")
    return line


# -- members


def _members_table(report: Report, rows: int | None) -> Iterator[RenderableType]:
    members = report.members
    if rows is not None and len(members) > rows:
        members = tuple(sorted(members, key=lambda member: (_state_rank(member), member.name)))[
            :rows
        ]
    alike, columns = _columns(report.members)
    table = _new_table("member", "state", "owns", "lag", "standbys", "behind", numbers=(3, 5))
    has_warmups = any(member.warmups for member in report.members)
    for name in (*(("warm-ups", "behind") * has_warmups), *columns):
        table.add_column(name, overflow="fold")
    for member in members:
        cells: list[RenderableType] = [
            _name_cell(member),
            _state_text(member),
            partitions(member.actives, report.group),
            number(member.lag),
            partitions(member.standbys, report.group),
            behind(member.standby_lag, member.standby_lag_s),
        ]
        if has_warmups:
            cells += [partitions(member.warmups, report.group), number(member.warmup_lag)]
        table.add_row(*cells, *(_COLUMNS[name](member) for name in columns))
    yield table
    if len(members) < len(report.members):
        yield Text(f"and {len(report.members) - len(members)} more members", style="dim")
    if alike:
        yield Text(f"all members: {', '.join(alike)}", style="dim")


def _name_cell(member: MemberReport) -> Text:
    text = Text(member.name, style="bold")
    if member.is_leader:
        text.append(" (leader)", style="cyan")
    shown = member.url.removeprefix("http://").rstrip("/") or member.address
    where = [] if shown == member.name else [shown]
    if member.host and member.host not in f"{member.name} {shown}":
        where.insert(0, member.host)
    if member.instance_id and member.instance_id != member.name:
        where.append(f"instance {member.instance_id}")
    return text.append(f"\n{', '.join(where)}", style="dim not bold") if where else text


def _state_rank(member: MemberReport) -> int:
    """Return a sort key by which the members with the worst state come first."""
    if member.answer not in (ANSWERED, NOT_ASKED):
        return 0
    return (
        1 if member.not_ready or member.not_live else 2 if member.restore_remaining_records else 3
    )


_STYLES: Mapping[str, str] = {"good": "green", "changing": "yellow", "bad": "red", "unknown": "dim"}


def _state_text(member: MemberReport) -> Text:
    level, words = condition(member)
    return Text(words, style=_STYLES[level])


_COLUMNS: Mapping[str, Callable[[MemberReport], str]] = {
    "protocol": lambda member: member.kind,
    "version": lambda member: member.version or NOTHING,
    "rack": lambda member: member.rack or NOTHING,
    "capacity": lambda member: NOTHING if member.capacity is None else f"{member.capacity:g}",
}


def _columns(members: Sequence[MemberReport]) -> tuple[list[str], list[str]]:
    """Return texts for properties that all members share, and the columns that differ."""
    alike, differ = [], []
    for name, cell in _COLUMNS.items():
        values = {cell(member) for member in members}
        if len(values) > 1:
            differ.append(name)
        elif values and values != {NOTHING}:
            alike.append(f"{name} {values.pop()}")
        elif name == "rack" and values:
            alike.append("no rack")
    return alike, differ


def partitions(numbers: Numbers, group: str) -> str:
    """Format ``0-3 of orders and the tables rates, totals``; topics with equal numbers share an entry."""
    together: defaultdict[tuple[int, ...], list[str]] = defaultdict(list)
    for topic, held in sorted(numbers.items()):
        if topic != leader_topic(group):
            together[held].append(topic)
    lines = []
    for held, topics in sorted(together.items(), key=lambda item: item[1]):
        tables = [table_of(topic, group) for topic in topics]
        sources = [topic for topic, table in zip(topics, tables, strict=True) if not table]
        named = [table for table in tables if table]
        words = [list_names(sources)] if sources else []
        if named:
            words.append(f"table{'s' * (len(named) > 1)} {list_names(named)}")
        (ranges,) = as_ranges(("", number) for number in held)
        lines.append(f"{ranges.strip()} of {', '.join(words)}")
    return "\n".join(lines) or NOTHING


# -- the rest


def _render_waits(report: Report) -> Iterator[Text]:
    for wait in report.waits:
        line = Text()
        if wait.member is not None:
            line.append(f"{wait.member}: ", style="bold")
        line.append(wait.text)
        if wait.seconds:
            line.append(f" ({span(wait.seconds)} so far)", style="dim")
        yield line


def _render_differences(report: Report) -> Iterator[Text]:
    for difference in report.differences:
        line = Text(f"{difference.name}: ")
        values = sorted(difference.values.items(), key=lambda item: (-len(item[1]), item[0]))
        line.append(
            "; ".join(f"{value or 'not set'} on {list_names(names)}" for value, names in values)
        )
        yield line


def _partitions_table(partitions: Iterable[Partition]) -> Table:
    table = _new_table(
        "topic", "partition", "owner", "lag", "not processed", "copies", numbers=(1, 3)
    )
    for one in partitions:
        still = one.standing
        copies = [
            f"{copy.member}{' (warm-up)' * copy.is_warmup}: "
            f"{'' if copy.is_measured or copy.lag is None else 'at most '}"
            f"{behind(copy.lag, copy.seconds)}"
            for copy in one.copies
        ]
        table.add_row(
            one.topic,
            str(one.partition),
            one.owner or NOTHING,
            NOTHING if one.is_changelog else number(one.lag),
            NOTHING if still is None else f"{still.reason}, {span(still.seconds)}",
            "\n".join(copies) or NOTHING,
        )
    return table


def _new_table(*heads: str, numbers: Sequence[int] = ()) -> Table:
    table = Table(box=SIMPLE, show_edge=False, pad_edge=False)
    for at, head in enumerate(heads):
        table.add_column(head, justify="right" if at in numbers else "left", overflow="fold")
    return table
