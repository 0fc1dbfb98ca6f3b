"""Whole advice, events, rows, distributions and settings."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner import Member
from faust_assigner.errors import ConfigError
from faust_assigner.pipeline.simulate import advice as advice_module
from faust_assigner.pipeline.simulate import events as events_module
from faust_assigner.pipeline.simulate import policies
from faust_assigner.pipeline.simulate.advice import WEEK_S, recommend_change, verdict, whole_weeks
from faust_assigner.pipeline.simulate.events import event_rows, recorded_arm
from faust_assigner.pipeline.simulate.facts import Facts, facts_of
from faust_assigner.pipeline.simulate.policies import Placement, arms
from faust_assigner.pipeline.simulate.recorded import Week, week
from faust_assigner.pipeline.simulate.run import Run, play, to_frame
from faust_assigner.pipeline.simulate.scenarios import scenario_seed
from faust_assigner.pipeline.simulate.settings import _calmer, in_order, recommend, summarise
from faust_assigner.simulation.fleet import Costs, Event, Kind, Scenario, Worker
from faust_assigner.simulation.simulator import Rebalance
from tests.unit.pipeline.simulate.test_recordings import ROWS, START, decision, member, scenario
from tests.unit.pipeline.simulate.test_settings import row as result

# -- the advice -----------------------------------------------------------------------------------


def test_the_whole_advice_of_two_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each week is played with both settings; a group without whole weeks has no difference."""
    asked: list[Any] = []

    def simulate(week: Scenario, arm: Any, _: Any, *, costs: Any) -> Any:
        asked.append((week.group_id, len(week.events), arm.label, arm.replicas, costs))
        seconds = {"ours": 100.0, "ours+static": 40.0}[arm.label] + 10 * len(week.events)
        return SimpleNamespace(unavailable_s=seconds * (2 - arm.replicas))

    monkeypatch.setattr(advice_module, "simulate", simulate)
    restarts = [Event(at, Kind.RESTART, "a", 3.0) for at in (1.0, WEEK_S, WEEK_S + 5.0)]
    recordings = (scenario("g", *restarts), scenario("h"))
    config = {"replicas": "0"}
    decisions = [
        decision("d1", 0, member("a")),
        decision("e1", 3, member("x"), group="h"),
        decision("d2", 2 * WEEK_S, member("a"), config=config),
        decision("e2", 2 * WEEK_S + 2, member("x"), group="h", config=config),
    ]
    facts = Facts(tuple(row.values for row in decisions), (), ())
    costs = Costs(rebalance_pause_s=9.0)
    found = recommend_change(
        Run(1, Week(recordings), costs=costs), facts, "ours", ("ours+static", 1)
    )
    # New minus old per partition: (50 - 220) / 5 and (60 - 240) / 5.
    mean, half = -35.0, 12.706 * 1.0
    assert found == [
        {
            "group_id": "g",
            "weeks": 2,
            "recorded": {"policy": "ours", "standbys": 0},
            "recommended": {"policy": "ours+static", "standbys": 1},
            "difference_s": mean,
            "interval": pytest.approx([mean - half, mean + half]),
            "verdict": "change",
        },
        {
            "group_id": "h",
            "weeks": 1,
            "recorded": {"policy": "ours", "standbys": 0},
            "recommended": {"policy": "ours+static", "standbys": 1},
            "difference_s": -32.0,
            "interval": None,
            "verdict": "keep: fewer than two whole weeks are recorded",
        },
    ]
    assert asked == [
        *(("g", n, label, r, costs) for n in (1, 2) for label, r in PLAYED),
        *(("h", 0, label, r, costs) for label, r in PLAYED),
    ]


PLAYED = (("ours+static", 1), ("ours", 0))


