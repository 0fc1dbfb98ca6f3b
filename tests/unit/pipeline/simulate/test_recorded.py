"""The recordings in a ledger, and valid statements about a difference between arms."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from faust_assigner.ledger import Row
from faust_assigner.pipeline.simulate.facts import decision_at, facts_of
from faust_assigner.pipeline.simulate.measured import LEAST_TAKEOVERS, RecoveryFact, calibrated
from faust_assigner.pipeline.simulate.recorded import Week, week
from faust_assigner.pipeline.simulate.scenarios import Shape, generate, scenario_seed
from faust_assigner.pipeline.simulate.settings import _calmer, comparable, difference
from faust_assigner.simulation.fleet import Costs, Event, Kind, Scenario, TaskGroup, Worker

START = datetime(2026, 11, 21, tzinfo=UTC)


def decided(group: str, name: str, at: datetime = START, **more: Any) -> Row:
    """Return a decision with one member."""
    member = {"member_id": "m", "rack": None, "capacity": 1.0, "epoch": 1, "instance_id": None}
    values = {"group_id": group, "decision_id": name, "ts": at, "trigger": "join", "config": {},
              "members": [member], "session_timeout_s": 10.0}  # fmt: skip
    return Row("decision", values | more)


def placed(group: str, topic: str, **more: Any) -> Row:
    """Return an active placement."""
    values = {"group_id": group, "decision_id": "d", "topic": topic, "partition": 0, "role": "active",
              "member_id": "m", "moved": False, "cold": False}  # fmt: skip
    return Row("assignment", values | more)


def recovered(group: str) -> Row:
    """Return a recovery of one second."""
    values = {"group_id": group, "decision_id": "d", "member_id": "m", "topic": "t", "partition": 0}
    ended = START + timedelta(seconds=1)
    return Row(
        "recovery", {**values, "source": "replay", "started": START, "ended": ended, "records": 5}
    )


def test_a_decision_stands_from_its_very_moment_on() -> None:
    """Before the first decision there is no decision."""
    moments = [START, START + timedelta(seconds=10)]
    times = (moments, ["a", "b"])
    seconds = (-1, 0, 9, 10, 11)
    assert [decision_at(times, START + timedelta(seconds=s)) for s in seconds] == [
        "",
        "a",
        "a",
        "b",
        "b",
    ]


def test_topics_that_weigh_nothing_are_no_tasks_of_a_recorded_week() -> None:
    """The decisions' config names such topics; other topics stay."""
    rows = [
        decided("g", "d", config={"weightless": "idle other"}),
        placed("g", "t"),
        placed("g", "idle"),
    ]
    (recording,) = week(facts_of(rows)).recordings
    assert list(recording.partitions) == ["t"]


def test_a_topic_with_a_recovery_has_state_whatever_row_comes_last() -> None:
    """A later row of the owner does not affect the topic's state."""
    rows = [recovered("g"), placed("g", "t"), placed("g", "u")]
    for order in (rows, rows[::-1]):
        (t, u) = facts_of(order).topics
        assert (t.topic, t.carries_state, u.topic, u.carries_state) == ("t", True, "u", False)


def test_facts_of_a_group_are_its_own() -> None:
    """Decisions, topics and recoveries of other groups are left out."""
    rows = [row for g in ("g", "h") for row in (decided(g, "d"), placed(g, "t"), recovered(g))]
    mine = facts_of(rows).of_group("h")
    assert [decision["group_id"] for decision in mine.decisions] == ["h"]
    assert {fact.group_id for fact in (*mine.topics, *mine.recoveries)} == {"h"}
    assert (len(mine.topics), len(mine.recoveries)) == (1, 1)


def test_the_longest_session_of_the_newest_decisions_counts() -> None:
    """The newest decision of each group counts, and of all groups the longest session."""
    rows = [decided("g", "d1", session_timeout_s=90.0),
            decided("g", "d2", START + timedelta(1), session_timeout_s=20.0),
            decided("h", "d3", session_timeout_s=30.0)]  # fmt: skip
    costs, measured = calibrated(Costs(), (), facts_of(rows).decisions)
    assert (costs.session_timeout_s, measured) == (30.0, ("session_timeout_s",))


def test_a_warm_recovery_with_much_to_read_is_no_takeover() -> None:
    """Such a recovery measures the read rate, not the duration of a takeover."""
    lag = Costs().acceptable_recovery_lag
    quick = [RecoveryFact("g", "d", str(n), 2.0, lag, False) for n in range(LEAST_TAKEOVERS)]
    slow = [RecoveryFact("g", "d", f"slow {n}", 900.0, lag + 1, False) for n in range(9)]
    assert calibrated(Costs(), [*quick, *slow], ())[0].warm_takeover_s == 2.0
    assert calibrated(Costs(), slow, ())[1] == ()


