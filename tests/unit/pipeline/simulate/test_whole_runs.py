"""Whole rows of a run, the pieces of a pool, the classes of a table, and runs with a ledger."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from faust_assigner.ledger import Row
from faust_assigner.pipeline.ledgers.refusals import Refused, Tolerance
from faust_assigner.pipeline.progress import Progress
from faust_assigner.pipeline.simulate import job, run
from faust_assigner.pipeline.simulate.facts import Facts
from faust_assigner.pipeline.simulate.measured import RecoveryFact
from faust_assigner.pipeline.simulate.recorded import UnknownGroup
from faust_assigner.pipeline.simulate.request import Request
from faust_assigner.pipeline.simulate.run import Run
from faust_assigner.pipeline.simulate.scenarios import Shape, scenario_seed
from faust_assigner.pipeline.simulate.settings import (
    difference,
    distribution,
    recommend,
    stopped,
    summarise,
)
from faust_assigner.pipeline.simulate.sim_result import SimRow
from faust_assigner.pipeline.simulate.what_if import Change
from faust_assigner.pipeline.weights.rates import NO_DECAY
from faust_assigner.simulation.fleet import (
    Arm,
    Costs,
    Event,
    Kind,
    Outcome,
    Scenario,
    TaskGroup,
    Worker,
)
from tests.unit.pipeline.simulate.test_settings import row

REQUEST = Request(24, 5, "out", ("ours", "stock"), (0, 1))


class Fleet:
    """A source with one fleet: three workers in two racks at the start, a fourth joins."""

    def scenario(self, scenario_id: int, seed: int) -> Scenario:
        """Return the fleet with eight tasks, of which the last has most records."""
        racks = {"a": "r", "b": "r", "c": "s", "d": "t"}
        return Scenario(
            scenario_id,
            seed,
            "shop",
            "2026-11-20",
            tuple(Worker(name, rack) for name, rack in racks.items()),
            ("a", "b", "c"),
            (TaskGroup("t", 8, "t-changelog"),),
            np.full(8, 0.0),
            np.array([0.0] * 7 + [160_000.0]),
            (Event(5.0, Kind.JOIN, "d"),),
        )

    def split_of(self, scenario_id: int) -> int | None:
        """Return the part of a scenario."""
        return scenario_id % 2


def test_a_row_has_all_figures_of_its_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state's class is that of the mean over the tasks; all arms of a scenario share results."""
    asked: list[Any] = []

    def simulate(scenario: Any, arm: Any, policy: Any, *, costs: Any, memo: Any) -> Outcome:
        asked.append((scenario.scenario_id, arm.label, policy, costs, id(memo)))
        memos.append(memo)
        return Outcome(31.0, 7.0, 1.25, 1.75, 65.5, 8.5, 90.0, 5, 2)

    memos: list[Any] = []
    monkeypatch.setattr(run, "simulate", simulate)
    arms = (Arm("ours", 2, static=True, weighted=True), Arm("stock", 1))
    costs = Costs(session_timeout_s=33.0)
    rows = list(run.play(Run(9, Fleet(), arms, costs), (4, 7)))
    seeds = [scenario_seed(9, number) for number in (4, 7)]
    assert rows == [
        SimRow(
            "shop",
            dt.date(2026, 11, 20),
            name,
            seed,
            3,
            8,
            standbys,
            policy,
            31,
            1.25,
            65.5,
            7,
            1.75,
            8.5,
            90.0,
            5,
            2,
            2,
            "medium",
        )
        for name, seed in zip(("000004", "000007"), seeds, strict=True)
        for standbys, policy in ((2, "ours+static+weights"), (1, "stock"))
    ]
    assert [each[:2] for each in asked] == [
        (number, label) for number in (4, 7) for label in ("ours+static+weights", "stock")
    ]
    assert {each[3] for each in asked} == {costs}
    assert asked[0][4] == asked[1][4] != asked[2][4] == asked[3][4]


