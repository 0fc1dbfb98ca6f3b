"""The facts of a visit by day, and stored facts that change their day."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from faust_assigner.pipeline.history import merge
from faust_assigner.pipeline.history.here import Here
from faust_assigner.pipeline.history.merge import DayChanges, by_day, merge_day, named_in, resolve
from faust_assigner.pipeline.history.options import HistoryOptions
from faust_assigner.pipeline.history.store import PENDING, Day, Store, table_schema
from faust_assigner.pipeline.ledgers.progress import plan_full_visit
from faust_assigner.pipeline.progress import Progress
from faust_assigner.pipeline.schema import FACTS
from tests.integration.spark.ledgers import Ledger, bad
from tests.unit.pipeline.history.made import at, stored

MEMBERS: list[dict[str, Any]] = []


def time(day: int, hour: int = 5) -> datetime:
    """Return a time in November 2026."""
    return datetime(2026, 11, day, hour, tzinfo=UTC)


def decision(name: str, day: int, **more: Any) -> dict[str, Any]:
    """Return a decision of group ``g``."""
    told = {"group_id": "g", "decision_id": name, "ts": time(day), "generation": 1, "policy": "p"}
    return {**told, "trigger": "t", "config": {}, "members": MEMBERS, "solve_ms": 1.0, **more}


def placement(name: str, partition: int, **more: Any) -> dict[str, Any]:
    """Return an active placement of a decision."""
    told = {"group_id": "g", "decision_id": name, "topic": "t", "partition": partition}
    flags = {"moved": True, "standby_hit": False, "cold": False}
    return {**told, "role": "active", "member_id": "m", **flags, **more}


def recovery(name: str, day: int, seconds: int = 0, **more: Any) -> dict[str, Any]:
    """Return a recovery after a decision."""
    told = {"group_id": "g", "decision_id": name, "topic": "t", "partition": 0, "member_id": "m"}
    ended = time(day) + timedelta(seconds=seconds)
    rest = {"source": "local", "records": 3, "started": time(day), "ended": ended}
    return {**told, **rest, **more}


def sample(day: int, **more: Any) -> dict[str, Any]:
    """Return a sample."""
    return {"group_id": "g", "topic": "t", "partition": 0, "ts": time(day), **more}


def facts(**rows: list[dict[str, Any]]) -> dict[str, pa.Table]:
    """Return facts with these rows; a column without a value is null."""
    found = {}
    for fact in FACTS:
        schema = table_schema(fact)
        empty: dict[str, Any] = dict.fromkeys(schema.names)
        told = [{**empty, **row} for row in rows.get(fact, [])]
        found[fact] = pa.Table.from_pylist(told, schema=schema)
    return found


def keys(rows: Any) -> list[tuple[Any, ...]]:
    """Return (group, decision, partition) of each row; a decision has no partition."""
    return [
        (row["group_id"], row.get("decision_id"), row.get("partition")) for row in rows.to_pylist()
    ]


def test_the_facts_of_a_visit_go_to_their_days() -> None:
    """Placements go to their decision's day, recoveries to their start and as echoes."""
    found = by_day(
        facts(
            decisions=[decision("b", 21), decision("a", 20), decision("c", 21)],
            placements=[placement("b", 1), placement("x", 2), placement("a", 3), placement("b", 4)],
            recoveries=[recovery("a", 22), recovery("x", 20), recovery("b", 20)],
            samples=[sample(23), sample(20), sample(23, partition=7)],
        ),
        {("g", "a"): "2026-11-20", ("g", "b"): "2026-11-21", ("g", "c"): "2026-11-19"},
    )
    told = {day: {name: keys(rows) for name, rows in parts.items()} for day, parts in found.items()}
    assert told == {
        "2026-11-19": {"decisions": [("g", "c", None)]},
        "2026-11-20": {
            "decisions": [("g", "a", None)],
            "placements": [("g", "a", 3)],
            "recoveries": [("g", "x", 0), ("g", "b", 0)],
            "echoes": [("g", "a", 0)],
            "samples": [("g", None, 0)],
        },
        "2026-11-21": {
            "decisions": [("g", "b", None)],
            "placements": [("g", "b", 1), ("g", "b", 4)],
            "echoes": [("g", "b", 0)],
        },
        "2026-11-22": {"recoveries": [("g", "a", 0)]},
        "2026-11-23": {"samples": [("g", None, 0), ("g", None, 7)]},
        PENDING: {"placements": [("g", "x", 2)], "echoes": [("g", "x", 0)]},
    }
    assert found["2026-11-21"]["placements"].schema.names == table_schema("placements").names
    assert by_day(facts(), {}) == {}


