"""The limits of a simulation: first placements, silences, weeks, intervals and changes."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from faust_assigner import Member
from faust_assigner.errors import ConfigError
from faust_assigner.ledger import Row
from faust_assigner.pipeline.ledgers.current import GroupState
from faust_assigner.pipeline.simulate import advice as advice_module
from faust_assigner.pipeline.simulate.advice import (
    WEEK_S,
    _stopped,
    interval_of,
    verdict,
    whole_weeks,
)
from faust_assigner.pipeline.simulate.diary import BRIEF_S, RETURN_S, SILENT_SHARE, Diary
from faust_assigner.pipeline.simulate.events import event_rows, nearest, recorded_arm
from faust_assigner.pipeline.simulate.facts import Facts, facts_of
from faust_assigner.pipeline.simulate.measured import LEAST_RECORDS, RecoveryFact, calibrated
from faust_assigner.pipeline.simulate.policies import arms
from faust_assigner.pipeline.simulate.recorded import week
from faust_assigner.pipeline.simulate.run import Run
from faust_assigner.pipeline.simulate.settings import difference, quantile_interval
from faust_assigner.pipeline.simulate.what_if import Change, Load, changed, what_if
from faust_assigner.simulation.fleet import Costs, Event, Kind
from tests.unit.pipeline.simulate.test_diary import SESSION_S, decided, told
from tests.unit.pipeline.simulate.test_events import START, joined_twice, placed, scenario
from tests.unit.pipeline.simulate.test_events import decided as decided_row
from tests.unit.pipeline.simulate.test_what_if import COSTS, LOAD, group, one

# -- changes to a group


def test_a_new_worker_stands_where_the_fewest_remain_after_the_change() -> None:
    """A member removed by the same change does not count."""
    members = [Member(name, ["t"], rack_id=rack) for name, rack in zip("abc", "112", strict=True)]
    assert changed(members, Change(add=1, remove=("b",)))[-1].rack_id == "1"
    assert changed(members, Change(add=1))[-1].rack_id == "2"


def test_new_standbys_are_restored_in_time_and_bytes_but_stop_no_worker() -> None:
    """Each member gets two copies of 10,000 records and 1 MB."""
    row = one(Change(), group(standbys=False), replicas=1)
    assert (row["moves"], row["stopped_s"]) == (0, 1.5)
    assert row["restored_s"] == pytest.approx(20.0)
    assert row["bytes_to_restore"] == 4_000_000


def test_a_first_placement_is_no_move_and_a_task_without_a_table_is_never_cold() -> None:
    """The costs cover only the change."""
    orphan = group()
    (a, b) = orphan.members
    b = replace(b, actives={"t": [2], "c": [2]})
    assert one(Change(), replace(orphan, members=(a, b)))["moves"] == 0
    plain = tuple(replace(m, actives={"t": m.actives["t"]}, standbys={}) for m in group().members)
    row = one(Change(remove=("b",)), GroupState("shop", "d", plain, {"t": 4}, ()), replicas=0)
    assert (row["moves"], row["cold"], row["bytes_to_restore"]) == (2, 0, 0)


def test_a_topic_without_load_is_left_where_it_is() -> None:
    """With the topic counted as work, its owner would have an order too many."""
    topics = ["lead", "t"]
    members = (
        Member("a", topics, actives={"t": [0, 1], "lead": [0]}, generation=1),
        Member("b", topics, actives={"t": [2]}, generation=1),
    )
    idle = GroupState("shop", "d", members, {"t": 3, "lead": 1}, (), ("lead",))
    assert one(Change(), idle, replicas=0)["moves"] == 0
    assert one(Change(), replace(idle, weightless=()), replicas=0)["moves"] == 1


def test_members_without_racks_share_none_and_each_partition_has_its_own_rate() -> None:
    """The lag of the worst partition is reported."""
    bare = replace(group(), members=tuple(replace(m, rack_id=None) for m in group().members))
    assert one(Change(), bare)["colocated_pairs"] == 0
    load = Load({("t", 3): 100.0}, LOAD.records, LOAD.bytes_kept)
    (row,) = what_if(group(), Change(lose_rack="rack-b"), load, replicas=[1], costs=COSTS)
    assert row["peak_lag"] == 150


def test_a_policy_may_be_named_once() -> None:
    """A repeated policy with the same switches and standbys would be played twice."""
    assert len(arms(("ours", "ours+static"), (0, 1))) == 4
    with pytest.raises(ConfigError, match="named twice"):
        arms(("ours", "stock", "ours"), (1,))


# -- recorded rebalances and costs


def test_rebalances_of_each_group_are_predicted_from_its_own_decisions() -> None:
    """The ledger has two groups."""
    facts = joined_twice()
    other = [
        {**each, "group_id": "h", "ts": each["ts"] + timedelta(minutes=7)}
        for each in facts.decisions
    ]
    both = replace(facts, decisions=(*facts.decisions, *other))
    rows = event_rows(Run(1, week(facts)), both, "stock")
    assert [(row["group_id"], row["decision_id"]) for row in rows] == [("g", "d2"), ("g", "d3")]


def test_a_group_of_which_some_members_are_static_is_played_as_dynamic() -> None:
    """The dynamic members decide the group's rounds."""
    mixed = decided_row("d", START, "a", "b", replicas="1").values
    first, second = mixed["members"]
    mixed = {**mixed, "members": [{**first, "instance_id": "a"}, second]}
    assert recorded_arm([mixed], "ours").label == "ours"


