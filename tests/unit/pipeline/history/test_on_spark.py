"""A visit on Spark: the driver's steps and the function of its tasks, without a session."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pyarrow as pa
import pytest

from faust_assigner.errors import ConfigError
from faust_assigner.pipeline.history import here, job, on_spark
from faust_assigner.pipeline.history.merge import DayChanges, Merged, Resolved
from faust_assigner.pipeline.history.on_spark import OnSpark
from faust_assigner.pipeline.history.options import HistoryOptions
from faust_assigner.pipeline.history.store import PENDING, Day, Manifest, table_schema
from faust_assigner.pipeline.ledgers.period import Period
from faust_assigner.pipeline.ledgers.progress import Visit
from faust_assigner.pipeline.ledgers.refusals import Refused
from faust_assigner.pipeline.progress import Progress
from faust_assigner.pipeline.schema import FACTS

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
A, B, C = (Day(name, {"decisions": number}) for number, name in enumerate("abc", start=1))
OPTIONS = HistoryOptions(("l",), "out", connector="python", period=Period(since=NOON))


class Row(SimpleNamespace):
    """A row of Spark."""

    def asDict(self) -> dict[str, Any]:  # noqa: N802 - Spark's
        """Return the row's columns."""
        return dict(vars(self))


class Rows:
    """The rows of a DataFrame, with the few conditions that are given as texts."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = list(rows)

    def where(self, condition: Any) -> Rows:
        """Return the rows that meet a text; a condition of columns keeps all rows."""
        if not isinstance(condition, str):
            return self
        column, _, test = condition.partition(" is ")
        return Rows(
            [row for row in self.rows if (getattr(row, column) is None) == (test == "null")]
        )

    def select(self, *names: str) -> Rows:
        """Return these columns."""
        return Rows([Row(**{name: getattr(row, name) for name in names}) for row in self.rows])

    def orderBy(self, *names: str) -> Rows:  # noqa: N802 - Spark's
        """Return the rows in the order of these columns."""
        return Rows(sorted(self.rows, key=lambda row: [getattr(row, name) for name in names]))

    def limit(self, count: int) -> Rows:
        """Return the first rows."""
        return Rows(self.rows[:count])

    def groupBy(self, *_: Any) -> Rows:  # noqa: N802 - Spark's
        """Return the rows: they are groups already."""
        return self

    agg = groupBy

    def collect(self) -> list[Row]:
        """Return the rows."""
        return self.rows


def visited(parsed: Any = None) -> OnSpark:
    """Return a visit with these parsed lines."""
    work = OnSpark.__new__(OnSpark)
    work._parsed = work._read = parsed
    return work


def test_a_visits_lines_are_parsed_once_and_released(monkeypatch: pytest.MonkeyPatch) -> None:
    """All lines are kept, since lines outside the period count as read, as in one process."""
    calls: list[Any] = []
    kept = SimpleNamespace(unpersist=lambda: calls.append("released"))
    lines = SimpleNamespace(persist=lambda: kept)

    class Cut(Period):
        def on_spark(self, parsed: Any) -> Any:
            calls.append((parsed, self.since))
            return "cut"

    def read(*given: Any, connector: str) -> Any:
        calls.append((*given, connector))
        return lines

    monkeypatch.setattr(on_spark, "read_visit", read)
    visit = Visit()
    spark: Any = "spark"
    work = OnSpark(spark, visit, replace(OPTIONS, period=Cut(since=NOON)))
    assert calls == [("spark", visit, "python"), (kept, NOON)]
    work.close()
    assert calls[2:] == ["released"]
    assert (work._parsed, work._spark) == ("cut", "spark")


def test_the_first_refused_lines_are_kept_with_their_places(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All closing rows are read; without refused lines no second job runs."""
    monkeypatch.setattr(on_spark, "F", MagicMock())
    monkeypatch.setattr(on_spark, "KEPT", 3)
    told = [
        ("g", 0, 9, 2, None),
        ("f", 10, 40, 7, None),
        ("f", 0, 8, 4, "e"),
        ("g", 0, 5, 1, "d"),
        ("f", 10, 30, 6, "c"),
        ("f", 0, 4, 3, "b"),
        ("f", 0, 10, 5, None),
    ]
    names = ("file", "chunk", "pos", "line", "reason")
    rows = [Row(**dict(zip(names, row, strict=True)), else_=1) for row in told]
    counts = Refused(6, 4, "f: b")
    monkeypatch.setattr(on_spark, "refused_of", lambda parsed: counts)
    found = visited(Rows(rows)).lines
    assert found.counts is counts
    assert dict(found.chunks) == {"f": {10: 7, 0: 5}, "g": {0: 2}}
    assert found.refused == [("f", 0, 4, 3, "b"), ("f", 0, 8, 4, "e"), ("f", 10, 30, 6, "c")]
    counts = Refused(6, 0)
    found = visited(Rows(rows)).lines
    assert (found.refused, found.lines()) == ([], {"f": 12, "g": 2})


