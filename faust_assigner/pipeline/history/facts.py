"""The facts of one day as Arrow tables: each fact once, independent of the order of its lines.

A fact is an accepted ledger line: a decision, placement, recovery or sample. The key of a decision is its
group and id. The key of a placement is its decision, partition and holder. The key of a recovery or a
sample is all its columns. If lines with the same key differ, the smallest line is kept, so that the order
of runs does not matter. The functions are pure and used with and without Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from faust_assigner.pipeline.history.store import table_schema
from faust_assigner.pipeline.rows import DecisionRow
from faust_assigner.pipeline.schema import FACTS, LEDGER_TABLE

#: Fact (a name in ``schema.FACTS``) -> its rows.
Facts: TypeAlias = Mapping[str, pa.Table]
Key: TypeAlias = tuple[str, str]
DEPLOY, UNNAMED = "deploy", "(unnamed)"
_KEY = ["group_id", "decision_id"]
_HOLDER, _BEFORE = "_holder", "_before"


def facts_in(batches: Iterable[pa.RecordBatch]) -> dict[str, pa.Table]:
    """Return the accepted lines in ``batches`` (columns: one struct per ledger table), by fact."""
    found: dict[str, list[pa.Table]] = {fact: [] for fact in FACTS}
    for batch in batches:
        for fact, table in LEDGER_TABLE.items():
            structs = batch.column(table)
            if structs.null_count < len(structs):
                found[fact].append(_table(fact, structs.drop_null()))
    return {
        fact: pa.concat_tables(parts) if parts else table_schema(fact).empty_table()
        for fact, parts in found.items()
    }


def _table(fact: str, structs: pa.StructArray) -> pa.Table:
    schema = table_schema(fact)
    if fact == "decisions":
        rows = [{**row, "longest_recovery_s": None} for row in structs.to_pylist()]
        return pa.Table.from_pylist(rows, schema=schema)
    named = dict(zip((field.name for field in structs.type), structs.flatten(), strict=True))
    return pa.table([named[name] for name in schema.names], names=schema.names).cast(schema)


def merged(stored: Facts, new: Facts, echoes: pa.Table | None = None) -> dict[str, pa.Table]:
    """Merge ``stored`` and ``new``: each fact once, rows in a fixed order.

    ``echoes`` are the recoveries that the day's decisions caused, on whatever day they started; the
    longest recovery of each decision is stored in the decision's row. Cost: a sort of the day's rows.
    """
    both = {fact: pa.concat_tables([stored[fact], new[fact]]) for fact in FACTS}
    return {
        "decisions": _decisions(both["decisions"], echoes),
        "placements": _placements(both["placements"]),
        "recoveries": _distinct(both["recoveries"], ["group_id", "started"]),
        "samples": _distinct(both["samples"], ["group_id", "topic", "partition", "ts"]),
    }


def without(facts: Facts, keys: Iterable[Key]) -> dict[str, pa.Table]:
    """Return ``facts`` without the decisions ``keys`` and their placements."""
    gone = set(keys)
    return {
        fact: rows.filter(pc.invert(_is_among(rows, gone)))
        if fact in ("decisions", "placements")
        else rows
        for fact, rows in facts.items()
    }


def of_decisions(rows: pa.Table, keys: Iterable[Key]) -> pa.Table:
    """Return the rows of the decisions ``keys``; ``rows`` has columns ``group_id`` and ``decision_id``."""
    return rows.filter(_is_among(rows, set(keys)))


def _is_among(rows: pa.Table, keys: set[Key]) -> pa.Array:
    pairs = zip(rows["group_id"].to_pylist(), rows["decision_id"].to_pylist(), strict=True)
    return pa.array([pair in keys for pair in pairs], pa.bool_())


def _decisions(rows: pa.Table, echoes: pa.Table | None) -> pa.Table:
    """Return each decision once; of different lines with one id, the earliest is kept, then the smallest."""
    longest: dict[Key, float] = {}
    best: dict[Key, tuple[tuple[Any, ...], DecisionRow]] = {}
    for row in rows.to_pylist():
        # Sort the keys, so that their order in the line has no effect.
        row["config"] = dict(sorted(row["config"]))
        key = (row["group_id"], row["decision_id"])
        _longer(longest, key, row["longest_recovery_s"])
        said = _line_sort_key(row)
        if key not in best or said < best[key][0]:
            best[key] = (said, row)
    if echoes is not None:
        took = pc.subtract(echoes["ended"].cast(pa.int64()), echoes["started"].cast(pa.int64()))
        columns = (echoes["group_id"], echoes["decision_id"], took)
        for group, name, micros in zip(*(each.to_pylist() for each in columns), strict=True):
            if (group, name) in best:
                _longer(longest, (group, name), micros / 1e6)
    found = [
        {**row, "config": list(row["config"].items()), "longest_recovery_s": longest.get(key)}
        for key, (_, row) in sorted(best.items(), key=lambda each: (each[1][0][0], each[0]))
    ]
    return pa.Table.from_pylist(found, schema=table_schema("decisions"))


def _longer(longest: dict[Key, float], key: Key, seconds: float | None) -> None:
    if seconds is not None:
        longest[key] = max(seconds, longest.get(key, 0.0))


def _line_sort_key(row: DecisionRow) -> tuple[Any, ...]:
    """Return the sort key of lines about one decision; different lines have different keys."""
    return (
        row["ts"],
        row["policy"],
        row["config"].get(DEPLOY, UNNAMED),
        [member["member_id"] for member in row["members"]],
        repr(sorted((name, repr(value)) for name, value in row.items() if name not in _LATER)),
    )


_LATER = ("longest_recovery_s",)


def _placements(rows: pa.Table) -> pa.Table:
    """Keep one active row per decision and partition, and one row per holder of a standby or warm-up."""
    is_active = pc.equal(rows["role"], "active")
    holder = pc.if_else(is_active, pa.scalar(""), rows["member_id"])
    # A row without a previous owner is sorted first.
    before = pc.fill_null(pc.binary_join_element_wise("1", rows["prev_member_id"], ""), "")
    told = rows.append_column(_HOLDER, holder).append_column(_BEFORE, before)
    place = [*_KEY, "topic", "partition", "role", _HOLDER]
    said = ["member_id", _BEFORE, "moved", "standby_hit", "cold"]
    ordered = told.sort_by([(name, "ascending") for name in [*place, *said]])
    rest = [name for name in rows.schema.names if name not in place]
    first = ordered.group_by(place, use_threads=False).aggregate(
        [(name, "first", pc.ScalarAggregateOptions(skip_nulls=False)) for name in rest]
    )
    named = first.rename_columns([name.removesuffix("_first") for name in first.column_names])
    sorted_again = named.sort_by([(name, "ascending") for name in place])
    return sorted_again.select(rows.schema.names).cast(rows.schema)


def _distinct(rows: pa.Table, first: list[str]) -> pa.Table:
    """Return each row once, sorted by the columns ``first`` and then by all other columns."""
    names = rows.schema.names
    once = rows.group_by(names, use_threads=False).aggregate([]).select(names)
    order = [*first, *(name for name in names if name not in first)]
    return once.sort_by([(name, "ascending") for name in order]).cast(rows.schema)