def test_each_scenario_has_a_seed_of_its_own() -> None:
    """The seed depends on the run's seed and on the scenario's number."""
    seeds = {scenario_seed(seed, number) for seed in range(5) for number in range(20)}
    assert len(seeds) == 100


def test_the_hot_partitions_are_also_the_large_ones() -> None:
    """In each group with state, load and state grow together."""
    for number in range(20):
        scenario = generate(Shape(zipf=(1.0, 1.2)), number, scenario_seed(4, number))
        start = 0
        for group in scenario.groups:
            span = slice(start, start + group.partitions)
            start += group.partitions
            if group.changelog is not None and group.partitions > 2:
                heaviest = int(np.argmax(scenario.rates[span]))
                assert scenario.records[span][heaviest] == scenario.records[span].max()
                assert scenario.records[span].min() < scenario.records[span].max()


def test_differences_are_taken_scenario_by_scenario() -> None:
    """A constant difference between two arms has an interval of width zero."""
    mine = {"a": 1.0, "b": 100.0, "c": 7.0, "only mine": 9.0}
    theirs = {"c": 9.0, "a": 3.0, "b": 102.0}
    assert difference(mine, theirs) == {"scenarios": 3, "mean": -2.0, "interval": [-2.0, -2.0]}


@pytest.mark.parametrize(
    ("interval", "calmer"),
    [
        (None, "even"),
        ((-1.0, 1.0), "even"),
        ((0.0, 1.0), "even"),
        ((-2.0, -1.0), "p"),
        ((1.0, 2.0), "q"),
    ],
)
def test_a_difference_that_may_be_chance_is_even(
    interval: tuple[float, float] | None, calmer: str
) -> None:
    """An arm is called calmer only if the interval excludes zero."""
    assert _calmer("p", "q", interval) == calmer


def recorded() -> Scenario:
    """Four workers restart twice; a group has heavy partitions, another group light ones."""
    workers = tuple(Worker(name, None) for name in "abcd")
    restarts = [Event(100.0 * n, Kind.RESTART, "abcd"[n % 4], 5.0) for n in range(8)]
    groups = (TaskGroup("light", 4, None), TaskGroup("heavy", 4, None))
    rates = np.array([1.0, 2, 3, 4, 100, 200, 300, 400])
    return Scenario(0, 0, "g", "2026-11-21", workers, tuple("abcd"), groups, rates, np.zeros(8),
                    tuple(restarts), np.ones(8))  # fmt: skip


def test_a_rolling_deploy_goes_round_before_it_begins_anew() -> None:
    """The least restarted worker is next in every variation, in varying orders."""
    source, orders = Week((recorded(),)), set()
    for number in range(1, 20):
        hit = [event.member_id for event in source.scenario(number, number).events]
        assert sorted(hit[:4]) == sorted(hit[4:]) == list("abcd")
        orders.add(tuple(hit))
    assert len(orders) > 1


def test_heavy_partitions_change_places_within_their_group() -> None:
    """A variation redraws the heavy partitions within each group."""
    source, seen = Week((recorded(),)), set()
    for number in range(1, 20):
        rates = source.scenario(number, number).rates.tolist()
        assert sorted(rates[:4]) == [1, 2, 3, 4]
        assert sorted(rates[4:]) == [100, 200, 300, 400]
        seen.add(tuple(rates))
    assert len(seen) > 1


def test_only_arms_whose_members_join_alike_are_compared() -> None:
    """Policies may differ; static beside dynamic members would compare the membership instead."""
    pairs = {("ours", "stock"): True, ("ours+static", "stock+static"): True, ("ours+static", "stock"): False,
             ("ours+weights", "stock"): True, ("ours", "ours+static"): False}  # fmt: skip
    assert {pair: comparable(*pair) for pair in pairs} == pairs


def test_what_was_recorded_counts_tasks_of_all_rounds_but_the_first() -> None:
    """A source and its changelog are one task; a topic without load is no task."""
    rows = [decided("g", name, START + timedelta(minutes=at)) for at, name in enumerate("abc")]
    rows[0].values["config"]["weightless"] = "lead"
    for name, moved, cold in (("a", True, True), ("b", True, False), ("c", True, True)):
        for topic in ("t", "t-changelog", "lead"):
            said = {"decision_id": name, "moved": moved, "cold": cold}
            rows += [placed("g", topic, partition=0, **said), placed("g", topic, partition=1)]
    # Only a single partition number of each decision moved, in topics with equal counts.
    assert facts_of(rows).recorded() == {"rebalances": 2, "moved": 2, "cold_moves": 1}