@pytest.mark.parametrize(("scenarios", "last"), [(129, 1), (192, 64), (5, 5)])
def test_a_pool_plays_each_scenario_once(
    monkeypatch: pytest.MonkeyPatch, scenarios: int, last: int
) -> None:
    """Two processes are a pool, too; new processes inherit no state."""
    asked: list[Any] = []

    class Pool:
        def __init__(self, jobs: int, *, mp_context: Any) -> None:
            asked.append((jobs, mp_context.get_start_method()))

        def __enter__(self) -> Any:
            return SimpleNamespace(map=map)

        def __exit__(self, *_: object) -> None:
            asked.append("closed")

    def play(it: Any, which: Any) -> Any:
        asked.append((it, len(which)))
        return iter(which)

    monkeypatch.setattr(run, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(run, "play", play)
    whole: Any = object()
    assert run.play_here(whole, scenarios, jobs=2) == list(range(scenarios))
    assert asked[0] == (2, "spawn")
    assert (asked[-2], asked[-1]) == ((whole, last), "closed")
    asked.clear()
    assert run.play_here(whole, scenarios, jobs=1) == list(range(scenarios))
    assert asked == [(whole, scenarios)]


def test_a_policy_is_compared_in_its_own_class_of_fleets() -> None:
    """Another class of the same state may have other policies; switches are no other policy."""
    policies = {1: ("ours", "ours+weights", "b", "b+static"), 3: ("ours", "c")}
    rows = [
        row(scenario, policy, 1, 10.0 * place + scenario * scenario, racks=racks)
        for racks, names in policies.items()
        for place, policy in enumerate(names)
        for scenario in range(racks, racks + 2)
    ]
    found = {(each["racks"], each["policy"]): each["against"] for each in summarise(rows)}

    def pair(mine: str, other: str, *racks: int) -> dict[str, object]:
        sides = (
            stopped(each for each in rows if each.policy == name and each.racks in racks)
            for name in (mine, other)
        )
        return difference(*sides)

    assert found["one", "ours"] == {"b": pair("ours", "b", 1)}
    assert found["one", "b"] == {name: pair("b", name, 1) for name in ("ours", "ours+weights")}
    assert found["one", "b+static"] == {}
    assert found["several", "ours"] == {"c": pair("ours", "c", 3)}
    assert list(found["all", "ours"]) == ["b", "c"]
    assert found["several", "c"]["ours"]["scenarios"] == 2


def test_two_scenarios_give_an_interval_and_the_largest_value_is_anywhere() -> None:
    """The standard deviation is that of a sample."""
    found = difference({"a": 3.0, "b": 8.0, "x": 1.0}, {"a": 1.0, "b": 2.0, "y": 9.0})
    assert (found["scenarios"], found["mean"]) == (2, 4.0)
    assert found["interval"] == pytest.approx([4.0 - 1.96 * 2.0, 4.0 + 1.96 * 2.0])
    rows = [row(number, "ours", 1, value) for number, value in enumerate((20.0, 70.0, 50.0))]
    assert distribution(rows, ("all", "all"))["unavailable_s_max"] == 70.0


def test_of_equal_settings_the_fewest_switches_win_and_then_the_first_name() -> None:
    """A policy whose name begins like another one is another policy."""
    names = ("ours+static+weights", "ours+weights", "ours+static")
    rows = [row(number, name, 1, 5.0) for number in range(3) for name in names]
    assert recommend(summarise(rows[:2] + rows[3:5]), policy="ours")[0].policy == "ours+weights"
    assert recommend(summarise(rows), policy="ours")[0].policy == "ours+static"
    rivals = [
        row(number, name, 1, stops + number)
        for number in range(3)
        for name, stops in (("our", 50.0), ("ours", 20.0))
    ]
    line = recommend(summarise(rivals), policy="our")[0]
    assert (line.calmer, line.verdict) == ("ours", "keep: ours stops less")


def test_measured_costs_replace_those_of_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """A timeout of zero is a timeout."""
    decision = {"group_id": "g", "decision_id": "d", "config": {}, "members": []}
    facts = Facts((decision,), (), (), (RecoveryFact("g", "d", "m", 2.0, 10_000, True),))
    monkeypatch.setattr(job, "week", lambda facts, *, group_id=None: "week")
    costs = Costs(session_timeout_s=9.0, rebalance_pause_s=3.0)
    request = replace(REQUEST, costs=costs)
    made, measured = job._run(request, facts)
    assert (made.costs, measured) == (
        replace(costs, replay_records_per_s=5_000.0),
        ("replay_records_per_s",),
    )
    made, _ = job._run(replace(request, session_timeout_s=0.0), None)
    assert made.costs == replace(costs, session_timeout_s=0.0)


def test_the_progress_of_a_run_follows_the_lines_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The figures grow while the lines are read."""
    progress = Progress()
    seen: list[Any] = []

    def read(*_: Any, refused: Any, **__: Any) -> Any:
        refused.accepted += 7
        seen.append(progress.lines and progress.lines.accepted)
        return [], refused

    monkeypatch.setattr("faust_assigner.pipeline.ledgers.rows.read_here", read)
    monkeypatch.setattr(job, "facts_of", lambda rows: "facts")
    assert job._facts_here(replace(REQUEST, ledgers=("l",)), progress) == "facts"
    assert seen == [7]


@pytest.mark.parametrize("wanted", ["shop", None, "", "sho"])
def test_a_change_starts_from_the_only_group_of_the_name(
    monkeypatch: pytest.MonkeyPatch, wanted: str | None
) -> None:
    """The load is that of the group's samples, all of equal weight."""
    asked: list[Any] = []
    rows = [
        Row(table, {"group_id": group, "place": (table, group)})
        for table in ("decision", "partition_sample", "recovery")
        for group in ("shop", "shopping")
    ]

    def read(*given: Any, **more: Any) -> Any:
        asked.append((given, more))
        return rows, Refused()

    def rates(samples: Any, *, half_life_s: float) -> Any:
        return ("rates", [each["place"] for each in samples], half_life_s)

    monkeypatch.setattr("faust_assigner.pipeline.ledgers.rows.read_here", read)
    groups = [SimpleNamespace(group_id=name) for name in ("shop", "shopping")]
    monkeypatch.setattr(job, "current_here", lambda found: groups if found is rows else [])
    monkeypatch.setattr(job, "rates_of", rates)
    monkeypatch.setattr(job, "load_of", lambda found: ("load", found))
    request = replace(
        REQUEST,
        ledgers=("l",),
        group_id=wanted,
        max_refused=Tolerance(most=4),
        properties={"a": "b"},
    )
    if wanted == "shop":
        load = ("load", ("rates", [("partition_sample", "shop")], NO_DECAY))
        assert job._current(request) == (groups[0], load)
    else:
        with pytest.raises(UnknownGroup, match="one group expected"):
            job._current(request)
    assert asked == [((("l",), Tolerance(most=4)), {"properties": {"a": "b"}, "now": REQUEST.now})]


def test_the_effect_of_a_change_is_not_written_without_a_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The answer is the same."""
    written: list[Any] = []
    monkeypatch.setattr(job, "put_report", lambda *given: written.append(given))
    request = replace(REQUEST, shape=Shape(members=(3, 3), partitions=(6, 6)))
    found = job.what_if_here(request, Change(add=1))
    assert job.what_if_here(replace(request, out=""), Change(add=1)) == found
    assert written == [(found, "out", "what_if.json")]


def test_a_run_on_spark_writes_its_rows_and_summarises_what_it_wrote(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Earlier rows are replaced; each part has its own summary."""
    asked: list[Any] = []
    request = replace(REQUEST, out="s3://b/out/", ledgers=("l",), properties={"a": "b"},
                      max_refused=Tolerance(most=4))  # fmt: skip
    refused = Refused(50, 6)
    progress = Progress()

    class Writer:
        write = property(lambda self: self)

        def mode(self, text: str) -> Any:
            asked.append(text)
            return self

        def parquet(self, target: str) -> Any:
            asked.append(target)
            return f"read {target}"

    def simulated(*given: Any) -> Any:
        summaries = given[3]("run")
        asked.append(given[:3])
        return [summaries(part) for part in (None, 0, 1)]

    def checked(*given: Any, now: Any) -> Any:
        assert now == request.now
        asked.append((progress.stage, given))
        return "parsed", refused

    spark: Any = SimpleNamespace(read=Writer())
    monkeypatch.setattr("faust_assigner.pipeline.ledgers.sources.read_checked", checked)
    monkeypatch.setattr(
        "faust_assigner.pipeline.simulate.on_spark.facts_on_spark", lambda found: ("facts", found)
    )
    monkeypatch.setattr(job, "play_on_spark", lambda *given: asked.append(given) or Writer())
    monkeypatch.setattr(job, "rows_of_split", lambda *given: ("part", *given))
    monkeypatch.setattr(job, "summarise_on_spark", lambda found: ("summary", found))
    monkeypatch.setattr(job, "_simulate", simulated)
    target = "s3a://b/out/sim_result"
    assert job.simulate_on_spark(spark, request, progress) == [
        ("summary", f"read {target}"),
        ("summary", ("part", f"read {target}", "run", 0)),
        ("summary", ("part", f"read {target}", "run", 1)),
    ]
    assert asked == [
        ("reading the lines", (spark, ("l",), Tolerance(most=4), {"a": "b"})),
        (spark, "run", 24),
        "overwrite",
        target,
        target,
        (request, progress, ("facts", "parsed")),
    ]
    assert progress.lines is refused