def test_a_decision_that_is_named_has_its_earliest_time_or_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Times of Spark are microseconds since 1970; samples name no decision."""
    monkeypatch.setattr(on_spark, "F", MagicMock())
    micros = round(NOON.timestamp() * 1e6) + 123_456
    rows = Rows(
        [
            Row(group_id="g", decision_id="d", micros=micros),
            Row(group_id="h", decision_id="d", micros=None),
            Row(group_id="g", decision_id="e", micros=0),
            Row(group_id=None, decision_id=None, micros=None),
        ]
    )
    assert visited(rows)._named() == {
        ("g", "d"): NOON.replace(microsecond=123_456),
        ("h", "d"): None,
        ("g", "e"): datetime(1970, 1, 1, tzinfo=UTC),
    }


def test_days_without_lines_that_facts_leave_are_merged_on_the_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A task's row without an entry is an unchanged day, and JSON's null a day without facts."""
    moves = DayChanges()
    moves.go["2026-11-24"].add(("g", "d"))
    moves.go["2026-11-20"].add(("g", "e"))
    moves.go[PENDING].add(("g", "f"))
    moves.come["2026-11-21"].append({})
    manifest = Manifest(days={"2026-11-24": A, "2026-11-20": B, PENDING: C})
    asked: list[Any] = []
    rows = Rows(
        [
            Row(day="2026-11-21", entry=json.dumps(asdict(C))),
            Row(day="2026-11-23", entry="null"),
            Row(day="2026-11-22", entry=None),
        ]
    )

    def resolve(*given: Any) -> Resolved:
        asked.append(given)
        return Resolved({("g", "d"): "2026-11-21"}, moves)

    def merged(*given: Any) -> Rows:
        asked.append(given)
        return rows

    def merge_day(store: Any, day: str, entry: Day | None, *rest: Any) -> Day | None:
        asked.append((store, day, entry, *rest))
        return {"2026-11-20": None, "2026-11-24": A}.get(day, B)

    monkeypatch.setattr(on_spark, "resolve", resolve)
    monkeypatch.setattr(on_spark, "merge_day", merge_day)
    work: Any = visited()
    work._named = lambda: "named"
    work._merged = merged
    store: Any = SimpleNamespace(url="s3://b/out")
    assert work.merge(store, manifest) == Merged(
        {"2026-11-21": C, "2026-11-23": None, "2026-11-20": None, PENDING: B}, 3
    )
    assert asked == [
        (store, manifest, "named"),
        ("s3://b/out", manifest, {("g", "d"): "2026-11-21"}, moves),
        (store, "2026-11-20", B, {}, moves),
        (store, "2026-11-24", A, {}, moves),
        (store, PENDING, C, {}, moves),
    ]


def batch(*rows: tuple[str, bool, int]) -> pa.RecordBatch:
    """Return lines with their day, whether each is an echo, and a number."""
    days, echoes, numbers = (list(column) for column in zip(*rows, strict=True))
    return pa.record_batch({"day": days, "echo": echoes, "number": numbers})