def test_each_decision_is_named_with_its_earliest_time() -> None:
    """A decision known only from placements or recoveries has no time."""
    found = named_in(
        facts(
            decisions=[
                *(decision("a", day) for day in (21, 20, 22)),
                decision("a", 23, group_id="h"),
                decision("b", 19),
            ],
            placements=[placement("a", 0), placement("p", 0), placement("p", 1)],
            recoveries=[recovery("r", 20), recovery("b", 20)],
        )
    )
    assert found == {
        ("g", "a"): time(20),
        ("h", "a"): time(23),
        ("g", "b"): time(19),
        ("g", "p"): None,
        ("g", "r"): None,
    }


def base(folder: Path) -> Store:
    """Return three days with a decision each, and pending facts of ``late`` and ``never``."""
    days = {}
    for day, names in ((20, "a"), (21, "bc"), (22, "d")):
        days[f"2026-11-{day}"] = {
            "decisions": [decision(name, day) for name in names],
            "placements": [placement(name, number) for number, name in enumerate(names)],
            "samples": [sample(day)],
        }
    days[PENDING] = {
        "placements": [placement("late", 5), placement("late", 7), placement("never", 6)],
        "recoveries": [recovery("late", 20, 9), recovery("later", 21, 8)],
    }
    return stored(folder, days)


def moved(moves: DayChanges) -> dict[str, list[dict[str, Any]]]:
    """Return day -> the keys of the facts moved to the day."""
    return {
        day: [{name: keys(rows) for name, rows in part.items()} for part in parts]
        for day, parts in moves.come.items()
    }


def test_a_decision_belongs_to_the_earlier_of_its_stored_and_its_named_day(tmp_path: Path) -> None:
    """Facts without a time stay on the stored day; without a stored day they have no day."""
    store = base(tmp_path)
    named = {
        ("g", "a"): time(22),
        ("g", "b"): None,
        ("g", "c"): time(20),
        ("g", "d"): time(19),
        ("h", "a"): time(23),
        ("g", "unknown"): None,
        ("g", "new"): time(18),
    }
    found = resolve(store, store.load(), named)
    assert found.days == {
        ("g", "a"): "2026-11-20",
        ("g", "b"): "2026-11-21",
        ("g", "c"): "2026-11-20",
        ("g", "d"): "2026-11-19",
        ("h", "a"): "2026-11-23",
        ("g", "new"): "2026-11-18",
    }
    assert dict(found.moves.go) == {"2026-11-21": {("g", "c")}, "2026-11-22": {("g", "d")}}
    assert moved(found.moves) == {
        "2026-11-20": [{"decisions": [("g", "c", None)], "placements": [("g", "c", 1)]}],
        "2026-11-19": [{"decisions": [("g", "d", None)], "placements": [("g", "d", 0)]}],
    }
    assert found.moves.days == {"2026-11-19", "2026-11-20", "2026-11-21", "2026-11-22"}


def test_two_decisions_of_a_day_may_leave_it_to_two_days(tmp_path: Path) -> None:
    """Each decision takes its own rows."""
    store = base(tmp_path)
    found = resolve(store, store.load(), {("g", "b"): time(18), ("g", "c"): time(17)})
    assert dict(found.moves.go) == {"2026-11-21": {("g", "b"), ("g", "c")}}
    assert moved(found.moves) == {
        "2026-11-17": [{"decisions": [("g", "c", None)], "placements": [("g", "c", 1)]}],
        "2026-11-18": [{"decisions": [("g", "b", None)], "placements": [("g", "b", 0)]}],
    }


def test_pending_facts_go_to_the_day_of_their_new_decision(tmp_path: Path) -> None:
    """Placements and recoveries both move; facts of other decisions keep waiting."""
    store = base(tmp_path)
    named = {("g", "late"): time(24), ("g", "later"): time(25), ("h", "never"): time(24)}
    found = resolve(store, store.load(), named)
    assert dict(found.moves.go) == {PENDING: {("g", "late"), ("g", "later")}}
    late = [("g", "late", 5), ("g", "late", 7)]
    assert moved(found.moves) == {
        "2026-11-24": [{"placements": late, "echoes": [("g", "late", 0)]}],
        "2026-11-25": [{"placements": [], "echoes": [("g", "later", 0)]}],
    }


