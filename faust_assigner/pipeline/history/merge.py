"""Merge the lines of a visit into the store, day by day; a visit is the reading of ledgers in one run.

``resolve`` determines the day of each decision that the visit names; ``merge_day`` merges one day, in any
process. A decision belongs to the day of its earliest line. If an earlier line of a stored decision arrives,
the decision and its placements move to the new day.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from faust_assigner.pipeline.history.facts import Facts, Key, merged, of_decisions, without
from faust_assigner.pipeline.history.store import PENDING, Day, Manifest, Store, table_schema
from faust_assigner.pipeline.history.tables import tables_of
from faust_assigner.pipeline.schema import FACTS

#: The maximum numbers of placements and of recoveries that are stored without their decision; beyond
#: this number the first rows in sort order are dropped.
PENDING_KEPT = 500_000


@dataclass
class DayChanges:
    """Stored facts that move from one day to another."""

    #: Day -> facts that move to this day from the pending facts or from a later day.
    come: dict[str, list[dict[str, pa.Table]]] = field(default_factory=lambda: defaultdict(list))
    #: Day -> decisions that leave this day.
    go: dict[str, set[Key]] = field(default_factory=lambda: defaultdict(set))

    @property
    def days(self) -> set[str]:
        """All days that the moves change."""
        return {*self.come, *self.go}


@dataclass(frozen=True)
class Resolved:
    """The known days of the decisions that a visit names, and the facts that change their day."""

    days: Mapping[Key, str]
    moves: DayChanges


def resolve(store: Store, manifest: Manifest, named: Mapping[Key, datetime | None]) -> Resolved:
    """Find the days of the decisions in ``named``, and the stored facts that therefore change their day.

    ``named``: decision -> its earliest time; None if the visit has only placements or recoveries of it.
    """
    wanted = pa.array(sorted({name for _, name in named}), pa.string())
    stored = store.day_of(manifest, wanted)
    days: dict[Key, str] = {}
    moves = DayChanges()
    new: set[Key] = set()
    for key, moment in sorted(named.items()):
        stands = stored.get(key)
        told = None if moment is None else moment.date().isoformat()
        day = min(filter(None, (stands, told)), default=None)
        if day is None:
            continue
        days[key] = day
        if stands is None:
            new.add(key)
        elif day != stands:
            moves.go[stands].add(key)
    for day, keys in list(moves.go.items()):
        _move(store, manifest, day, keys, days, moves)
    if PENDING in manifest.days and new:
        _move_pending(store, manifest, new, days, moves)
    return Resolved(days, moves)


def _move(
    store: Store,
    manifest: Manifest,
    day: str,
    keys: set[Key],
    days: Mapping[Key, str],
    moves: DayChanges,
) -> None:
    for target in sorted({days[key] for key in keys}):
        mine = {key for key in keys if days[key] == target}
        moves.come[target].append(
            {
                fact: of_decisions(store.read(fact, day, manifest.days[day]), mine)
                for fact in ("decisions", "placements")
            }
        )


def _move_pending(
    store: Store, manifest: Manifest, new: set[Key], days: Mapping[Key, str], moves: DayChanges
) -> None:
    """Move pending placements and recoveries to the days of the decisions ``new``."""
    pending = {
        fact: store.read(fact, PENDING, manifest.days[PENDING])
        for fact in ("placements", "recoveries")
    }
    found = {
        pair
        for rows in pending.values()
        for pair in zip(rows["group_id"].to_pylist(), rows["decision_id"].to_pylist(), strict=True)
        if pair in new
    }
    for target in sorted({days[key] for key in found}):
        mine = {key for key in found if days[key] == target}
        moves.come[target].append(
            {
                "placements": of_decisions(pending["placements"], mine),
                "echoes": of_decisions(pending["recoveries"], mine),
            }
        )
    if found:
        moves.go[PENDING] |= found


def merge_day(
    store: Store, day: str, entry: Day | None, new: Mapping[str, pa.Table], moves: DayChanges
) -> Day | None:
    """Merge ``new`` facts, and ``echoes`` (recoveries of the day's decisions), into a day.

    Returns the day's new entry, ``entry`` itself for an unchanged day, or None for an empty day.

    Cost: the day's facts in memory, about 100 bytes a line, and a sort of these facts.
    """
    stored = {fact: store.read(fact, day, entry) for fact in FACTS}
    kept = without(stored, moves.go.get(day, ()))
    if day == PENDING:
        return _merge_pending(store, entry, stored, new, moves)
    parts = [new, *moves.come.get(day, ())]
    added = {fact: _joined(fact, parts) for fact in FACTS}
    echoes = _joined("recoveries", parts, "echoes")
    facts = merged(kept, added, echoes)
    if all(facts[fact].equals(stored[fact]) for fact in FACTS):
        return entry
    if not any(rows.num_rows for rows in facts.values()):
        return None
    return store.write(day, {**facts, **tables_of(facts)})


def tables_again(store: Store, manifest: Manifest) -> dict[str, Day]:
    """Compute the daily tables again from the stored facts. Cost: each day is read and written."""
    found = {}
    for day in manifest.dates:
        facts = {fact: store.read(fact, day, manifest.days[day]) for fact in FACTS}
        found[day] = store.write(day, {**facts, **tables_of(facts)})
    return found


def _merge_pending(
    store: Store, entry: Day | None, stored: Facts, new: Mapping[str, pa.Table], moves: DayChanges
) -> Day | None:
    gone = moves.go.get(PENDING, set())
    left = {
        fact: without({"decisions": rows}, gone)["decisions"]
        for fact, rows in stored.items()
        if fact in ("placements", "recoveries")
    }
    empty = {fact: table_schema(fact).empty_table() for fact in FACTS}
    added = {fact: new.get(fact, rows) for fact, rows in empty.items()}
    # The day of a recovery already counts the recovery. A pending recovery is kept only for its decision's
    # longest recovery.
    added["recoveries"] = new.get("echoes", empty["recoveries"])
    facts = merged({**empty, **left}, added)
    cut = {fact: rows.slice(max(0, rows.num_rows - PENDING_KEPT)) for fact, rows in facts.items()}
    if all(cut[fact].equals(stored[fact]) for fact in FACTS):
        return entry
    return store.write(PENDING, cut) if any(rows.num_rows for rows in cut.values()) else None


def _joined(fact: str, parts: Iterable[Mapping[str, pa.Table]], name: str = "") -> pa.Table:
    found = [part[name or fact] for part in parts if (name or fact) in part]
    schema = table_schema(fact)
    return pa.concat_tables([schema.empty_table(), *(rows.cast(schema) for rows in found)])


def by_day(facts: Facts, days: Mapping[Key, str]) -> dict[str, dict[str, pa.Table]]:
    """Return the facts of a visit by day; ``echoes`` has each recovery again, on its decision's day."""
    found: dict[str, dict[str, pa.Table]] = defaultdict(dict)
    routes = {
        "decisions": ("decisions", _days_of_decisions(facts["decisions"], days)),
        "placements": ("placements", _days_of_decisions(facts["placements"], days)),
        "recoveries": ("recoveries", _dates(facts["recoveries"], "started")),
        "echoes": ("recoveries", _days_of_decisions(facts["recoveries"], days)),
        "samples": ("samples", _dates(facts["samples"], "ts")),
    }
    for name, (fact, column) in routes.items():
        rows = facts[fact].append_column("_day", column).sort_by("_day")
        ends = rows["_day"].combine_chunks()
        start = 0
        for run in pc.run_end_encode(ends).run_ends.to_pylist() if len(ends) else ():
            day = ends[start].as_py()
            found[day][name] = rows.slice(start, run - start).drop_columns(["_day"])
            start = run
    return dict(found)


def named_in(facts: Facts) -> dict[Key, datetime | None]:
    """Return each decision that the facts name -> its earliest time; see :func:`resolve`."""
    named: dict[Key, datetime | None] = {}
    for fact in ("placements", "recoveries"):
        once = facts[fact].group_by(["group_id", "decision_id"]).aggregate([])
        named.update(dict.fromkeys(zip(*_keys(once), strict=True)))
    told = facts["decisions"]
    for group, name, moment in zip(*_keys(told), told["ts"].to_pylist(), strict=True):
        known = named.get((group, name))
        named[group, name] = moment if known is None else min(known, moment)
    return named


def _keys(rows: pa.Table) -> tuple[list[str], list[str]]:
    return rows["group_id"].to_pylist(), rows["decision_id"].to_pylist()


def _days_of_decisions(rows: pa.Table, days: Mapping[Key, str]) -> pa.Array:
    pairs = zip(*_keys(rows), strict=True)
    return pa.array([days.get(pair, PENDING) for pair in pairs], pa.string())


def _dates(rows: pa.Table, column: str) -> pa.Array:
    return pc.strftime(rows[column], format="%Y-%m-%d")


@dataclass(frozen=True)
class Merged:
    """The new entries of the changed days, and the number of days with lines in the visit."""

    days: Mapping[str, Day | None]
    touched: int
