"""The summary at the top of the page: the newest week, the week before, and the longest standstills.

The functions are pure: they convert rows of the report to rows of the page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from operator import itemgetter
from statistics import median
from typing import Any

from faust_assigner.pipeline.rows import grouped

WEEK = timedelta(days=7)
#: The maximum numbers of standstills and of releases on the page.
STANDSTILLS_SHOWN = 10
RELEASES_SHOWN = 20

Tables = Mapping[str, Sequence[Mapping[str, Any]]]

#: Source of a state -> the reason why its recovery took time.
_SOURCES: Mapping[str, str] = {
    "replay": "the worker had no copy of the state and replayed {records} records",
    "standby": "the worker's standby copy lacked {records} records",
    "local": "the worker's own files lacked {records} records",
    "snapshot": "the worker loaded a snapshot and read {records} further records",
}
_CAUSES: Mapping[str, str] = {
    "owner gone": "the previous owner had left",
    "balance": "the partition moved for balance",
    "no owner before": "the partition had no owner before",
}


def weeks_of(tables: Tables, today: date | None = None) -> tuple[date, date] | None:
    """Return the first and the last day of the newest week; None if the report has no day.

    Days after ``today`` come from clocks that are ahead; they are used only if there are no other days.
    """
    days = [row["dt"] for row in tables["timeline"]]
    last = max([day for day in days if today is None or day <= today] or days, default=None)
    return None if last is None else (last - WEEK + timedelta(days=1), last)


def week_rows(tables: Tables, today: date | None = None) -> list[dict[str, str]]:
    """Return each figure of the newest week and of the week before, and the change; empty without a day.

    ``today``: see :func:`weeks_of`.
    """
    span = weeks_of(tables, today)
    if span is None:
        return []
    start, end = span
    now = [row for row in tables["timeline"] if start <= row["dt"] <= end]
    before = [row for row in tables["timeline"] if start - WEEK <= row["dt"] < start]
    found = [_compared(name, of(now), of(before) if before else None) for name, of in _FIGURES]
    releases = _releases(tables, start, end)
    first = min(row["dt"] for row in tables["timeline"])
    told = {"figure": "releases", "this week": str(len(releases[0]))}
    older = str(len(releases[1])) if first < start else "-"
    new = sorted(set(releases[0]) - set(releases[1]))
    named = f"new: {', '.join(new[-3:])}" if new and older != "-" else ""
    return [*found, {**told, "week before": older, "change": named}]


def _sum(*names: str) -> Callable[[Sequence[Mapping[str, Any]]], float | None]:
    return lambda rows: sum(row[name] for row in rows for name in names)


def _most(name: str) -> Callable[[Sequence[Mapping[str, Any]]], float | None]:
    return lambda rows: max((row[name] for row in rows if row[name] is not None), default=None)


def _least(name: str) -> Callable[[Sequence[Mapping[str, Any]]], float | None]:
    return lambda rows: min((row[name] for row in rows if row[name] is not None), default=None)


_FIGURES: Sequence[tuple[str, Callable[[Sequence[Mapping[str, Any]]], float | None]]] = (
    ("rebalances", _sum("rebalances")),
    ("tasks moved", _sum("tasks_gone", "tasks_balance", "tasks_new")),
    ("… because their owner had left", _sum("tasks_gone")),
    ("… for balance", _sum("tasks_balance")),
    ("… cold", _sum("tasks_cold")),
    ("recoveries", _sum("recoveries")),
    ("longest standstill, s", _most("standstill_s")),
    ("highest lag of a partition, records", _most("lag_max")),
    ("most members", _most("members")),
    ("fewest members", _least("members")),
)


def _compared(name: str, now: float | None, before: float | None) -> dict[str, str]:
    change = ""
    if now is not None and before is not None and now != before:
        share = f" ({(now - before) / before:+.0%})" if before else ""
        change = f"{'+' if now > before else '-'}{_number(abs(now - before))}{share}"
    return {
        "figure": name,
        "this week": _number(now),
        "week before": _number(before),
        "change": change,
    }


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"


def _releases(tables: Tables, start: date, end: date) -> tuple[list[str], list[str]]:
    """Return the releases with decisions in the newest week, and the releases of the week before."""
    spans = ((start, end), (start - WEEK, start - timedelta(days=1)))
    now, before = (
        sorted({row["deploy"] for row in tables["rebalances"] if low <= row["dt"] <= high})
        for low, high in spans
    )
    return now, before


def standstill_rows(tables: Tables) -> list[dict[str, Any]]:
    """Return the longest standstills of the report's days, each with its reason."""
    triggers = {
        (row["group_id"], row["decision_id"]): row["trigger"] for row in tables["rebalances"]
    }
    ordered = sorted(tables["standstills"], key=lambda row: (-row["seconds"], row["started"]))
    return [
        {
            "seconds": row["seconds"],
            "partition": f"{row['topic']}/{row['partition']}",
            "why": why(row, triggers.get((row["group_id"], row["decision_id"]))),
            "time": row["started"],
            "member": row["member"],
            "group": row["group_id"],
        }
        for row in ordered[:STANDSTILLS_SHOWN]
    ]


