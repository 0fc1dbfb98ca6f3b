"""The driver's part of the jobs on Spark: their order, their arguments and their tasks, without a session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.pipeline.ledgers import current, sources
from faust_assigner.pipeline.ledgers.period import Period
from faust_assigner.pipeline.ledgers.refusals import Refused, Tolerance
from faust_assigner.pipeline.progress import Progress
from faust_assigner.pipeline.simulate import job as simulate
from faust_assigner.pipeline.simulate import on_spark as facts_on_spark
from faust_assigner.pipeline.simulate import run as simulated
from faust_assigner.pipeline.simulate.request import Request
from faust_assigner.pipeline.simulate.sim_result import SIM_DDL, SimRow
from faust_assigner.pipeline.weights import job as weights
from faust_assigner.pipeline.weights import on_spark as rates_on_spark
from faust_assigner.pipeline.weights.rates import PartitionRate
from tests.unit.pipeline.ledgers.test_read_on_spark import Tasks

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.mark.parametrize("shadow", [True, False])
def test_weights_are_learned_on_spark_from_the_checked_lines_of_the_request(
    monkeypatch: pytest.MonkeyPatch, shadow: bool
) -> None:
    """The stages follow the work, and the counts are shown; only a shadow needs decisions."""
    asked: list[Any] = []
    refused = Refused(7, 3)
    shown = Progress()

    def noted(name: str, answer: Any) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            asked.append((name, shown.stage, shown.lines, *given, *named.items()))
            return answer

        return call

    monkeypatch.setattr(sources, "read_checked", noted("read", ("parsed", refused)))
    monkeypatch.setattr(sources, "rows_of", noted("rows", "samples"))
    monkeypatch.setattr(rates_on_spark, "collect_rates", noted("rates", ["rate"]))
    monkeypatch.setattr(current, "current_on_spark", noted("current", ["state"]))
    monkeypatch.setattr(weights, "_finish", lambda *given: given)
    request = weights.Request(
        ["l"],
        NOON,
        shadow=shadow,
        max_refused=Tolerance(4),
        properties={"x": "y"},
        period=Period(since=NOON),
        half_life_s=77.0,
        decisions=5,
    )
    spark: Any = "spark"
    states: Any = ["state"] if shadow else ()
    found: Any = weights.learn_on_spark(spark, request, shown)
    assert found == (request, weights.LedgerSummary(["rate"], states, 3), shown)  # type: ignore[list-item]
    assert asked == [
        (
            "read",
            "reading the lines",
            None,
            "spark",
            ["l"],
            Tolerance(4),
            {"x": "y"},
            request.period,
            ("now", NOON),
        ),
        ("rows", "computing rates", refused, "parsed", "partition_sample"),
        ("rates", "computing rates", refused, "samples", ("half_life_s", 77.0)),
        *([("current", "computing rates", refused, "parsed", 5)] * shadow),
    ]


def test_rates_of_spark_are_sorted_and_have_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark returns milliseconds; the columns are selected by their names, in the fields' order."""
    rows = [
        PartitionRate("g", topic, number, 2, 9.0, 1.0, 2.0, 3.0, 4, NOON, 5, 6.0, 7, 8, 0.5)
        for topic, number in (("u", 0), ("t", 10), ("t", 9))
    ]

    class Row(SimpleNamespace):
        def asDict(self) -> dict[str, Any]:  # noqa: N802 - Spark's
            return dict(vars(self))

    asked: list[Any] = []

    def select(*names: str) -> Any:
        asked.append(names)
        millis = round(NOON.timestamp() * 1000)
        told = [Row(**{**row._asdict(), "newest": millis}) for row in rows]
        return SimpleNamespace(collect=lambda: told)

    def rates(*given: Any) -> Any:
        asked.append(given)
        return SimpleNamespace(select=select)

    monkeypatch.setattr(rates_on_spark, "rates", rates)
    samples: Any = "samples"
    assert rates_on_spark.collect_rates(samples, half_life_s=5.0) == rows[::-1]
    assert asked == [("samples", 5.0), PartitionRate._fields]


REQUEST = Request(
    24,
    5,
    "s3://b/out/",
    ("ours",),
    (1,),
    ledgers=("l",),
    max_refused=Tolerance(4),
    properties={"x": "y"},
)


