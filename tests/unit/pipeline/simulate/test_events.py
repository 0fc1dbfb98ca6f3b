"""The recorded rebalances simulated again, and the advice from the recorded weeks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from faust_assigner.ledger import Row
from faust_assigner.pipeline.simulate.advice import (
    WEEK_S,
    interval_of,
    overall_verdict,
    recommend_change,
    verdict,
    whole_weeks,
)
from faust_assigner.pipeline.simulate.events import event_rows, nearest, recorded_arm
from faust_assigner.pipeline.simulate.facts import Facts, facts_of
from faust_assigner.pipeline.simulate.policies import arms, load
from faust_assigner.pipeline.simulate.recorded import DAY_S, _periods, week
from faust_assigner.pipeline.simulate.run import Run
from faust_assigner.simulation.fleet import Event, Kind, Scenario, TaskGroup, Worker
from faust_assigner.simulation.simulator import Rebalance, simulate

START = datetime(2026, 11, 1, tzinfo=UTC)


def decided(name: str, at: datetime, *members: str, **config: str) -> Row:
    """Return a decision with these members."""
    told = [
        {"member_id": m, "rack": None, "capacity": 1.0, "epoch": 1, "instance_id": None}
        for m in members
    ]
    values = {"group_id": "g", "decision_id": name, "ts": at, "trigger": "join", "config": config,
              "members": told, "session_timeout_s": 10.0}  # fmt: skip
    return Row("decision", values)


def placed(name: str, partition: int, member: str, *, moved: bool) -> Row:
    """Return an active placement."""
    values = {"group_id": "g", "decision_id": name, "topic": "t", "partition": partition,
              "role": "active", "member_id": member, "moved": moved, "cold": False}  # fmt: skip
    return Row("assignment", values)


def joined_twice() -> Facts:
    """Member a has twelve tasks; b joins after an hour and takes five, c after two and none."""
    rows = [
        decided("d1", START, "a"),
        *(placed("d1", n, "a", moved=False) for n in range(12)),
        decided("d2", START + timedelta(hours=1), "a", "b"),
        *(placed("d2", n, "b" if n < 5 else "a", moved=n < 5) for n in range(12)),
        decided("d3", START + timedelta(hours=2), "a", "b", "c"),
        *(placed("d3", n, "b" if n < 5 else "a", moved=False) for n in range(12)),
    ]
    return facts_of(rows)


def test_each_recorded_rebalance_has_its_prediction() -> None:
    """The first join has six predicted and five recorded moves, the second four and none."""
    facts = joined_twice()
    rows = event_rows(Run(1, week(facts)), facts, "stock")
    told = [
        (row["decision_id"], row["predicted"]["moved"], row["recorded"]["moved"]) for row in rows
    ]
    assert [name for name, _, _ in told] == ["d2", "d3"]
    assert [recorded for _, _, recorded in told] == [5, 0]
    trace: list[Rebalance] = []
    (scenario,) = week(facts).recordings
    simulate(scenario, recorded_arm(facts.decisions, "stock"), load("stock"), trace=trace)
    assert [predicted for _, predicted, _ in told] == [each.moved for each in trace]
    assert [round(each.at_s) for each in trace] == [3600, 7200]


def test_a_trace_sums_to_the_outcome() -> None:
    """The trace has every rebalance except the first."""
    facts = joined_twice()
    (scenario,) = week(facts).recordings
    for arm in arms(("ours", "stock"), (0, 1)):
        trace: list[Rebalance] = []
        outcome = simulate(scenario, arm, load(arm.policy), trace=trace)
        assert outcome.rebalances == len(trace)
        assert outcome.moved == sum(each.moved for each in trace) > 0
        assert outcome.cold_moves == sum(each.cold_moves for each in trace)


@pytest.mark.parametrize(("at", "place"), [(-5, 0), (4, 0), (6, 1), (99, 2)])
def test_a_predicted_round_counts_with_the_nearest_recorded_round(at: float, place: int) -> None:
    """A follow-up round counts with the preceding round."""
    assert nearest([0.0, 10.0, 20.0], at) == place


def test_the_recorded_settings_are_the_newest_decisions() -> None:
    """The membership is static if all members have an instance id."""
    old = decided("d1", START, "a", replicas="0").values
    new = decided("d2", START, "a", "b", replicas="2").values
    assert recorded_arm([old, new], "ours+static").replicas == 2
    assert recorded_arm([old, new], "ours+static").label == "ours"
    named = {**new, "members": [{**m, "instance_id": m["member_id"]} for m in new["members"]]}
    assert recorded_arm([old, named], "ours").label == "ours+static"


def scenario(*events: Event) -> Scenario:
    """Return three workers, two of them at the start."""
    workers = tuple(Worker(name) for name in "abc")
    ones = np.ones(4)
    group = TaskGroup("t", 4, "t-changelog")
    return Scenario(
        0, 0, "g", "2026-11-01", workers, ("a", "b"), (group,), ones, ones, events, ones
    )  # fmt: skip


def test_weeks_are_whole_and_begin_with_their_own_members() -> None:
    """A member that left in the first week is not in the second; a partial week is dropped."""
    made = scenario(
        Event(5.0, Kind.LEAVE, "a", 0.0),
        Event(DAY_S, Kind.JOIN, "c", 0.0),
        Event(WEEK_S + 7.0, Kind.RESTART, "b", 3.0),
        Event(2 * WEEK_S + 1.0, Kind.LEAVE, "c", 0.0),
    )
    first, second = whole_weeks(made, 2 * WEEK_S + 60.0)
    assert (first.start, [event.at_s for event in first.events]) == (("a", "b"), [5.0, DAY_S])
    assert (second.start, [event.at_s for event in second.events]) == (("b", "c"), [7.0])


def test_two_recorded_weeks_are_drawn_as_weeks_and_less_as_days() -> None:
    """Weekdays differ, so a drawn week keeps its weekdays."""
    days = [Event(day * DAY_S + 60.0, Kind.RESTART, "a", 3.0) for day in range(16)]
    draw = np.random.default_rng(1)
    odd = _periods(days, draw, 1)
    assert odd is not None
    assert [round(event.at_s - 60.0) / DAY_S for event in odd] == list(range(14))
    exact = _periods([Event(day * DAY_S, Kind.RESTART, "a", 3.0) for day in range(15)], draw, 1)
    assert exact is not None
    assert [event.at_s / DAY_S for event in exact] == list(range(14))
    few = _periods([event for event in days if event.at_s < 3 * DAY_S], draw, 1)
    assert few is not None
    assert len(few) == 3
    assert _periods(days[:1], draw, 1) is None


def test_an_interval_over_few_weeks_is_students() -> None:
    """With two values the factor is 12.7, not 1.96."""
    found = interval_of([1.0, 3.0])
    assert found == [pytest.approx(2 - 12.706), pytest.approx(2 + 12.706)]
    assert interval_of([1.0]) is None


@pytest.mark.parametrize(
    ("interval", "said"),
    [
        ([-3.0, -1.0], "change"),
        ([-3.0, 0.0], "keep: the interval over the weeks includes zero"),
        ([0.5, 1.0], "keep: worse"),
        (None, "keep: fewer than two whole weeks are recorded"),
    ],
)
def test_a_change_is_advised_only_if_the_interval_excludes_zero(
    interval: list[float] | None, said: str
) -> None:
    """The interval must be on the better side."""
    assert verdict(("ours", 0), ("ours", 1), interval) == said
    assert verdict(("ours", 1), ("ours", 1), [-3.0, -1.0]).startswith("keep: the recorded settings")


def fleets(weeks: int) -> Facts:
    """Return a group with two weekly restarts at different hours, and a usual state."""
    rows: list[Row] = [decided("d", START, "a", "b", replicas="0")]
    rows += [placed("d", n, "ab"[n % 2], moved=False) for n in range(8)]
    rows.append(Row("assignment", {**rows[1].values, "topic": "t-changelog"}))
    for number in range(weeks):
        at = START + timedelta(days=7 * number + 1, hours=number)
        rows.append(decided(f"away {number}", at, "b", replicas="0"))
        rows.append(decided(f"back {number}", at + timedelta(seconds=90), "a", "b", replicas="0"))
    rows.append(decided("last", START + timedelta(days=7 * weeks), "a", "b", replicas="0"))
    return facts_of(rows)


def test_advice_names_both_settings_and_counts_weeks() -> None:
    """The advice compares one standby with none over three weeks; one week gives no advice."""
    found: list[dict[str, Any]] = []
    for weeks in (3, 1):
        facts = fleets(weeks)
        found += recommend_change(Run(1, week(facts)), facts, "ours", ("ours", 1))
    assert [row["weeks"] for row in found] == [3, 1]
    assert found[0]["recorded"] == {"policy": "ours", "standbys": 0}
    assert found[0]["recommended"] == {"policy": "ours", "standbys": 1}
    assert found[0]["interval"][0] <= found[0]["difference_s"] <= found[0]["interval"][1]
    assert found[1]["verdict"] == "keep: fewer than two whole weeks are recorded"


@pytest.mark.parametrize(
    ("verdicts", "wanted"),
    [
        (["change", "change"], "change"),
        (["change", "keep: worse"], "keep: worse"),
        (["keep: the interval over the weeks includes zero", "change"],
         "keep: the interval over the weeks includes zero"),
    ],
)  # fmt: skip
def test_the_table_recommends_a_change_only_if_each_group_does(
    verdicts: list[str], wanted: str
) -> None:
    """A group without a difference keeps all groups' settings."""
    assert overall_verdict([{"verdict": verdict} for verdict in verdicts]) == wanted