@pytest.mark.parametrize(
    ("old", "interval", "said"),
    [
        (("ours", 1), [-9.0, -1.0], "change"),
        (("ours+static", 0), [-9.0, -1.0], "change"),
        (("ours+static", 1), [-9.0, -1.0], "keep: the recorded settings are the recommended"),
        (("ours", 1), [0.1, 1.0], "keep: worse"),
    ],
)
def test_other_settings_are_another_policy_or_another_number_of_standbys(
    old: tuple[str, int], interval: list[float], said: str
) -> None:
    """A difference in either of them is a change."""
    assert verdict(old, ("ours+static", 1), interval).startswith(said)


def test_the_members_at_the_begin_of_each_week() -> None:
    """An event of a stopped worker has no effect; a week without members is dropped."""
    made = scenario(
        "g",
        Event(1.0, Kind.CRASH, "c"),
        Event(2.0, Kind.RESTART, "a", 1.0),
        Event(3.0, Kind.BOUNCE, "b", 1.0),
        Event(WEEK_S + 1.0, Kind.LEAVE, "a"),
        Event(WEEK_S + 2.0, Kind.CRASH, "b"),
        Event(3 * WEEK_S + 9.0, Kind.JOIN, "c"),
    )
    found = whole_weeks(made, 5 * WEEK_S)
    assert [(each.start, [event.at_s for event in each.events]) for each in found] == [
        (("a", "b"), [1.0, 2.0, 3.0]),
        (("a", "b"), [1.0, 2.0]),
        (("c",), []),
    ]
    assert whole_weeks(made, WEEK_S - 1.0) == []


# -- the events -----------------------------------------------------------------------------------


def test_the_whole_rows_of_recorded_rebalances(monkeypatch: pytest.MonkeyPatch) -> None:
    """Predicted rounds add to the nearest recorded round; a round without outcome moved none."""
    asked: list[Any] = []

    def simulate(made: Scenario, arm: Any, _: Any, *, costs: Any, trace: list[Any]) -> None:
        asked.append((made.group_id, arm.label, arm.replicas, costs))
        trace += [Rebalance(*each) for each in ((90.0, 3, 2), (110.0, 4, 1), (190.0, 5, 0))]

    monkeypatch.setattr(events_module, "simulate", simulate)
    facts = facts_of(ROWS)
    others = {(group, name): (9, 8) for group in "ah" for name in ("d2", "d3")}
    facts = replace(facts, outcomes={**others, **facts.outcomes})
    costs = Costs(rebalance_pause_s=9.0)
    found = event_rows(Run(1, week(facts, group_id="g"), costs=costs), facts, "ours+static")
    common = {"group_id": "g", "policy": "ours", "standbys": 1}
    assert found == [
        {
            **common,
            "decision_id": "d2",
            "ts": "2026-11-16T00:01:40+00:00",
            "trigger": "leave",
            "predicted": {"rebalances": 2, "moved": 7, "cold_moves": 3},
            "recorded": {"rebalances": 1, "moved": 3, "cold_moves": 1},
        },
        {
            **common,
            "decision_id": "d3",
            "ts": "2026-11-16T00:03:20+00:00",
            "trigger": "join",
            "predicted": {"rebalances": 1, "moved": 5, "cold_moves": 0},
            "recorded": {"rebalances": 1, "moved": 0, "cold_moves": 0},
        },
    ]
    assert asked == [("g", "ours", 1, costs)]
    alone = facts_of(ROWS[:9])
    assert event_rows(Run(1, week(alone)), alone, "ours") == []


@pytest.mark.parametrize("text", ["one", "²", "1234567890"])
def test_a_number_of_standbys_that_is_no_number_is_an_error(text: str) -> None:
    """The error names the decision."""
    bad = decision("d7", 0, member("a"), config={"replicas": text}).values
    with pytest.raises(ConfigError, match=f"decision d7: '{text}' is not a number of standbys"):
        recorded_arm([bad], "ours")


# -- policies and rows ----------------------------------------------------------------------------