def sampled(partition: int, minute: int, records: int) -> Row:
    """Return a sample of a minute's arrivals."""
    values = {"group_id": "g", "ts": START + timedelta(minutes=minute), "topic": "t",
              "partition": partition, "end_offset": 0, "committed_offset": 0, "bytes_in": 0,
              "records_in": records, "cpu_ms": 0.0, "state_bytes": 0}  # fmt: skip
    return Row("partition_sample", values)


def test_weights_are_learned_from_what_was_before_the_load_they_meet() -> None:
    """The hot partition changes midway: weights come from the first half, loads from the second."""
    rows = [decided("g", "d"), placed("g", "t"), placed("g", "t", partition=1)]
    for minute in range(20):
        hot = minute < 10
        rows += [sampled(0, minute, 600 if hot else 60), sampled(1, minute, 60 if hot else 600)]
    (recording,) = week(facts_of(rows)).recordings
    assert recording.rates.tolist() == [1.0, 10.0]
    assert recording.learned_weights[0] > 3 * recording.learned_weights[1]


def test_days_are_drawn_whole_and_each_part_has_its_own() -> None:
    """Of four days two have bounces and two have restarts, at different hours."""
    day = 86_400.0
    kinds = (Kind.BOUNCE, Kind.RESTART, Kind.BOUNCE, Kind.RESTART)
    events = [
        Event(number * day + hour * 3600.0, kind, "w0", 5.0)
        for number, kind in enumerate(kinds)
        for hour in (number + 1, number + 6)
    ]
    recorded = Scenario(
        0, 0, "g", "2026-11-21", (Worker("w0"), Worker("w1")), ("w0", "w1"),
        (TaskGroup("t", 2),), np.ones(2), np.zeros(2), tuple(events), np.ones(2),
    )  # fmt: skip
    source = Week((recorded,))
    assert source.split_of(0) is None
    seen: dict[int | None, set[Kind]] = {0: set(), 1: set()}
    hours = {0: {(1, 6), (3, 8)}, 1: {(2, 7), (4, 9)}}
    for number in range(1, 21):
        part, drawn = source.split_of(number), source.scenario(number, scenario_seed(1, number))
        seen[part] |= {event.kind for event in drawn.events}
        assert [int(event.at_s // day) for event in drawn.events] == [0, 0, 1, 1, 2, 2, 3, 3]
        at = [int(event.at_s % day // 3600) for event in drawn.events]
        assert set(zip(at[::2], at[1::2], strict=True)) <= hours[part or 0]
    assert seen == {0: {Kind.BOUNCE}, 1: {Kind.RESTART}}


def test_the_only_worker_restarts_and_does_not_leave() -> None:
    """A variation has workers at all times."""
    kinds = (Kind.RESTART, Kind.LEAVE, Kind.BOUNCE, Kind.CRASH)
    events = tuple(Event(10.0 * at, kind, "w0", 5.0) for at, kind in enumerate(kinds, 1))
    recorded = Scenario(
        0, 0, "g", "2026-11-21", (Worker("w0"),), ("w0",),
        (TaskGroup("t", 2),), np.ones(2), np.zeros(2), events, np.ones(2),
    )  # fmt: skip
    drawn = Week((recorded,)).scenario(1, 7)
    assert [event.kind for event in drawn.events] == [Kind.RESTART, Kind.BOUNCE]


def test_a_worker_that_joins_on_a_day_that_is_drawn_twice_joins_once() -> None:
    """The last worker never leaves."""
    day = 86_400.0
    events = (
        Event(10.0, Kind.JOIN, "w1"), Event(20.0, Kind.LEAVE, "w0"), Event(30.0, Kind.LEAVE, "w1"),
        Event(day + 5.0, Kind.RESTART, "w0", 5.0),
    )  # fmt: skip
    recorded = Scenario(
        0, 0, "g", "2026-11-21", (Worker("w0"), Worker("w1")), ("w0",),
        (TaskGroup("t", 2),), np.ones(2), np.zeros(2), events, np.ones(2),
    )  # fmt: skip
    drawn = Week((recorded,)).scenario(1, 7)
    running = {"w0"}
    for event in drawn.events:
        if event.kind is Kind.JOIN:
            assert event.member_id not in running
            running.add(event.member_id)
        elif event.kind is Kind.LEAVE:
            running.remove(event.member_id)
        assert running