def why(row: Mapping[str, Any], trigger: str | None) -> str:
    """Return the reason of a standstill: the state's origin, the move's cause and the rebalance's trigger."""
    told = _SOURCES.get(row["source"], "the worker restored {records} records")
    parts = [told.format(records=f"{row['records']:,}")]
    if row["cause"] is not None:
        parts.append(_CAUSES[row["cause"]])
    trigger = row["trigger"] or trigger
    if trigger:
        parts.append(f"round for: {trigger}")
    return "; ".join(parts)


def release_rows(tables: Tables) -> list[dict[str, Any]]:
    """Return the releases in the order of their first decision.

    A rebalance's standstill is its longest recovery.
    """
    groups = grouped(tables["rebalances"], itemgetter("group_id", "deploy"))
    found = []
    for (group, deploy), mine in groups.items():
        took = [row["longest_recovery_s"] for row in mine if row["longest_recovery_s"] is not None]
        found.append(
            {
                "group": group,
                "release": deploy,
                "first round": min(row["ts"] for row in mine),
                "rounds": len(mine),
                "tasks moved": sum(row["tasks_moved"] for row in mine),
                "cold": sum(row["tasks_cold"] for row in mine),
                "moved per round": sum(row["tasks_moved"] for row in mine) / len(mine),
                "median standstill s": median(took) if took else None,
                "longest standstill s": max(took, default=None),
            }
        )
    return sorted(found, key=lambda row: (row["first round"], row["group"], row["release"]))


def summary(tables: Tables, today: date | None = None) -> list[str]:
    """Return the summary as sentences. ``today``: see :func:`weeks_of`."""
    span = weeks_of(tables, today)
    if span is None:
        return ["The history has no line."]
    start, end = span
    rows = {row["figure"]: row for row in week_rows(tables, today)}
    moved, rounds = rows["tasks moved"], rows["rebalances"]
    told = [
        f"From {start} to {end} the group had {_many(rounds['this week'], 'rebalance')}"
        f"{_week_before(rounds)}; "
        f"{_many(moved['this week'], 'task')} moved{_week_before(moved)}, "
        f"{rows['… cold']['this week']} of them cold."
    ]
    mine = [row for row in tables["standstills"] if start <= _day(row["started"]) <= end]
    worst = standstill_rows({**tables, "standstills": mine})
    if worst:
        first = worst[0]
        told.append(
            f"The longest standstill: {first['partition']} on {first['member']} for "
            f"{first['seconds']:,.1f} s ({first['why']})."
        )
    lag = rows["highest lag of a partition, records"]
    if lag["this week"] != "-":
        told.append(
            f"The highest lag of a partition: {lag['this week']} records{_week_before(lag)}."
        )
    return told


def _week_before(row: Mapping[str, str]) -> str:
    if row["week before"] == "-":
        return ""
    return f" ({row['week before']} in the week before)"


def _many(count: str, name: str) -> str:
    return f"{count} {name}" if count == "1" else f"{count} {name}s"


def _day(moment: datetime) -> date:
    return moment.date()
