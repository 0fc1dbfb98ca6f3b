"""Choices of a simulation: the other policy, the trial of a policy, and the printed rebalances."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.errors import ConfigError
from faust_assigner.model import Member
from faust_assigner.pipeline.simulate import console, job
from faust_assigner.pipeline.simulate import report as report_module
from faust_assigner.pipeline.simulate.console import EVENTS_PRINTED
from faust_assigner.pipeline.simulate.measured import calibrated
from faust_assigner.pipeline.simulate.policies import Placement, arms
from faust_assigner.pipeline.simulate.request import Request
from faust_assigner.pipeline.simulate.run import Run
from faust_assigner.pipeline.simulate.scenarios import scenario_seed
from faust_assigner.pipeline.simulate.settings import comparable, distribution, recommend, summarise
from faust_assigner.pipeline.simulate.what_if import Change, changed
from faust_assigner.simulation.fleet import Costs, Kind
from tests.unit.pipeline.simulate.test_diary import decided, told
from tests.unit.pipeline.simulate.test_settings import row


def test_of_the_other_policies_the_calmest_is_shown_and_of_equally_calm_ones_the_first() -> None:
    """The name decides only between equals."""
    stopped = {"ours": 50.0, "b": 70.0, "c": 60.0, "d": 60.0, "e": 90.0}
    rows = [row(n, policy, 1, value + n) for n in range(5) for policy, value in stopped.items()]
    line = recommend(summarise(rows), policy="ours")[0]
    assert (line.instead_of, line.difference_s) == ("c, standbys 1", pytest.approx(-1.0))


def no_standbys(*_args: Any, **_said: Any) -> Placement:
    """Return a plan whose standbys are not numbers."""
    return Placement({"first": {"source": [0, 1]}}, {"first": {"state": ["x"]}})


def ends(*_args: Any, **_said: Any) -> Placement:
    """End the process while it plans."""
    raise SystemExit("no plan")


@pytest.mark.parametrize(("name", "said"), [("no_standbys", "ValueError"), ("ends", "no plan")])
def test_a_policy_is_tried_out_with_its_standbys(name: str, said: str) -> None:
    """The message has the policy and the reason in one line."""
    path = f"{__name__}:{name}"
    with pytest.raises(ConfigError, match=rf"^policy '{path}' does not answer as .*{said}"):
        arms((path,))


def test_recorded_rebalances_that_differ_equally_are_printed_by_time() -> None:
    """Groups are recorded one after the other; the first in time are kept."""
    recorded = [
        {
            "ts": f"2026-11-21T03:{number:02d}:00",
            "group_id": group,
            "trigger": "t",
            "policy": "p",
            "standbys": 1,
            **{side: {"rebalances": 1, "moved": 2, "cold_moves": 0} for side in ("predicted", "recorded")},
        }
        for group, first in (("g", 1), ("h", 0))
        for number in range(first, 2 * EVENTS_PRINTED, 2)
    ]  # fmt: skip
    shown: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(console, "show_rows", lambda title, columns, rows: shown.extend(rows))
        console._show_events(recorded)  # type: ignore[arg-type]
    minutes = [(row["group_id"], int(row["ts"][14:16])) for row in shown]
    assert minutes == [("g", n) for n in range(1, 20, 2)] + [("h", n) for n in range(0, 20, 2)]


def test_the_costs_of_the_request_are_those_of_a_changes_effect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The report is the same with and without a folder."""
    asked: list[Any] = []
    costs = Costs(session_timeout_s=7.0, replay_records_per_s=11.0)
    current = SimpleNamespace(group_id="g", decision_id="d", members=(1, 2, 3))
    monkeypatch.setattr(job, "generated", lambda scenario, replicas: (current, scenario.seed))
    monkeypatch.setattr(
        job, "what_if", lambda *given, **named: asked.append((*given, named)) or ["row"]
    )
    request = Request(24, 5, "", replicas=(1,), costs=costs)
    found = job.what_if_here(request, Change(add=2))
    seed = scenario_seed(5, 0)
    assert asked == [(current, Change(add=2), seed, {"replicas": (1,), "costs": costs})]
    assert found == {
        "group_id": "g",
        "decision_id": "d",
        "members": 3,
        "change": {"add": 2, "remove": (), "lose_rack": None},
        "what_if": ["row"],
    }