def test_a_day_takes_a_stored_decision_and_the_pending_facts_of_a_new_one(tmp_path: Path) -> None:
    """One visit may bring an earlier line of one decision and the first line of another."""
    store = base(tmp_path)
    found = resolve(store, store.load(), {("g", "d"): time(19), ("g", "late"): time(19)})
    assert dict(found.moves.go) == {"2026-11-22": {("g", "d")}, PENDING: {("g", "late")}}
    late = [("g", "late", 5), ("g", "late", 7)]
    assert moved(found.moves) == {
        "2026-11-19": [
            {"decisions": [("g", "d", None)], "placements": [("g", "d", 0)]},
            {"placements": late, "echoes": [("g", "late", 0)]},
        ]
    }


def test_a_decision_that_nothing_waits_for_wakes_nothing(tmp_path: Path) -> None:
    """A stored or unknown decision has no pending facts."""
    store = base(tmp_path)
    found = resolve(store, store.load(), {("g", "other"): time(24), ("g", "a"): time(20)})
    assert (moved(found.moves), dict(found.moves.go), found.moves.days) == ({}, {}, set())


def read(store: Store, day: str, entry: Day | None) -> dict[str, list[tuple[Any, ...]]]:
    """Return the keys of each fact of a day's entry, without empty facts."""
    assert entry is not None
    return {fact: keys(store.read(fact, day, entry)) for fact in FACTS if entry.rows.get(fact)}


def test_a_day_loses_what_goes_and_takes_what_comes_and_what_is_new(tmp_path: Path) -> None:
    """All changes apply at once; the tables are computed from the resulting facts."""
    store = base(tmp_path)
    entry = store.load().days["2026-11-21"]
    moves = DayChanges()
    moves.go["2026-11-21"] = {("g", "b")}
    come = facts(placements=[placement("n", 8)])["placements"]
    echo = facts(recoveries=[recovery("n", 23, 7)])["recoveries"]
    moves.come["2026-11-21"] = [{"placements": come, "echoes": echo}]
    new = facts(decisions=[decision("n", 21)], placements=[placement("n", 9)])
    more = {"echoes": facts(recoveries=[recovery("c", 24, 4)])["recoveries"]}
    after = merge_day(store, "2026-11-21", entry, {**new, **more}, moves)
    assert read(store, "2026-11-21", after) == {
        "decisions": [("g", "c", None), ("g", "n", None)],
        "placements": [("g", "c", 1), ("g", "n", 8), ("g", "n", 9)],
        "samples": [("g", None, 0)],
    }
    rows = store.read("rebalances", "2026-11-21", after).to_pylist()
    told = [(row["decision_id"], row["assigned"], row["longest_recovery_s"]) for row in rows]
    assert told == [("c", 1, 4.0), ("n", 2, 7.0)]
    assert after is not None
    assert after.token != entry.token


def test_a_day_without_a_change_keeps_its_entry_and_a_day_without_rows_has_none(
    tmp_path: Path,
) -> None:
    """Moves of other days have no effect."""
    store = base(tmp_path)
    manifest = store.load()
    moves = DayChanges()
    moves.go["2026-11-22"] = {("g", "a")}
    moves.come["2026-11-22"] = [facts(decisions=[decision("n", 20)])]
    entry = manifest.days["2026-11-20"]
    again = facts(decisions=[decision("a", 20)], samples=[sample(20)])
    assert merge_day(store, "2026-11-20", entry, again, moves) is entry
    assert merge_day(store, "2026-11-30", None, facts(), DayChanges()) is None
    alone = stored(tmp_path / "alone", {"2026-11-20": {"decisions": [decision("a", 20)]}})
    gone = DayChanges()
    gone.go["2026-11-20"] = {("g", "a")}
    entry = alone.load().days["2026-11-20"]
    assert merge_day(alone, "2026-11-20", entry, {}, gone) is None


@pytest.mark.parametrize(
    "rows",
    [
        {"recoveries": [recovery("a", 20, 3)]},
        {"samples": [sample(20, partition=9)]},
        {"placements": [placement("a", 4)]},
        {"decisions": [decision("a", 20, policy="a")]},
    ],
    ids=lambda rows: str(next(iter(rows))),
)
def test_one_new_row_of_any_fact_changes_its_day(
    tmp_path: Path, rows: dict[str, list[dict[str, Any]]]
) -> None:
    """The row is in the new entry."""
    store = base(tmp_path)
    entry = store.load().days["2026-11-20"]
    (fact,) = rows
    after = merge_day(store, "2026-11-20", entry, facts(**rows), DayChanges())
    assert after is not entry
    assert keys(facts(**rows)[fact])[0] in read(store, "2026-11-20", after)[fact]