def test_of_two_equally_near_rounds_the_earlier_one_counts() -> None:
    """A follow-up round belongs to the preceding round."""
    assert nearest([0.0, 10.0], 5.0) == 0


def test_a_recovery_of_no_duration_measures_nothing_and_the_least_records_are_enough() -> None:
    """Its records would make the replay look faster."""
    measured = RecoveryFact("shop", "d1", "a", 2.0, LEAST_RECORDS, True)
    at_once = RecoveryFact("shop", "d2", "b", 0.0, 9_000, True)
    costs, _ = calibrated(Costs(), [measured, at_once], [])
    assert costs.replay_records_per_s == LEAST_RECORDS / 2
    short = measured._replace(records=LEAST_RECORDS - 1)
    assert calibrated(Costs(), [short], []) == (Costs(), ())


# -- the diary


def test_no_event_is_before_the_first_decision() -> None:
    """A restart or death soon after the first decision is dated to its time."""
    start = decided(0, "first", ("m1", "w1"), ("m2", "w2"))
    restarted = decided(2, "join+leave", ("m9", "w1"), ("m2", "w2"))
    assert told(start, restarted) == (Event(0.0, Kind.RESTART, "w1", BRIEF_S),)
    assert told(start, decided(9, "leave", ("m2", "w2"))) == (Event(0.0, Kind.CRASH, "w1"),)


def test_a_silence_of_nearly_a_session_is_a_crash() -> None:
    """The last sample precedes the silence."""
    start, gone = decided(0, "first", "a", "b"), decided(100, "leave", "b")
    silent = 100.0 - SILENT_SHARE * SESSION_S
    assert told(start, gone, d0=[("a", silent), ("b", 98.0)])[0].kind is Kind.CRASH
    assert told(start, gone, d0=[("a", silent + 0.1), ("b", 98.0)])[0].kind is Kind.LEAVE


def test_a_member_under_a_second_id_of_its_instance_is_the_same_worker() -> None:
    """The former process is still listed, so there is no join."""
    start = decided(0, "first", ("m1", "w1"), ("m2", "w2"))
    both = decided(10, "join", ("m1", "w1"), ("m2", "w2"), ("m3", "w1"))
    assert told(start, both) == ()


def test_each_absence_ends_with_one_return_and_a_member_ends_its_own() -> None:
    """Of two new members after a restart, the second joined."""
    start = decided(0, "first", "a", "b", "c")
    gone = decided(100, "leave", "c")
    events = told(start, gone, decided(110, "join", "b", "c"))
    assert events == (Event(100.0, Kind.LEAVE, "a"), Event(100.0, Kind.RESTART, "b", 10.0))
    left = decided(100, "leave", "b", "c")
    events = told(start, left, decided(110, "join", "b", "c", "x", "y"))
    assert events == (Event(100.0, Kind.RESTART, "a", 10.0), Event(110.0, Kind.JOIN, "y"))


@pytest.mark.parametrize(("later", "kind"), [(0.0, Kind.RESTART), (0.1, Kind.LEAVE)])
def test_a_dynamic_member_is_back_within_five_minutes(later: float, kind: Kind) -> None:
    """Later, a new member of the rack is another worker."""
    start, gone = decided(0, "first", "a", "b"), decided(100, "leave", "b")
    events = told(start, gone, decided(100 + RETURN_S + later, "join", "b", "x"))
    assert events[0].kind is kind