def test_the_advice_is_about_the_settings_for_all_fleets_and_gives_every_line_its_verdict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Predictions and advice are of the requested group; each line has its own replay."""
    asked: list[Any] = []
    rows = [row(n, p, r, 5.0 + r + n, state=s) for n in range(3) for p in ("ours", "stock")
            for r in (0, 1) for s in ("small", "large")]  # fmt: skip
    facts: Any = SimpleNamespace(of_group=lambda group: f"facts of {group}")
    lines = recommend(summarise(rows), policy="ours")
    lines[-1] = lines[-1]._replace(policy="other", standbys=9)
    replay = [
        {"policy": "ours", "standbys": 0, "predicted": 1},
        {"policy": "other", "standbys": 9, "predicted": 2},
        {"policy": "ours", "standbys": 9, "predicted": 3},
    ]

    def noted(name: str, answer: Any) -> Any:
        return lambda *given: asked.append((name, *given)) or answer

    monkeypatch.setattr(report_module, "_recommended", noted("recommended", lines))
    monkeypatch.setattr(report_module, "_replay", noted("replay", replay))
    monkeypatch.setattr(report_module, "event_rows", noted("events", ["event"]))
    monkeypatch.setattr(
        report_module, "recommend_change", noted("advice", [{"verdict": "keep: x"}])
    )
    request = Request(24, 5, "out", ("ours+static", "stock"), (0, 1), ledgers=("l",), group_id="h")
    run = Run(5)
    found = report_module.report_of(request, run, ("a",), lambda part: [part], facts)  # type: ignore
    mine = "facts of h"
    best = (lines[0].policy, lines[0].standbys)
    assert [each for each in asked if each[0] != "recommended"] == [
        ("replay", run, mine),
        ("events", run, mine, "ours"),
        ("advice", run, mine, "ours", best),
    ]
    settings = found["sim_settings"]
    assert [each["verdict"] for each in settings] == ["keep: x"] * len(lines)
    assert (best, settings[0]["replay"], settings[-1]["replay"]) == (
        ("ours", 0),
        replay[0],
        replay[1],
    )
    assert (found["sim_summary"], found["events"], found["replay"]) == ([None], ["event"], replay)
    assert (found["options"]["shape"], found["advice"]) == (None, [{"verdict": "keep: x"}])


def test_a_distribution_does_not_depend_on_the_order_of_its_rows() -> None:
    """Sums of fractions do: the rows are summed in the order of scenario ids."""
    rows = [row(n, "ours", 1, value) for n, value in enumerate((1e17, 3.0, -1e17, 5.0))]
    mixed = [rows[2], rows[0], rows[1], rows[3]]
    fleets = ("all", "all")
    assert distribution(mixed, fleets) == distribution(rows, fleets)
    assert sum(each.unavailable_s for each in mixed) != sum(each.unavailable_s for each in rows)


def test_the_costs_of_a_report_are_those_of_its_run() -> None:
    """The ledger's measured costs replace those of the request."""
    costs = Costs(session_timeout_s=7.0)
    request = Request(24, 5, "out", ("ours", "stock"), (2, 0), ledgers=("l",), costs=Costs())
    assert report_module._options(request, Run(9, costs=costs), ("a", "b")) == {
        "scenarios": 24,
        "seed": 5,
        "policies": ["ours", "stock"],
        "replicas": [2, 0],
        "ledgers": ["l"],
        "shape": None,
        "costs": vars(costs),
        "measured_costs": ["a", "b"],
    }