@pytest.mark.parametrize(
    "rows",
    [
        {"recoveries": [recovery("a", 20, 3)]},
        {"samples": [sample(20)]},
        {"placements": [placement("a", 4)]},
        {"decisions": [decision("a", 20)]},
    ],
    ids=lambda rows: str(next(iter(rows))),
)
def test_rows_of_one_fact_alone_make_a_day(
    tmp_path: Path, rows: dict[str, list[dict[str, Any]]]
) -> None:
    """The rows are of any single kind of fact."""
    store = Store(str(tmp_path))
    (fact,) = rows
    after = merge_day(store, "2026-11-20", None, facts(**rows), DayChanges())
    assert list(read(store, "2026-11-20", after)) == [fact]


def test_pending_facts_that_found_their_day_leave_and_new_ones_wait(tmp_path: Path) -> None:
    """A recovery waits only as an echo, since its own day has it."""
    store = base(tmp_path)
    entry = store.load().days[PENDING]
    moves = DayChanges()
    moves.go[PENDING] = {("g", "late")}
    new = {
        "placements": facts(placements=[placement("x", 1)])["placements"],
        "echoes": facts(recoveries=[recovery("y", 22)])["recoveries"],
        "recoveries": facts(recoveries=[recovery("z", 22)])["recoveries"],
    }
    after = merge_day(store, PENDING, entry, new, moves)
    assert read(store, PENDING, after) == {
        "placements": [("g", "never", 6), ("g", "x", 1)],
        "recoveries": [("g", "later", 0), ("g", "y", 0)],
    }
    assert merge_day(store, PENDING, entry, {}, DayChanges()) is entry
    moves.go[PENDING] |= {("g", "later"), ("g", "never")}
    assert merge_day(store, PENDING, entry, {}, moves) is None


@pytest.mark.parametrize(("most", "left"), [(2, [6, 7]), (3, [5, 6, 7]), (4, [5, 6, 7])])
def test_pending_placements_are_cut_at_their_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, left: list[int]
) -> None:
    """The last in sort order stay, both of placements and of recoveries."""
    monkeypatch.setattr(merge, "PENDING_KEPT", most)
    store = Store(str(tmp_path))
    new = facts(placements=[placement("p", number) for number in (7, 5, 6)])
    echoes = {"echoes": facts(recoveries=[recovery("r", day) for day in (23, 20, 22, 21)])}
    told = {**new, "echoes": echoes["echoes"]["recoveries"]}
    after = merge_day(store, PENDING, None, told, DayChanges())
    assert after is not None
    assert [key[2] for key in read(store, PENDING, after)["placements"]] == left
    days = [row["started"].day for row in store.read("recoveries", PENDING, after).to_pylist()]
    assert days == [20, 21, 22, 23][-most:]


# -- the visit's work in this process -------------------------------------------------------------


def test_the_work_of_a_visit_reports_the_days_that_it_touched_and_changed(tmp_path: Path) -> None:
    """A day without a change is touched and has no new entry."""
    ledger = Ledger(tmp_path / "ledger")
    ledger.write("w.jsonl", [*at("2026-11-20", 1), bad(b"x", "JSON"), *at("2026-11-21", 1)])
    options = HistoryOptions((str(ledger.folder),), str(tmp_path / "out"))
    store, shown = Store(options.out), Progress()

    def work() -> Here:
        return Here(plan_full_visit(options.ledgers, options.period, {}), options, shown)

    first = work()
    assert (first.lines.counts.accepted, first.lines.counts.lines) == (4, 1)
    assert shown.lines is first.lines.counts
    merged = first.merge(store, store.load())
    assert (sorted(merged.days), merged.touched) == (["2026-11-20", "2026-11-21"], 2)
    assert (shown.days_touched, shown.days_merged) == (2, 1)
    nothing = store.read_refused(store.load())
    manifest = store.commit(store.load(), merged.days, refused=(nothing, 0), sources={})
    ledger.write("w.jsonl", [*at("2026-11-20", 1), *at("2026-11-22", 1), *at("2026-11-23", 1)])
    merged = work().merge(store, manifest)
    assert (sorted(merged.days), merged.touched) == (["2026-11-22", "2026-11-23"], 3)
    assert (shown.days_touched, shown.days_merged) == (3, 2)