def test_an_arm_has_the_settings_of_its_policy_and_its_switches() -> None:
    """The order is by policy, then by standbys."""
    found = arms(("ours+weights+eager", "stock+static", "aiokafka-roundrobin"), (2, 0))
    told = [
        (arm.policy, arm.replicas, arm.claims_files, arm.static, arm.weighted, arm.cooperative)
        for arm in found
    ]
    assert told == [
        ("ours", 2, True, False, True, False),
        ("ours", 0, True, False, True, False),
        ("stock", 2, False, True, False, False),
        ("stock", 0, False, True, False, False),
        ("aiokafka-roundrobin", 0, False, False, False, False),
    ]


@pytest.mark.parametrize("policy", [policies.aiokafka_roundrobin, policies.aiokafka_sticky])
def test_aiokafkas_policies_place_the_sources_alone(policy: Any) -> None:
    """Sticky keeps the claims; neither policy has standbys or awaited members."""
    members = [
        Member("a", ["in", "log"], actives={"in": [3], "log": [3]}, generation=4),
        Member("b", ["in", "log"], actives={"in": [0, 1, 2]}, generation=4),
    ]
    found = policy(members, {"in": 4, "log": 4}, replicas=1, changelogs=("log",), weights=None)
    owned = {name: {t: sorted(n) for t, n in found.actives(name).items()} for name in "ab"}
    assert sorted(n for mine in owned.values() for n in mine["in"]) == [0, 1, 2, 3]
    assert [len(mine["in"]) for mine in owned.values()] == [2, 2]
    assert all(list(mine) == ["in"] for mine in owned.values())
    if policy is policies.aiokafka_sticky:
        assert 3 in owned["a"]["in"]
    assert (found.standbys("a"), found.awaited("a"), found.actives("x")) == ({}, {}, {})


def test_a_placement_answers_by_member() -> None:
    """An unknown member has no partition."""
    found = Placement({"a": {"t": [1]}}, {"b": {"c": [2]}})
    assert (found.actives("a"), found.actives("b")) == ({"t": [1]}, {})
    assert (found.standbys("a"), found.standbys("b")) == ({}, {"c": [2]})