def test_a_task_merges_each_of_its_days_with_its_own_lines_and_echoes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Lines are spread and sorted by day; a changed day's entry is JSON, an unchanged day's null."""
    asked: list[Any] = []

    class Routed:
        def repartition(self, column: str) -> Routed:
            asked.append(("spread", column))
            return self

        def sortWithinPartitions(self, column: str) -> Routed:  # noqa: N802 - Spark's
            asked.append(("sorted", column))
            return self

        def mapInArrow(self, task: Callable[..., Any], schema: str) -> Any:  # noqa: N802 - Spark's
            asked.append(schema)
            return task

    def facts_in(parts: Any) -> dict[str, Any]:
        numbers = [number for part in parts for number in part.column("number").to_pylist()]
        return {"recoveries": numbers, "decisions": [-number for number in numbers]}

    def merge_day(store: Any, day: str, entry: Any, new: Any, moved: Any) -> Day | None:
        asked.append((store, day, entry, new, moved))
        return {"2026-11-20": B, "2026-11-21": A, "2026-11-22": None}[day]

    monkeypatch.setattr(on_spark, "facts_in", facts_in)
    monkeypatch.setattr(on_spark, "merge_day", merge_day)
    monkeypatch.setattr(on_spark, "Store", lambda url: f"store at {url}")
    work: Any = visited()
    work._routed = lambda days: asked.append(days) or Routed()
    manifest, days = Manifest(days={"2026-11-21": A, "2026-11-22": C}), {("g", "d"): "2026-11-21"}
    moves = DayChanges()
    task = work._merged("url", manifest, days, moves)
    assert asked == [days, ("spread", "day"), ("sorted", "day"), "day string, entry string"]
    asked.clear()
    batches = [
        batch(("2026-11-20", False, 1), ("2026-11-20", True, 2), ("2026-11-21", True, 3)),
        batch(("2026-11-21", False, 4), ("2026-11-21", False, 5)),
        batch(("2026-11-22", True, 6)),
    ]
    found = pa.Table.from_batches(list(task(iter(batches))))
    assert found.schema.types == [pa.string(), pa.string()]
    assert found.to_pylist() == [
        {"day": "2026-11-20", "entry": json.dumps(asdict(B))},
        {"day": "2026-11-21", "entry": None},
        {"day": "2026-11-22", "entry": "null"},
    ]
    told = [
        ("2026-11-20", None, [1], [-1], [2]),
        ("2026-11-21", A, [4, 5], [-4, -5], [3]),
        ("2026-11-22", C, [], [], [6]),
    ]
    names = ("recoveries", "decisions", "echoes")
    assert asked == [
        ("store at url", day, entry, dict(zip(names, facts, strict=True)), moves)
        for day, entry, *facts in told
    ]
    assert list(task(iter([]))) == []


# -- the command ----------------------------------------------------------------------------------


@pytest.mark.parametrize("format_", ["parquet", "delta"])
def test_a_run_on_spark_checks_the_format_before_it_reads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, format_: str
) -> None:
    """The published tables are those of the folder; the page of Spark is shown."""
    asked: list[Any] = []

    class Tables:
        def __init__(self, *given: Any) -> None:
            asked.append((given[0], given[1].url, given[2]))

        def check(self) -> None:
            asked.append("checked")

    monkeypatch.setattr(job, "LakehouseTables", Tables)
    monkeypatch.setattr(job, "_run", lambda *given: asked.append("run") or given)
    monkeypatch.setattr(on_spark, "OnSpark", lambda *given: given)
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(uiWebUrl="http://127.0.0.1:9"))
    options = replace(OPTIONS, out=str(tmp_path), format=format_)
    shown = Progress()
    given, progress, work, tables = job.run(spark, options, shown)  # type: ignore[misc]
    assert (given, progress, shown.ui) == (options, shown, "http://127.0.0.1:9")
    assert work("visit") == (spark, "visit", options)
    wanted = [(spark, str(tmp_path), "delta"), "checked"] if format_ == "delta" else []
    assert (asked, isinstance(tables, Tables)) == ([*wanted, "run"], format_ == "delta")
    if format_ == "delta":
        with pytest.raises(ConfigError, match=r"^--format delta needs Spark"):
            job.run_here(options)


def test_tables_are_published_after_the_merge_and_before_the_page(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The page must not name a generation that the tables lack."""
    asked: list[Any] = []
    shown = Progress()

    def noted(name: str, answer: Any) -> Callable[..., Any]:
        return lambda *given, **_: asked.append((name, shown.stage, given[-1])) or answer

    tables: Any = SimpleNamespace(
        publish=noted("publish", None), format=SimpleNamespace(title="Delta")
    )
    monkeypatch.setattr(job, "check", noted("check", None))
    monkeypatch.setattr(job, "_visit", noted("visit", ("manifest", "refused")))
    monkeypatch.setattr(job.output, "publish", noted("page", "report"))
    options = replace(OPTIONS, out=str(tmp_path / "out"))
    work: Any = "work"
    found: Any = job._run(options, shown, work, tables)
    assert found == "report"
    assert asked == [
        ("check", "starting", options),
        ("visit", "starting", "work"),
        ("publish", "writing the Delta tables", "manifest"),
        ("page", "writing the page", "refused"),
    ]


def test_the_facts_of_a_period_are_cut_by_their_own_times() -> None:
    """The start is included and the end excluded; a placement goes with its decision."""
    told = {fact: table_schema(fact).empty_table() for fact in FACTS}

    def filled(fact: str, *rows: dict[str, Any]) -> pa.Table:
        empty = dict.fromkeys(told[fact].schema.names)
        return pa.Table.from_pylist([{**empty, **row} for row in rows], schema=told[fact].schema)

    def hour(number: int) -> datetime:
        return NOON.replace(hour=number)

    key = {"group_id": "g"}
    facts = {
        "decisions": filled(
            "decisions", *({**key, "decision_id": f"d{n}", "ts": hour(n)} for n in range(5))
        ),
        "placements": filled(
            "placements",
            *({**key, "decision_id": f"d{n}", "partition": n} for n in (4, 3, 2, 1, 0)),
            {"group_id": "h", "decision_id": "d2", "partition": 9},
        ),
        "recoveries": filled(
            "recoveries",
            *({**key, "partition": n, "started": hour(n), "ended": hour(n + 2)} for n in range(5)),
        ),
        "samples": filled("samples", *({**key, "partition": n, "ts": hour(n)} for n in range(5))),
    }

    def numbers(period: Period) -> list[list[Any]]:
        found = here._facts_within(period, facts)
        columns = ("decision_id", "partition", "partition", "partition")
        return [found[fact][name].to_pylist() for fact, name in zip(facts, columns, strict=True)]

    assert numbers(Period(hour(1), hour(3))) == [["d1", "d2"], [2, 1], [1, 2], [1, 2]]
    assert numbers(Period(since=hour(3))) == [["d3", "d4"], [4, 3], [3, 4], [3, 4]]
    assert numbers(Period(until=hour(1))) == [["d0"], [0], [0], [0]]
    assert here._facts_within(Period(), facts) is facts