def test_a_member_that_returns_under_its_own_id_ends_its_own_absence() -> None:
    """Another member of its rack left earlier and is still away."""
    events = told(
        decided(0, "start", "a", "b", "c"),
        decided(10, "leave", "b", "c"),
        decided(20, "leave", "c"),
        decided(30, "join", "b", "c"),
    )
    assert [(each.at_s, each.kind, each.member_id, each.down_s) for each in events] == [
        (10.0, Kind.LEAVE, "a", 0.0),
        (20.0, Kind.RESTART, "b", 10.0),
    ]


def test_a_member_without_any_sample_is_silent_since_the_last_decision() -> None:
    """Another member has samples to the end."""
    start, gone = decided(0, "start", "a", "b"), decided(100, "leave", "b")
    events = told(start, gone, d0=[("b", 98.0)])
    assert [(each.at_s, each.kind, each.member_id) for each in events] == [(70.0, Kind.CRASH, "a")]


def test_the_summaries_of_a_part_are_of_its_own_scenarios(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows are written once; the number of processes reaches the players."""
    asked: list[Any] = []
    rows = [row(n, "ours", 1, 5.0) for n in range(5)]
    source = SimpleNamespace(split_of=lambda number: None if number == 4 else number % 2)
    run: Any = SimpleNamespace(source=source)
    monkeypatch.setattr(
        job, "play_here", lambda *given, **named: asked.append((given, named)) or rows
    )
    monkeypatch.setattr(job, "put_rows", lambda *given: asked.append(given))
    monkeypatch.setattr(job, "summarise", lambda found: [int(each.scenario_id) for each in found])
    monkeypatch.setattr(job, "_facts_here", lambda *_: "facts")
    monkeypatch.setattr(job, "_simulate", lambda request, progress, facts, play: (facts, play(run)))
    facts, summaries = job.simulate_here(Request(24, 5, "out", jobs=3))  # type: ignore[misc]
    assert [summaries(part) for part in (None, 0, 1)] == [[0, 1, 2, 3, 4], [0, 2], [1, 3]]
    assert asked == [((run, 24), {"jobs": 3}), (rows, "out")]
    assert facts == "facts"


def test_the_longest_session_timeout_of_the_groups_newest_decisions_is_measured() -> None:
    """A group without one, and an older decision, do not count."""
    decisions: Any = [
        {"group_id": group, "session_timeout_s": seconds}
        for group, seconds in (("a", 99.0), ("b", 45.0), ("c", 30.0), ("a", 20.0), ("d", None))
    ]
    costs, measured = calibrated(Costs(), (), decisions)
    assert (costs.session_timeout_s, measured) == (45.0, ("session_timeout_s",))


def test_the_only_rack_of_a_group_cannot_be_lost() -> None:
    """The same holds for its last member, unless another joins."""
    members = [Member(name, ["t"], rack_id="a") for name in ("x", "y")]
    for change in (Change(lose_rack="a"), Change(remove=("x", "y"))):
        with pytest.raises(ConfigError, match=r"^no member would be left in the group$"):
            changed(members, change)
    (new,) = changed(members, Change(add=1, lose_rack="a"))
    assert (new.member_id, new.rack_id, tuple(new.topics)) == ("new-1", None, ("t",))


def test_other_policies_are_those_of_another_name_with_the_same_membership() -> None:
    """Settings of the own policy are no rivals; a longer name is another policy."""
    pairs = [
        ("ours", "ours+weights"),
        ("ours", "stock+static"),
        ("ours", "stock"),
        ("ours", "ours2"),
    ]
    assert [comparable(*pair) for pair in pairs] == [False, False, True, True]
    stopped = {"z": 60.0, "ours2": 10.0, "ours": 50.0, "b": 55.0}
    rows = [row(n, policy, 1, value + n) for n in range(3) for policy, value in stopped.items()]
    summaries = summarise(rows)
    against = {found["policy"]: list(found["against"]) for found in summaries}
    assert against["ours"] == ["b", "ours2", "z"]
    assert recommend(summaries, policy="ours")[0].policy == "ours"