def test_a_whole_row_of_a_scenario(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each figure has its own column; arms share a memo, scenarios do not."""
    memories: list[Any] = []

    def simulate(made: Scenario, arm: Any, _: Any, *, costs: Any, memo: Any) -> Any:
        memories.append(memo)
        names = ("moved", "imbalance", "unavailable_s", "cold_moves", "worst_load")
        names += ("worst_gap_s", "restored", "rebalances", "idle_members")
        return SimpleNamespace(**{name: float(n + 2) for n, name in enumerate(names)})

    monkeypatch.setattr("faust_assigner.pipeline.simulate.run.simulate", simulate)
    made = replace(scenario("g"), workers=(Worker("a", "r1"), Worker("b", "r2"), Worker("c", "r3")))
    run = Run(1, Week((made, made)), arms(("ours", "stock"), (2,)))
    rows = list(play(run, [1, 0]))
    assert len(rows) == 4
    assert rows[1]._asdict() == {
        "group_id": "g",
        "dt": START.date(),
        "scenario_id": "000001",
        "seed": scenario_seed(1, 1),
        "members": 2,
        "partitions": 5,
        "standbys": 2,
        "policy": "stock",
        "moved": 2,
        "imbalance": 3.0,
        "unavailable_s": 4.0,
        "cold_moves": 5,
        "worst_load": 6.0,
        "worst_gap_s": 7.0,
        "restored": 8.0,
        "rebalances": 9.0,
        "idle_members": 10.0,
        "racks": 2,
        "state": "small",
    }
    assert [memories.index(each) for each in memories[:1]] == [0]
    assert memories[0] is memories[1] is not memories[2]
    assert memories[2] is memories[3]
    frame = to_frame(rows)
    assert list(frame.columns) == list(rows[0]._fields)
    assert frame["scenario_id"].tolist() == ["000001", "000001", "000000", "000000"]


# -- the settings table ---------------------------------------------------------------------------


def test_the_whole_distribution_of_an_arm() -> None:
    """Two scenarios have distinct figures; per partition each row has its own divisor."""
    rows = [
        result(2, "ours", 1, 30.0, 3.0, moved=6, cold_moves=2, worst_gap_s=5.0, imbalance=1.5),
        result(1, "ours", 1, 10.0, 2.0, moved=4, cold_moves=1, worst_gap_s=3.0, partitions=5),
    ]
    rows[0] = rows[0]._replace(restored=80.0)
    (found, _) = summarise(rows)
    wanted: dict[str, Any] = {
        "state": "all",
        "racks": "all",
        "policy": "ours",
        "standbys": 1,
        "scenarios": 2,
    }
    for metric, low, high in (
        ("moved", 4.0, 6.0),
        ("cold_moves", 1.0, 2.0),
        ("unavailable_s", 10.0, 30.0),
        ("unavailable_s_per_partition", 2.0, 3.0),
        ("worst_gap_s", 3.0, 5.0),
        ("worst_load", 2.0, 3.0),
        ("imbalance", 1.0, 1.5),
        ("restored", 0.0, 80.0),
    ):
        wanted[f"{metric}_mean"] = pytest.approx((low + high) / 2)
        for percentile in (50, 90, 99):
            wanted[f"{metric}_p{percentile}"] = pytest.approx(low + (high - low) * percentile / 100)
        wanted[f"{metric}_p90_interval"] = [low, high]
        wanted[f"{metric}_max"] = high
    assert found == {**wanted, "against": {}}


def test_a_whole_line_of_the_settings_table() -> None:
    """The rival is the calmest other policy with as many standbys."""
    rows = [
        result(n, policy, standbys, seconds + n, load, moved=moved, cold_moves=n)
        for n in range(3)
        for policy, standbys, seconds, load, moved in (
            *(("ours", 1, 50.0, 1.5, 7), ("ours", 2, 49.0, 1.5, 8)),
            *(("stock", 1, 90.0, 1.2, 9), ("other", 1, 80.0, 1.1, 10), ("other", 2, 1.0, 1.0, 11)),
        )
    ]
    line = recommend(summarise(rows), policy="ours")[0]
    told = line._asdict()
    intervals = told.pop("intervals")
    assert told == {
        "state": "all",
        "racks": "all",
        "scenarios": 3,
        "policy": "ours",
        "standbys": 1,
        "unavailable_s_per_partition_p90": pytest.approx(5.18),
        "worst_load_p90": 1.5,
        "cold_moves_p90": pytest.approx(1.8),
        "moved_p90": 7.0,
        "instead_of": "other, standbys 1",
        "its_unavailable_s_per_partition_p90": pytest.approx(8.18),
        "its_interval": [8.1, 8.2],
        "difference_s": pytest.approx(-3.0),
        "difference_interval": pytest.approx([-3.0, -3.0]),
        "calmer": "ours",
        "verdict": "change",
        "chosen_at": None,
    }
    assert intervals == {
        "unavailable_s_per_partition_p90": [5.1, 5.2],
        "worst_load_p90": [1.5, 1.5],
        "cold_moves_p90": [1.0, 2.0],
        "moved_p90": [7.0, 7.0],
    }


def test_of_equal_settings_the_fewest_switches_and_then_the_name_are_taken() -> None:
    """The fewest standbys come first."""
    names = ("ours+static+weights", "ours+weights", "ours+static")
    rows = [result(n, name, 1, 50.0) for n in range(3) for name in names]
    assert recommend(summarise(rows), policy="ours")[0].policy == "ours+static"
    rows += [result(n, "ours+static+weights", 0, 54.9) for n in range(3)]
    line = recommend(summarise(rows), policy="ours")[0]
    assert (line.policy, line.standbys) == ("ours+static+weights", 0)
    rows = [each for each in rows if each.standbys] + [
        result(n, "ours+static+weights", 0, 55.2) for n in range(3)
    ]
    assert recommend(summarise(rows), policy="ours")[0].standbys == 1


def test_summaries_are_in_the_order_of_states_racks_policies_and_standbys() -> None:
    """States ascend after the line of all fleets."""
    names = [
        ("large", "one", "a", 0),
        ("small", "several", "a", 0),
        ("small", "one", "b", 0),
        ("small", "one", "a", 2),
        ("small", "one", "a", 1),
        ("none", "one", "z", 9),
        ("medium", "one", "a", 0),
        ("all", "all", "z", 9),
    ]
    keys = ("state", "racks", "policy", "standbys")
    found = in_order(dict(zip(keys, name, strict=True)) for name in names)
    assert [tuple(each.values()) for each in found] == [names[n] for n in (7, 5, 4, 3, 2, 1, 6, 0)]


@pytest.mark.parametrize("interval", [(-2.0, 0.0), (0.0, 2.0), (0.0, 0.0), None])
def test_an_interval_up_to_zero_makes_no_policy_calmer(interval: Any) -> None:
    """The rule holds on either side."""
    assert _calmer("ours", "stock", interval) == "even"
    assert _calmer("ours", "stock", (-2.0, -0.1)) == "ours"
    assert _calmer("ours", "stock", (0.1, 2.0)) == "stock"


def test_a_rival_that_was_not_compared_gives_no_verdict() -> None:
    """The rival's figures are shown without a difference."""
    summaries = summarise(
        [result(n, policy, 1, 50.0 + n) for n in range(3) for policy in ("ours", "stock")]
    )
    for found in summaries:
        found["against"] = {}
    line = recommend(summaries, policy="ours")[0]
    assert (line.instead_of, line.difference_s, line.difference_interval) == (
        "stock, standbys 1",
        None,
        None,
    )
    assert line.calmer == ""
    assert line.verdict == "keep: no other policy was played under the same conditions"


def test_an_unknown_switch_behind_a_known_one_is_named() -> None:
    """The error lists the known switches."""
    with pytest.raises(ConfigError, match="unknown switch 'fast', known: static, weights, eager"):
        arms(("ours+static+fast",))


def test_a_policy_is_tried_out_with_one_member_and_two_topics() -> None:
    """The trial uses the planner's arguments."""
    asked: list[Any] = []

    def policy(*given: Any, **more: Any) -> Placement:
        asked.append((given, more))
        return Placement({}, {})

    policies._try_out("own", policy)
    [((members, partitions), more)] = asked
    assert [(one.member_id, tuple(one.topics)) for one in members] == [("first", ("source",))]
    assert partitions == {"source": 2, "state": 2}
    assert more == {"replicas": 0, "changelogs": ("state",), "weights": None}


def test_sticky_keeps_the_claims_of_all_topics() -> None:
    """Each number of each topic is kept."""
    claims = {"a-in": [2, 3], "b-in": [0, 1]}
    others = {"a-in": [0, 1], "b-in": [2, 3]}
    members = [
        Member(name, ["a-in", "b-in"], actives=mine, generation=4)
        for name, mine in (("x", claims), ("y", others))
    ]
    found = policies.aiokafka_sticky(
        members, {"b-in": 4, "a-in": 4}, replicas=0, changelogs=(), weights=None
    )
    owned = {name: {t: sorted(n) for t, n in found.actives(name).items()} for name in "xy"}
    assert owned == {"x": claims, "y": others}


def test_a_rival_has_the_figures_of_the_scenarios_that_judge() -> None:
    """The rival was calmer in the scenarios that chose the settings."""

    def rows(ours: float, stock: float) -> list[Any]:
        told = (("ours", ours), ("stock", stock))
        return [result(n, name, 1, stopped) for n in range(3) for name, stopped in told]

    judged = summarise(rows(50.0, 90.0))
    line = recommend(summarise(rows(40.0, 10.0)), policy="ours", judged=judged)[0]
    assert (line.chosen_at, line.unavailable_s_per_partition_p90) == (4.0, 5.0)
    assert line.its_unavailable_s_per_partition_p90 == 9.0
    assert line.difference_s == pytest.approx(-4.0)