def test_a_worker_of_capacity_zero_can_be_played() -> None:
    """Such a worker is drained, and loads are divided by capacities."""
    start = decided(0, "first", "a", "b")
    start["members"][0]["capacity"] = 0.0
    assert Diary([start]).workers["a"].capacity > 0


# -- the advice


def test_an_event_at_the_end_of_a_week_is_in_the_next_week_and_the_dead_do_not_start_it() -> None:
    """A member with two joins and a leave is gone."""
    made = scenario(
        Event(5.0, Kind.CRASH, "a", 0.0),
        Event(9.0, Kind.JOIN, "c", 0.0),
        Event(10.0, Kind.JOIN, "c", 0.0),
        Event(11.0, Kind.LEAVE, "c", 0.0),
        Event(WEEK_S, Kind.RESTART, "b", 3.0),
    )
    first, second = whole_weeks(made, 2 * WEEK_S)
    assert [event.at_s for event in first.events] == [5.0, 9.0, 10.0, 11.0]
    assert (second.start, [event.at_s for event in second.events]) == (("b",), [0.0])


def test_an_interval_that_ends_at_zero_includes_it() -> None:
    """The rule holds on either side."""
    includes = "keep: the interval over the weeks includes zero"
    assert verdict(("ours", 0), ("ours", 1), [0.0, 2.0]) == includes
    assert verdict(("ours", 0), ("ours", 1), [-2.0, 0.0]) == includes


@pytest.mark.parametrize(("count", "factor"), [(31, 2.042), (32, 1.96)])
def test_the_last_entry_of_students_table_is_used(count: int, factor: float) -> None:
    """The last entry has 30 degrees of freedom."""
    values = [float(n) for n in range(count)]
    found = interval_of(values)
    assert found is not None
    half = factor * float(np.std(values, ddof=1)) / count**0.5
    assert found[1] - found[0] == pytest.approx(2 * half)


def test_the_difference_is_recommended_minus_recorded_seconds_of_a_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A negative value is better; a week's seconds are divided by the partitions."""
    stopped = {"ours": 40.0, "ours+static": 8.0}

    def simulate(week: Any, arm: Any, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(unavailable_s=stopped[arm.label])

    monkeypatch.setattr(advice_module, "simulate", simulate)
    run: Any = SimpleNamespace(costs=Costs())
    (arm,) = arms(("ours",), (0,))
    assert _stopped(scenario(), arm, run) == 40.0 / scenario().tasks
    facts = _weeks()
    (row,) = advice_module.recommend_change(Run(1, week(facts)), facts, "ours", ("ours+static", 0))
    assert row["difference_s"] == pytest.approx(-32.0 / 8)
    assert row["verdict"] == "change"


def _weeks() -> Facts:
    """Return eight partitions over two weeks, with a restart in each week."""
    rows = [decided_row("d", START, "a", "b", replicas="0")]
    rows += [placed("d", n, "ab"[n % 2], moved=False) for n in range(8)]
    for number in range(2):
        at = START + timedelta(days=7 * number + 1)
        rows.append(decided_row(f"away {number}", at, "b", replicas="0"))
        rows.append(
            decided_row(f"back {number}", at + timedelta(seconds=90), "a", "b", replicas="0")
        )
    rows.append(decided_row("last", START + timedelta(days=14), "a", "b", replicas="0"))
    return facts_of([row for row in rows if isinstance(row, Row)])


def test_the_interval_of_a_quantile_stays_within_the_values() -> None:
    """With few values, the bounds are the lowest and the highest value."""
    values = np.array([3.0, 1.0, 2.0])
    assert quantile_interval(values, 0.1) == (1.0, 3.0)
    assert quantile_interval(values, 0.9) == (2.0, 3.0)
    assert quantile_interval(np.array([5.0]), 0.9) == (5.0, 5.0)


def test_only_scenarios_that_both_policies_played_are_compared() -> None:
    """A single scenario has no interval."""
    mine, theirs = {"1": 5.0, "2": 7.0}, {"2": 4.0, "3": 1.0}
    assert difference(mine, theirs) == {"scenarios": 1, "mean": 3.0, "interval": None}
    assert difference(mine, {}) == {"scenarios": 0, "mean": None, "interval": None}