def test_the_facts_of_a_ledger_on_spark_are_those_of_its_checked_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a ledger no line is read."""
    asked: list[Any] = []
    refused = Refused(7, 3)
    shown = Progress()

    def read(*given: Any, now: Any) -> Any:
        asked.append((shown.stage, *given, now))
        return "parsed", refused

    monkeypatch.setattr(sources, "read_checked", read)
    monkeypatch.setattr(facts_on_spark, "facts_on_spark", lambda parsed: f"facts of {parsed}")
    spark: Any = "spark"
    assert simulate._facts_on_spark(spark, replace(REQUEST, ledgers=()), shown) is None
    assert (asked, shown.stage) == ([], "starting")
    found: Any = simulate._facts_on_spark(spark, REQUEST, shown)
    assert (found, shown.lines) == ("facts of parsed", refused)
    assert asked == [("reading the lines", "spark", ("l",), Tolerance(4), {"x": "y"}, REQUEST.now)]


def test_a_simulation_on_spark_writes_its_rows_and_summarises_the_written_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rows replace those of an earlier run; a part is chosen before it is summarised."""
    asked: list[Any] = []

    class Writer:
        def mode(self, name: str) -> Writer:
            asked.append(name)
            return self

        def parquet(self, target: str) -> str:
            asked.append(target)
            return f"rows of {target}"

    def played(*given: Any) -> Any:
        asked.append(given)
        return SimpleNamespace(write=Writer())

    spark: Any = SimpleNamespace(read=Writer())
    monkeypatch.setattr(simulate, "play_on_spark", played)
    monkeypatch.setattr(simulate, "_facts_on_spark", lambda *given: given)
    monkeypatch.setattr(simulate, "rows_of_split", lambda *given: given)
    monkeypatch.setattr(simulate, "summarise_on_spark", lambda rows: ("summary", rows))
    monkeypatch.setattr(simulate, "_simulate", lambda *given: given)
    shown = Progress()
    request, progress, facts, play = simulate.simulate_on_spark(spark, REQUEST, shown)  # type: ignore
    assert (request, progress, facts) == (REQUEST, shown, (spark, REQUEST, shown))
    run: Any = "run"
    summaries = play(run)
    target = "s3a://b/out/sim_result"
    assert asked == [(spark, "run", 24), "overwrite", target, target]
    rows = f"rows of {target}"
    assert [summaries(part) for part in (None, 0, 1)] == [
        ("summary", rows),
        ("summary", (rows, "run", 0)),
        ("summary", (rows, "run", 1)),
    ]


@pytest.mark.parametrize(("scenarios", "tasks"), [(7, 7), (9, 8), (200, 8)])
def test_tasks_play_all_scenarios_in_batches(
    monkeypatch: pytest.MonkeyPatch, scenarios: int, tasks: int
) -> None:
    """There are four tasks per core, and at most as many as scenarios."""
    monkeypatch.setattr("faust_assigner.pipeline.session.width", lambda spark: 2)
    monkeypatch.setattr(simulated, "BATCH", 3)
    monkeypatch.setattr(simulated, "play", lambda run, ids: iter([(run, *ids)]))
    monkeypatch.setattr(simulated, "to_frame", lambda rows: rows)
    session: Any = Tasks()
    run: Any = "run"
    played: Any = simulated.play_on_spark(session, run, scenarios)
    schema, frames = played
    assert (schema, session.ranges) == (SIM_DDL, [(0, scenarios, 1, tasks)])
    batches = [row for (row,) in frames]
    assert {name for name, *_ in batches} == {"run"}
    assert [number for _, *ids in batches for number in ids] == list(range(scenarios))
    assert max(len(ids) for _, *ids in batches) == 3
    assert simulated.play_piece(run, range(2, 5)) == [("run", 2, 3, 4)]


def test_a_result_as_a_frame_has_a_column_per_field() -> None:
    """The values stay in their columns."""
    row = SimRow(
        *("g", date(2026, 11, 21), "000003", 9, 3, 12, 1, "ours", 4, 1.25, 7.5, 2, 1.5, 3.5, 90.0),
        *(6, 0, 2, "small"),
    )
    frame = simulated.to_frame([row, row._replace(scenario_id="000004")])
    assert list(frame.columns) == list(SimRow._fields)
    assert next(frame.itertuples(index=False, name=None)) == tuple(row)
    assert frame["scenario_id"].tolist() == ["000003", "000004"]
    assert list(simulated.to_frame([]).columns) == list(SimRow._fields)
