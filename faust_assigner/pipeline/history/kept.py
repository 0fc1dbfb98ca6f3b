"""Days that stand in a history and that a run does not cover: they are kept.

Workers prune their ledgers, and ``--since`` reads a part of one: a run then knows less of a day than an
earlier run did. A day of a group is replaced when the period takes in the whole day and no row of it would
count less than it did. Otherwise the rows that stand are kept.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from typing import Any, TypeAlias

from faust_assigner.ledger import DOUBLE, LONG, STRING
from faust_assigner.pipeline.history.report import Report, Rows
from faust_assigner.pipeline.ledgers.period import Period
from faust_assigner.pipeline.schema import HISTORY, HISTORY_KEYS
from faust_assigner.pipeline.sinks import STAGING, Results

#: Tables that are kept together, by the one whose counts tell, and the counts: more lines never lower them.
COUNTS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "movement": (("movement", "balance"), ("decisions", "assigned")),
    "recovery": (("recovery",), ("recoveries", "records")),
    "skew": (("skew",), ("records_in", "bytes_in")),
}
#: Where the last report stands, and where a run that died while it was replaced left it.
_STANDING = ("report.json", f"{STAGING}/old-report.json")
_DAILY = ("movement", "balance", "recovery", "skew")
_PYTHON: Mapping[str, Any] = {STRING: str, LONG: int, DOUBLE: int | float}
GroupDay: TypeAlias = tuple[str, date]


def keep(report: Report, folder: Results, period: Period) -> Report:
    """``report`` with the days of ``folder`` that it does not cover; its ``about`` names them."""
    before = _standing(folder)
    tables = dict(report.tables)
    kept: set[date] = set()
    for table, (together, counts) in COUNTS.items():
        stand, now = _by_day(before.get(table, ())), _by_day(tables[table])
        for key, rows in stand.items():
            if period.takes_in(key[1]) and _covers(table, now.get(key, ()), rows, counts):
                continue
            kept.add(key[1])
            for name in together:
                tables[name] = [
                    *(row for row in tables[name] if _day_of(row) != key),
                    *_by_day(before.get(name, ())).get(key, ()),
                ]
    ordered = {
        name: sorted(rows, key=lambda row: tuple(row[key] for key in HISTORY_KEYS[name]))
        if name != "quarantine"
        else rows
        for name, rows in tables.items()
    }
    return replace(report, tables=ordered, about=replace(report.about, kept=tuple(sorted(kept))))


def _covers(table: str, now: Rows, standing: Rows, counts: tuple[str, ...]) -> bool:
    found = {tuple(row[key] for key in HISTORY_KEYS[table]): row for row in now}
    for row in standing:
        mine = found.get(tuple(row[key] for key in HISTORY_KEYS[table]))
        if mine is None or any(mine[count] < row[count] for count in counts):
            return False
    return True


def _standing(folder: Results) -> Mapping[str, Rows]:
    """The tables of the last run; none where there is none, or its report cannot be read."""
    for name in _STANDING:
        if folder.exists(name):
            try:
                told = json.loads(folder.read(name))
                return {table: [_row(table, row) for row in told[table]] for table in _DAILY}
            except (ValueError, KeyError, TypeError, AttributeError):
                continue
    return {}


def _row(table: str, told: Mapping[str, Any]) -> dict[str, Any]:
    """A row of report.json as the history's own; raises where a column is missing or of another type."""
    row = {column.name: told[column.name] for column in HISTORY[table]}
    row["dt"] = date.fromisoformat(row["dt"])
    for column in HISTORY[table]:
        if column.type in _PYTHON and not isinstance(row[column.name], _PYTHON[column.type]):
            raise TypeError(f"{table}.{column.name} is {row[column.name]!r}")
    return row


def _by_day(rows: Rows) -> Mapping[GroupDay, list[Mapping[str, Any]]]:
    days: dict[GroupDay, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        days[_day_of(row)].append(row)
    return days


def _day_of(row: Mapping[str, Any]) -> GroupDay:
    return row["group_id"], row["dt"]
